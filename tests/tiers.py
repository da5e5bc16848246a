"""Which tests are of the full tier only, and what covers their kind in the default tier: one table.

The default tier is ``pytest``; the full tier ``pytest -m 'not thorough'``; the thorough one ``pytest -m thorough``.
``TIERS.md`` is this table as text (``pytest tests/test_tiers.py --refresh`` writes it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import pytest
from hypothesis import settings


@dataclass(frozen=True)
class Row:
    """A test that is moved to the full tier, but for the cases whose id matches ``keep``; ``covered``: by what, there.

    ``test`` is "file::function" without the file's "test_" and ".py"; a function of "*" is all of the file.
    """

    test: str
    covered: str
    keep: str | None = None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        file, _, function = self.test.partition("::")
        name = r"\w+" if function == "*" else re.escape(function)
        return re.compile(rf"(?:.*/)?test_{re.escape(file)}\.py::{name}(?:\[(?P<case>.*)\])?", re.DOTALL)

    def matches(self, nodeid: str) -> bool:
        return self._pattern.fullmatch(nodeid) is not None

    def moves(self, nodeid: str) -> bool:
        """Whether this test or case is of the full tier only."""
        found = self._pattern.fullmatch(nodeid)
        if found is None:
            return False
        return self.keep is None or re.fullmatch(self.keep, found["case"] or "") is None


def full_wanted(config: pytest.Config) -> bool:
    """Whether the marks that are asked for include the full tier."""
    return "not full" not in (config.getoption("markexpr") or "")


def examples(count: int) -> int:
    """How many random examples a test draws that takes ``count`` in the full tier."""
    return max(2, count * settings.default.max_examples // 100)


ROWS: tuple[Row, ...] = ()


def markdown() -> str:
    """The table of tests that are of the full tier only."""
    lines = ["| test | default tier has | what covers its kind there |", "|---|---|---|"]
    for row in ROWS:
        kept = "nothing of it" if row.keep is None else f"cases `{row.keep}`".replace("|", r"\|")
        lines.append(f"| `{row.test}` | {kept} | {row.covered} |")
    return "\n".join(lines)
