"""The verdict on an answer: what is met, what is not, with the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError, SpecError
from gemmgen.ir.types import F32
from gemmgen.lesson.measures import MEASURES, measured
from gemmgen.lesson.rows import Exercise, Race

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

BARRIER = "barrier"


@dataclass(frozen=True)
class Point:
    """One thing that was checked, in a sentence."""

    met: bool
    text: str


@dataclass(frozen=True)
class Verdict:
    points: tuple[Point, ...]

    @property
    def passed(self) -> bool:
        return bool(self.points) and all(p.met for p in self.points)


def start_of(exercise: Exercise | Race) -> str:
    """The text to start from."""
    return exercise.start if isinstance(exercise, Exercise) else broken(exercise)


def solution_of(exercise: Exercise | Race) -> str:
    return exercise.solution if isinstance(exercise, Exercise) else "\n".join(program_of(exercise)) + "\n"


def check(exercise: Exercise | Race, text: str, filename: str = "<answer>") -> Verdict:
    """Check an answer. A spec that is not legal is a verdict too: its errors."""
    if isinstance(exercise, Race):
        return Verdict(tuple(_race(exercise, text)))
    import gemmgen

    try:
        spec = gemmgen.parse(text, filename)
    except SpecError as error:
        return Verdict((Point(False, f"the spec is not legal:\n{error}"),))
    return Verdict((*_kept(exercise, spec), *_reached(exercise, spec), *_simulated(spec)))


def _kept(exercise: Exercise, spec: Spec) -> Iterator[Point]:
    import gemmgen

    wanted = gemmgen.parse(exercise.solution)
    for name in exercise.keep:
        value, mine = getattr(wanted, name), getattr(spec, name)
        if value != mine:
            yield Point(False, f"tile {name} must be {_tile(value)}, and is {_tile(mine)}")
    for toggle in exercise.use:
        if not spec.has(toggle):
            yield Point(False, f"the spec must use {toggle}")


def _tile(value: Any) -> str:
    return "none" if value is None else "x".join(map(str, value))


def _reached(exercise: Exercise, spec: Spec) -> Iterator[Point]:
    import gemmgen

    try:
        e = gemmgen.explain(spec, *exercise.size, gpu=exercise.gpu, compiled=False)
    except GemmgenError as error:
        yield Point(False, str(error))
        return
    for goal in exercise.goals:
        value, unit = measured(e, goal.measure), MEASURES[goal.measure].unit
        found = f"{goal.measure}: {_number(value)}{_after(unit)}"
        yield Point(goal.met(value), f"{found}; wanted {goal.op} {_number(goal.value)}")


def _after(unit: str) -> str:
    return unit if unit.startswith(("-", "%")) else f" {unit}" if unit else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _simulated(spec: Spec) -> Iterator[Point]:
    """The answer's kernel must be right: a small product, every access checked."""
    from gemmgen.report.page.facts import checked

    found = checked(spec)
    size = "x".join(map(str, found.size))
    if found.faults:
        yield Point(False, f"simulated at {size}: {found.faults[0]}")
    else:
        yield Point(found.right, f"simulated at {size}: {'PASS' if found.right else 'FAIL, wrong result'}")


# --- Races -----------------------------------------------------------------------------------------------------------


def program_of(race: Race) -> list[str]:
    """The lines of the whole tile program, without its comments."""
    import gemmgen
    from gemmgen.ir.variant import EXACT
    from gemmgen.tile import build, print_tile

    return _lines(print_tile(build(gemmgen.load(race.spec), EXACT)))


def _lines(text: str) -> list[str]:
    return [bare for line in text.splitlines() if (bare := line.partition("#")[0].rstrip())]


def broken(race: Race) -> str:
    """The program without its barrier."""
    lines = program_of(race)
    del lines[barriers(lines)[race.barrier]]
    return "\n".join(lines) + "\n"


def barriers(lines: list[str]) -> list[int]:
    """The places of the barriers among lines."""
    return [i for i, line in enumerate(lines) if line.strip() == BARRIER]


def _race(race: Race, text: str) -> Iterator[Point]:
    whole, mine = program_of(race), _lines(text)
    if [x.strip() for x in mine if x.strip() != BARRIER] != [x.strip() for x in whole if x.strip() != BARRIER]:
        yield Point(False, "the program differs in more than its barriers; start from `gemmgen lesson show` again")
        return
    missing = set(_places(whole)) - set(_places(mine))
    extra = set(_places(mine)) - set(_places(whole))
    yield Point(not missing, _fault(race) if missing else "simulated: no race")
    if extra:
        yield Point(False, f"the barrier after `{min(extra)[1]}` orders nothing that needs it; remove it")


def _places(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Each barrier by the line it follows: its number among the other lines, and its text."""
    at, last = 0, ""
    for line in lines:
        if line.strip() == BARRIER:
            yield at, last
        else:
            at, last = at + 1, line.strip()


def _fault(race: Race) -> str:
    """The simulator's word on the program without the barrier."""
    import numpy as np

    import gemmgen

    spec = gemmgen.load(race.spec)
    ir = gemmgen.lower(spec)
    bm, bn, bk = spec.block
    a, b = np.ones((bm, 2 * bk), F32.numpy_dtype), np.ones((2 * bk, bn), F32.numpy_dtype)
    faults = gemmgen.simulate(ir.without(ir.syncs()[race.barrier]), a, b).faults
    # The answer is a tile program, which has no lines of a spec.
    told = re.sub(r" \(spec line [0-9]+\)", "", str(faults[0]))
    return f"simulated without the missing barrier: {told}"
