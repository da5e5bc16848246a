"""The exported launcher on a driver that prints what it is told: launches, tensor maps, and what it cannot run on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from exporthelp import COMPILER, headers, missing_to_build, uncompiled

import gemmgen
from gemmgen.export.project import project_files

pytestmark = pytest.mark.skipif(missing_to_build() is not None, reason=str(missing_to_build()))

FAKE = Path(__file__).parent / "host_cuda" / "fake_libcuda.cpp"
SPLIT, TMA = "kernel split\ntile block 64x64x16\ntile thread 8x4\nuse coalescing, smem, float4\nsplit_k 4\n", "tma"
MAIN = """
#include <planned/split_0.hpp>
#include <planned/tma_1.hpp>
#include <cstdio>
#include <cstdlib>
using namespace planned;
template <class Arguments> Arguments sized(int m, int n, int k) {
    Arguments a;
    a.M = m; a.N = n; a.K = k;
    a.A = reinterpret_cast<float*>(1 << 20); a.B = reinterpret_cast<float*>(1 << 24);
    a.C = reinterpret_cast<float*>(1 << 28); a.workspace = reinterpret_cast<void*>(1 << 29);
    return a;
}
int main(int, char** given) {
    auto split = sized<split_0::Arguments>(100, 200, 300);
    rt::Status status = split_0::workspace_bytes(split, split.workspace_bytes);
    if (status) status = split_0::gemm(split);
    std::printf("%d %s\\n", status.code, status.message.c_str());
    if (std::atoi(given[1])) {
        auto tma = sized<tma_1::Arguments>(256, 128, 64);
        tma.lda = 96;
        for (int i = 0; i < 2; ++i) status = tma_1::gemm(tma);
        std::printf("%d %s\\n", status.code, status.message.c_str());
    }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of two specs beside the driver that it is to find."""
    folder = tmp_path_factory.mktemp("launcher")
    made = uncompiled([gemmgen.parse(SPLIT), gemmgen.load(TMA)])
    for path, data in project_files(made, "planned", "planned").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data.replace(b"cubin0[] = {\n0,", b"cubin0[] = {\n127,69,76,70,"))
    (folder / "main.cpp").write_text(MAIN)
    base = [str(COMPILER), "-std=c++17", "-Wall", "-Werror", f"-I{headers()}", f"-I{folder / 'include'}"]
    sources = [folder / "main.cpp", *(folder / "src" / f"{x.name}.cpp" for x in made)]
    subprocess.run([*base, *map(str, sources), "-ldl", "-o", str(folder / "main")], check=True)
    subprocess.run([*base, "-shared", "-fPIC", str(FAKE), "-o", str(folder / "libcuda.so.1")], check=True)
    return folder / "main"


def said(program: Path, gpu: str, tma: bool = False) -> list[str]:
    env = {**os.environ, "LD_LIBRARY_PATH": str(program.parent), "FAKE_CUDA": gpu}
    done = subprocess.run([program, str(int(tma))], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_both_kernels_of_split_k_are_launched_and_loaded_once(program: Path) -> None:
    lines = said(program, "90")
    launches = [line for line in lines if line.startswith("launch")]
    assert launches == [
        "launch split_0_guarded grid 4 2 4 block 128 shared 0 attributes 0 M 100 N 200",
        "launch split_0_exact_reduce grid 100 1 1 block 256 shared 0 attributes 0 M 100 N 200",
    ]
    assert sum(line.startswith("load") for line in lines) == 2 and lines[-1] == "0 "


def test_tensor_maps_and_shared_memory_are_asked_for(program: Path) -> None:
    """A has rows of 96 elements, of which 64 are read; more than 48 KB of shared memory are asked for once."""
    lines = said(program, "90", tma=True)
    after = lines[lines.index("0 ") + 1 :]
    assert after.count("map 64x256 pitch 384 box 32x128") == 2 and after.count("map 128x64 pitch 512 box 128x32") == 2
    shared = [line for line in after if line.startswith("shared")]
    assert shared == ["shared 65552"] and after.count("load cubin") == 1
    launch = "launch tma_1_exact grid 1 2 1 block 128 shared 65552 attributes 0 M 256 N 128"
    assert after.count(launch) == 2 and after[-1] == "0 "


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ("old", "801 the CUDA driver is too old; this code needs one for CUDA 12.0 or newer"),
        (
            "none",
            "201 no CUDA context is current: call cudaSetDevice or cuCtxSetCurrent first; cuCtxGetDevice failed: "
            "CUDA_ERROR_INVALID_CONTEXT (as the fake says)",
        ),
        (
            "80",
            "209 split_0 was compiled for sm_90, and this GPU has compute capability 8.0; export it with --arch sm_80",
        ),
    ],
)
def test_a_gpu_or_driver_that_does_not_fit_is_said(program: Path, gpu: str, message: str) -> None:
    assert said(program, gpu) == [message]


def test_a_newer_gpu_gets_the_ptx(program: Path) -> None:
    assert said(program, "100")[0] == "load ptx"
