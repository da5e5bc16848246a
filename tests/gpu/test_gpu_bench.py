"""The benchmark and its baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_support import kernel, torch

from gemmgen.diagnostics import ArgumentError
from gemmgen.runtime import device
from gemmgen.runtime.baseline import BaselineError, Cublas
from gemmgen.runtime.driver import call, on_device, private_stream
from gemmgen.runtime.memory import DeviceArray
from gemmgen.runtime.timing import KernelSide, Plan, WrongResult, bench

QUICK = Plan(samples=5, sample_s=0.002, warm_up_s=0.02)


@pytest.fixture(scope="module")
def cublas() -> Any:
    try:
        found = Cublas(device.required())
    except BaselineError as e:
        if "cuBLAS needs" in str(e):
            pytest.skip(str(e))
        raise
    yield found
    found.close()


def on_gpu(values: Any) -> DeviceArray:
    found = DeviceArray.empty(values.shape, "float32", device.required().ordinal)
    found.set(values.astype(np.float32))
    return found


def run(side: Any, a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
    here = device.required()
    x, y, z = on_gpu(a), on_gpu(b), on_gpu(c)
    with on_device(here.ordinal):
        side.enqueue(x, y, z, alpha, beta, private_stream(here.ordinal))
    return z.numpy()


def test_g26_a_the_baseline_computes_in_float32(cublas: Cublas) -> None:
    value = np.float32(1 + 2**-12)
    a, b = np.full((16, 16), value), np.eye(16)
    assert (run(cublas, a, b, np.zeros((16, 16)), 1.0, 0.0) == 1.000244140625).all()
    assert (run(KernelSide("warptile", kernel("warptile")), a, b, np.zeros((16, 16)), 1.0, 0.0) == 1.000244140625).all()
    assert "TF32 off" in cublas.description


@pytest.mark.parametrize(("m", "n", "k"), [(256, 128, 64), (64, 256, 128), (1, 300, 7), (300, 1, 7), (5, 6, 1)])
def test_g26_b_leading_dimensions_are_right_where_sizes_differ(cublas: Cublas, m: int, n: int, k: int) -> None:
    rows, columns = np.arange(1.0, m + 1)[:, None], np.arange(1.0, n + 1)[None, :]
    a, b = np.broadcast_to(rows, (m, k)), np.broadcast_to(columns, (k, n))
    want = k * rows * columns + 2
    assert (run(cublas, a, b, np.ones((m, n)), 1.0, 2.0) == want).all()
    assert (run(KernelSide("warptile", kernel("warptile")), a, b, np.ones((m, n)), 1.0, 2.0) == want).all()


@pytest.mark.parametrize("fails", [True, False])
def test_g26_a_failed_baseline_ends_the_comparison(
    cublas: Cublas, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> None:
        """Fails, or writes nothing."""
        if fails:
            raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(cublas, "_library", replace(cublas._library, sgemm=broken))
    with pytest.raises(BaselineError, match="failed at 128x128x64" if fails else "cublas is wrong at 128x128x64"):
        bench([KernelSide("warptile", kernel("warptile")), cublas], (128, 128, 64), plan=QUICK)


def test_g26_tf32_is_found_out(cublas: Cublas, monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(stream: int, handle: int, *arguments: Any) -> None:
        """What TF32 makes of (1 + 2^-12) times the identity: 1.0 everywhere."""
        call("cuMemsetD32Async", arguments[-2], 0x3F800000, 16 * 16, stream)

    monkeypatch.setattr(cublas, "_library", replace(cublas._library, sgemm=rounded))
    with on_device(cublas.device.ordinal), pytest.raises(BaselineError, match="does not compute in float32"):
        cublas._refuse_tf32()


def test_kernels_and_baseline_are_timed_in_one_run(cublas: Cublas) -> None:
    sides = [KernelSide(name, kernel(name)) for name in ("vectorized", "warptile")]
    found = bench([*sides, cublas], (1024, 1024, 1024), plan=QUICK)
    assert found.method == "graph" and found.buffers > 1
    assert found.rotated_bytes >= 2 * device.required().l2_bytes
    assert [t.name for t in found.timings] == ["vectorized", "warptile", "cublas"]
    for t in found.timings:
        assert 0 < t.min_s <= t.low_s <= t.median_s <= t.high_s <= t.max_s and t.samples == 5
        print(f"{t.name}: {t.gflops(1024, 1024, 1024):.0f} GFLOP/s, spread {t.spread:.1%}")
    warm = bench(sides, (1024, 1024, 1024), warm=True, plan=QUICK)
    assert warm.buffers == 1


@pytest.mark.parametrize("size", [(1, 1, 1), (127, 129, 131), (17, 4097, 1000)])
def test_ragged_sizes_are_timed(cublas: Cublas, size: tuple[int, int, int]) -> None:
    found = bench([KernelSide("warptile", kernel("warptile")), cublas], size, beta=0.5, plan=QUICK)
    assert all(c.ok for c in found.checks) and found.method == "graph"


def test_g07_nothing_to_time_is_an_error_of_its_own() -> None:
    for size in ((0, 3, 3), (3, 0, 3), (3, 3, 0)):
        with pytest.raises(ArgumentError, match="nothing to time"):
            bench([KernelSide("warptile", kernel("warptile"))], size, plan=QUICK)


def test_a_wrong_kernel_is_not_timed() -> None:
    def half(A: Any, B: Any, C: Any, alpha: float, beta: float, stream: int) -> None:
        kernel("warptile")(A, B, C, alpha / 2, beta, stream)

    with pytest.raises(WrongResult, match="half is wrong at 256x128x64"):
        bench([KernelSide("half", half)], (256, 128, 64), plan=QUICK)
    with pytest.raises(WrongResult, match="idle is wrong"):  # writes nothing: what was there was NaN
        bench([KernelSide("idle", lambda *a: None)], (256, 128, 64), plan=QUICK)


def test_the_check_on_the_gpu_sees_one_wrong_element() -> None:
    from gemmgen.runtime import check as checks
    from gemmgen.runtime.problem import Problem

    torch()
    here = device.required()
    with on_device(here.ordinal), Problem.make((1500, 1400, 1300), here, beta=0.0, warm=True, seed=1) as problem:
        a, b, c = problem.sets[0]
        kernel("warptile")(a, b, c, 1.0, 0.0, private_stream(here.ordinal))
        good = checks.check(problem, c, 1.0, 0.0)
        assert good.ok and good.how.startswith("all, by"), good
        values = c.numpy()
        values[1177, 901] += 1.0
        c.set(values)
        bad = checks.check(problem, c, 1.0, 0.0)
        assert not bad.ok and bad.where == (1177, 901)
