"""``gemmgen.autotune()``: the first call of a new shape times the most promising kernels and remembers the fastest.

Kernels are timed on operands of gemmgen's own, on a stream of its own; nothing of the caller's is read or written.
While a graph is captured nothing is timed: the model chooses.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from gemmgen.diagnostics import ArgumentError, GemmgenError, shown
from gemmgen.tune.pool import Layout
from gemmgen.tune.shapes import Align, Shape

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu
    from gemmgen.tune.records import Machine

VARIABLE = "GEMMGEN_AUTOTUNE"
BUDGET_S = 2.0
MOST = 24
"""Kernels that are timed at most, in the model's order."""
TYPES = "f32,f32,f32"

_BUDGET: ContextVar[float | None] = ContextVar("gemmgen_autotune", default=None)


@contextmanager
def autotune(budget_s: float = BUDGET_S) -> Iterator[None]:
    """Tune every new shape of ``gemmgen.matmul`` at its first call, within ``budget_s`` seconds each.

    What is found goes into the user's records, where later calls and other processes find it. GEMMGEN_AUTOTUNE=1 does
    the same for a whole program, and another number is the budget. Raises ArgumentError for a budget that is no time.
    """
    token = _BUDGET.set(_checked("budget_s", budget_s))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def _checked(name: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name} is {shown(value)}; it is a number of seconds above 0") from None
    if not 0 < seconds < float("inf"):
        raise ArgumentError(f"{name} is {seconds:g}; it is a number of seconds above 0")
    return seconds


def budget() -> float | None:
    """Seconds to tune a new shape in; None where nothing is to be tuned."""
    inside = _BUDGET.get()
    if inside is not None:
        return inside
    given = os.environ.get(VARIABLE, "")
    if given in ("", "0"):
        return None
    return BUDGET_S if given == "1" else _checked(VARIABLE, given)


def capturing(stream: Any) -> bool:
    """Whether the stream of a call is being captured into a graph."""
    torch = sys.modules.get("torch")
    if stream is None:
        return torch is not None and bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
    from gemmgen.runtime.arrays import stream_pointer
    from gemmgen.runtime.driver import bindings, call

    status = call("cuStreamIsCapturing", stream_pointer(stream))
    return bool(status != bindings().CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


class Timer(Protocol):
    """Times kernels at one shape: seconds of a product, of a kernel that was checked; None where it is wrong."""

    @property
    def machine(self) -> Machine: ...

    def compiled(self, spec: Spec) -> bool: ...

    def seconds(self, spec: Spec) -> float | None: ...


def candidates(shape: Shape, align: Align, layout: Layout, gpu: Gpu) -> list[Spec]:
    """The kernels to time, the most promising first: those of the cover, as operands lie."""
    import numpy as np

    from gemmgen.tune.cover import cover_for, modelled, rows_of
    from gemmgen.tune.features import served

    cover = cover_for(gpu)
    if cover is None:
        return []
    rows = rows_of(layout, cover)
    order = [int(i) for i in np.argsort(modelled(shape, align, rows, cover))]
    specs = [cover.specs[int(rows.positions[i])] for i in order]
    return [spec for spec in dict.fromkeys(specs) if served(spec, layout) is not None][:MOST]


def tuned(
    specs: Sequence[Spec],
    timer: Timer,
    shape: Shape,
    align: Align,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> bool:
    """Time kernels until ``seconds`` have passed, and keep what they took; whether any was timed.

    The first is always timed; then those that are compiled, then the rest, whose compilation takes time too.
    """
    end = clock() + seconds
    first, rest = specs[:1], specs[1:]
    order = [*first, *(s for s in rest if timer.compiled(s)), *(s for s in rest if not timer.compiled(s))]
    found: list[tuple[float, Spec]] = []
    for spec in order:
        if found and clock() > end:
            break
        try:
            took = timer.seconds(spec)
        except GemmgenError:
            continue
        if took is not None:
            found.append((took, spec))
    if found:
        _keep(found, timer.machine, shape, align)
    return bool(found)


def _keep(found: Sequence[tuple[float, Spec]], machine: Machine, shape: Shape, align: Align) -> None:
    from gemmgen.tune.records import Record, Records
    from gemmgen.tune.space import key_of
    from gemmgen.version import __version__

    with Records() as book:
        if book.read_only:
            return
        for took, spec in sorted(found, key=lambda row: row[0]):
            book.put(
                Record(
                    machine, shape, TYPES, align, True, key_of(spec), spec.to_text(), "ok", took, samples=3, level=1,
                    made_by=f"gemmgen {__version__}",
                )
            )  # fmt: skip


class OnGpu:
    """Times kernels on a GPU, on operands of its own that lie as the caller's do."""

    def __init__(self, ordinal: int, shape: Shape, layout: Layout, align: Align) -> None:
        from gemmgen.runtime import device as devices
        from gemmgen.runtime.nvrtc import supported_archs
        from gemmgen.runtime.target import choose_target
        from gemmgen.tune.bench import Bench
        from gemmgen.tune.gpu import machine_of

        m, n, k = shape
        device = devices.get(ordinal)
        self.machine = machine_of(device)
        self._shape, self._layout, self._aligned = shape, layout, min(align) >= 16
        self._target = choose_target(device.cc, supported_archs())
        self._bench = Bench(device, (m * k, k * n, m * n))

    def _number(self, spec: Spec) -> int:
        from gemmgen.tune import cost

        return cost.GUARDED if self._aligned else cost.UNALIGNED

    def compiled(self, spec: Spec) -> bool:
        from gemmgen.api import ready
        from gemmgen.tune.bench import VARIANTS

        return ready.find(spec, VARIANTS[self._number(spec)], self._target) is not None

    def seconds(self, spec: Spec) -> float | None:
        from gemmgen.runtime.driver import on_device

        with on_device(self._bench.device.ordinal):
            gemm = self._bench.gemm(spec, self._number(spec), self._target)
            call_it = self._bench.call_of(gemm, self._shape, self._layout)
            return self._bench.replayed(call_it, max(2e-6, self._bench.once(call_it)))

    def close(self) -> None:
        for slab in self._bench.slabs:
            slab.free()


def before_first_call(shape: Shape, align: Align, layout: Layout, ordinal: int, seconds: float, gpu: Gpu) -> bool:
    """Tune a shape that has no record yet; whether one was made."""
    if 0 in shape:
        return False
    specs = candidates(shape, align, layout, gpu)
    if not specs:
        return False
    timer = OnGpu(ordinal, shape, layout, align)
    try:
        return tuned(specs, timer, shape, align, seconds)
    finally:
        timer.close()
