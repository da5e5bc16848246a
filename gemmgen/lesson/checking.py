"""The verdict on an answer: what is met, what is not, with the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError, SpecError
from gemmgen.lesson.races import broken, check_race, program_of
from gemmgen.lesson.rows import FIXED, Exercise, Point, Race

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.lesson.rows import Goal
    from gemmgen.spec.model import Spec


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
        return Verdict(tuple(check_race(exercise, text)))
    import gemmgen

    try:
        spec = gemmgen.parse(text, filename)
    except SpecError as error:
        return Verdict((Point(False, f"the spec is not legal:\n{error}"),))
    if other := tuple(_other_product(exercise, spec)):
        return Verdict(other)
    kept = tuple(_kept(exercise, spec))
    try:
        return Verdict((*kept, *_reached(exercise, spec), _simulated(spec)))
    except GemmgenError as error:
        return Verdict((*kept, Point(False, str(error))))


# --- What must stay as it is -----------------------------------------------------------------------------------------


def _other_product(exercise: Exercise, spec: Spec) -> Iterator[Point]:
    """Where an answer computes something else, or by other means, its figures are not those of the exercise."""
    import gemmgen

    wanted = gemmgen.parse(exercise.solution)
    for line, names in FIXED.items():
        if differ := tuple(x for x in names if getattr(wanted, x) != getattr(spec, x)):
            yield Point(False, f"{line} must be {_line(wanted, differ)}; the answer has {_line(spec, differ)}")
    for toggle in (*exercise.without, "batched"):
        if spec.has(toggle):
            yield Point(False, f"use {toggle} is not allowed in this exercise; remove it")


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


def _line(spec: Spec, names: tuple[str, ...]) -> str:
    """The value of a line of a spec, as it is written."""
    return ", ".join(_field(x, getattr(spec, x)) for x in names)


def _field(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return " -> ".join(value) or "none"
    if isinstance(value, str):
        return f"accumulate {value}" if name == "accumulate" else value
    return f"{name} {value.dtype} {value.order}"


# --- What must be reached --------------------------------------------------------------------------------------------


def _reached(exercise: Exercise, spec: Spec) -> Iterator[Point]:
    """The goals. Those that take a compiler are left for last, and not asked for where another is not met."""
    as_written = _explained(exercise, spec, False)
    met = True
    for goal in sorted(exercise.goals, key=lambda g: g.measure.compiled):
        if not goal.measure.compiled:
            point = goal.point(goal.measure.of(as_written))
        elif met:
            point = _compiled(goal, _explained(exercise, spec, True))
        else:
            continue
        met = met and point.met
        yield point


def _compiled(goal: Goal, e: Explanation) -> Point:
    by = "modelled: NVRTC is not available" if e.compiled is None else f"compiled for {e.compiled.arch}"
    point = goal.point(goal.measure.of(e))
    return Point(point.met, f"{point.text} ({by})")


def _explained(exercise: Exercise, spec: Spec, compiled: bool) -> Explanation:
    import gemmgen

    return gemmgen.explain(spec, *exercise.size, gpu=exercise.gpu, compiled=compiled)


def _simulated(spec: Spec) -> Point:
    """The answer's kernel must be right: a small product, every access checked."""
    from gemmgen.report.page.facts import checked

    found = checked(spec)
    size = "x".join(map(str, found.size))
    if found.faults:
        return Point(False, f"simulated at {size}: {found.faults[0]}")
    return Point(found.right, f"simulated at {size}: {'PASS' if found.right else 'FAIL, wrong result'}")
