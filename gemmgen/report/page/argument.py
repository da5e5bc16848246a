"""The fastest rungs as one argument: what their FMAs need, what the model adds to that, and what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.text.numbers import time_text

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.report.page.facts import RungFacts
    from gemmgen.report.page.recorded import Measured, Time

MOSTLY_FMAS = 0.8
"""A rung belongs to the argument where FMAs alone are at least this share of its expected time."""

REMOVES: Mapping[str, str] = {
    "cpasync": (
        "Fragments are loaded one step early, so FMAs no longer stall for shared memory. What is left are stalls "
        "between FMAs: in row order an FMA often reads two registers of one bank."
    ),
    "registerbanks": (
        "Snake order reuses a register of the previous FMA, which removes part of these conflicts. A is copied 16 "
        "bytes per access, in place of 4."
    ),
    "tma": (
        "The compiler still mixed the FMAs of several steps, which undid part of that order. Separators keep each step "
        "together, and one thread copies whole tiles."
    ),
    "pipelined": "All warps still met at a barrier for each tile. Now each warp releases a stage by itself.",
}
"""What a rung removes of what the rung before it left, in one or two sentences."""

UNSEEN: Mapping[str, str] = {
    "vectorized": (
        "it has no time for the load/store unit, where a load of 4 bytes takes a turn as one of 16 bytes does"
    ),
    "registerbanks": (
        "in it, copies through registers and one stage less cost about what snake order saves; on the GPU they cost "
        "less"
    ),
    "tma": (
        "it counts the registers that FMAs read, but not where loads stand. Without separators the compiler gathers "
        "the loads of several steps, and both warps of a scheduler wait for them at the same time"
    ),
    "pipelined": "it has no time for the warps of a block that wait at a barrier for the slowest one",
}
"""Why the model sees less of a rung's gain than was measured on an H200."""


def more_registers(e: Explanation | None, before: Explanation | None) -> str:
    """Why more registers reduce register-bank conflicts, at a rung that lifts the limit on them; else empty."""
    if e is None or before is None or e.compiled is None or before.compiled is None:
        return ""
    if e.compiled.registers <= before.compiled.registers or e.ir.min_blocks or not before.ir.min_blocks:
        return ""
    return (
        f"The compiler uses {e.compiled.registers} registers per thread, {before.compiled.registers} before. Registers "
        "with even numbers are in one bank, those with odd numbers in the other, and the compiler chooses the numbers. "
        "With registers to spare it can put the operands of an FMA in different banks; at the limit it must take what "
        "is free."
    )


@dataclass(frozen=True)
class Last:
    """A rung of the argument: its measured time, and the three parts of it."""

    number: int
    name: str
    measured_s: float
    fma_s: float
    modelled_s: float
    unseen_s: float

    @property
    def removes(self) -> str:
        return REMOVES.get(self.name, "")

    @property
    def unseen(self) -> str:
        return UNSEEN.get(self.name, "")


def last_rungs(rungs: Sequence[RungFacts], run: Measured | None, size: tuple[int, int, int]) -> list[Last]:
    """The rungs that are mostly FMAs, where they were measured at this size; none where that is one rung or none."""
    found = []
    for facts in rungs:
        e, time = facts.explanation, _time(facts, run, size)
        if e is None or time is None or facts.rung.after:
            continue
        fma, total = e.bound.compute_s, e.bound.total_s
        if 0 < MOSTLY_FMAS * total <= fma:
            found.append(Last(facts.number, facts.name, time.seconds, fma, total - fma, time.seconds - total))
    return found if len(found) > 1 else []


def _time(facts: RungFacts, run: Measured | None, size: tuple[int, int, int]) -> Time | None:
    return run.times.get(facts.name) if run is not None and run.size == size else None


def summary(last: Sequence[Last]) -> str:
    """The argument in a sentence or two."""
    first, final = last[0], last[-1]
    return (
        f"From rung {first.number} on, the FMAs alone take over {MOSTLY_FMAS:.0%} of the expected time, and the model "
        f"finds little to save: {time_text(first.modelled_s)}, then {time_text(final.modelled_s)}. The measured time "
        f"still falls from {time_text(first.measured_s)} to {time_text(final.measured_s)}, because these rungs remove "
        f"stalls that the model leaves out: {_signed(first.unseen_s)} at rung {first.number}, "
        f"{_signed(final.unseen_s)} at rung {final.number}."
    )


def _signed(seconds: float) -> str:
    return time_text(seconds) if seconds >= 0 else f"\u2212{time_text(-seconds)}"
