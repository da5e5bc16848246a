"""What a tuner needs of the machine: compiling a candidate, and timing a batch of them. The GPU is one such machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from gemmgen.tune.records import Machine
from gemmgen.tune.shapes import Shape

if TYPE_CHECKING:
    from gemmgen.target import Gpu
    from gemmgen.tune.space import Candidate

Kind = Literal["compile", "spills", "rejected", "launch", "wrong", "hang", "peak", "died"]
"""How a candidate fails: it does not compile; registers are spilled; its machine code is not what was meant; it cannot
be launched; its result is wrong; it does not end; it is faster than physics allows; its process died."""


@dataclass(frozen=True)
class Failed:
    """Why a candidate is out."""

    kind: Kind
    why: str


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of a candidate; None where that is not known before it is loaded.

    ``port_stall`` are clocks that each multiply-add of the main loop waits for register ports, of its machine code.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    port_stall: float | None = None


@dataclass(frozen=True)
class Measured:
    """Seconds of one product in each round of a batch, in the order of the rounds."""

    samples: tuple[float, ...]


@dataclass(frozen=True)
class Care:
    """How carefully to time: rounds of a batch, seconds of one sample at least, seconds of warming up."""

    rounds: int
    sample_s: float
    warm_up_s: float


class Backend(Protocol):
    """A machine to tune on. ``clock_hz`` is its highest clock."""

    @property
    def machine(self) -> Machine: ...

    @property
    def gpu(self) -> Gpu: ...

    @property
    def clock_hz(self) -> float: ...

    @property
    def sms(self) -> int: ...

    def compile(self, candidate: Candidate, shape: Shape) -> Compiled | Failed:
        """Compile the kernels that the shape needs. Called from several threads."""
        ...

    def measure(self, batch: Sequence[Candidate], shape: Shape, care: Care, *, warm: bool) -> list[Measured | Failed]:
        """Check each candidate against float64, then time those that are right in turn; an answer for each."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Summary:
    """A batch's samples of one candidate, those taken while something else held the machine left out."""

    seconds: float
    spread: float
    samples: int
    discarded: int


CONTENDED = 1.06
"""A round in which candidates take this much longer than usual, all together, is not theirs alone."""
OUTLIER = 1.25


def summaries(found: Sequence[Sequence[float]]) -> list[Summary]:
    """The median and spread of each candidate's samples, without contended rounds and single outliers.

    A round is contended where its samples, each by its candidate's own median, are slow together. At least half of a
    candidate's samples are always kept: a machine that is never free shows in the spread.
    """
    medians = [statistics.median(samples) for samples in found]
    rounds = max(map(len, found), default=0)
    slow = [
        statistics.median([s[i] / m for s, m in zip(found, medians, strict=True) if i < len(s)]) for i in range(rounds)
    ]
    contended = {i for i, ratio in enumerate(slow) if ratio > CONTENDED}
    return [_summary(samples, contended) for samples in found]


def _summary(samples: Sequence[float], contended: set[int]) -> Summary:
    kept = [s for i, s in enumerate(samples) if i not in contended]
    if len(kept) * 2 < len(samples):
        kept = sorted(samples)[: (len(samples) + 1) // 2]
    middle = statistics.median(kept)
    calm = [s for s in kept if s <= OUTLIER * middle]
    low, middle, high = statistics.quantiles(calm, n=4) if len(calm) > 1 else (calm[0],) * 3
    return Summary(middle, (high - low) / middle, len(calm), len(samples) - len(calm))
