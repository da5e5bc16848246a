"""What an exercise is: a text, a spec to start from, what the answer must reach, hints, and a solution."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Size = tuple[int, int, int]
SQUARE: Size = (4096, 4096, 4096)


@dataclass(frozen=True)
class Goal:
    """A figure of ``measures.MEASURES`` that must be at most or at least ``value``."""

    measure: str
    op: Literal["at most", "at least"]
    value: float

    def met(self, value: float) -> bool:
        return value <= self.value + 1e-9 if self.op == "at most" else value >= self.value - 1e-9


@dataclass(frozen=True)
class Exercise:
    """``start`` and ``solution`` are texts of specs; ``keep`` are fields of Spec that must stay as they are in the
    solution; ``use`` toggles that it must have. ``why`` explains the answer once it is right."""

    title: str
    source: str
    text: str
    start: str
    goals: tuple[Goal, ...]
    hints: tuple[str, ...]
    solution: str
    why: str
    keep: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    size: Size = SQUARE
    gpu: str = "h200"


@dataclass(frozen=True)
class Race:
    """A tile program from which barrier number ``barrier`` was taken away; the answer puts it back."""

    title: str
    source: str
    text: str
    spec: str
    barrier: int
    hints: tuple[str, ...]
    why: str
    keep: tuple[str, ...] = field(default=())


def spec(*lines: str) -> str:
    return "\n".join(("kernel answer", *lines, ""))


def least(measure: str, value: float) -> Goal:
    return Goal(measure, "at least", value)


def most(measure: str, value: float) -> Goal:
    return Goal(measure, "at most", value)
