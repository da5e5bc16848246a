"""A machine that is made up: every candidate has a true time, and may fail in any way that a real one fails."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmgen.target import GPUS, Gpu
from gemmgen.tune.backend import Care, Compiled, Failed, Measured
from gemmgen.tune.records import Machine
from gemmgen.tune.shapes import Shape
from gemmgen.tune.space import Candidate

SHAPE = (1024, 1024, 1024)
FLOOR_S = 2 * 1024**3 / 66.9e12


def truth(candidate: Candidate, spread: float = 0.25) -> float:
    """Seconds at SHAPE: a factor for each setting and for each pair of them, the same in every run."""
    settings = sorted(f"{name} {value}" for name, value in candidate.values)
    pairs = [f"{a}, {b}" for i, a in enumerate(settings) for b in settings[:i]]
    slow = sum(drawn(s) * spread for s in settings) + sum(drawn(p) * spread / 6 for p in pairs)
    return float(FLOOR_S * 1.2 * 2.718281828**slow)


def drawn(text: str) -> float:
    """A number from 0 to 1 that follows from the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32


@dataclass
class FakeBackend:
    """``fails`` says of a candidate how it fails, if it does; ``noise`` is the deviation of a sample; ``drift`` the
    factor by which the machine is slower in each further batch; ``busy`` the rounds in which something else runs."""

    seconds: Callable[[Candidate], float] = truth
    fails: Callable[[Candidate], Failed | None] = lambda c: None
    spills: Callable[[Candidate], int] = lambda c: 0
    noise: float = 0.004
    drift: float = 1.0
    busy: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    machine: Machine = field(default_factory=lambda: Machine("a made-up GPU", "1.0", "13.0"))
    gpu: Gpu = field(default_factory=lambda: GPUS["h200"])
    clock_hz: float = 1.98e9
    sms: int = 132
    measured: list[list[str]] = field(default_factory=list)
    compiled: list[str] = field(default_factory=list)
    closed: bool = False

    def compile(self, candidate: Candidate, shape: Shape) -> Compiled | Failed:
        self.compiled.append(candidate.key)
        return Compiled(100, self.spills(candidate))

    def measure(self, batch: Sequence[Candidate], shape: Shape, care: Care, *, warm: bool) -> list[Measured | Failed]:
        self.measured.append([c.key for c in batch])
        rng = random.Random(f"{self.seed} {len(self.measured)}")
        slow = self.drift ** len(self.measured)
        return [self.fails(c) or self._samples(c, rng, care.rounds, slow) for c in batch]

    def _samples(self, candidate: Candidate, rng: random.Random, rounds: int, slow: float) -> Measured:
        own = self.seconds(candidate) * slow
        return Measured(tuple(own * self.busy.get(i, 1.0) * (1 + abs(rng.gauss(0, self.noise))) for i in range(rounds)))

    def close(self) -> None:
        self.closed = True

    @property
    def timings(self) -> int:
        return sum(map(len, self.measured))


SPACE = """kernel tried
tile   block 128x128x16
tile   warp  64x64
tile   thread 8x4
use    coalescing, smem, transposeA, float4, warptile
tune tile block in {128x128x8, 128x128x16, 128x64x16, 64x128x16, 64x64x16}
tune tile warp in {64x64, 32x64, 64x32}
tune stages in {1, 2}
tune prefetch in {on, off}
tune pad_a in {0, 4}
tune pad_b in {0, 4}
tune snake in {on, off}
"""
"""480 combinations, not all of them legal, for the made-up machine."""


def small(**changes: Any) -> Any:
    """A spec with 8 candidates."""
    import gemmgen

    base = gemmgen.parse(SPACE.split("tune")[0])
    tune = {"stages": (1, 2), "pad_a": (0, 4), "pad_b": (0, 4), **changes}
    return base.replace(tune=tune)
