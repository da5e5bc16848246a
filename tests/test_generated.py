"""The committed CUDA of every spec is what the specs make: ``pytest --refresh`` writes it anew."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from gemmgen.cuda.emit import emit_cuda
from gemmgen.launch import VARIANTS, kernel_of
from gemmgen.lower import lower
from gemmgen.spec.parse import load

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "generated"
SPECS = sorted((ROOT / "specs").glob("*.gemm"))
FILES = {
    f"{spec.stem}{suffix}.cu": (spec, variant, second)
    for spec in SPECS
    for suffix, variant, second in (("", "exact", False), ("_guarded", "guarded", False), ("_reduce", "exact", True))
    if not second or load(spec).split_k > 1
}


@pytest.mark.parametrize("name", FILES)
def test_generated_file(name: str, refresh: bool) -> None:
    spec, variant, second = FILES[name]
    ir = lower(load(spec), VARIANTS[variant])
    text = emit_cuda(kernel_of(ir, "then" if second else "main"))
    path = GENERATED / name
    if refresh:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.is_file(), f"{path} is missing: run pytest --refresh {Path(__file__).name}"
    assert path.read_bytes().decode() == text, f"{path.name} is not what {spec.name} makes: if that is meant, --refresh"


def test_one_reduction_serves_the_exact_and_the_guarded_kernel() -> None:
    for spec in (load(path) for path in SPECS):
        exact, guarded = (lower(spec, VARIANTS[name]).then for name in ("exact", "guarded"))
        assert (exact is None) == (spec.split_k == 1)
        if exact is not None and guarded is not None:
            assert emit_cuda(exact) == emit_cuda(guarded)


def test_there_is_no_other_generated_file() -> None:
    assert {path.name for path in GENERATED.glob("*.cu")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_generated_text_is_tidy(name: str) -> None:
    lines = (GENERATED / name).read_text(encoding="utf-8").split("\n")
    assert lines[-1] == "" and lines[-2] == "}"
    for number, line in enumerate(lines, 1):
        assert line == line.rstrip() and "\t" not in line, f"line {number} has white space at its end or a tab"
        assert len(line) <= 120, f"line {number} has {len(line)} columns"
        code = line.partition("//")[0].replace("((unsigned int)", "(")
        code = re.sub(r"\(\((?=[^()]*\) \^)|(?<=\^ )\(\(", "(", code)  # sums and remainders around an exclusive or
        for noise in (" 0 + ", "[0 + ", "(0 + ", " + 0]", " + 0;", " * 1;", " * 1 ", " * 1)", "((", "#include"):
            assert noise not in code or line.lstrip().startswith("static_assert"), f"line {number}: {noise!r} in {code}"
    for first, second in pairwise(lines):
        assert first or second, "two empty lines"
