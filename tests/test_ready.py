"""Kernels kept ready in the cache: found without being lowered, fallen back to, compiled ahead and announced."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.api import carried, ready
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


# --- Carried by a wheel -----------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a wheel that carries one variant, and an empty cache beside it."""
    spec = gemmgen.parse(TEXT)
    file = tmp_path / "ready" / "sm_90.zip"
    size = carried.write(file, [ready.packed(spec, GUARDED, SM90)])
    assert size == file.stat().st_size and os.listdir(file.parent) == ["sm_90.zip"]
    shutil.rmtree(folder)
    monkeypatch.setattr(carried, "FOLDER", file.parent)
    carried._archive.cache_clear()
    yield file.parent
    carried._archive.cache_clear()


def test_what_a_wheel_carries_is_found_with_no_compiler(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime import build, installed

    monkeypatch.setattr(installed, "nvrtc_identity", lambda: None)
    monkeypatch.setattr(build, "compile_cubin", None)
    kept = ready.Kept(gemmgen.parse("# my own\n" + TEXT), "sm_90")
    assert kept.has(GUARDED) and not kept.has(EXACT) and kept.program is not None
    assert not ready.Kept(gemmgen.parse(TEXT), "sm_89").has(GUARDED)
    assert not ready.Kept(gemmgen.parse(TEXT).replace(unroll=4), "sm_90").has(GUARDED)


def test_a_wheel_of_another_gemmgen_carries_nothing(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "contents", lambda: "other")
    assert ready.find(gemmgen.parse(TEXT), GUARDED, SM90) is None


def test_a_damaged_archive_carries_nothing(wheel: Path) -> None:
    file = wheel / "sm_90.zip"
    data = file.read_bytes()
    for broken in (data[: len(data) // 2], b"", data[:200] + b"\0" * 4000 + data[4200:]):
        file.write_bytes(broken)
        carried._archive.cache_clear()
        assert ready.find(gemmgen.parse(TEXT), GUARDED, SM90) is None


def test_one_that_the_driver_refuses_is_compiled_and_one_line_says_so(
    wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ready.Kept(gemmgen.parse(TEXT), "sm_90")
    assert kept.has(GUARDED)
    again = kept.anew(GUARDED, "main", "no kernel image")
    assert again is not None and again[1].code
    assert capsys.readouterr().err == (
        "gemmgen: small is compiled here, since the kernel that gemmgen carries fails: no kernel image\n"
    )
    assert kept.anew(GUARDED, "main", "again") is None  # it is in the cache now: what fails is the kernel itself
    assert kept.anew(EXACT, "main", "not carried") is None


def test_nothing_is_left_of_an_archive_that_cannot_be_written(tmp_path: Path) -> None:
    def entries() -> Iterator[tuple[str, bytes]]:
        yield "a", b"1"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carried.write(tmp_path / "x.zip", entries())
    assert list(tmp_path.iterdir()) == []


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
