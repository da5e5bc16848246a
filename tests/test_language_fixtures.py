"""Every spec in fixtures/valid is one, and every spec in fixtures/invalid is refused with the message beside it.

``pytest --refresh`` writes the messages anew; look at what changed before you commit it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmgen.diagnostics import SpecError
from gemmgen.spec.parse import parse

FIXTURES = Path(__file__).parent / "fixtures"
VALID = sorted((FIXTURES / "valid").glob("*.gemm"))
INVALID = sorted((FIXTURES / "invalid").glob("*.gemm"))


def refusal(path: Path) -> SpecError:
    with pytest.raises(SpecError) as info:
        parse(path.read_text(encoding="utf-8"), path.name)
    return info.value


@pytest.mark.parametrize("path", VALID, ids=lambda p: p.stem)
def test_valid_spec_round_trips(path: Path) -> None:
    spec = parse(path.read_text(encoding="utf-8"), path.name)
    again = parse(spec.to_text())
    assert again == spec
    assert again.comment == spec.comment
    assert again.to_text() == spec.to_text()
    assert parse(spec.to_text(comment=False)) == spec


@pytest.mark.parametrize("path", INVALID, ids=lambda p: p.stem)
def test_invalid_spec_is_refused_with_its_message(path: Path, refresh: bool) -> None:
    message = str(refusal(path)) + "\n"
    expected = path.with_suffix(".txt")
    if refresh:
        expected.write_text(message, encoding="utf-8", newline="\n")
    assert message == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", INVALID, ids=lambda p: p.stem)
def test_every_error_has_a_place_and_no_lark(path: Path) -> None:
    error = refusal(path)
    assert not re.search(r"\blark\b|Token\(|\$END", str(error))
    assert error.__cause__ is None
    for one in error.errors:
        assert one.filename == path.name
        assert one.line is not None and one.column is not None
        assert f"{path.name}:{one.line}:{one.column}: error: {one.message}" in str(error)
        assert "^" in str(one).splitlines()[-1]


def test_no_expected_message_is_left_over() -> None:
    assert {p.stem for p in (FIXTURES / "invalid").glob("*.txt")} == {p.stem for p in INVALID}
