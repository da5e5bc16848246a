"""The difference of two rungs: settings and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.report.delta import SettingChange, spec_changes
from gemmgen.spec.architecture import meaning_of
from gemmgen.spec.model import SETTINGS, TOGGLES

if TYPE_CHECKING:
    from gemmgen.analysis.counts import Cost
    from gemmgen.analysis.explain import Explanation
    from gemmgen.spec.model import Spec

MINUS = "\u2212"
NOTABLE = 1.25
"""A figure that changes by less than this factor is not mentioned."""


def spec_delta(before: Spec | None, spec: Spec) -> list[str]:
    """The changed settings: ``+ float4``, ``tile thread 8x1 -> 8x8``."""
    if before is None:
        return []
    changes = spec_changes(before, spec)
    toggles = sorted((c for c in changes if c.setting.startswith("use ")), key=lambda c: c.setting)
    added, gone = [c for c in toggles if c.before is None], [c for c in toggles if c.after is None]
    return [_delta(c) for c in (*added, *gone, *(c for c in changes if c not in toggles))]


def _delta(change: SettingChange) -> str:
    if change.before is not None and change.after is not None:
        return f"{change.setting} {change.before} \u2192 {change.after}"
    return f"{MINUS if change.after is None else '+'} {change.words}"


def meanings(delta: Sequence[str]) -> dict[str, str]:
    """The settings of a ``spec_delta``, each with its description in the table of settings."""
    docs = {t.name: meaning_of(t) for t in TOGGLES} | {s.name: s.doc for s in SETTINGS}
    names = (item.removeprefix("+ ").removeprefix(f"{MINUS} ") for item in delta)
    return {name: docs[name] for text in names for name in docs if text == name or text.startswith(f"{name} ")}


@dataclass(frozen=True)
class Figure:
    """A figure of a rung beside that of the rung before; ``value`` is None where the rung has no such figure."""

    name: str
    value: float | None
    before: float | None
    kind: str
    explained: str
    has_before: bool = False

    @property
    def ratio(self) -> float | None:
        if not self.value or not self.before:
            return None
        return self.value / self.before


def figures(e: Explanation, before: Explanation | None) -> list[Figure]:
    """The counts and limits of a rung beside those of the rung before; totals are compared only at the same size."""
    old: dict[str, float | None] = dict.fromkeys(_VALUES)
    if before is not None:
        same = before.size == e.size
        old |= {name: value(before) for name, (value, *_) in _VALUES.items() if same or name not in _TOTALS}
    found = {
        name: Figure(name, value(e), old[name], kind, explained, before is not None)
        for name, (value, kind, explained) in _VALUES.items()
    }
    written, compiled = found[WRITTEN], found[COMPILED]
    if (written.value, written.before) == (compiled.value, compiled.before):
        del found[COMPILED]  # nothing is merged
    return list(found.values())


def _shared_wavefronts(e: Explanation) -> float | None:
    loads, stores = (e.counts.total("shared", op) for op in ("load", "store"))
    return loads.wavefronts + stores.wavefronts or None


def _merged_wavefronts(e: Explanation) -> float | None:
    loads, stores = (e.counts.total("shared", op) for op in ("load", "store"))
    return loads.merged_wavefronts + stores.merged_wavefronts or None


def _shared_ways(e: Explanation) -> float | None:
    loads, stores = (e.counts.total("shared", op) for op in ("load", "store"))
    ideal = loads.ideal_wavefronts + stores.ideal_wavefronts
    return (loads.wavefronts + stores.wavefronts) / ideal if ideal else None


def _used(e: Explanation) -> float | None:
    moved = 32 * _sectors(e)
    return sum(cost.bytes_used for cost in _global(e)) / moved if moved else None


def _sectors(e: Explanation) -> int:
    """Sectors that loads, stores and TMA move."""
    loads, stores, boxes = _global(e)
    return loads.sectors + stores.sectors + boxes.sectors


def _global(e: Explanation) -> tuple[Cost, Cost, Cost]:
    return e.counts.total("global", "load"), e.counts.total("global", "store"), e.counts.total("tma", "load")


WRITTEN, COMPILED = "shared-memory wavefronts as written", "shared-memory wavefronts as compiled"
WAYS = "bank conflicts as written, n-way"
_TOTALS = frozenset(
    {"global load requests", "global sectors", WRITTEN, COMPILED, "least time, ms", "expected time, ms"}
)
"""Figures that grow with the size, by their names in ``_VALUES``."""

_VALUES: Mapping[str, tuple[Callable[[Explanation], float | None], str, str]] = {
    "global load requests": (
        lambda e: e.counts.total("global", "load").requests + e.counts.total("tma", "load").requests,
        "simulated",
        "load instructions of warps from global memory, and TMA boxes",
    ),
    "global sectors": (_sectors, "simulated", "32 bytes of global memory each, moved by loads, stores and TMA"),
    "share of moved bytes used": (_used, "simulated", "share of the sectors' bytes that lanes requested"),
    WRITTEN: (_shared_wavefronts, "simulated", "passes of the shared-memory banks, for the loads of the text"),
    COMPILED: (_merged_wavefronts, "simulated", "the same after the compiler has merged loads into wider ones"),
    WAYS: (_shared_ways, "simulated", "wavefronts over those without conflicts"),
    "flop per byte of global memory": (
        lambda e: e.intensity.block_tile,
        "simulated",
        "2 M N K over the bytes of A, B and partial sums that threads request",
    ),
    "flop per value of shared memory": (
        lambda e: e.intensity.flop_per_shared_load,
        "simulated",
        "2 M N K over the values that threads load from shared memory",
    ),
    "least time, ms": (lambda e: 1e3 * e.bound.floor_s, "modelled", "the time of the busiest resource"),
    "expected time, ms": (lambda e: 1e3 * e.bound.total_s, "modelled", "the least time plus exposed latency"),
}


def numbers(e: Explanation | None, before: Explanation | None) -> str:
    """The counts that change most between two rungs, as a sentence; empty where none does."""
    if e is None or before is None:
        return ""
    told = list(_told(figures(e, before)))
    return f"Counted: {', '.join(told)}." if told else ""


def _told(found: list[Figure]) -> Iterator[str]:
    for figure in found:
        ratio = figure.ratio
        if ratio is None or figure.kind != "simulated" or 1 / NOTABLE < ratio < NOTABLE:
            continue
        if figure.name == WAYS:
            yield f"bank conflicts from {figure.before:.3g}-way to {figure.value:.3g}-way, as written"
        elif ratio > 1:
            yield f"{figure.name} {times(ratio)} more"
        else:
            yield f"{figure.name} {times(1 / ratio)} less"


def times(ratio: float) -> str:
    return f"{ratio:.3g}\u00d7" if ratio < 100 else f"{ratio:,.0f}\u00d7"
