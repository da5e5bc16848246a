"""The process that runs candidates on the GPU, one line of JSON at a time.

An error of a kernel (an illegal access, a hang) ends the CUDA context for good, so candidates never run in the tuner's
own process. ``python -m gemmgen.tune.worker`` reads commands on stdin and answers on stdout; whatever else is printed
goes to stderr. Before anything that may hang or die it says what it is about to do.

    {"do": "shape", "size": [m, n, k], "warm": false, "seed": 0}
        -> {"is": "ready"}
    {"do": "batch", "specs": [text, ...], "rounds": 5, "sample_s": 0.004, "warm_up_s": 0.05}
        -> {"is": "begin", "at": 0, "phase": "check"}, {"is": "failed", "at": 0, "kind": "wrong", "why": ...}, ...
           {"is": "done", "samples": {"1": [seconds, ...]}}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.problem import Problem
    from gemmgen.runtime.timing import Side

Answer = Callable[..., None]


class Fatal(Exception):
    """The CUDA context is lost; the process has to end."""


class Worker:
    """The operands of one shape on the GPU, and the candidates of one batch after another."""

    def __init__(self, answer: Answer) -> None:
        from gemmgen.runtime.device import required
        from gemmgen.runtime.driver import make_current, private_stream

        self.answer = answer
        self.device: Device = required()
        make_current(self.device.ordinal)
        self.stream = private_stream(self.device.ordinal)
        self.problem: Problem | None = None

    def shape(self, size: Sequence[int], warm: bool, seed: int, layout: str = "nn") -> None:
        from gemmgen.runtime.problem import Problem
        from gemmgen.tune.pool import LAYOUTS, orders_of

        m, n, k = size
        o = orders_of(next(x for x in LAYOUTS if x == layout))
        if self.problem is not None:
            self.problem.__exit__()
        self.problem = Problem.make((m, n, k), self.device, beta=0.0, warm=warm, seed=seed, orders=(o.a, o.b, o.c))
        self.answer("ready")

    def batch(self, specs: Sequence[str], rounds: int, sample_s: float, warm_up_s: float) -> None:
        sides: dict[int, Side] = {}
        for at, text in enumerate(specs):
            self.answer("begin", at=at, phase="check")
            side = self._checked(at, text)
            if side is not None:
                sides[at] = side
        samples = self._timed(sides, rounds, sample_s, warm_up_s)
        self.answer("done", samples={str(at): found for at, found in samples.items()})

    def _checked(self, at: int, text: str) -> Side | None:
        """The candidate, ready to be called, if its result is right."""
        from gemmgen.api.kernel import Kernel
        from gemmgen.api.specs import parse
        from gemmgen.runtime.check import check
        from gemmgen.runtime.driver import call
        from gemmgen.runtime.timing import KernelSide
        from gemmgen.tune.pool import swaps

        assert self.problem is not None
        try:
            spec = parse(text)
            side = KernelSide(spec.name, Kernel(spec, "cuda", spec.arch or self.device.arch, swapped=swaps(spec)))
            for a, b, c in {id(s): s for s in (self.problem.sets[0], self.problem.sets[-1])}.values():
                self.problem.poison(c)
                side.enqueue(a, b, c, 1.0, 0.0, self.stream)
                call("cuStreamSynchronize", self.stream)
                found = check(self.problem, c, 1.0, 0.0)
                if not found.ok:
                    self.answer("failed", at=at, kind="wrong", why=str(found))
                    return None
        except GemmgenError as error:
            self._failed(at, error)
            return None
        except Exception as error:  # of a library, or a mistake here: the candidate is out, and the process ends
            self.answer("failed", at=at, kind="launch", why=f"{type(error).__name__}: {error}"[:400])
            raise Fatal(str(error)) from error
        return side

    def _failed(self, at: int, error: Exception) -> None:
        """Report a failure; end the process where the context did not survive it."""
        from gemmgen.runtime.driver import call

        kind = "compile" if type(error).__name__ in ("CompileError", "SpecError") else "launch"
        self.answer("failed", at=at, kind=kind, why=" ".join(str(error).split())[:400])
        try:
            call("cuCtxSynchronize")
        except GemmgenError as lost:
            raise Fatal(str(lost)) from error

    def _timed(
        self, sides: Mapping[int, Side], rounds: int, sample_s: float, warm_up_s: float
    ) -> dict[int, list[float]]:
        """Seconds of one product in each round, the candidates taking turns: A B C, C B A, ..."""
        replays: dict[int, tuple[Callable[[], None], int]] = {}
        for at, side in sides.items():
            self.answer("begin", at=at, phase="time")
            try:
                replays[at] = self._replay(side, sample_s)
            except GemmgenError as error:
                self._failed(at, error)
        found: dict[int, list[float]] = {at: [] for at in replays}
        end = time.perf_counter() + warm_up_s
        while replays and time.perf_counter() < end:
            for at in replays:
                self._once(at, replays)
        for turn in range(rounds):
            for at in sorted(replays, reverse=turn % 2 == 1):
                found[at].append(self._once(at, replays))
        return found

    def _once(self, at: int, replays: Mapping[int, tuple[Callable[[], None], int]]) -> float:
        from gemmgen.runtime.timing import seconds_of

        replay, launches = replays[at]
        self.answer("begin", at=at, phase="time")
        try:
            return seconds_of(replay, self.stream) / launches
        except GemmgenError as error:
            self.answer("failed", at=at, kind="launch", why=" ".join(str(error).split())[:400])
            raise Fatal(str(error)) from error

    def _replay(self, side: Side, sample_s: float) -> tuple[Callable[[], None], int]:
        """A function that replays a graph of enough products to last ``sample_s``, and how many those are."""
        from gemmgen.runtime.timing import Plan, capture, launches_of, seconds_of_one

        assert self.problem is not None
        sets = self.problem.sets

        def run(launches: int) -> None:
            for i in range(launches):
                side.enqueue(*sets[i % len(sets)], 1.0, 0.0, self.stream)

        seconds = seconds_of_one(run, self.stream)
        launches = launches_of(seconds, len(sets), Plan(sample_s=sample_s))
        return capture(partial(run, launches), self.stream), launches


def serve(source: IO[str], answer: Answer) -> int:
    """Do what the lines of ``source`` say until it ends; 0, or 3 where the CUDA context was lost."""
    worker: Worker | None = None
    for line in source:
        command = json.loads(line)
        what = command.pop("do")
        try:
            worker = worker or Worker(answer)
            match what:
                case "shape":
                    worker.shape(**command)
                case _:
                    worker.batch(**command)
        except Fatal:
            return 3
        except GemmgenError as error:
            answer("error", why=str(error))
    return 0


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(what: str, /, **facts: Any) -> None:
        out.write(json.dumps({"is": what, **facts}) + "\n")
        out.flush()

    return serve(sys.stdin, answer)


if __name__ == "__main__":
    sys.exit(main())
