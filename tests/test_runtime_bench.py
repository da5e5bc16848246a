"""Timing and its baseline, as far as they can be seen without a GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from played import GPU

from gemmgen.diagnostics import LaunchError
from gemmgen.ir.types import F32
from gemmgen.runtime import baseline, timing
from gemmgen.runtime import check as checks
from gemmgen.runtime import cublas as cublas_library
from gemmgen.runtime.baseline import BaselineError, Cublas
from gemmgen.runtime.cublas import Direct
from gemmgen.runtime.memory import DeviceArray
from gemmgen.runtime.timing import Plan, Timing

# --- The baseline ----------------------------------------------------------------------------------------------------


def floats(address: int, count: int) -> Any:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (count,))


def column_major(address: int, rows: int, columns: int, leading: int) -> Any:
    """A matrix as BLAS sees it: element (i, j) at i + j * leading. Reads no further than its last element."""
    assert leading >= max(1, rows)
    if rows == 0 or columns == 0:
        return np.zeros((rows, columns), np.float32)
    flat = floats(address, (columns - 1) * leading + rows)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4, 4 * leading))


def sgemm(
    stream: int, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int,
    a: int, lda: int, b: int, ldb: int, beta: int, c: int, ldc: int,
) -> None:  # fmt: skip
    """cublasSgemm by its documentation, on the host's memory."""
    assert (stream, handle, transa, transb) == (77, 5, 0, 0)
    left, right, out = (column_major(*x) for x in ((a, m, k, lda), (b, k, n, ldb), (c, m, n, ldc)))
    scale, add = floats(alpha, 1)[0], floats(beta, 1)[0]
    out[...] = scale * (left @ right) + (add * out if add else 0)


@pytest.fixture
def cublas() -> Cublas:
    found = Cublas.__new__(Cublas)  # without a GPU: its library is the function above
    found._library = baseline._Library("a stand-in", 5, 130102, sgemm, lambda *given: None, lambda handle: None)
    return found


def at(values: Any, owner: Any = None) -> DeviceArray:
    strides = (values.strides[0] // 4, values.strides[1] // 4)
    address = values.__array_interface__["data"][0]
    return DeviceArray(address, values.shape, strides, "float32", 0, owner=owner or values)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(256, 128, 64), (64, 256, 128), (1, 5, 3), (5, 1, 3), (5, 3, 1), (1, 1, 1), (4, 3, 0), (0, 3, 2)]
)
def test_g26_b_row_major_operands_of_any_sizes(cublas: Cublas, m: int, n: int, k: int) -> None:
    rows, columns = np.arange(1.0, m + 1)[:, None], np.arange(1.0, n + 1)[None, :]
    a = np.broadcast_to(rows, (m, k)).astype(np.float32, order="C")
    b = np.broadcast_to(columns, (k, n)).astype(np.float32, order="C")
    c = np.ones((m, n), np.float32)
    cublas.enqueue(at(a), at(b), at(c), 1.0, 2.0, 77)
    assert (c == k * rows * columns + 2).all()


def test_g26_b_leading_dimensions_of_views(cublas: Cublas) -> None:
    rng = np.random.default_rng(0)
    wide = [rng.integers(-4, 5, s).astype(np.float32) for s in ((9, 20), (7, 30), (9, 40))]
    a, b, c = wide[0][:, 3:10], wide[1][:, 2:15], wide[2][:, 1:14]
    want, around = 2 * (a @ b) - c, wide[2].copy()
    cublas.enqueue(at(a), at(b), at(c), 2.0, -1.0, 77)
    assert (c == want).all()
    around[:, 1:14] = c
    assert (wide[2] == around).all()


def test_g26_a_failure_or_a_misfit_is_an_error_of_its_own(cublas: Cublas) -> None:
    a, b, c = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32), np.ones((4, 6), np.float32)
    with pytest.raises(BaselineError, match="shapes do not fit"):
        cublas.enqueue(at(a), at(b), at(c.T.copy()), 1.0, 0.0, 77)
    with pytest.raises(BaselineError, match="unit stride"):
        cublas.enqueue(at(a), at(np.ones((10, 12), np.float32)[::2, ::2]), at(c), 1.0, 0.0, 77)
    with pytest.raises(BaselineError, match="C by rows"):
        cublas.enqueue(at(a), at(b), at(np.asfortranarray(c)), 1.0, 0.0, 77)

    def fails(*arguments: Any) -> None:
        raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")

    cublas._library = baseline._Library("a stand-in", 5, 130102, fails, fails, lambda handle: None)
    with pytest.raises(BaselineError, match="failed at 4x6x5: CUBLAS_STATUS_EXECUTION_FAILED"):
        cublas.enqueue(at(a), at(b), at(c), 1.0, 0.0, 77)


