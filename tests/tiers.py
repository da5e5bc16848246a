"""Which tests are of the full tier only: the table in TIERS.md, which says what covers each in the default tier."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings


@dataclass(frozen=True)
class Row:
    """A test of which some cases, or all, are of the full tier only; ``covered``: by what, in the default tier.

    ``test`` is "file::function", without the file's "test_" and ".py"; a function of "*" is every one of the file.
    ``one_in``: of that many consecutive cases the default tier keeps one, each time the next, so that where a test has
    names times three variants, one in three is each name once. 0: none.
    """

    test: str
    covered: str
    one_in: int = 0

    @property
    def file(self) -> str:
        """The file's name."""
        return f"test_{self.test.partition('::')[0]}.py"

    def moved(self, nodeids: Sequence[str]) -> Iterator[str]:
        """Those of all collected tests that are of the full tier only."""
        cases = [nodeid for nodeid in nodeids if self._matches(nodeid)]
        for i, nodeid in enumerate(cases):
            if not self.one_in or i % self.one_in != i // self.one_in % self.one_in:
                yield nodeid

    def _matches(self, nodeid: str) -> bool:
        path, _, function = nodeid.partition("[")[0].partition("::")
        file, _, wanted = self.test.partition("::")
        return path.endswith(f"test_{file}.py") and wanted in ("*", function)


ROW = re.compile(r"\| `(?P<test>\w+::[\w*]+)` \| (?:none|one case in (?P<one_in>\d+)) \| (?P<covered>.+) \|")


def rows_of(page: str) -> tuple[Row, ...]:
    """The rows of the table of a page."""
    found = ROW.finditer(page)
    return tuple(Row(m["test"], m["covered"], int(m["one_in"] or 0)) for m in found)


ROWS = rows_of((Path(__file__).resolve().parent / "TIERS.md").read_text(encoding="utf-8"))


def full_only(nodeids: Sequence[str]) -> set[str]:
    """Those of all collected tests that are of the full tier only."""
    by_file: dict[str, list[str]] = {}
    for nodeid in nodeids:
        by_file.setdefault(nodeid.partition("::")[0].rpartition("/")[2], []).append(nodeid)
    return {nodeid for row in ROWS for nodeid in row.moved(by_file.get(row.file, ()))}


def full_wanted(config: pytest.Config) -> bool:
    """Whether the marks that are asked for include the full tier."""
    return "not full" not in (config.getoption("markexpr") or "")


def examples(count: int) -> int:
    """How many random examples a test draws that draws ``count`` in the full tier."""
    return max(2, count * settings.default.max_examples // 100)
