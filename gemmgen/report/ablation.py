"""A spec with one setting removed at a time: the specs, and what each removal costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from gemmgen.analysis.ablated import TOO_SMALL, too_small
from gemmgen.diagnostics import SpecError
from gemmgen.report.delta import Figure
from gemmgen.report.table import duration, format_table
from gemmgen.spec.model import SETTINGS, TOGGLES, Spec
from gemmgen.spec.replace import tried
from gemmgen.text.wrap import wrapped


@dataclass(frozen=True)
class Ablation:
    """A spec without one setting. ``also`` are the settings removed with it because they need it; ``spec`` is None
    where no legal spec is left, for the reason ``why``."""

    without: str
    also: tuple[str, ...]
    spec: Spec | None
    why: str = ""


def ablations(spec: Spec) -> Iterator[Ablation]:
    """The spec without each of its toggles, and with each number at its default."""
    for toggle in TOGGLES:
        if spec.has(toggle.name):
            gone = dependents(toggle.name, spec)
            yield _without(spec, toggle.name, {"use": spec.use - gone}, sorted(gone - {toggle.name}))
    for row in SETTINGS:
        value = getattr(spec, row.fields[0])
        if row.form == "number" and value != row.default:
            yield _without(spec, f"{row.name} {value}", {row.fields[0]: row.default}, [])


def dependents(name: str, spec: Spec) -> set[str]:
    """A toggle and the toggles of the spec that need it."""
    gone = {name}
    while more := {t.name for t in TOGGLES if spec.has(t.name) and gone & {*t.needs, *t.fma_needs}} - gone:
        gone |= more
    return gone


def _without(spec: Spec, what: str, fields: dict[str, Any], gone: Sequence[str]) -> Ablation:
    """The first legal spec; other numbers are lowered, and toggles removed, only where that is needed. Where there is
    none, the errors of the spec with the fewest."""
    name = f"{spec.name}_without_{re.sub('[^A-Za-z0-9]', '_', what)}"
    nearest: SpecError | None = None
    for others in _lesser(spec):
        try:
            found = tried(spec, **{**others, **fields, "name": name})
        except SpecError as error:
            if nearest is None or len(error.problems) < len(nearest.problems):
                nearest = error
            continue
        lowered = [f"{n} {getattr(spec, n)} -> {v}" for n, v in others.items() if n not in fields and n != "use"]
        dropped = sorted(spec.use - found.use - {what})
        return Ablation(what, (*dropped, *lowered), found)
    assert nearest is not None
    return Ablation(what, tuple(gone), None, nearest.message)


def _lesser(spec: Spec) -> Iterator[dict[str, Any]]:
    """Changes of other settings to try, beginning with none."""
    yield {}
    numbers = [row for row in SETTINGS if row.form == "number" and getattr(spec, row.fields[0]) != row.default]
    if spec.stages > 2:
        yield {"stages": 2}
    for row in numbers:
        yield {row.fields[0]: row.default}
    there = [t.name for t in reversed(TOGGLES) if spec.has(t.name)]
    for toggle in there:
        yield {"use": spec.use - dependents(toggle, spec)}
    yield {row.fields[0]: row.default for row in numbers}
    for one, two in combinations(there, 2):  # as atomics and dependentLaunch, without split_k
        yield {"use": spec.use - dependents(one, spec) - dependents(two, spec)}


@dataclass(frozen=True)
class Cost:
    """The result of an ablation: whether it passed verification (None: not run), its figures beside those of the whole
    spec, milliseconds of both where they were timed, and a ``note`` on what the figures leave out."""

    ablation: Ablation
    right: bool | None
    figures: tuple[Figure, ...]
    milliseconds: float | None = None
    whole_milliseconds: float | None = None
    note: str = ""
    source: str = ""
    """Where the milliseconds were recorded; empty where they were measured in this run."""

    @property
    def slower(self) -> float | None:
        """Its time over that of the whole spec; None where it was not timed."""
        return self.milliseconds / self.whole_milliseconds if self.milliseconds and self.whole_milliseconds else None

    def ratio(self, name: str) -> float | None:
        return next((f.ratio for f in self.figures if f.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "without": self.ablation.without,
            "also": list(self.ablation.also),
            "right": self.right,
            "why_not": self.ablation.why or None,
            "figures": {f.name: {"before": f.before, "after": f.after, "ratio": f.ratio} for f in self.figures},
            "milliseconds": self.milliseconds,
            "whole_milliseconds": self.whole_milliseconds,
            "measured": self.source or ("this run" if self.milliseconds else None),
        }


SHOWN = {
    "global load requests": "global load requests",
    "global load sectors": "global load sectors",
    "shared load requests": "shared load requests, compiled",
    "shared load wavefronts": "shared load wavefronts, compiled",
    "shared store wavefronts": "shared store wavefronts",
    "registers per thread": "registers per thread",
    "warps per SM": "warps per SM",
}
"""Columns of the table, each with the name of its figure."""


def ablation_table(costs: Sequence[Cost], timed: bool) -> str:
    """A row per removed setting: the verdict, the times, and each count as a multiple of the whole spec's."""
    shown = {header: name for header, name in SHOWN.items() if any(_matters(c.ratio(name)) for c in costs)}
    headers = ["without", "result", "expected time", "ratio", *(["measured time", "ratio"] if timed else [])]
    rows = [_row(c, timed, list(shown.values())) for c in costs]
    also = [f"without {a.without}, also without {', '.join(a.also)}" for a in (c.ablation for c in costs) if a.also]
    illegal = [f"not legal without {c.ablation.without}: {c.ablation.why}" for c in costs if c.ablation.spec is None]
    recorded = dict.fromkeys(f"Measured times are recorded: {c.source}." for c in costs if c.source)
    unsure = [f"~ in place of x: {TOO_SMALL}."] if any(_unsure(c.ratio("expected time")) for c in costs) else []
    notes = [*also, *illegal, EXPLAINED, *unsure, *recorded, *dict.fromkeys(c.note for c in costs if c.note)]
    return "\n".join(
        [format_table([*headers, *shown], rows), "", *(wrapped(" ".join(n.split()), rest="  ") for n in notes)]
    )


EXPLAINED = (
    "Ratios and counts are relative to the whole spec: x 4 is four times as much. Expected times are modelled; shared "
    "loads are counted as compiled. Counts that no removal changes are left out."
)


def _matters(ratio: float | None) -> bool:
    return ratio is not None and f"{ratio:.3g}" != "1"


def _row(c: Cost, timed: bool, shown: Sequence[str]) -> list[object]:
    if c.ablation.spec is None:
        return [c.ablation.without, "not legal", *[None] * (len(shown) + (4 if timed else 2))]
    after = next(f.after for f in c.figures if f.name == "expected time")
    result = None if c.right is None else "PASS" if c.right else "FAIL"
    ratio = c.ratio("expected time")
    told = _times(ratio)
    if told and _unsure(ratio):
        told = told.replace("x", "~")
    row: list[object] = [c.ablation.without, result, duration(after or 0.0), told]
    if timed:
        row += [None if c.milliseconds is None else duration(c.milliseconds / 1e3), _times(c.slower)]
    return [*row, *(_times(c.ratio(name)) for name in shown)]


def _unsure(ratio: float | None) -> bool:
    """Whether a modelled ratio says nothing, but is not 1."""
    return ratio is not None and _matters(ratio) and too_small(ratio)


def _times(ratio: float | None) -> str | None:
    return None if ratio is None else f"x {ratio:.3g}"
