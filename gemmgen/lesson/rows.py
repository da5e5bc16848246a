"""What an exercise is: a text, a spec to start from, what the answer must reach, hints, and a solution."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gemmgen.lesson.measures import MEASURES, Measure, number
from gemmgen.target import gpu as gpu_named

Size = tuple[int, int, int]
SQUARE: Size = (4096, 4096, 4096)
FIXED = {"operands": ("A", "B", "C", "accumulate"), "math": ("math",), "epilogue": ("epilogue",)}
"""Lines of a spec, with their fields, that an answer must leave as they are in the solution."""


@dataclass(frozen=True)
class Point:
    """One thing that was checked, in a sentence."""

    met: bool
    text: str


@dataclass(frozen=True)
class Goal:
    """A figure of ``measures.MEASURES`` that must be at most or at least ``value``."""

    name: str
    op: Literal["at most", "at least"]
    value: float

    @property
    def measure(self) -> Measure:
        return MEASURES[self.name]

    def met(self, value: float) -> bool:
        return value <= self.value + 1e-9 if self.op == "at most" else value >= self.value - 1e-9

    @property
    def text(self) -> str:
        return f"{self.name}: {self.op} {self.measure.said(self.value)}"

    def point(self, value: float) -> Point:
        """What a value of the measure comes to."""
        said, met = self.measure.said, self.met(value)
        digits = 3
        while not met and digits < 9 and number(value, digits) == number(self.value, digits):
            digits += 1
        return Point(met, f"{self.name}: {said(value, digits)}; wanted {self.op} {said(self.value, digits)}")


@dataclass(frozen=True)
class Exercise:
    """``start`` and ``solution`` are texts of specs; ``keep`` are fields of Spec that must stay as they are in the
    solution, beside those of FIXED; ``use`` toggles that it must have, and ``without`` some that it must not.
    ``operands``: those of the solution, where they are not the start's. ``why`` explains the answer once it is right.
    """

    title: str
    source: str
    task: str
    start: str
    goals: tuple[Goal, ...]
    hints: tuple[str, ...]
    solution: str
    why: str
    keep: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    size: Size = SQUARE
    gpu: str = "h200"
    without: tuple[str, ...] = ("directB",)
    operands: str = ""

    @property
    def text(self) -> str:
        """The task, and all that is checked."""
        size = "x".join(map(str, self.size))
        goals = "; ".join(goal.text for goal in self.goals)
        kept = [*(f"tile {name}" for name in self.keep), *FIXED]
        if self.operands:
            kept.remove("operands")
        told = [
            f"Goals at {size} (MxNxK) on an {gpu_named(self.gpu).title}: {goals}.",
            f"Do not change: {', '.join(kept)}.",
        ]
        required = [f"operands {self.operands}"] if self.operands else []
        if self.use:
            required.append(f"use {', '.join(self.use)}")
        if required:
            told.append(f"Required: {'; '.join(required)}.")
        if self.without and "smem" in self.start:
            told.append(f"Not allowed: use {', '.join(self.without)}.")
        return " ".join([self.task, *told])


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


def least(name: str, value: float) -> Goal:
    return Goal(name, "at least", value)


def most(name: str, value: float) -> Goal:
    return Goal(name, "at most", value)
