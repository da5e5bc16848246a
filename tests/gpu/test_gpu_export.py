"""An exported project on the GPU: right at every size by its own check, and as fast as gemmgen's own launches."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from exporthelp import build_project, headers, missing_to_build
from gpu_support import kernel, torch

import gemmgen

pytestmark = pytest.mark.skipif(missing_to_build() is not None, reason=str(missing_to_build()))
FIXTURES = Path(__file__).parent.parent / "fixtures" / "valid"
RUNGS = ("warptile", "splitk", "tma", "pipelined")
OTHERS = (
    "pipeline_atomics_early", "pipeline_cluster_tma", "pipeline_persistent_tma", "types_bf16_split",
    "types_f16_stagec_larger", "types_bf16_tma_swizzle", "pipeline_dependent", "pipeline_lanes_rows", "mma_bf16",
    "mma_e4m3", "mma_tf32", "epilogue_chain", "wgmma_store", "wgmma_roles",
)  # fmt: skip
SIZE = (4096, 4096, 4096)
SLOWER = 1.02
HOST_US = 5.0

RUNTIME = """
#include <cuda_runtime.h>
#include <rungs/rungs.hpp>
#include <cstdio>
#include <vector>
int main() {
    const int M = 300, N = 200, K = 100;
    float *a, *b, *c;
    cudaMalloc(&a, 4 * M * K); cudaMalloc(&b, 4 * K * N); cudaMalloc(&c, 4 * M * N);
    std::vector<float> ones(M * K, 1.0f), out(M * N);
    cudaMemcpy(a, ones.data(), 4 * M * K, cudaMemcpyHostToDevice);
    cudaMemcpy(b, ones.data(), 4 * K * N, cudaMemcpyHostToDevice);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    rungs::splitk::Arguments args;
    args.M = M; args.N = N; args.K = K; args.A = a; args.B = b; args.C = c; args.stream = stream;
    std::size_t bytes = 0;
    rungs::rt::Status status = rungs::splitk::workspace_bytes(args, bytes);
    const rungs::rt::Status without = rungs::splitk::gemm(args);
    std::printf("%d %s\\n", without.code, without.message.c_str());
    cudaMalloc(&args.workspace, bytes);
    args.workspace_bytes = bytes;
    status = rungs::splitk::prepare();
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    if (status) status = rungs::splitk::gemm(args);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphLaunch(ready, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(out.data(), c, 4 * M * N, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (float x : out) wrong += x != 100.0f;
    std::printf("%d %s %d wrong\\n", status.code, status.message.c_str(), wrong);
}
"""


@pytest.fixture(scope="module")
def rungs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "rungs"
    gemmgen.export([gemmgen.load(name) for name in RUNGS], folder)
    return build_project(folder, "-DCMAKE_BUILD_TYPE=Release")


def test_rungs_are_right_at_every_size(rungs: Path) -> None:
    done = subprocess.run([rungs / "rungs_check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "FAIL" not in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("PASS") == 8 * len(RUNGS)


def test_clusters_atomics_types_and_tensor_cores_are_right(tmp_path: Path) -> None:
    files = {name: FIXTURES / f"{name}.gemm" for name in OTHERS}
    loaded = {name: gemmgen.load(file if file.is_file() else name) for name, file in files.items()}
    specs = [spec.replace(name=name) for name, spec in loaded.items()]
    gemmgen.export(specs, tmp_path / "others")
    done = subprocess.run(
        [build_project(tmp_path / "others") / "others_check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_as_fast_as_gemmgens_own_launches(rungs: Path) -> None:
    """Medians of alternating runs: on the GPU, and of the host for each call."""
    text = "x".join(map(str, SIZE))
    seen: dict[str, list[float]] = {}
    own: dict[str, list[float]] = {}
    host: list[float] = []
    for _ in range(5):
        said = subprocess.run(
            [rungs / "rungs_check", "--time", text], capture_output=True, text=True, check=True
        ).stdout
        for name, gpu, cpu in re.findall(r"TIME (\w+) \S+: ([\d.]+) us on the GPU, ([\d.]+) us", said):
            seen.setdefault(name, []).append(float(gpu))
            host.append(float(cpu))
        for name in RUNGS:
            own.setdefault(name, []).append(_own_us(name))
    for name in RUNGS:
        assert _median(seen[name]) < SLOWER * _median(own[name]), (name, seen, own)
    assert _median(host) < HOST_US


def _own_us(name: str) -> float:
    t = torch()
    m, n, k = SIZE
    a, b, c = (t.randn(shape, device="cuda") for shape in ((m, k), (k, n), (m, n)))
    call = kernel(name)
    for _ in range(5):
        call(a, b, c)
    start, end = t.cuda.Event(enable_timing=True), t.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(100):
        call(a, b, c)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 10


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


@pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is not installed: no program of the CUDA runtime is built"
)
def test_beside_the_cuda_runtime_and_in_a_graph(rungs: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text(RUNTIME)
    include, library = rungs.parent / "rungs" / "include", rungs / "librungs.a"
    command = ["nvcc", "-std=c++17", f"-I{include}", tmp_path / "main.cu", library, "-o", tmp_path / "main"]
    subprocess.run([str(x) for x in command], check=True)
    refused, last = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert refused.startswith("1 splitk needs a workspace of ") and last == "0  0 wrong"


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not installed")
def test_no_access_outside_the_operands(rungs: Path) -> None:
    done = subprocess.run(["compute-sanitizer", rungs / "rungs_check"], capture_output=True, text=True, check=False)
    assert "ERROR SUMMARY: 0 errors" in done.stdout, done.stdout[-3000:]


def test_headers_come_with_the_toolkit_or_a_package() -> None:
    assert headers() is not None