def test_g26_the_description_says_what_it_is(cublas: Cublas) -> None:
    assert cublas.description == "cuBLAS 13.1.2 through a stand-in, TF32 off"


def test_a_missing_baseline_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvmath", None)
    monkeypatch.setattr(cublas_library, "_places", lambda: iter([("a place", "libnot-there.so.1")]))
    with pytest.raises(BaselineError, match=r"gemmgen\[bench\].*nvmath-python: .*cuBLAS itself: .*libnot-there"):
        baseline._open()


class Noted:
    """cuBLAS's functions, which note that they were called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def create(self) -> int:
        return 5

    def get_version(self, handle: int) -> int:
        return 130102

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


def test_a_workspace_is_set_after_every_change_of_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS forgets it with the stream, and with none of its own a call may allocate, which no capture allows."""
    memory: list[tuple[Any, ...]] = []
    monkeypatch.setattr(baseline, "call", lambda *a: (memory.append(a), 1 << 40)[1])
    functions = Noted()
    found = baseline._library("a stand-in", functions)
    assert functions.calls == [("set_math_mode", 5, 0)]
    functions.calls.clear()
    for stream in (7, 7, 9):
        found.sgemm(stream, found.handle, "arguments")
    size = 32 << 20
    assert functions.calls == [
        ("set_stream", 5, 7), ("set_workspace", 5, 1 << 40, size), ("sgemm", 5, "arguments"), ("sgemm", 5, "arguments"),
        ("set_stream", 5, 9), ("set_workspace", 5, 1 << 40, size), ("sgemm", 5, "arguments"),
    ]  # fmt: skip
    found.destroy(5)
    assert functions.calls[-1] == ("destroy", 5)
    assert memory == [("cuMemAlloc", size), ("cuMemFree", 1 << 40)]


