"""CUTLASS as a baseline, without a GPU: what is compiled, and what is said where it cannot be."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import gemmgen
from gemmgen.report.bench import Comparison, comparison_table, settings_beside
from gemmgen.runtime import cutlass
from gemmgen.runtime.baseline import BaselineError
from gemmgen.runtime.check import Checked
from gemmgen.runtime.timing import Bench, Timing

VERSION = "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 1\n"


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with as much of CUTLASS as is looked at, and a cache of its own."""
    include = tmp_path / "cutlass" / "include"
    (include / "cutlass" / "gemm" / "device").mkdir(parents=True)
    (include / "cutlass" / "gemm" / "device" / "gemm.h").write_text("")
    (include / "cutlass" / "version.h").write_text(VERSION)
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path / "cutlass"))
    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(tmp_path / "cache"))
    return include


def compiler(folder: Path, script: str) -> Path:
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


PLAYED = 'echo "$@" >> "$(dirname "$0")/log"; while [ "$1" != -o ]; do shift; done; echo made > "$2"'


def test_without_cutlass_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cutlass, "find_spec", lambda name: None)
    monkeypatch.delenv("CUTLASS_PATH", raising=False)
    with pytest.raises(BaselineError, match=r"needs CUTLASS: pip install 'gemmgen\[cutlass\]'.*CUTLASS_PATH.*nvcc"):
        cutlass.include_folder()
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    with pytest.raises(BaselineError, match="looked in"):
        cutlass.include_folder()


def test_without_nvcc_the_message_says_so(headers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutlass, "find_tool", lambda name: None)
    with pytest.raises(BaselineError, match="needs nvcc"):
        cutlass.build(cutlass.SMALL, "sm_90")


def test_a_kernel_is_compiled_once(headers: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = compiler(tmp_path, PLAYED)
    monkeypatch.setattr(cutlass, "find_tool", lambda name: nvcc)
    version, library = cutlass.build(cutlass.SMALL, "sm_90")
    assert version == "4.2.1" and library.read_text() == "made\n"
    assert cutlass.build(cutlass.SMALL, "sm_90")[1] == library != cutlass.build(cutlass.LARGE, "sm_90")[1]
    calls = (tmp_path / "log").read_text().splitlines()
    assert len(calls) == 2 and "-arch=sm_90" in calls[0] and f"-I{headers}" in calls[0]


def test_what_nvcc_says_is_passed_on(headers: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = compiler(tmp_path, 'echo "gemm.cu(7): error: no such thing" >&2; exit 2')
    monkeypatch.setattr(cutlass, "find_tool", lambda name: nvcc)
    with pytest.raises(BaselineError, match=r"status 2\): gemm.cu\(7\): error: no such thing"):
        cutlass.build(cutlass.SMALL, "sm_90")
    assert not list((tmp_path / "cache").glob("*.so"))


def test_the_text_instantiates_the_template_it_shows() -> None:
    text = cutlass.LARGE.source
    assert "GemmShape<256, 128, 8>" in text and "GemmShape<64, 64, 8>" in text and "<8>, 4>" in text
    assert "{{" not in text and "OpClassSimt" in text
    assert cutlass.template_for((4096, 4096, 4096)) == cutlass.LARGE
    assert cutlass.template_for((16, 4096, 4096)) == cutlass.SMALL


def test_its_parameters_stand_beside_the_settings() -> None:
    spec = gemmgen.parse(
        "kernel one\ntile block 128x128x16\ntile warp 64x64\ntile thread 8x4\n"
        "use coalescing, smem, transposeA, float4, warptile\nstages 2\n"
    )
    template = cutlass.SMALL.to_dict()
    rows = [line.split() for line in settings_beside([spec], template).splitlines()]
    assert ["tile", "block", "[ThreadblockShape]", "128x128x16", "128x128x8"] in rows
    assert ["tile", "warp", "[WarpShape]", "64x64", "32x64x8"] in rows
    assert ["stages", "[kStages]", "2", "4"] in rows
    timings = tuple(Timing(name, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 5, 3) for name in ("one", "cutlass"))
    right = Checked(True, 0.0, (0, 0), 0.0, 0.0, 1.0, "all")
    done = Bench((64, 64, 64), 1.0, 0.0, False, 2, 9, "graph", timings, (right, right))
    found = Comparison(done, "CUTLASS 4.2.1 SGEMM", (spec,), template)
    assert "ThreadblockShape" in comparison_table(found)
    assert found.to_dict()["baseline"]["template"]["kStages"] == 4
    assert "ThreadblockShape" not in comparison_table(Comparison(done, "cuBLAS"))
