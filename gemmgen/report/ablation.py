"""A spec with one thing taken away at a time: which specs these are, and what each costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from gemmgen.diagnostics import SpecError
from gemmgen.report.delta import Figure
from gemmgen.report.table import duration, format_table
from gemmgen.spec.model import SETTINGS, TOGGLES, Spec
from gemmgen.spec.replace import tried


@dataclass(frozen=True)
class Ablation:
    """A spec without one setting. ``also`` says what had to go with it; ``spec`` is None where nothing legal is left,
    for the reason ``why``."""

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
    """A toggle and those of the spec that make no sense without it."""
    gone = {name}
    while more := {t.name for t in TOGGLES if spec.has(t.name) and gone & set(t.needs)} - gone:
        gone |= more
    return gone


def _without(spec: Spec, what: str, fields: dict[str, Any], gone: Sequence[str]) -> Ablation:
    """The first legal spec, where other numbers are lowered, or toggles dropped, only if they must be. Where there is
    none, what is wrong with the one that is nearest to legal."""
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
    """Changes of other settings to try, from none on."""
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
    """What an ablation comes to: whether it is right (None: not run), its figures beside the whole spec's, milliseconds
    of both where they were timed, and a ``note`` on how far the figures go."""

    ablation: Ablation
    right: bool | None
    figures: tuple[Figure, ...]
    milliseconds: float | None = None
    whole_milliseconds: float | None = None
    note: str = ""

    @property
    def slower(self) -> float | None:
        """How many times as long as the whole spec it took; None where it was not timed."""
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
        }


SHOWN = {
    "global requests": "global load requests",
    "global sectors": "global load sectors",
    "shared loads": "shared load requests, compiled",
    "load wavefronts": "shared load wavefronts, compiled",
    "store wavefronts": "shared store wavefronts",
    "registers": "registers a thread",
    "warps an SM": "warps an SM",
}


def ablation_table(costs: Sequence[Cost], timed: bool) -> str:
    """A row for each thing taken away: whether the rest is right, and each figure as a multiple of the whole spec's."""
    headers = ["without", "and so without", "right", *SHOWN, "expected", "of it"]
    headers += ["measured", "of it"] if timed else []
    illegal = [f"not legal without {c.ablation.without}: {c.ablation.why}" for c in costs if c.ablation.spec is None]
    notes = dict.fromkeys(c.note for c in costs if c.note)
    return "\n".join([format_table(headers, [_row(c, timed) for c in costs]), *illegal, EXPLAINED, *notes])


EXPLAINED = (
    "figures are multiples of those of the whole spec: x 4 is four times as much; expected is modelled.\n"
    "Shared loads are as compiled."
)


def _row(c: Cost, timed: bool) -> list[object]:
    also = ", ".join(c.ablation.also) or None
    if c.ablation.spec is None:
        return [c.ablation.without, also, "not legal", *[None] * (len(SHOWN) + (4 if timed else 2))]
    after = next(f.after for f in c.figures if f.name == "expected time")
    right = None if c.right is None else "yes" if c.right else "NO"
    row: list[object] = [c.ablation.without, also, right, *(_times(c.ratio(name)) for name in SHOWN.values())]
    row += [duration(after or 0.0), _times(c.ratio("expected time"))]
    if timed:
        row += [None if c.milliseconds is None else duration(c.milliseconds / 1e3)]
        row += [_times(c.slower)]
    return row


def _times(ratio: float | None) -> str | None:
    return None if ratio is None else f"x {ratio:.3g}"
