"""Which tests are of the full tier only, and what covers their kind in the default tier: one table.

``TIERS.md`` is made of it (``pytest tests/test_tiers.py --refresh``), and says how the tiers are run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import settings


@dataclass(frozen=True)
class Row:
    """A test of which some cases, or all, are of the full tier only; ``covered``: by what, in the default tier.

    ``test`` is "file::function", without the file's "test_" and ".py"; a function of "*" is every one of the file.
    ``one_in``: of that many consecutive cases the default tier keeps one, each time the next, so that where a test has
    names times three variants, one in three is each name once. ``keep``: it keeps the cases whose id has this in it.
    """

    test: str
    covered: str
    one_in: int = 0
    keep: str = ""

    def moved(self, nodeids: Sequence[str]) -> Iterator[str]:
        """Those of all collected tests that are of the full tier only."""
        cases = [nodeid for nodeid in nodeids if self._matches(nodeid)]
        for i, nodeid in enumerate(cases):
            kept = self.one_in > 0 and i % self.one_in == i // self.one_in % self.one_in
            if not kept and not (self.keep and self.keep in nodeid.partition("[")[2]):
                yield nodeid

    def _matches(self, nodeid: str) -> bool:
        path, _, function = nodeid.partition("[")[0].partition("::")
        file, _, wanted = self.test.partition("::")
        return path.endswith(f"test_{file}.py") and wanted in ("*", function)

    @property
    def kept(self) -> str:
        """What the default tier has of it."""
        if self.one_in:
            return f"one case in {self.one_in}"
        return f"cases `{self.keep}`" if self.keep else "none"


ROWS: tuple[Row, ...] = ()


def full_only(nodeids: Sequence[str]) -> set[str]:
    """Those of all collected tests that are of the full tier only."""
    return {nodeid for row in ROWS for nodeid in row.moved(nodeids)}


def full_wanted(config: pytest.Config) -> bool:
    """Whether the marks that are asked for include the full tier."""
    return "not full" not in (config.getoption("markexpr") or "")


def examples(count: int) -> int:
    """How many random examples a test draws that draws ``count`` in the full tier."""
    return max(2, count * settings.default.max_examples // 100)


TEXT = """# Tiers of tests

- **default**: `python -m pytest -n 2`, README's second command: at most three minutes on two idle cores. Random tests
  draw a tenth of their examples.
- **full**: `python -m pytest -n 2 -m 'not thorough' --complete`: every test but the thorough ones. `.ci/run` runs it,
  with every extra but torch installed. With `--complete`, a test that is skipped because something is missing fails.
- **thorough**: `python -m pytest -m thorough`: 10,000 random examples of a test. Run it by hand, before a release.

A test or a case that is named on the command line (`file.py::test`) runs whatever its tier. Tests that need a GPU are
not collected where there is none. `--nvrtc 13.0` refuses to run with another NVRTC; `.ci/run` tests what compiles with
13.0 and with the newest.

## Tests of the full tier only

Tests that are marked `full` in their own file are of it too: the report in a browser, and the whole guard. The default
tier has the parts of the report, and a sample of the guard.

| test | in the default tier | what covers its kind there |
|---|---|---|
"""


def markdown() -> str:
    """TIERS.md."""
    return TEXT + "".join(f"| `{row.test}` | {row.kept} | {row.covered} |\n" for row in ROWS)
