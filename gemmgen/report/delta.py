"""The difference of two kernels: settings, counts with ratios, and one sentence on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgen.analysis.ablated import TOO_SMALL, measured_change, too_small
from gemmgen.analysis.bottleneck import RESOURCES as NAMES
from gemmgen.analysis.compiled import as_compiled, as_written
from gemmgen.analysis.explain import Explanation
from gemmgen.analysis.model import RESOURCES
from gemmgen.analysis.recorded import measured
from gemmgen.ir.types import WARP
from gemmgen.report.table import duration, format_table
from gemmgen.spec.model import TOGGLES, Spec
from gemmgen.text.numbers import listed

NOTABLE = 1.1
"""A count that changes by less than this factor is left out of the sentence."""
MOST_TOLD = 3


@dataclass(frozen=True)
class SettingChange:
    """One setting that differs; None where a spec lacks it. A toggle is named ``use float4``."""

    setting: str
    before: str | None
    after: str | None

    @property
    def verb(self) -> str:
        return "adds" if self.before is None else "drops" if self.after is None else "changes"

    @property
    def words(self) -> str:
        """The object of the verb: "float4", "tile block from 64x64x8 to 128x128x8"."""
        name = self.setting.removeprefix("use ")
        if self.before is not None and self.after is not None:
            return f"{name} from {self.before} to {self.after}"
        return f"{name} {self.before or self.after or ''}".rstrip()


def spec_changes(a: Spec, b: Spec) -> list[SettingChange]:
    """The settings that differ, toggles first."""
    found = [
        SettingChange(f"use {t.name}", "" if a.has(t.name) else None, "" if b.has(t.name) else None)
        for t in TOGGLES
        if a.has(t.name) != b.has(t.name)
    ]
    old, new = _lines(a), _lines(b)
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            found.append(SettingChange(name, old.get(name), new.get(name)))
    if a.has("warptile") and b.has("warptile") and a.warp_iterations != b.warp_iterations:
        found.append(SettingChange("warptile", _pieces(a), _pieces(b)))
    return found


def _pieces(spec: Spec) -> str:
    m, n = spec.warp_iterations
    return f"{m}x{n} pieces"


def _lines(spec: Spec) -> dict[str, str]:
    """The lines of a spec's text by setting, without its name and toggles."""
    out = {}
    for line in spec.to_text(comment=False).splitlines():
        words = line.split()
        lead = 2 if words[:1] == ["tile"] else 1
        if words and words[0] not in ("kernel", "use"):
            out[" ".join(words[:lead])] = " ".join(words[lead:])
    return out


@dataclass(frozen=True)
class Figure:
    """A figure of both kernels. ``name`` is its key in JSON, ``label`` its name in a table. ``counted``: an exact
    count; else a figure of the compiler or the model. ``seconds``: a time. ``told``: its name in the sentence, empty
    where the sentence leaves it out."""

    name: str
    before: float | None
    after: float | None
    counted: bool = True
    seconds: bool = False
    told: str = ""

    @property
    def ratio(self) -> float | None:
        return self.after / self.before if self.before and self.after is not None else None

    @property
    def label(self) -> str:
        return LABELS.get(self.name, self.name)


LABELS = {
    "multiply-adds": "FMAs",
    "shared load requests": "shared load requests, as written",
    "shared load wavefronts": "shared load wavefronts, as written",
    "shared load requests, compiled": "shared load requests, as compiled",
    "shared load wavefronts, compiled": "shared load wavefronts, as compiled",
    "FMAs per shared load, compiled": "FMAs per shared load, as compiled",
    **{f"{r}, at least": f"{r} time" for r in RESOURCES},
    "flop/byte of global memory, as tiled": "flop/byte of global memory",
}
"""Names in a table, where they are not those of the JSON."""


def figures(a: Explanation, b: Explanation) -> list[Figure]:
    """The counts, limits and times of two kernels."""
    rows = [Figure(name, of(a), of(b), told=told) for name, told, of in _COUNTS]
    rows += [Figure(name, of(a), of(b), counted=False) for name, of in _LIMITS]
    used = [r for r in RESOURCES if r in a.bound.resources or r in b.bound.resources]
    rows += [Figure(f"{r}, at least", a.bound.seconds(r), b.bound.seconds(r), False, True) for r in used]
    rows.append(Figure("expected time", a.bound.total_s, b.bound.total_s, False, True))
    found = _measured_pair(a, b)
    was, now = found[:2] if found else (alone.seconds if (alone := measured(e)) else None for e in (a, b))
    rows.append(Figure("measured time", was, now, False, True))
    return [f for f in rows if f.before is not None or f.after is not None]


def _loads(e: Explanation) -> tuple[int | None, int | None]:
    """Requests and wavefronts of shared loads as compiled; None where there are none."""
    found = as_compiled(e.counts, e.loop)
    return found.requests or None, found.wavefronts or None


def _feeds(e: Explanation) -> float | None:
    requests, _ = _loads(e)
    return e.counts.fma / (WARP * requests) if requests else None


def _total(space: str, op: str, name: str) -> Callable[[Explanation], float | None]:
    return lambda e: getattr(e.counts.total(space, op), name) or None


