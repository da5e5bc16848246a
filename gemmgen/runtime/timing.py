"""Times products on the GPU.

Each side is recorded as a CUDA graph of many launches, so that no launch gap is timed, and the graphs are replayed
in turn, so that a clock that drifts meets every side alike. By default the launches go round several sets of
operands, together larger than the L2 cache; ``warm`` keeps to one set. Every side is checked before it is timed,
with C poisoned, against float64.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from gemmgen.diagnostics import GemmgenError
from gemmgen.runtime import device as devices
from gemmgen.runtime.check import Checked, check
from gemmgen.runtime.driver import bindings, call, on_device, private_stream
from gemmgen.runtime.memory import DeviceArray
from gemmgen.runtime.problem import BY_ROWS, FLOATS, Orders, Problem, Types


class WrongResult(GemmgenError):
    """A side computed something else than the product: it is not timed."""


class Side(Protocol):
    """One way to compute the product: enqueues C = alpha * (A @ B) + beta * C on a stream, and does not wait."""

    @property
    def name(self) -> str: ...

    def enqueue(
        self, A: DeviceArray, B: DeviceArray, C: DeviceArray, alpha: float, beta: float, stream: int
    ) -> None: ...


@dataclass(frozen=True)
class KernelSide:
    """A kernel of gemmgen as a side: anything called as ``kernel(A, B, C, alpha, beta, stream)``.

    Like cuBLAS it keeps its workspace, where it needs one.
    """

    name: str
    kernel: Callable[..., Any]

    def enqueue(self, A: DeviceArray, B: DeviceArray, C: DeviceArray, alpha: float, beta: float, stream: int) -> None:
        keep = getattr(self.kernel, "keep_workspace", None)
        if keep is not None:
            keep(stream)
        self.kernel(A, B, C, alpha, beta, stream)


@dataclass(frozen=True)
class Timing:
    """Seconds of one product: the median of the samples, their quartiles and extremes.

    A sample is one replay of a graph of ``launches`` products, divided by that.
    """

    name: str
    median_s: float
    low_s: float
    high_s: float
    min_s: float
    max_s: float
    samples: int
    launches: int

    @property
    def spread(self) -> float:
        """The quartiles' distance as a part of the median."""
        return (self.high_s - self.low_s) / self.median_s

    def gflops(self, m: int, n: int, k: int) -> float:
        """GFLOP/s at the median, 2 M N K counted."""
        return 2.0 * m * n * k / self.median_s / 1e9


@dataclass(frozen=True)
class Bench:
    """One comparison. ``buffers`` sets of operands, ``rotated_bytes`` together.

    ``method`` is "graph", or "events" where a side could not be captured: ``why_events`` says which and why.
    """

    size: tuple[int, int, int]
    alpha: float
    beta: float
    warm: bool
    buffers: int
    rotated_bytes: int
    method: str
    timings: tuple[Timing, ...]
    checks: tuple[Checked, ...]
    why_events: str | None = None


@dataclass(frozen=True)
class Plan:
    """How long to measure: samples a side, seconds of a sample at least and of a side at most, seconds of warming up.

    A side so slow that ``samples`` would pass ``side_s`` gets fewer, but 3.
    """

    samples: int = 15
    sample_s: float = 0.01
    side_s: float = 4.0
    warm_up_s: float = 0.3
    most_launches: int = 2000


def bench(
    sides: Sequence[Side],
    size: tuple[int, int, int],
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    warm: bool = False,
    seed: int = 0,
    plan: Plan | None = None,
    progress: Callable[[str], None] | None = None,
    types: Types = FLOATS,
    orders: Orders = BY_ROWS,
) -> Bench:
    """Check, then time every side at (M, N, K) on the current GPU, with A, B and C of these types and orders.

    Raises LaunchError where there is no GPU or too little memory, WrongResult for a side that is wrong (BaselineError,
    where it is the baseline), ArgumentError for sizes of which nothing can be timed.
    """
    plan = plan or Plan()
    say = progress or (lambda text: None)
    device = devices.required()
    with on_device(device.ordinal):
        stream = private_stream(device.ordinal)
        say(f"operands of {size[0]}x{size[1]}x{size[2]}")
        with Problem.make(size, device, beta=beta, warm=warm, seed=seed, types=types, orders=orders) as problem:
            checks = []
            for side in sides:
                say(f"checking {side.name}")
                checks.append(_checked(side, problem, alpha, beta, stream))
            say("timing")
            timings, why = _time(sides, problem, alpha, beta, stream, plan)
            if why is not None:
                say(f"not timed as graphs: {why}")
            method, buffers = "graph" if why is None else "events", len(problem.sets)
            return Bench(
                size, alpha, beta, warm, buffers, problem.rotated_bytes, method, tuple(timings), tuple(checks), why
            )


BASELINE_ROUNDINGS = 3
"""By how many times gemmgen's own bound a baseline's result may be off."""


