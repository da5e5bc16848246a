"""Kernels kept ready in the cache: found without being lowered, fallen back to, compiled ahead and announced."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.api import ready
from gemmgen.ir.variant import EXACT, GUARDED, GUARDED_UNALIGNED, PADDED
from gemmgen.launch import plan_aligned
from gemmgen.runtime.cache import Cache
from gemmgen.runtime.target import Target

TEXT = "kernel small\ntile block 32x32x8\ntile thread 4x4\nuse coalescing, smem, transposeA, float4\n"
SM90 = Target("cubin", "sm_90")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_was_kept_is_found_without_lowering(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gemmgen.parse(TEXT)
    assert ready.find(spec, GUARDED, SM90) is None
    made = ready.keep(spec, GUARDED, SM90)
    monkeypatch.setattr(sys.modules["gemmgen.lower"], "lower", None)
    found = ready.find(spec, GUARDED, SM90)
    assert found is not None and found.program == made.program
    ir, built = found.part("main")
    assert built.code == made.part("main")[1].code and ir.threads == 64 and not ir.body
    assert ready.find(spec.replace(unroll=4), GUARDED, SM90) is None
    assert ready.find(spec, GUARDED, Target("cubin", "sm_80")) is None
    kept = ready.Kept(spec, "sm_90")
    assert kept.has(GUARDED) and not kept.has(EXACT) and kept.program == made.program


def test_files_of_another_gemmgen_are_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gemmgen.parse(TEXT)
    ready.keep(spec, EXACT, SM90)
    monkeypatch.setattr(ready, "fingerprint", lambda: "other")
    assert ready.find(spec, EXACT, SM90) is None


def test_a_damaged_entry_is_compiled_anew(folder: Path) -> None:
    from gemmgen.runtime.cache import Entry

    spec = gemmgen.parse(TEXT)
    Cache(folder).put(ready.key(spec, EXACT, SM90), Entry({}, b"no pickle"))
    assert ready.find(spec, EXACT, SM90) is None
    assert ready.keep(spec, EXACT, SM90).part("main")[1].code


@pytest.mark.parametrize("size", [(64, 64, 64), (65, 64, 64), (64, 65, 64), (64, 64, 65), (33, 35, 37)])
def test_any_call_is_computed_by_a_warmed_variant(size: tuple[int, int, int]) -> None:
    """Of packed matrices; where the plan of a call wants another variant, a narrower one may be given instead."""
    spec = gemmgen.parse(TEXT)
    _, n, k = size
    strides = ((k, 1), (n, 1), (n, 1))
    for variant in (PADDED, GUARDED_UNALIGNED):
        plan = plan_aligned(spec, size, strides, (0, 0, 0), 1.0, 0.0, variant)
        assert [step.variant for step in plan.steps] == [variant]
        copied = {copy.operand for copy in plan.copies}
        assert copied == (set() if variant != PADDED else {x for x, row in (("A", k), ("B", n)) if row % 4})


def test_compiling_is_announced_only_when_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ready, "SILENT_S", 600.0)
    with ready.announced("quick"):
        pass
    monkeypatch.setattr(ready, "SILENT_S", 0.01)
    said = ""
    with ready.announced("slow"):
        while not said.endswith("\n"):  # it takes as long as the line needs to come
            time.sleep(0.01)
            said += capsys.readouterr().err
    said += capsys.readouterr().err
    assert said.count("\n") == 1 and "compiling the kernel slow" in said and "gemmgen warm" in said


def test_a_narrower_variant_runs_until_the_wanted_one_is_compiled() -> None:
    from gemmgen.runtime.gemm import GpuGemm
    from gemmgen.runtime.views import ArrayView

    spec = gemmgen.parse(TEXT)
    there: set[Any] = set()
    gemm = GpuGemm(spec, lambda *a: None, compiled=there.__contains__)  # type: ignore[arg-type, return-value]

    def view(rows: int, columns: int) -> ArrayView:
        return ArrayView(1 << 20, (rows, columns), (columns, 1), "float32", 0, False, "cuda", None)

    def variant(m: int, n: int, k: int) -> Any:
        c = view(m, n)._replace(address=1 << 30)
        views = {"A": view(m, k), "B": view(k, n)._replace(address=1 << 25), "C": c}
        return gemm._decide(views, 1.0, 0.0, None).steps[0].variant

    assert variant(64, 64, 64) == EXACT and variant(64, 64, 65) not in (GUARDED, GUARDED_UNALIGNED)
    there.add(GUARDED_UNALIGNED)
    assert variant(64, 64, 64) == variant(64, 64, 65) == GUARDED_UNALIGNED
    there.add(GUARDED)
    assert variant(64, 64, 64) == GUARDED and variant(64, 64, 65) == GUARDED_UNALIGNED
    there.add(EXACT)
    assert variant(64, 64, 64) == EXACT
