"""Finds the fastest kernel for a shape: prunes, compiles while timing, searches, compares the finalists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.diagnostics import TuneError
from gemmgen.tune import search
from gemmgen.tune.backend import Backend, Care, Compiled, Failed, Measured, Summary, summaries
from gemmgen.tune.estimate import floor_s
from gemmgen.tune.features import layout_of
from gemmgen.tune.records import Record, Records
from gemmgen.tune.shapes import Align, Shape, packed
from gemmgen.tune.space import Candidate, Pruned, Ranked, Space, reasons

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

SCREENING = Care(rounds=5, sample_s=0.004, warm_up_s=0.05)
FINAL = Care(rounds=15, sample_s=0.01, warm_up_s=0.2)
TYPES = "f32,f32,f32"
TOLERANCE = 0.97
"""Of the physical floor: what a clock above its nominal highest, or a timer's resolution, may explain."""
AHEAD = 8
"""Candidates for each compiling thread, in the model's order, that are compiled before anything asks for them."""
LASTING = ("compile", "spills", "rejected", "wrong", "hang")
"""Failures that are the kernel's own: kept, so that a kernel that hangs hangs once."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """One candidate: ``status`` "ok", "failed" (then ``reason``), or "modelled" where nothing was measured.

    ``seconds`` of one product and ``spread`` between quartiles as a part of it; ``final`` where it was in the last,
    careful comparison; ``recorded`` where an earlier run measured it.
    """

    spec: Spec
    label: str
    status: Literal["ok", "failed", "modelled"]
    modelled_s: float
    values: tuple[tuple[str, Any], ...] = ()
    seconds: float | None = None
    spread: float | None = None
    samples: int = 0
    discarded: int = 0
    registers: int | None = None
    reason: str = ""
    final: bool = False
    recorded: bool = False


@dataclass(frozen=True)
class TuneResult:
    """What tuning one shape found. ``best`` is the fastest spec; ``trials`` all that were tried, the fastest first.

    ``measured`` is False where only the model was asked. ``timings`` counts candidates timed in this run, once for each
    batch they were in. ``pruned`` are those left out before compiling, by the checks and by the model.
    """

    best: Spec
    shape: Shape
    trials: tuple[Trial, ...]
    pruned: tuple[Pruned, ...]
    combinations: int
    timings: int
    measured: bool
    gpu: str
    wall_s: float
    possible: int = 0
    """Combinations that the choices make, where more than were looked at."""

    @property
    def best_s(self) -> float:
        """Seconds of one product by the best kernel; modelled where nothing was measured."""
        first = self.trials[0]
        return first.modelled_s if first.seconds is None else first.seconds

    @property
    def gflops(self) -> float:
        m, n, k = self.shape
        return 2.0 * m * n * k / self.best_s / 1e9

    def __str__(self) -> str:
        from gemmgen.tune.printed import result_text

        return result_text(self)

    def _repr_html_(self) -> str:
        from gemmgen.tune.printed import result_html

        return result_html(self)

    @property
    def pruning(self) -> list[tuple[str, str, int]]:
        """(by, why, how many) were left out before compiling."""
        return reasons(self.pruned)


@dataclass(frozen=True)
class Options:
    """How to tune. ``timings`` is the budget; ``jobs`` how many compilations at a time."""

    search: search.Name = "guided"
    timings: int = 60
    seed: int = 0
    warm: bool = False
    jobs: int = 1
    screening: Care = SCREENING
    final: Care = FINAL


def modelled(space: Space, order: Ranked, shape: Shape, gpu: str) -> TuneResult:
    """The model's choice, with nothing measured. Raises TuneError where no candidate is left."""
    _refuse_empty(space, order, shape)
    trials = tuple(
        Trial(c.spec, c.label, "modelled", s, c.values) for c, s in zip(order.candidates, order.seconds, strict=True)
    )
    pruned = (*space.illegal, *order.hopeless)
    return TuneResult(trials[0].spec, shape, trials, pruned, space.combinations, 0, False, gpu, 0.0, space.possible)


def _refuse_empty(space: Space, order: Ranked, shape: Shape) -> None:
    if not order.candidates:
        why = "; ".join(f"{n} by the {by}: {text}" for by, text, n in reasons((*space.illegal, *order.hopeless))[:4])
        size = "x".join(map(str, shape))
        of = (
            f"{space.combinations} combinations, drawn at random from {space.possible},"
            if space.possible > space.combinations
            else space.combinations
        )
        raise TuneError(f"no candidate for {size} is left of {of} to try: {why or 'none was given'}")


