"""Arrays of every library in place, on the caller's stream, in graphs and from threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from gpu_support import check, kernel, torch

import gemmgen
from gemmgen.diagnostics import ArgumentError


@pytest.fixture
def operands() -> tuple[Any, Any, Any]:
    t = torch()
    return t.randn(200, 300, device="cuda"), t.randn(300, 260, device="cuda"), t.zeros(200, 260, device="cuda")


def test_torch_in_place_and_new(operands: tuple[Any, Any, Any]) -> None:
    a, b, c = operands
    address = c.data_ptr()
    assert kernel("warptile")(a, b, c) is c and c.data_ptr() == address
    check(c, a, b)
    new = kernel("warptile")(a, b)
    assert new.device == a.device and new.dtype == a.dtype and new.shape == (200, 260)
    check(new, a, b)
    with pytest.raises(ArgumentError, match="beta"):
        kernel("warptile")(a, b, beta=1.0)


def test_numpy_is_copied_in_and_out() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((130, 70), (70, 90)))
    wide = rng.standard_normal((130, 100), dtype=np.float32)
    before, c = wide.copy(), wide[:, 5:95]
    assert kernel("warptile")(a, b, c, alpha=0.5, beta=2.0) is c
    assert gemmgen.verify(c, a, b, before[:, 5:95], 0.5, 2.0).ok
    assert np.array_equal(wide[:, :5], before[:, :5]) and np.array_equal(wide[:, 95:], before[:, 95:])
    new = kernel("warptile")(a, b)
    assert isinstance(new, np.ndarray) and gemmgen.verify(new, a, b).ok


def test_torch_on_the_host_is_computed_too(operands: tuple[Any, Any, Any]) -> None:
    a, b, c = (x.cpu() for x in operands)
    assert kernel("warptile")(a, b, c) is c
    check(c.cuda(), operands[0], operands[1])


def test_cupy_in_place_and_new() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    a = cupy.random.standard_normal((200, 300), dtype=cupy.float32)
    b = cupy.random.standard_normal((300, 260), dtype=cupy.float32)
    c = cupy.full((200, 260), cupy.nan, dtype=cupy.float32)
    assert kernel("warptile")(a, b, c) is c
    assert gemmgen.verify(c.get(), a.get(), b.get()).ok
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        new = kernel("warptile")(a * 2, b)
    stream.synchronize()
    assert isinstance(new, cupy.ndarray) and gemmgen.verify(new.get(), 2 * a.get(), b.get()).ok
    assert gemmgen.verify(kernel("warptile")(a, a.T), a, a.T).ok


class OnlyInterface:
    """A device array of a library that offers ``__cuda_array_interface__`` alone."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.tensor.__cuda_array_interface__)


class OnlyDlpack:
    """A device array of a library that offers DLPack alone."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.tensor.__dlpack__(**{k: v for k, v in arguments.items() if k == "stream"})

    def __dlpack_device__(self) -> tuple[int, int]:
        return tuple(self.tensor.__dlpack_device__())


@pytest.mark.parametrize("wrap", [OnlyInterface, OnlyDlpack])
def test_any_device_array_in_place(operands: tuple[Any, Any, Any], wrap: Any) -> None:
    a, b, c = operands
    torch().cuda.synchronize()
    wrapped = wrap(c)
    assert kernel("warptile")(wrap(a), wrap(b), wrapped) is wrapped
    torch().cuda.synchronize()
    check(c, a, b)
    new = kernel("warptile")(wrap(a), wrap(b))
    torch().cuda.synchronize()
    check(torch().as_tensor(new, device="cuda"), a, b)
    assert gemmgen.verify(new, a, b).ok


def test_the_callers_stream_is_used(operands: tuple[Any, Any, Any]) -> None:
    """On a stream kept busy, before the operands are even filled: only the stream's order makes this right."""
    t = torch()
    a, b, c = operands
    values = a.clone()
    t.cuda.synchronize()
    stream = t.cuda.Stream()
    with t.cuda.stream(stream):
        t.cuda._sleep(200_000_000)
        a.fill_(0)
        a.copy_(values)
        kernel("warptile")(a, b, c)
        result = c.clone()
        c.fill_(7)
    stream.synchronize()
    check(result, values, b)
    assert bool((c == 7).all())


