"""Rules on how a block walks along K: what the steps, the stages and the padding of its tiles must agree on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem
from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.spec.model import SETTINGS, Spec
from gemmgen.spec.suggest import divisors, multiples_near

if TYPE_CHECKING:
    from gemmgen.spec.check import Subject

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
            yield Problem(f"{row.name} must not be negative, and is {value}", "0 is the smallest", s.span(row.name))
        elif value < row.default == 1:
            message = f"{row.name} must be at least 1, and is {value}"
            yield Problem(message, "1 is as if it were not there", s.span(row.name))
        elif row.most is not None and value > row.most:
            message = f"{row.name} {value} is over the limit of {row.most}"
            yield Problem(message, most_hint(row.name, row.most), s.span(row.name))


def most_hint(name: str, most: int) -> str:
    """What to write in place of a number that is too large."""
    return f"'{name} {most}' is the most"


def _steps(s: Subject) -> Iterator[Problem]:
    spec, bk, unroll = s.spec, s.spec.block[2], s.spec.unroll
    if unroll < 0 or bk < 1:
        return
    if unroll and bk % unroll:
        hint = f"{' and '.join(str(d) for d in _near(divisors(bk), unroll))} would"
        yield Problem(f"unroll {unroll} does not divide the tile's BK {bk}", hint, s.span("unroll", "BK"))
        return
    steps, named = (unroll, "unroll") if unroll else (bk, "BK")
    if spec.has("prefetch") and steps % 2:
        message = f"prefetch takes turns between two sets of registers, and {named} {steps} is no even number of steps"
        near = multiples_near(steps, 2)
        hint = f"{' and '.join(str(v) for v in near)} {'are' if len(near) > 1 else 'is'}"
        yield Problem(message, hint, s.span("unroll" if unroll else "BK", "tile block"))
    run = _run(spec)
    if spec.has("alongK") and unroll and unroll % run:
        message = f"alongK fetches {run} steps at once, and unroll {unroll} is no multiple of {run}"
        yield Problem(message, f"{run} is", s.span("unroll"))
    if spec.has("alongK") and spec.has("transposeA"):
        message = "alongK needs A's tile row-major, and transposeA stores it transposed"
        yield Problem(message, "leave one of the two out", s.span("use alongK"))
    if spec.has("spread") and spec.stages < 2:
        message = f"spread needs stages, so that copies land while others are multiplied, and stages is {spec.stages}"
        yield Problem(message, "write 'stages 2' or more", s.span("stages", "use spread"))


def _run(spec: Spec) -> int:
    """Steps along k that one fetch of A takes with alongK, as the tile's rows allow."""
    bk, widest = spec.block[2], spec.matrices[0].dtype.elements(VECTOR_BYTES)
    return next(w for w in (8, 4, 2, 1) if w <= widest and bk % w == 0 and (bk + max(spec.pad_a, 0)) % w == 0)


def _near(values: list[int], wanted: int) -> list[int]:
    """The values next to ``wanted``, one below and one above where there are."""
    below, above = [v for v in values if v < wanted], [v for v in values if v > wanted]
    return below[-1:] + above[:1]