class Tuning:
    """One search for one shape on one machine."""

    def __init__(
        self,
        space: Space,
        order: Ranked,
        shape: Shape,
        backend: Backend,
        records: Records | None,
        options: Options,
        say: Say,
    ) -> None:
        _refuse_empty(space, order, shape)
        self.space, self.order, self.shape = space, order, shape
        self.backend, self.records, self.options, self.say = backend, records, options, say
        self.align: Align = packed(shape, layout_of(order.candidates[0].spec))
        self.timings = 0
        self.trials: dict[int, Trial] = {}
        self._known = self._recorded()
        self._building: dict[int, Future[Compiled | Failed]] = {}
        self._pool: ThreadPoolExecutor

    def run(self) -> TuneResult:
        """Search, and return what was found. Raises TuneError where no candidate survives."""
        start = time.perf_counter()
        candidates = self.order.candidates
        problem = search.Problem(
            tuple(features(c) for c in candidates), self.order.seconds, self.options.timings, self.options.seed
        )
        with self._compilers() as self._pool:
            self._compile_ahead()
            search.run(self.options.search, problem, self.measure)
        trials = tuple(sorted(self.trials.values(), key=_merit))
        if not trials or trials[0].status != "ok":
            raise TuneError(self._no_survivor(trials))
        pruned = (*self.space.illegal, *self.order.hopeless)
        took = time.perf_counter() - start
        return TuneResult(
            trials[0].spec, self.shape, trials, pruned, self.space.combinations, self.timings, True,
            self.backend.machine.gpu, took, self.space.possible,
        )  # fmt: skip

    @contextmanager
    def _compilers(self) -> Iterator[ThreadPoolExecutor]:
        """Threads that compile: NVRTC runs beside itself, and beside the timing."""
        pool = ThreadPoolExecutor(max(1, self.options.jobs), thread_name_prefix="compile")
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    # --- A batch -------------------------------------------------------------------------------------------------

    def measure(self, positions: Sequence[int], anchor: search.Anchor | None, final: bool) -> Mapping[int, float]:
        """Seconds of the candidates that are right and possible; the others are noted as failed."""
        found: dict[int, float] = {}
        fresh: list[int] = []
        for i in positions:
            record = self._known.get(i)
            if record is None or (final and record.level < 1 and record.status == "ok"):
                fresh.append(i)
                continue
            self.trials[i] = self._from_record(i, record)
            if record.status == "ok" and record.seconds is not None:
                found[i] = record.seconds if final or record.screened is None else record.screened
        if final and fresh:  # finalists are compared in one batch or not at all
            fresh = [i for i in positions if i in fresh or self.trials[i].status == "ok"]
        self._compile_now(fresh)
        ready = [i for i in fresh if self._compiled(i)]
        if ready:
            found.update(self._timed(ready, anchor, final))
        return found

    def _timed(self, ready: list[int], anchor: search.Anchor | None, final: bool) -> dict[int, float]:
        batch = ready if anchor is None else [anchor[0], *ready]
        care = self.options.final if final else self.options.screening
        self.timings += len(batch)
        self.say(f"{'comparing the finalists' if final else 'timing'}: {self.timings} timings so far")
        candidates = [self.order.candidates[i] for i in batch]
        answers = self.backend.measure(candidates, self.shape, care, warm=self.options.warm)
        right = [(i, a) for i, a in zip(batch, answers, strict=True) if isinstance(a, Measured)]
        for i, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Failed):
                self._fail(i, answer)
        summarised = dict(zip((i for i, _ in right), summaries([a.samples for _, a in right]), strict=True))
        scale = 1.0
        if anchor is not None:
            again = summarised.pop(anchor[0], None)
            scale = anchor[1] / again.seconds if again else 1.0
        return {i: seconds for i, s in summarised.items() if (seconds := self._judged(i, s, scale, final)) is not None}

    def _judged(self, i: int, found: Summary, scale: float, final: bool) -> float | None:
        """The seconds of a candidate, noted; None where they are less than physics allows."""
        floor = floor_s(
            self.shape, self.backend.gpu, clock_hz=self.backend.clock_hz, sms=self.backend.sms, warm=self.options.warm
        )
        if found.seconds < TOLERANCE * floor:
            why = f"{found.seconds * 1e6:.3g} us is less than the {floor * 1e6:.3g} us that the GPU needs at its peak"
            self._fail(i, Failed("peak", why))
            return None
        seconds = found.seconds * scale
        before = self.trials.get(i)
        trial = replace(
            before or self._trial(i), status="ok", seconds=seconds, spread=found.spread, samples=found.samples,
            discarded=found.discarded, final=final, recorded=False,
        )  # fmt: skip
        self.trials[i] = trial
        screened = seconds if not final else (before.seconds if before else None)
        self._keep(i, trial, level=int(final), screened=screened)
        return seconds

    def _fail(self, i: int, failed: Failed) -> None:
        trial = replace(self._trial(i), status="failed", reason=f"{failed.kind}: {failed.why}")
        self.trials[i] = trial
        if failed.kind in LASTING:
            self._keep(i, trial, level=1, status=failed.kind)  # it outranks what was timed in passing

    def _trial(self, i: int) -> Trial:
        c = self.order.candidates[i]
        built = self._building[i].result() if i in self._building and self._building[i].done() else None
        registers = built.registers if isinstance(built, Compiled) else None
        return Trial(c.spec, c.label, "ok", self.order.seconds[i], c.values, registers=registers)

    # --- Compiling -----------------------------------------------------------------------------------------------

    def _compile(self, positions: Iterable[int]) -> None:
        for i in positions:
            if i not in self._building:
                candidate = self.order.candidates[i]
                self._building[i] = self._pool.submit(self.backend.compile, candidate, self.shape)

    def _compile_ahead(self) -> None:
        """Keep every thread at work on what is likely to be asked for."""
        count = AHEAD * self.options.jobs
        self._compile([i for i in range(len(self.order.candidates)) if i not in self._known][:count])

    def _compile_now(self, wanted: Sequence[int]) -> None:
        """What is wanted, before what was only likely to be."""
        waiting = [i for i, f in self._building.items() if i not in wanted and f.cancel()]
        for i in waiting:
            del self._building[i]
        self._compile(wanted)
        self._compile(waiting)

    def _compiled(self, i: int) -> bool:
        """Whether the candidate compiles to what may be timed; waits for that, and notes why not."""
        found = self._building[i].result()
        if isinstance(found, Compiled) and found.spill_bytes:
            found = Failed("spills", f"{found.spill_bytes} bytes per thread spill to local memory")
        if isinstance(found, Failed):
            self._fail(i, found)
            return False
        return True

    # --- Records -------------------------------------------------------------------------------------------------

    def _recorded(self) -> dict[int, Record]:
        """What earlier runs measured of these candidates, here and at this shape."""
        if self.records is None:
            return {}
        rows = self.records.find(
            machine=self.backend.machine, shape=self.shape, align=self.align, warm=self.options.warm
        )
        by_key = {row.key: row for row in rows if row.types == TYPES}
        return {i: by_key[c.key] for i, c in enumerate(self.order.candidates) if c.key in by_key}

    def _from_record(self, i: int, record: Record) -> Trial:
        c = self.order.candidates[i]
        return Trial(
            c.spec, c.label, "ok" if record.status == "ok" else "failed", self.order.seconds[i], c.values,
            seconds=record.seconds, spread=record.spread, samples=record.samples, discarded=record.discarded,
            registers=record.registers, reason=record.reason, final=record.level > 0, recorded=True,
        )  # fmt: skip

    def _keep(self, i: int, trial: Trial, level: int, status: str = "ok", screened: float | None = None) -> None:
        from gemmgen.version import __version__

        if self.records is None:
            return
        c = self.order.candidates[i]
        record = Record(
            self.backend.machine, self.shape, TYPES, self.align, self.options.warm, c.key, c.spec.to_text(), status,
            trial.seconds, trial.spread, trial.samples, trial.discarded, level, screened, trial.registers,
            trial.reason, f"gemmgen {__version__}",
        )  # fmt: skip
        self.records.put(record)

    def _no_survivor(self, trials: Sequence[Trial]) -> str:
        size = "x".join(map(str, self.shape))
        shown = "; ".join(f"{t.label}: {t.reason}" for t in trials[:3])
        more = f"; and {len(trials) - 3} more" if len(trials) > 3 else ""
        return f"no candidate for {size} survives: all {len(trials)} that were tried fail: {shown}{more}"


def features(candidate: Candidate) -> dict[str, Any]:
    """What a candidate's time may depend on, by name: its settings, each toggle as one."""
    spec = candidate.spec
    found: dict[str, Any] = {
        "block": spec.block, "warp": spec.warp, "thread": spec.thread, "pieces": spec.warp_iterations,
        **{name: getattr(spec, name) for name in spec.__dataclass_fields__ if isinstance(getattr(spec, name), int)},
    }  # fmt: skip
    return found | dict.fromkeys(sorted(spec.use), True)


def _merit(trial: Trial) -> tuple[bool, bool, float, str]:
    """Finalists first, by their careful times: what was timed in passing has more noise, and may look faster."""
    return trial.status != "ok", not trial.final, trial.seconds or float("inf"), trial.label