LIBRARY = """
#include <stddef.h>
#include <string.h>
#define OR_ERROR(right) return (right) ? 0 : 7
static char handle;
int cublasCreate_v2(void **h) { *h = &handle; return 0; }
int cublasDestroy_v2(void *h) { OR_ERROR(h == &handle); }
int cublasGetVersion_v2(void *h, int *v) { *v = 130102; OR_ERROR(h == &handle); }
int cublasSetMathMode(void *h, int mode) { OR_ERROR(h == &handle && mode == 0); }
int cublasSetStream_v2(void *h, void *s) { OR_ERROR(h == &handle && s == (void *)(1ull << 40)); }
int cublasSetWorkspace_v2(void *h, void *p, size_t n)
{
    OR_ERROR(h == &handle && p == (void *)(3ull << 40) && n == 1ull << 33);
}
const char *cublasGetStatusString(int s) { return s == 7 ? "CUBLAS_STATUS_INVALID_VALUE" : "another"; }
int cublasGemmEx(void *h, ...) { OR_ERROR(h == &handle); }
int cublasSgemm_v2(void *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *A, int lda,
                   const float *B, int ldb, const float *beta, float *C, int ldc)
{
    if (h != &handle || ta || tb || k < 0) return 7;
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int p = 0; p < k; ++p) sum += A[i + (size_t)p * lda] * B[p + (size_t)j * ldb];
            C[i + (size_t)j * ldc] = *alpha * sum + *beta * C[i + (size_t)j * ldc];
        }
    return 0;
}
"""


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Direct:
    """The functions of a library with cuBLAS's names, which computes on the host and is strict about its arguments."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("cublas")
    (folder / "cublas.c").write_text(LIBRARY)
    made = folder / "libcublas.so.13"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(folder / "cublas.c")], check=True)
    return Direct(ctypes.CDLL(str(made)), "a stand-in")


def test_the_library_itself_is_called_with_c_types(direct: Direct) -> None:
    handle = direct.create()
    assert direct.get_version(handle) == 130102
    direct.set_math_mode(handle, 0)
    direct.set_stream(handle, 1 << 40)
    direct.set_workspace(handle, 3 << 40, 1 << 33)
    rng = np.random.default_rng(0)
    a, b, c = (np.asfortranarray(rng.integers(-4, 5, s), np.float32) for s in ((5, 3), (3, 4), (5, 4)))
    want, factors = 2 * (a @ b) - c, np.array([2, -1], np.float32)
    at = [int(x.__array_interface__["data"][0]) for x in (factors, a, b, c)]
    direct.sgemm(handle, 0, 0, 5, 4, 3, at[0], at[1], 5, at[2], 3, at[0] + 4, at[3], 5)
    assert (c == want).all()
    direct.destroy(handle)


def test_an_error_of_the_library_has_its_name(direct: Direct) -> None:
    with pytest.raises(RuntimeError, match="cublasSetMathMode: CUBLAS_STATUS_INVALID_VALUE"):
        direct.set_math_mode(direct.create(), 1)


# --- Timing ----------------------------------------------------------------------------------------------------------


def test_a_sample_is_long_enough_and_goes_round_all_sets() -> None:
    plan = Plan(sample_s=0.01, most_launches=2000)
    assert timing.launches_of(0.001, 4, plan) == 12
    assert timing.launches_of(0.001, 1, plan) == 10
    assert timing.launches_of(1e-6, 900, plan) == 2700  # whole rounds of the sets
    assert timing.launches_of(0.27, 2, plan) == 2
    assert timing.launches_of(2.0, 2, plan) == 1  # a round would take seconds


def test_sides_alternate_and_slow_ones_get_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(timing, "seconds_of", lambda run, stream: (run(), float(len(order)))[1])
    replays = [lambda: order.append("a"), lambda: order.append("b")]
    found = timing._samples(replays, [4, 2], 77, Plan(warm_up_s=0.0))
    assert "".join(order) == "ab" + "ab" + "ba" + "a" + "a"
    assert found == [[3.0, 6.0, 7.0, 8.0], [4.0, 5.0]]


class Sides:
    """Two sides on a GPU that is played: each product takes a millisecond, and one may refuse to be captured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refuses: str | None) -> None:
        self.sets = [("a", "b", "c")] * 2
        self.run: list[str] = []

        def capture(run: Any, stream: int) -> Any:
            before = len(self.run)
            run()
            if refuses in self.run[before:]:
                raise LaunchError("cuStreamEndCapture failed")
            return lambda: self.run.append("replay")

        def seconds_of(run: Any, stream: int) -> float:
            run()
            return 0.001

        monkeypatch.setattr(timing, "capture", capture)
        monkeypatch.setattr(timing, "seconds_of", seconds_of)

    def side(self, name: str) -> Any:
        return timing.KernelSide(name, lambda *arguments: self.run.append(name))

    def time(self) -> tuple[list[Timing], str | None]:
        problem: Any = self
        plan = Plan(samples=3, warm_up_s=0.0)
        return timing._time([self.side("one"), self.side("two")], problem, 1.0, 0.0, 77, plan)


def test_every_side_is_replayed_as_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = Sides(monkeypatch, None)
    timings, why = sides.time()
    assert why is None and [t.name for t in timings] == ["one", "two"]
    assert sides.run[-8:] == ["replay"] * 8  # one to warm up and three samples of each, nothing launched beside


def test_a_side_that_cannot_be_captured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = Sides(monkeypatch, "two")
    _, why = sides.time()
    assert why == "two: cuStreamEndCapture failed"
    assert "replay" not in sides.run


def test_a_kernel_keeps_its_workspace_as_cublas_does() -> None:
    class Kernel:
        def __init__(self) -> None:
            self.calls: list[tuple[Any, ...]] = []

        def keep_workspace(self, stream: int) -> None:
            self.calls.append(("keep", stream))

        def __call__(self, *arguments: Any) -> None:
            self.calls.append(arguments)

    kernel, none = Kernel(), np.zeros((1, 1), np.float32)
    timing.KernelSide("k", kernel).enqueue(at(none), at(none), at(none), 1.0, 0.0, 77)
    assert kernel.calls[0] == ("keep", 77) and kernel.calls[1][-1] == 77


