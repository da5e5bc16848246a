"""The steps along k inside one tile: fragments, products, and what is interleaved with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.ir.expr import Const, Expr, value_of
from gemmgen.ir.nodes import For, If, Pinned, Stmt
from gemmgen.lower.product import Renewal, because
from gemmgen.lower.scope import loop
from gemmgen.tile.statements import Bring, Fragment, Inner

if TYPE_CHECKING:
    from gemmgen.lower.walk import Walk


def inner_steps(w: Walk, t: Inner) -> list[Stmt]:
    """for k in 0..BK, all unrolled or some at a time."""
    steps = w.s.p.extent("k")
    unroll = w.s.p.product.unroll or steps
    out: list[Stmt] = []
    for b in t.brings:
        out += _prepare(w, b)
    if steps == 1:
        return out + _step(w, t, Const(0), Const(0))
    if unroll == steps:
        k, shape = loop("k", w.s.extent("k"))
        return [*out, For(k, shape.start, shape.stop, shape.step, tuple(_step(w, t, k, k)), True)]
    chunk = w.s.constant("UNROLL", unroll, str(unroll), "steps along k in the text of the main loop")
    kk, outer = loop("kk", w.s.extent("k"), step=chunk, unroll=None)
    # Not j: the loops over a fragment are named i and j.
    j, shape = loop("step", chunk)
    inner = For(j, shape.start, shape.stop, shape.step, tuple(_step(w, t, kk + j, j)), True)
    return [*out, For(kk, outer.start, outer.stop, outer.step, (inner,), False)]


def _prepare(w: Walk, b: Bring) -> list[Stmt]:
    """What the accesses of a tile that is brought between the products need."""
    out: list[Stmt] = []
    w.stage_of(b.ahead, out)
    return out + w.pointers(b.ahead)


def _step(w: Walk, t: Inner, k: Expr, j: Expr) -> list[Stmt]:
    """One step: ``k`` within the tile, ``j`` within the unrolled text (of the same parity, and equal modulo the run
    of A's registers)."""
    out = [x for b in t.brings for x in _slice(w, b, k)]
    fragments = [f for f in t.body if isinstance(f, Fragment)]
    if w.s.p.pipeline.prefetch:
        return [*out, *_behind(w, fragments, k, j)]
    return [*out, *(x for f in fragments for x in _fragment(w, f, k, j)), *w.f.multiply(j, Const(0))]


def _fragment(w: Walk, f: Fragment, k: Expr, j: Expr) -> list[Stmt]:
    run = value_of(w.f.run) or 1
    body = w.f.fetch(f.operand, w.source(f.operand, f.buffer), k, Const(0))
    if f.operand == "A" and run > 1:
        first = (j % run).eq(0)
        return body if value_of(first) == 1 else [If(first, tuple(body))]
    return body


def _behind(w: Walk, fragments: list[Fragment], k: Expr, j: Expr) -> list[Stmt]:
    """Fetch for this step, multiply for the one before."""
    run = value_of(w.f.run) or 1
    body: list[Stmt] = []
    for f in fragments:
        if f.operand == "B" or run == 1:
            body += w.f.fetch(f.operand, w.source(f.operand, f.buffer), k, j % 2)
    renewed = next(w.source(f.operand, f.buffer) for f in fragments if f.operand == "A")
    renew = Renewal(renewed, k, (j % run).eq(0)) if run > 1 else None
    products = w.f.multiply(j + (run - 1), (j + 1) % 2, renew)
    why = "the products of the step before, whose fragments are here by now; at first of zeros"
    body += because(why, products)
    if not w.s.p.product.pinned:
        return body
    why = "a loop in form only: in a block of its own the compiler keeps loads ahead of their use"
    return [Pinned(j, tuple(body), why)]


def _slice(w: Walk, b: Bring, k: Expr) -> list[Stmt]:
    """The accesses of a tile on its way that belong to step ``k``."""
    out: list[Stmt] = []
    stage = w.stage_of(b.ahead, out)
    for c in w.copies.values():
        out += c.sliced(k, w.s.p.extent("k"), w.comes_from(c.c.operand, b.ahead), stage)
    some = w.exists(b.ahead)
    return out if some is None else [If(some, tuple(out))]
