"""The tiers of tests: the table names tests that exist, and what is said of them is current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import ROWS, Row, examples

HERE = Path(__file__).resolve().parent
PAGE = HERE / "TIERS.md"


def functions(file: str) -> set[str]:
    return set(re.findall(r"^def (test_\w+)\(", (HERE / f"test_{file}.py").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.test)
def test_a_row_names_a_test_and_what_covers_it(row: Row) -> None:
    file, _, function = row.test.partition("::")
    assert function == "*" or function in functions(file)
    assert row.one_in != 1
    for covered in re.findall(r"`(\w+)::(\w+)`", row.covered):
        assert covered[1] in functions(covered[0]), covered
    assert row.one_in or "`" in row.covered, "name the test that covers it"


def test_every_row_of_the_table_is_read() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(ROWS) == len(lines) > 10
    assert len({row.test for row in ROWS}) == len(ROWS)


def test_one_case_in_three_is_each_name_once_with_every_variant() -> None:
    cases = [f"tests/test_a.py::test_b[{name}-{variant}]" for name in "uvwxyz" for variant in "123"]
    moved = set(Row("a::test_b", "", one_in=3).moved(cases))
    kept = [case.partition("[")[2][:3] for case in cases if case not in moved]
    assert kept == ["u-1", "v-2", "w-3", "x-1", "y-2", "z-3"]
    assert list(Row("a::test_b", "").moved(cases)) == list(Row("a::*", "").moved(cases)) == cases
    assert list(Row("a::test_other", "").moved(cases)) == []


def test_a_tenth_of_the_examples_or_all() -> None:
    assert examples(100) in (10, 100) and examples(30) in (3, 30) and examples(3) in (2, 3)


@pytest.mark.full
def test_a_missing_package_fails_the_complete_tier(tmp_path: Path) -> None:
    file = tmp_path / "test_missing.py"
    file.write_text("import pytest\ndef test_it():\n    pytest.importorskip('no_such_package')\n", encoding="utf-8")
    plugin = ["-p", "conftest", "--rootdir", str(tmp_path), str(file)]
    for complete, outcome in ((["--complete"], "1 failed"), ([], "1 skipped")):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *plugin, *complete],
            cwd=HERE,
            capture_output=True,
            text=True,
            check=False,
        )
        assert outcome in done.stdout, done.stdout + done.stderr