def _checked(side: Side, problem: Problem, alpha: float, beta: float, stream: int) -> Checked:
    """The side's result on the last set of operands, whose C held NaN (or, with a beta, known values) before."""
    from gemmgen.runtime.baseline import BaselineError, Cublas

    a, b, c = problem.sets[-1]
    problem.poison(c, beta)
    side.enqueue(a, b, c, alpha, beta, stream)
    call("cuStreamSynchronize", stream)
    found = check(problem, c, alpha, beta)
    # cuBLAS may round the parts of a split sum to C's type before it adds them: three roundings were seen in bf16.
    excused = isinstance(side, Cublas) and abs(found.got - found.want) <= BASELINE_ROUNDINGS * found.bound
    if not found.ok and not excused:
        error = BaselineError if isinstance(side, Cublas) else WrongResult
        raise error(f"{side.name} is wrong at {'x'.join(map(str, problem.size))}: {found}")
    return found


# --- Measuring -------------------------------------------------------------------------------------------------------


def _time(
    sides: Sequence[Side], problem: Problem, alpha: float, beta: float, stream: int, plan: Plan
) -> tuple[list[Timing], str | None]:
    """The sides' times, and what kept them from being captured, if anything did."""

    def run(side: Side, launches: int) -> None:
        for i in range(launches):
            side.enqueue(*problem.sets[i % len(problem.sets)], alpha, beta, stream)

    seconds = [seconds_of_one(partial(run, side), stream) for side in sides]
    counts = [launches_of(s, len(problem.sets), plan) for s in seconds]
    runs = [partial(run, side, n) for side, n in zip(sides, counts, strict=True)]
    replays: list[Callable[[], None]] = []
    why = None
    try:
        replays.extend(capture(r, stream) for r in runs)
    except GemmgenError as e:  # a side that cannot be captured: then all sides are launched one by one
        why = f"{sides[len(replays)].name}: {e}"
        replays = list(runs)
    rounds = [min(plan.samples, max(3, int(plan.side_s / (s * n)))) for s, n in zip(seconds, counts, strict=True)]
    samples = _samples(replays, rounds, stream, plan)
    timings = [
        _timing(side.name, [t / n for t in found], n) for side, n, found in zip(sides, counts, samples, strict=True)
    ]
    return timings, why


def seconds_of_one(run: Callable[[int], None], stream: int) -> float:
    """Seconds of one launch, roughly."""
    first = seconds_of(partial(run, 1), stream)
    return max(1e-7, first if first > 0.02 else seconds_of(partial(run, 3), stream) / 3)


def launches_of(seconds: float, sets: int, plan: Plan) -> int:
    """Products in one sample: enough to last ``sample_s``, in whole rounds of the sets unless those take seconds."""
    wanted = min(max(1, round(plan.sample_s / seconds)), plan.most_launches)
    return wanted if seconds * sets > 1.0 else -(-wanted // sets) * sets


def _samples(
    replays: Sequence[Callable[[], None]], rounds: Sequence[int], stream: int, plan: Plan
) -> list[list[float]]:
    """Seconds of each replay, in turn: A B, B A, A B, ..."""
    end = time.perf_counter() + plan.warm_up_s
    while True:
        for replay in replays:
            seconds_of(replay, stream)
        if time.perf_counter() > end:
            break
    found: list[list[float]] = [[] for _ in replays]
    for i in range(max(rounds)):
        order = range(len(replays)) if i % 2 == 0 else range(len(replays) - 1, -1, -1)
        for side in order:
            if i < rounds[side]:
                found[side].append(seconds_of(replays[side], stream))
    return found


def _timing(name: str, samples: list[float], launches: int) -> Timing:
    low, _, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else (samples[0],) * 3
    median = statistics.median(samples)
    return Timing(name, median, low, high, min(samples), max(samples), len(samples), launches)


def seconds_of(run: Callable[[], None], stream: int) -> float:
    """Seconds on the GPU of what ``run`` enqueues, by events."""
    with _event() as start, _event() as stop:
        call("cuEventRecord", start, stream)
        run()
        call("cuEventRecord", stop, stream)
        call("cuEventSynchronize", stop)
        return float(call("cuEventElapsedTime", start, stop)) / 1000


@contextmanager
def _event() -> Iterator[Any]:
    event = call("cuEventCreate", 0)
    try:
        yield event
    finally:
        call("cuEventDestroy", event)


class Replay:
    """A captured graph: a call runs it on the stream it was captured on."""

    def __init__(self, executable: Any, stream: int) -> None:
        self._executable = executable
        self._stream = stream

    def __call__(self) -> None:
        call("cuGraphLaunch", self._executable, self._stream)

    def __del__(self) -> None:
        with suppress(Exception):  # at the interpreter's end the driver may be gone
            call("cuGraphExecDestroy", self._executable)


def capture(run: Callable[[], None], stream: int) -> Replay:
    """What ``run`` enqueues, as a graph that can be replayed. Raises what ``run`` raises, LaunchError for the graph."""
    mode = bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    call("cuStreamBeginCapture", stream, mode)
    try:
        run()
    except BaseException:
        bindings().cuStreamEndCapture(stream)  # ends the capture; what was recorded is of no use
        raise
    graph = call("cuStreamEndCapture", stream)
    try:
        return Replay(call("cuGraphInstantiate", graph, 0), stream)
    finally:
        call("cuGraphDestroy", graph)
