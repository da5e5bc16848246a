"""A quick look at a GPU machine: each step says what it found or how it failed, and the next goes on.

python tests/gpu/smoke.py [SIZE]        SIZE of the benchmark, 4096 by default; 0 for none
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import gemmgen  # noqa: E402 - the checkout, wherever this is started
from gemmgen.spec.ladder import LADDER  # noqa: E402


def kernel(name: str) -> Any:
    return gemmgen.compile(gemmgen.load(ROOT / "specs" / f"{name}.gemm"), device="cuda")


def versions() -> str:
    names = ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy", "torch", "cupy-cuda13x", "nvmath-python")
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} -")
    return ", ".join(found)


def gpu() -> str:
    from gemmgen.runtime import device

    return str(device.required())


def nvrtc() -> str:
    from gemmgen.runtime import nvrtc as compiler
    from gemmgen.runtime.installed import nvrtc_identity

    return f"{compiler.version()}, {nvrtc_identity()}, {compiler.supported_archs()}"


def numpy_call() -> str:
    rng = np.random.default_rng(0)
    said = []
    for name in LADDER:
        for m, n, k in ((256, 256, 64), (129, 131, 33)):
            a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n)))
            verdict = gemmgen.verify(kernel(name)(a, b), a, b)
            if not verdict.ok:
                said.append(f"{name} {m}x{n}x{k}: {verdict}")
    if said:
        raise AssertionError("\n".join(said))
    return "right for every rung"


def torch_call() -> str:
    import torch

    a, b, c = (torch.randn(s, device="cuda") for s in ((130, 70), (70, 90), (130, 90)))
    assert kernel("warptile")(a, b, c) is c
    error = (c - a @ b).abs().max().item()
    assert error < 1e-4, error
    return f"in place, largest difference from torch {error:.2g}"


def graph_capture() -> str:
    import torch

    a, b, c = (torch.randn(s, device="cuda") for s in ((128, 64), (64, 128), (128, 128)))
    made = kernel("warptile")
    made(a, b, c)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made(a, b, c)
    c.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert (c - a @ b).abs().max().item() < 1e-4
    return "captured and replayed"


def microseconds(run: Callable[[], Any]) -> float:
    import torch

    best = float("inf")
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            run()
        best = min(best, (time.perf_counter() - start) / 200)
    return best * 1e6


def call_cost() -> str:
    """Host time of a whole call and of its parts, and of cuda.core's own launch for comparison."""
    import torch
    from cuda.core import Device, LaunchConfig, launch

    from gemmgen.runtime.arrays import current_stream, torch_matrices, view
    from gemmgen.runtime.driver import is_current

    a, b, c = (torch.randn(s, device="cuda") for s in ((128, 16), (16, 128), (128, 128)))
    made = kernel("warptile")
    made(a, b, c)
    inner = made._gemm
    (prepared,) = inner._prepared.values()
    (bound,) = prepared.launches
    addresses = [x.data_ptr() for x in (a, b, c)]
    module, stream = bound.module, current_stream(a)
    config = LaunchConfig(grid=bound.grid, block=module.threads)
    m, n, k = (np.int32(x) for x in (128, 128, 16))
    one, lead, deep = np.float32(1), np.uint64(128), np.uint64(16)
    at = Device().default_stream
    values = (m, n, k, one, addresses[0], deep, addresses[1], lead, np.float32(0), addresses[2], lead)
    costs = {
        "call": lambda: made(a, b, c),
        "call without the kernel object": lambda: inner(a, b, c),
        "launch": lambda: bound(*addresses, 0, stream),
        "cuda.core launch": lambda: launch(at, config, module._kernel, *values),
        "three views": lambda: (view(a), view(b), view(c)),
        "what tells calls apart": lambda: torch_matrices(a, b, c),
        "call with a new C": lambda: made(a, b),
        "current stream": lambda: current_stream(a, b, c),
        "current device": lambda: is_current(0),
    }
    return ", ".join(f"{name} {microseconds(run):.1f} us" for name, run in costs.items())


def cublas() -> str:
    from gemmgen.runtime import device
    from gemmgen.runtime.baseline import Cublas

    found = Cublas(device.required())
    found.close()
    return found.description


def benchmark(size: int, warm: bool) -> str:
    from gemmgen.runtime import device
    from gemmgen.runtime.baseline import BaselineError, Cublas
    from gemmgen.runtime.timing import KernelSide, bench

    sides: list[Any] = [KernelSide(name, kernel(name)) for name in LADDER]
    try:
        sides.append(Cublas(device.required()))
    except BaselineError as e:
        print(f"  no baseline: {e}")
    start = time.perf_counter()
    found = bench(sides, (size, size, size), warm=warm)
    last = found.timings[-1].median_s
    lines = [
        f"  {t.name:16s} {t.median_s * 1e3:10.4f} ms {t.gflops(size, size, size):9.0f} GFLOP/s "
        f"{last / t.median_s:6.1%} of {found.timings[-1].name}, spread {t.spread:.1%}, {t.samples} x {t.launches}"
        for t in found.timings
    ]
    took = time.perf_counter() - start
    return "\n".join([f"{found.method}, {found.buffers} sets, took {took:.1f} s, {found.checks[-1].how}", *lines])


def step(name: str, run: Callable[[], str]) -> bool:
    start = time.perf_counter()
    try:
        said = run()
    except BaseException as e:
        print(f"FAIL {name}: {type(e).__name__}: {e}\n{traceback.format_exc(limit=-6)}", flush=True)
        return False
    print(f"ok   {name} ({time.perf_counter() - start:.1f} s): {said}", flush=True)
    return True


def main() -> int:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    steps: list[tuple[str, Callable[[], str]]] = [
        ("versions", versions), ("gpu", gpu), ("nvrtc", nvrtc), ("numpy", numpy_call), ("torch", torch_call),
        ("graph", graph_capture), ("cost of a call", call_cost), ("cublas", cublas),
        ("bench 1024", lambda: benchmark(1024, False)),
    ]  # fmt: skip
    if size:
        steps += [(f"bench {size}", lambda: benchmark(size, False)), (f"warm {size}", lambda: benchmark(size, True))]
    failed = [name for name, run in steps if not step(name, run)]
    print(f"{len(steps) - len(failed)} of {len(steps)} steps went well{': not ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
