"""What each change of a rung is worth: the rung with one change undone, measured where recorded, else modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.analysis.ablated import measured_change, too_small
from gemmgen.diagnostics import GemmgenError, SpecError
from gemmgen.report.ablation import ablations
from gemmgen.report.delta import SettingChange, spec_changes
from gemmgen.spec.model import SETTINGS, Spec
from gemmgen.spec.replace import tried

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation

_FIELDS = {row.name: row.fields for row in SETTINGS}


@dataclass(frozen=True)
class Part:
    """A change of a rung, undone by itself, as ``what``. ``whole_s`` and ``undone_s`` are the times of the rung and of
    what is left, from one run or one model."""

    what: str
    whole_s: float
    undone_s: float
    kind: Literal["measured", "modelled"]

    @property
    def ratio(self) -> float:
        return self.undone_s / self.whole_s

    @property
    def told(self) -> str:
        """The effect in words: "15% more"."""
        change = self.ratio - 1
        if abs(change) < 0.005:
            return "the same"
        near = "about " if self.kind == "modelled" and too_small(self.ratio) else ""
        return f"{near}{abs(change):.0%} {'more' if change > 0 else 'less'}"


@dataclass(frozen=True)
class Parts:
    """The changes that can be undone alone, largest effect first; and those that cannot, because the others need
    them."""

    alone: tuple[Part, ...]
    bound: tuple[str, ...]

    @property
    def whole(self) -> dict[str, float]:
        """The times of the rung with all changes, by kind."""
        return {p.kind: p.whole_s for p in self.alone}


def parts(before: Spec, e: Explanation) -> Parts | None:
    """What each change since ``before`` is worth; None where fewer than two can be undone by
    themselves."""
    changes = [c for c in spec_changes(before, e.spec) if c.setting.startswith("use ") or c.setting in _FIELDS]
    if not before.has("smem"):  # BK comes with the tiles
        changes = [c for c in changes if c.setting != "tile block"]
    if len(changes) < 2 or not e.bound.total_s:
        return None
    found: list[Part] = []
    bound: list[SettingChange] = []
    for c in changes:
        part = _part(_undone(c, before, e.spec), e)
        if part is None:
            bound.append(c)
        else:
            found.append(part)
    names = tuple(c.setting.removeprefix("use ") for c in bound)
    if len(bound) > 1 and found and (part := _part(_undone_together(bound, before, e.spec, names), e)):
        found, names = [*found, part], ()
    found.sort(key=lambda p: p.ratio, reverse=True)
    return Parts(tuple(found), names) if len(found) > 1 else None


def _part(undone: tuple[str, Spec] | None, e: Explanation) -> Part | None:
    """The times of a rung and of what is left of it; None where that cannot be known."""
    if undone is None:
        return None
    what, spec = undone
    recorded = measured_change(e.spec, spec, e.size, e.gpu)
    if recorded is not None:
        return Part(what, recorded.before_s, recorded.after_s, "measured")
    if e.again is None:
        return None
    try:
        return Part(what, e.bound.total_s, e.again(spec).bound.total_s, "modelled")
    except GemmgenError:
        return None


def _undone(c: SettingChange, before: Spec, spec: Spec) -> tuple[str, Spec] | None:
    """The spec with one change undone, and what that is called; None where it is not legal without the others."""
    name = c.setting.removeprefix("use ")
    try:
        if not c.setting.startswith("use "):
            return _as_before(c), tried(spec, **{f: getattr(before, f) for f in _FIELDS[c.setting]})
        if c.after is None:
            return f"with {name} again", tried(spec, use=spec.use | {name})
    except SpecError:
        return None
    removed = next(a for a in ablations(spec) if a.without == name)
    # What else has to change: a toggle that needs this one, or a number such as "stages 3 -> 2".
    also = [f"with {x}".replace("->", "\u2192") if "->" in x else f"without {x}" for x in removed.also]
    return None if removed.spec is None else (", ".join((f"without {name}", *also)), removed.spec)


def _undone_together(
    changes: Sequence[SettingChange], before: Spec, spec: Spec, names: Sequence[str]
) -> tuple[str, Spec] | None:
    """The spec without all of some changes."""
    use, fields = set(spec.use), dict[str, Any]()
    for c in changes:
        if c.setting.startswith("use "):
            use ^= {c.setting.removeprefix("use ")}
        else:
            fields |= {f: getattr(before, f) for f in _FIELDS[c.setting]}
    if "tile thread" in names or "tile warp" in names:  # the pieces of a warp's tile follow from the tiles
        fields |= {f: getattr(before, f) for f in ("m_iter", "n_iter")}
    try:
        return f"{', '.join(names)} as before", tried(spec, use=frozenset(use), **fields)
    except SpecError:
        return None


def _as_before(c: SettingChange) -> str:
    if c.before is None:
        return f"without {c.setting} {c.after}"
    return f"{c.setting} {c.before}{f' in place of {c.after}' if c.after else ' again'}"
