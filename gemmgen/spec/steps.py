"""Rules on how a block walks along K: what the steps, the stages and the padding of its tiles must agree on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem
from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.spec.model import SETTINGS, Spec
from gemmgen.spec.suggest import divisors, either, multiples_around

if TYPE_CHECKING:
    from gemmgen.spec.subject import Subject

FEWER = (1024, 256, 64, 32, 16, 8, 4, 2, 1)
"""Numbers to propose where the largest of a setting does not go with the rest."""
STAGING = ("stages", "unroll", "pad_a", "pad_b")
"""Settings of tiles in shared memory."""


def step_problems(s: Subject) -> Iterator[Problem]:
    """Numbers out of range, steps that do not divide the tile, and toggles that contradict each other."""
    yield from _ranges(s)
    if s.good("use", "BK", "unroll", "stages", "pad_a") and s.spec.has("smem") and not s.no_bk:
        yield from _steps(s)


def idle(spec: Spec) -> Iterator[str]:
    """Settings that are given and have no effect."""
    if spec.cta_swizzle == 1:
        yield "cta_swizzle 1 has no effect: blocks go along each row of tiles without it"
    for name in STAGING:
        if not spec.has("smem") and getattr(spec, name) != _DEFAULTS[name]:
            yield f"{name} {getattr(spec, name)} has no effect without 'use smem'"


_DEFAULTS = {row.name: row.default for row in SETTINGS if row.form == "number"}


def _ranges(s: Subject) -> Iterator[Problem]:
    for row in SETTINGS:
        value = getattr(s.spec, row.fields[0])
        if row.form != "number" or row.choices or not s.good(row.fields[0]):
            continue
        if value < 0 and not row.default:
            message, usual = f"{row.name} must not be negative, and is {value}", "0 is the smallest"
            near = s.values(row.name, range(65))
        elif value < row.default == 1:
            message, usual = f"{row.name} must be at least 1, and is {value}", "1 is as if it were not there"
            near = s.values(row.name, range(1, 65))
        elif row.most is not None and value > row.most:
            message, usual = f"{row.name} {value} is over the limit of {row.most}", most_hint(row.name, row.most)
            near = s.values(row.name, [row.most, *(n for n in FEWER if n < row.most)])
        else:
            continue
        best = row.most if row.most is not None and value > 0 else row.default
        hint = usual if near == [best] else f"'{row.name} {near[0]}' would do" if near else f"leave {row.name} out"
        yield Problem(message, hint, s.span(row.name))


def most_hint(name: str, most: int) -> str:
    """What to write in place of a number that is too large."""
    return f"'{name} {most}' is the most"


def _steps(s: Subject) -> Iterator[Problem]:
    spec, bk, unroll = s.spec, s.spec.block[2], max(0, s.spec.unroll)
    if unroll and bk % unroll:
        hint = f"{near} would" if (near := _unroll_near(s)) else _other_steps(s)
        yield Problem(f"unroll {unroll} does not divide the tile's BK {bk}", hint, s.span("unroll", "BK"))
        return
    steps, named = (unroll, "unroll") if unroll else (bk, "BK")
    if spec.has("prefetch") and steps % 2:
        message = f"prefetch takes turns between two sets of registers, and {named} {steps} is no even number of steps"
        near = _unroll_near(s) if unroll else s.beside("BK", *multiples_around(bk, 2))
        hint = f"{near} {'are' if ' and ' in near else 'is'}" if near else _other_steps(s, "prefetch")
        yield Problem(message, hint, s.span("unroll" if unroll else "BK", "tile block"))
    run = _run(spec)
    if spec.has("alongK") and unroll and unroll % run:
        message = f"alongK fetches {run} steps at once, and unroll {unroll} is no multiple of {run}"
        found = s.values("unroll", [d for d in divisors(bk) if d % run == 0])
        yield Problem(message, f"{found[0]} is" if found else _other_steps(s, "alongK"), s.span("unroll"))
    if spec.has("alongK") and spec.has("transposeA"):
        message = "alongK needs A's tile row-major, and transposeA stores it transposed"
        hint = s.leaving("alongK", "transposeA")
        yield Problem(message, hint, s.span("use alongK"))
    if spec.has("spread") and spec.stages < 2:
        message = f"spread needs stages, so that copies land while others are multiplied, and stages is {spec.stages}"
        hint = either(s.at_least("stages", 2), s.leaving("spread"))
        yield Problem(message, hint or "give it stages", s.span("stages", "use spread"))


def _unroll_near(s: Subject) -> str:
    """The steps in the text next to those given that divide the tile and go with all else."""
    fine, unroll = divisors(s.spec.block[2]), s.spec.unroll
    return s.beside("unroll", [d for d in reversed(fine) if d < unroll], [d for d in fine if d > unroll])


def _other_steps(s: Subject, *toggles: str) -> str:
    """A hint where no unroll goes with the tile: all of its steps, another BK, or a toggle less."""
    if s.trying:
        return ""
    (bm, bn, bk), unroll = s.spec.block, s.spec.unroll
    ways = ["leave unroll out"] if unroll and s.mends(unroll=0) else []
    even = [v for pair in zip(*multiples_around(bk, 2), strict=False) for v in pair]
    blocks = [c["block"][2] for c in s.first(({"block": (bm, bn, v), "unroll": 0} for v in even), 2)]
    if not ways and blocks:
        bks = " or ".join(str(v) for v in sorted(blocks))
        ways = [f"write BK {bks}{' and leave unroll out' if unroll else ''}"]
    return either(*ways, s.leaving(*toggles)) or "take another BK"


def _run(spec: Spec) -> int:
    """Steps along k that one fetch of A takes with alongK, as the tile's rows allow."""
    bk, widest = spec.block[2], spec.matrices[0].dtype.elements(VECTOR_BYTES)
    return next(w for w in (8, 4, 2, 1) if w <= widest and bk % w == 0 and (bk + max(spec.pad_a, 0)) % w == 0)