def test_a_stream_that_is_given_is_used(operands: tuple[Any, Any, Any]) -> None:
    t = torch()
    a, b, c = operands
    stream = t.cuda.Stream()
    kernel("warptile")(a, b, c)
    t.cuda.synchronize()
    c.zero_()
    t.cuda.synchronize()
    with t.cuda.stream(stream):
        t.cuda._sleep(500_000_000)
    kernel("warptile")(a, b, c, stream=stream)
    assert bool((c == 0).all()), "the launch did not wait for the stream it was given"
    stream.synchronize()
    check(c, a, b)
    new = kernel("warptile")(a, b, stream=stream)
    stream.synchronize()
    check(new, a, b)


def test_a_call_does_not_wait(operands: tuple[Any, Any, Any]) -> None:
    t = torch()
    a, b, c = operands
    kernel("warptile")(a, b, c)
    t.cuda.synchronize()
    t.cuda._sleep(2_000_000_000)
    start = time.perf_counter()
    kernel("warptile")(a, b, c)
    enqueued = time.perf_counter() - start
    t.cuda.synchronize()
    assert enqueued < 0.5 * (time.perf_counter() - start)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_call_is_captured_in_a_cuda_graph(operands: tuple[Any, Any, Any], transposed: bool) -> None:
    """Also where an input is copied for its strides: the copy and its memory are in the graph."""
    t = torch()
    a, b, c = operands
    if transposed:
        a = a.T.contiguous().T
    kernel("warptile")(a, b, c)  # compiled and loaded before the capture
    t.cuda.synchronize()
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph):
        kernel("warptile")(a, b, c, alpha=1.0, beta=0.0)
    c.fill_(float("nan"))
    a.copy_(t.randn(200, 300, device="cuda"))
    for _ in range(3):
        graph.replay()
    t.cuda.synchronize()
    check(c, a, b)


def test_threads_share_a_kernel() -> None:
    t = torch()
    made = gemmgen.compile(kernel("warptile").spec, device="cuda")
    wrong: list[str] = []

    def work(seed: int) -> None:
        try:
            with t.cuda.stream(t.cuda.Stream()):
                generator = t.Generator(device="cuda").manual_seed(seed)
                for m, n, k in ((128, 128, 16), (100, 130, 33), (257, 129, 65)) * 5:
                    a = t.randn(m, k, device="cuda", generator=generator)
                    b = t.randn(k, n, device="cuda", generator=generator)
                    check(made(a, b), a, b)
        except BaseException as e:
            wrong.append(f"{type(e).__name__}: {e}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_numpy_call_from_a_new_thread() -> None:
    found: list[bool] = []

    def work() -> None:
        a = np.ones((40, 50), np.float32)
        found.append(bool((kernel("warptile")(a, a.T) == 50).all()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]


def test_what_is_refused_names_the_operand(operands: tuple[Any, Any, Any]) -> None:
    a, b, c = operands
    made = kernel("warptile")
    with pytest.raises(ArgumentError, match="B"):
        made(a, b.cpu().numpy(), c)
    with pytest.raises(ArgumentError, match="A requires grad"):
        made(a.clone().requires_grad_(), b, c)
    with pytest.raises(ArgumentError, match="C overlaps A"):
        made(a, torch().zeros(300, 300, device="cuda"), a)
    with pytest.raises(ArgumentError, match="C"):
        made(a, b, torch().zeros(260, 200, device="cuda").T)
    with pytest.raises(ArgumentError, match="device"):
        gemmgen.compile(made.spec, device="sim")(a, b)
    torch().cuda.synchronize()
    check(made(a, b, c), a, b)  # nothing before has harmed the context


def seconds_a_call(run: Any, calls: int = 200, rounds: int = 20) -> float:
    """Host time of one call, the best of several rounds, with the GPU's queue never full."""
    t = torch()
    best = float("inf")
    for _ in range(rounds):
        t.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, (time.perf_counter() - start) / calls)
    t.cuda.synchronize()
    return best


def test_a_call_costs_20_microseconds_of_host_time_or_less(record_property: Any) -> None:
    t = torch()
    a, b, c = t.randn(128, 16, device="cuda"), t.randn(16, 128, device="cuda"), t.zeros(128, 128, device="cuda")
    made = kernel("warptile")
    made(a, b, c)
    cost = seconds_a_call(lambda: made(a, b, c))
    record_property("microseconds", cost * 1e6)
    print(f"a call costs {cost * 1e6:.1f} microseconds of host time")
    assert cost <= 20e-6
