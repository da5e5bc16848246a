"""The committed CUDA of every spec is what the specs make: ``pytest --refresh`` writes it anew."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from gemmgen.cuda.emit import emit_cuda
from gemmgen.launch import VARIANTS
from gemmgen.lower import lower
from gemmgen.spec.parse import load

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "generated"
SPECS = sorted((ROOT / "specs").glob("*.gemm"))
FILES = {
    f"{spec.stem}{suffix}.cu": (spec, variant)
    for spec in SPECS
    for suffix, variant in (("", "exact"), ("_guarded", "guarded"))
}


@pytest.mark.parametrize("name", FILES)
def test_generated_file(name: str, refresh: bool) -> None:
    spec, variant = FILES[name]
    text = emit_cuda(lower(load(spec), VARIANTS[variant]))
    path = GENERATED / name
    if refresh:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.is_file(), f"{path} is missing: run pytest --refresh {Path(__file__).name}"
    assert path.read_bytes().decode() == text, f"{path.name} is not what {spec.name} makes: if that is meant, --refresh"


def test_there_is_no_other_generated_file() -> None:
    assert {path.name for path in GENERATED.glob("*.cu")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_generated_text_is_tidy(name: str) -> None:
    lines = (GENERATED / name).read_text(encoding="utf-8").split("\n")
    assert lines[-1] == "" and lines[-2] == "}"
    for number, line in enumerate(lines, 1):
        assert line == line.rstrip() and "\t" not in line, f"line {number} has white space at its end or a tab"
        assert len(line) <= 120, f"line {number} has {len(line)} columns"
        code = line.partition("//")[0]
        for noise in (" 0 + ", "[0 + ", "(0 + ", " + 0]", " + 0;", " * 1;", " * 1 ", " * 1)", "((", "#include"):
            assert noise not in code or line.lstrip().startswith("static_assert"), f"line {number}: {noise!r} in {code}"
    for first, second in pairwise(lines):
        assert first or second, "two empty lines"
