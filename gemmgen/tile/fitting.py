"""What to write instead where a block's tiles do not fit in shared memory: the padding, BK, or the stages that do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from gemmgen.ir.types import F32
from gemmgen.ir.variant import EXACT
from gemmgen.spec.suggest import divisors
from gemmgen.tile.rewrites import build

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

TRIED = 1024
"""Values that are tried at most for one setting."""


def tiles_hint(spec: Spec, most: int) -> str:
    """What makes the tiles fit in ``most`` bytes: less padding where that alone is too much, else a smaller BK, fewer
    stages, or both; a smaller block where none does."""
    tries = [_padding] if _fits(replace(spec, pad_a=0, pad_b=0), most) else []
    for way in (*tries, _k_step, _stages, _both):
        if hint := way(spec, most):
            return hint
    return "take a smaller block tile"


def sums_hint(spec: Spec, most: int) -> str:
    """What makes the sums that a block leaves in shared memory fit: fewer columns, or rows."""
    bm, bn, bk = spec.block
    narrower = ((bm, d, bk) for d in reversed(divisors(bn)) if d < bn)
    lower = ((d, bn, bk) for d in reversed(divisors(bm)) if d < bm)
    smaller = ((n, n, bk) for n in (256, 128, 64, 32, 16))
    for blocks in (narrower, lower, smaller):
        if found := _first(spec, most, ({"block": block} for block in blocks)):
            return f"{'x'.join(str(v) for v in found['block'][:2])} would fit"
    return "take a smaller block tile"


def sums_exceed(spec: Spec, most: int) -> bool:
    """Whether the sums that a block leaves in shared memory are too many, whatever their layout: soon said, where a
    whole tile program of that many is not soon built."""
    bm, bn, _ = spec.block
    return (spec.has("stageC") or spec.has("clusterReduce")) and F32.bytes * bm * bn > most


def _with(spec: Spec, change: Mapping[str, Any]) -> Spec:
    return replace(spec, **change)


def _fits(spec: Spec, most: int) -> bool:
    return not sums_exceed(spec, most) and build(spec, EXACT).shared_bytes <= most


def _legal(spec: Spec) -> bool:
    from gemmgen.spec.check import problems
    from gemmgen.spec.subject import Subject

    return not problems(Subject(spec, trying=True))


def _first(spec: Spec, most: int, changes: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The first changes that lead to a legal spec that fits."""
    for change in islice(changes, TRIED):
        changed = _with(spec, change)
        if _legal(changed) and _fits(changed, most):
            return change
    return None


def _largest(spec: Spec, most: int, name: str) -> int | None:
    """The largest padding that is legal and fits, the rest of the spec as it is; None where none does."""
    plain = replace(spec, use=spec.use - {"stageC"})  # whose tiles are the same, and soon built
    bound = bisect_left(range(getattr(spec, name)), True, key=lambda v: not _fits(_with(plain, {name: v}), most))
    found = _first(spec, most, ({name: v} for v in range(bound - 1, -1, -1)))
    return None if found is None else found[name]


def _padding(spec: Spec, most: int) -> str:
    """The largest padding of one tile; of both, where each alone is too much."""
    alone = [(name, _largest(spec, most, name)) for name in ("pad_a", "pad_b") if getattr(spec, name)]
    found = [f"'{name} {value}' is the largest padding that fits" for name, value in alone if value is not None]
    if found:
        return ", or ".join(found)
    value = _largest(replace(spec, pad_a=0), most, "pad_b")
    return "" if value is None else f"'pad_a 0' with 'pad_b {value}' is the largest padding that fits"


def _k_step(spec: Spec, most: int) -> str:
    """The largest BK; it says where smaller ones are not all legal."""
    (bm, bn, bk), built = spec.block, build(spec, EXACT).tile_bytes
    bound = min(bk - 1, bk * most // built)
    found = _first(spec, most, ({"block": (bm, bn, v)} for v in range(bound, 0, -1)))
    return f"BK {found['block'][2]} is the largest that fits with {bm}x{bn}" if found else ""


def _stages(spec: Spec, most: int) -> str:
    found = _first(spec, most, ({"stages": n} for n in range(spec.stages - 1, 0, -1)))
    return f"'stages {found['stages']}' is the most that fits" if found else ""


def _both(spec: Spec, most: int) -> str:
    (bm, bn, bk) = spec.block
    blocks = [(bm, bn, v) for v in reversed(divisors(bk)[:-1])]
    found = _first(spec, most, ({"block": b, "stages": n} for b in blocks for n in (2, 1) if n < spec.stages))
    return f"BK {found['block'][2]} with 'stages {found['stages']}' fits" if found else ""