_COUNTS: Sequence[tuple[str, str, Callable[[Explanation], float | None]]] = (
    ("multiply-adds", "FMAs", lambda e: e.counts.fma),
    ("global load requests", "global load requests", _total("global", "load", "requests")),
    ("global load sectors", "global sectors read", _total("global", "load", "sectors")),
    ("global store requests", "", _total("global", "store", "requests")),
    ("global store sectors", "global sectors written", _total("global", "store", "sectors")),
    ("shared load requests", "", lambda e: as_written(e.counts).requests or None),
    ("shared load wavefronts", "", lambda e: as_written(e.counts).wavefronts or None),
    ("shared load requests, compiled", "shared loads as compiled", lambda e: _loads(e)[0]),
    ("shared load wavefronts, compiled", "shared load wavefronts as compiled", lambda e: _loads(e)[1]),
    ("FMAs per shared load, compiled", "", _feeds),
    ("shared store requests", "", _total("shared", "store", "requests")),
    ("shared store wavefronts", "shared store wavefronts", _total("shared", "store", "wavefronts")),
)

_LIMITS: Sequence[tuple[str, Callable[[Explanation], float | None]]] = (
    ("flop/byte of global memory, as tiled", lambda e: e.intensity.block_tile),
    ("blocks", lambda e: e.blocks),
    ("threads per block", lambda e: e.ir.threads),
    ("shared bytes per block", lambda e: e.ir.shared_bytes),
    ("registers per thread", lambda e: e.compiled.registers if e.compiled else None),
    ("spilled bytes per thread", lambda e: (e.compiled.spill_bytes or None) if e.compiled else None),
    ("blocks per SM", lambda e: e.occupancy.blocks_per_sm),
    ("warps per SM", lambda e: e.occupancy.warps_per_sm),
)


def figures_text(rows: Sequence[Figure], names: tuple[str, str]) -> str:
    """The table of both kernels with ratios; figures that are zero for both are left out."""
    cells: list[list[object]] = []
    for f in rows:
        if f.before or f.after:
            values = [_shown(f, v) for v in (f.before, f.after)]
            cells.append([f.label, *values, "-" if f.ratio is None else f"x {f.ratio:.3g}"])
    return format_table(["", *names, "ratio"], cells)


def _shown(f: Figure, value: float | None) -> str:
    if value is None:
        return "-"
    if f.seconds:
        return duration(value)
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def sentence(a: Explanation, b: Explanation, changes: Sequence[SettingChange]) -> str:
    """What changed, and its effect on the counts, the bottleneck, the expected and the measured time."""
    names = (a.ir.name, b.ir.name)
    if not changes:
        return f"{names[0]} and {names[1]} have the same settings."
    told = list(_told(figures(a, b)))
    counts = f"{listed(told)}; " if told else f"no count changes by more than {NOTABLE - 1:.0%}; "
    was, now = a.bound, b.bound
    before, after = duration(was.total_s), duration(now.total_s)
    moves = f"{'falls' if now.total_s < was.total_s else 'rises'} from {before} to {after}"
    unsure = before != after and too_small(now.total_s / was.total_s)
    source = f"modelled; {TOO_SMALL}" if unsure else "modelled"
    time = f"the expected time {'stays at ' + after if before == after else moves} ({source})"
    binds = (
        f"still limited by {NAMES[now.by]}"
        if was.by == now.by
        else f"now limited by {NAMES[now.by]}, no longer by {NAMES[was.by]}"
    )
    return f"{names[1]} {_changes_told(changes)}: {counts}{time}, {binds}.{_measured_told(a, b)}"


def _measured_told(a: Explanation, b: Explanation) -> str:
    """The measured times of both kernels; empty where one of them is not recorded."""
    found = _measured_pair(a, b)
    if found is None:
        return ""
    was, now, source = found
    before, after = duration(was), duration(now)
    verb = "falls" if now < was else "rises"
    moves = f"stays at {after}" if before == after else f"{verb} from {before} to {after}"
    return f" The measured time {moves} ({source})."


def _measured_pair(a: Explanation, b: Explanation) -> tuple[float, float, str] | None:
    """Seconds of both kernels and their source: of one run where it is recorded, else of each by itself."""
    together = measured_change(a.spec, b.spec, a.size, a.gpu) if a.size == b.size and a.beta == b.beta == 0 else None
    if together is not None:
        return together.before_s, together.after_s, together.source
    was, now = measured(a), measured(b)
    return None if was is None or now is None else (was.seconds, now.seconds, now.source)


def _changes_told(changes: Sequence[SettingChange]) -> str:
    """ "adds transposeA and float4, changes tile block from 64x64x8 to 128x128x8"."""
    by_verb = {verb: [c.words for c in changes if c.verb == verb] for verb in ("adds", "drops", "changes")}
    return ", ".join(f"{verb} {listed(words)}" for verb, words in by_verb.items() if words)


def _told(rows: Sequence[Figure]) -> Iterator[str]:
    changed = [f for f in rows if f.told and f.ratio and not 1 / NOTABLE < f.ratio < NOTABLE]
    changed.sort(key=lambda f: max(f.ratio or 1.0, 1 / (f.ratio or 1.0)), reverse=True)
    for f in changed[:MOST_TOLD]:
        assert f.ratio is not None
        yield f"{f.told} fall {1 / f.ratio:.3g}x" if f.ratio < 1 else f"{f.told} rise {f.ratio:.3g}x"


def delta_dict(a: Explanation, b: Explanation) -> dict[str, Any]:
    """Plain data: changed settings, figures with ratios, the sentence."""
    changes = spec_changes(a.spec, b.spec)
    return {
        "kernels": [a.ir.name, b.ir.name],
        "size": list(a.size),
        "gpu": a.gpu.name,
        "spec": [{"setting": c.setting, "before": c.before, "after": c.after} for c in changes],
        "figures": [
            {"name": f.name, "before": f.before, "after": f.after, "ratio": f.ratio, "counted": f.counted}
            for f in figures(a, b)
        ],
        "sentence": sentence(a, b, changes),
    }
