"""Rules on lanes that share a sum over K: what they fetch, and what they have no part in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem
from gemmgen.ir.types import VECTOR_BYTES, WARP
from gemmgen.spec.model import SETTINGS
from gemmgen.spec.suggest import divisors, either

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.spec.subject import Subject

LANES = next(row.choices for row in SETTINGS if row.name == "lanes_k")
APART = {
    "warptile": "warptile deals a warp's elements of C out to all of its lanes",
    "transposeA": "transposeA sets the neighbours along K of a row of A apart",
    "alongK": "lanes_k reads along K by itself",
    "prefetch": "prefetch keeps the fragments of one k at a time",
    "spread": "spread has copies between single steps along K",
    "snake": "snake orders the products of one k",
    "stageC": "stageC expects the sums of each thread",
    "clusterReduce": "clusterReduce expects the sums of each thread",
}
"""Toggles that lanes_k does not go with, and why."""


def lane_problems(s: Subject) -> Iterator[Problem]:
    """Lanes that share a sum are whole warps' lanes, and have K to share."""
    spec = s.spec
    if not s.good("lanes_k", "use") or spec.lanes_k not in LANES or spec.lanes_k == 1:
        return
    for toggle, why in APART.items():
        if spec.has(toggle):
            hint = either(s.leaving(toggle), _without(s)) or "use one of them"
            yield Problem(f"lanes_k {spec.lanes_k} does not go with {toggle}: {why}", hint, s.span("lanes_k"))
    if spec.has("smem") and not spec.has("directB") and not spec.has("transposeB"):
        message = f"lanes_k {spec.lanes_k} reads B along K, and its tile in shared memory is stored by rows"
        ways = [f"add {x}" for x in ("transposeB", "directB") if s.mends(use=spec.use | {x})]
        hint = either(*ways) or "leave smem out"
        yield Problem(message, hint, s.span("lanes_k"))
    if s.good("BM", "BN", "TM", "TN"):
        yield from _warps(s)
    if s.good("BK", "unroll"):
        yield from _steps(s)


def _warps(s: Subject) -> Iterator[Problem]:
    """All lanes of a warp take part in a shuffle."""
    if s.spec.warp is None and s.spec.threads % WARP:
        message = f"lanes_k {s.spec.lanes_k} passes sums between all lanes of whole warps, and a block has"
        found = s.values("lanes_k", [n for n in LANES if n > 1])
        hint = f"'lanes_k {found[0]}' would do" if found else f"make the block a multiple of {WARP} threads"
        yield Problem(f"{message} {s.spec.threads} threads", hint, s.span("lanes_k"))


def _steps(s: Subject) -> Iterator[Problem]:
    """Steps along K are dealt out evenly."""
    spec, bk = s.spec, s.spec.block[2]
    if spec.has("smem") and not s.no_bk and bk % spec.lanes_k:
        message = f"lanes_k {spec.lanes_k} deals out BK {bk} steps along K, of which it is no divisor"
        found = s.values("BK", [spec.lanes_k * n for n in (4, 8, 16, 2, 1)])
        yield Problem(message, f"BK {found[0]} is a multiple" if found else "change BK", s.span("BK", "tile block"))
        return
    step = lane_step(spec)
    if spec.unroll > 0 and spec.unroll % step:
        message = f"lanes_k {spec.lanes_k} takes {step} steps along K at once, and unroll {spec.unroll} is no multiple"
        near = divisors(bk) if spec.has("smem") else [step * n for n in (1, 2, 4, 8)]
        found = s.values("unroll", [n for n in near if n % step == 0])
        yield Problem(message, f"'unroll {found[0]}' is" if found else "leave unroll out", s.span("unroll"))


def _without(s: Subject) -> str:
    return "leave lanes_k out" if s.mends(lanes_k=1) else ""


def lane_step(spec: Spec) -> int:
    """Steps along K that lanes take at once, where rows are aligned."""
    if not spec.has("float4"):
        return spec.lanes_k
    wide = spec.matrices[0].dtype.elements(VECTOR_BYTES)
    each = spec.block[2] // spec.lanes_k if spec.has("smem") else wide
    return spec.lanes_k * next(n for n in (8, 4, 2, 1) if n <= wide and each % n == 0)