def test_the_spread_is_shown() -> None:
    found = timing._timing("k", [5.0, 1.0, 2.0, 4.0, 3.0], 10)
    assert (found.median_s, found.min_s, found.max_s, found.samples, found.launches) == (3.0, 1.0, 5.0, 5, 10)
    assert found.low_s == 1.5 and found.high_s == 4.5 and found.spread == 1.0
    alone = timing._timing("k", [2.0], 1)
    assert (alone.low_s, alone.median_s, alone.high_s) == (2.0, 2.0, 2.0)


def test_the_rate_counts_2mnk() -> None:
    t = Timing("k", 0.271053e-3, 0.0, 0.0, 0.0, 0.0, 1, 1)
    assert t.gflops(16, 1000, 2048) == pytest.approx(241.78, abs=0.01)


# --- The check before timing -----------------------------------------------------------------------------------------


class Small:
    """As much of a problem as the check reads."""

    def __init__(self, m: int, n: int, k: int) -> None:
        rng = np.random.default_rng(m + n + k)
        self.size = (m, n, k)
        self.types = (F32, F32, F32)
        self.expected: dict[Any, Any] = {}
        self.device = GPU
        self.host = tuple(rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n), (m, n)))


class Result:
    def __init__(self, values: Any) -> None:
        self.values = values

    def numpy(self) -> Any:
        return self.values


def judged(problem: Any, values: Any, alpha: float, beta: float) -> checks.Checked:
    result: Any = Result(values)
    return checks.check(problem, result, alpha, beta)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-0.5, 2.0)])
def test_a_right_result_passes_and_one_wrong_element_does_not(alpha: float, beta: float) -> None:
    problem = Small(70, 50, 90)
    a, b, c = problem.host
    right = (alpha * (a @ b) + beta * c).astype(np.float32)
    assert judged(problem, right, alpha, beta).ok
    for value in (np.float32(right[31, 7] + 0.1), np.nan, np.inf, 0.0):
        wrong = right.copy()
        wrong[31, 7] = value
        found = judged(problem, wrong, alpha, beta)
        assert not found.ok and found.where == (31, 7)
    assert not judged(problem, np.zeros_like(right), alpha, beta).ok


def test_large_products_are_checked_in_rows_that_include_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_ON_HOST", 1000)
    monkeypatch.setattr(checks, "_on_gpu", lambda problem: None)
    problem = Small(515, 40, 30)
    right = problem.host[0] @ problem.host[1]
    found = judged(problem, right, 1.0, 0.0)
    assert found.ok and "rows" in found.how
    for row in (0, 63, 64, 127, 128, 511, 512, 514):
        wrong = right.copy()
        wrong[row, 39] += 1.0
        found = judged(problem, wrong, 1.0, 0.0)
        assert not found.ok and found.where == (row, 39)


def test_what_is_expected_is_computed_once_and_for_its_own_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[tuple[float, float]] = []
    real = checks._expected
    monkeypatch.setattr(checks, "_expected", lambda *a: (computed.append(a[4:6]), real(*a))[1])
    problem = Small(30, 20, 10)
    a, b, c = problem.host
    for alpha, beta in ((1.0, 0.0), (1.0, 0.0), (2.0, 1.0), (2.0, 1.0), (1.0, 0.0)):
        right = (alpha * (a @ b) + beta * c).astype(np.float32)
        assert judged(problem, right, alpha, beta).ok and not judged(problem, right + 1, alpha, beta).ok
    assert computed == [(1.0, 0.0), (2.0, 1.0), (1.0, 0.0)]
    problem.device = replace(GPU, memory_bytes=16 * 30 * 20)  # no room to keep it
    problem.expected.clear()
    assert judged(problem, a @ b, 1.0, 0.0).ok and problem.expected == {}


def test_the_bound_is_that_of_verify() -> None:
    """Elements just inside and just outside of gemmgen.verify's bound are judged the same."""
    import gemmgen

    problem = Small(20, 30, 40)
    a, b, c = problem.host
    right = (0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + 2.0 * c).astype(np.float32)
    bound = gemmgen.verify(right, a, b, c, 0.5, 2.0).bound
    assert bound is not None
    verdicts = set()
    for factor in (0.3, 0.9, 1.5, 4.0):
        moved = right.copy()
        moved[3, 4] += np.float32(factor * bound)
        found, wanted = judged(problem, moved, 0.5, 2.0).ok, gemmgen.verify(moved, a, b, c, 0.5, 2.0).ok
        assert found == wanted
        verdicts.add(found)
    assert verdicts == {True, False}
