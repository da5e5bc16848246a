"""The steps along k inside one tile: fragments, products, and what is interleaved with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gemmgen.ir.expr import Const, Expr, Var, both, select, value_of
from gemmgen.ir.nodes import For, If, Let, Pinned, Stmt
from gemmgen.lower.scope import let, loop
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
    if t.boundary:
        w.stage_of(0, out)
        _next_stage(w, out)
    some = unroll < steps
    if steps == 1:
        return out + _step(w, t, Const(0), Const(0), _is_last(w, Const(0), 1))
    if not some:
        k, shape = loop("k", w.s.extent("k"))
        body = _step(w, t, k, k, _is_last(w, k, steps))
        return [*out, For(k, shape.start, shape.stop, shape.step, tuple(body), True)]
    chunk = w.s.constant("UNROLL", unroll, str(unroll), "steps along k in the text of the main loop")
    kk, outer = loop("kk", w.s.extent("k"), step=chunk, unroll=None)
    # Not j: the loops over a fragment are named i and j.
    j, shape = loop("step", chunk)
    last = both(j.eq(chunk - 1), kk.eq(w.s.extent("k") - chunk))
    body = _step(w, t, kk + j, j, last)
    inner = For(j, shape.start, shape.stop, shape.step, tuple(body), True)
    return [*out, For(kk, outer.start, outer.stop, outer.step, (inner,), False)]


def _is_last(w: Walk, k: Expr, steps: int) -> Expr:
    """The condition that ``k`` is the last of a tile's steps."""
    return k.eq(w.s.extent("k") - 1) if steps > 1 else Const(1)


def _next_stage(w: Walk, out: list[Stmt]) -> None:
    """Where the last step finds the next tile; after the last tile it reads its own again, to no effect."""
    if w.depth == 1:
        return
    stage = w.stage[0]
    more = (w.t + 1).lt(w.tiles)
    wanted = select(more, (w.t + 1) % w.stages, stage)
    w.following = let(out, "followingStage", wanted, "after the last tile the same again, to no effect")


def _prepare(w: Walk, b: Bring) -> list[Stmt]:
    """What the accesses of a tile that is brought between the products need."""
    out: list[Stmt] = []
    w.stage_of(b.ahead, out)
    return out + w.pointers(b.ahead)


def _step(w: Walk, t: Inner, k: Expr, j: Expr, last: Expr) -> list[Stmt]:
    """One step: ``k`` within the tile, ``j`` within the unrolled text (of the same parity, and equal modulo the run
    of A's registers)."""
    out: list[Stmt] = []
    brings = [x for b in t.brings for x in _slice(w, b, k)]
    if not t.boundary:
        fetched = [x for f in t.body if isinstance(f, Fragment) for x in _fragment(w, f, k, j)]
        return [*brings, *fetched, *w.f.multiply(j, Const(0))]
    edge = w.all(x for x in t.boundary if not isinstance(x, Fragment))
    # A step's copies are started ahead of the edge, where the group that they are of is closed.
    out += brings
    known = value_of(last)
    if known is None:
        out.append(If(last, tuple(edge), why="before the last step: on to the next tile"))
    elif known:
        out += edge
    return [*out, *_prefetching(w, t, k, j, last)]


def _fragment(w: Walk, f: Fragment, k: Expr, j: Expr) -> list[Stmt]:
    run = value_of(w.f.run) or 1
    body = w.f.fetch(f.operand, w.source(f.operand, f.buffer), k, Const(0))
    if f.operand == "A" and run > 1:
        first = (j % run).eq(0)
        return body if value_of(first) == 1 else [If(first, tuple(body))]
    return body


def _prefetching(w: Walk, t: Inner, k: Expr, j: Expr, last: Expr) -> list[Stmt]:
    """Fetch for the next step, then multiply for this one."""
    out: list[Stmt] = []
    following = _named(out, "nextK", select(last, 0, k + 1), "the step that is fetched now")
    stage: Expr | None = None
    if w.depth > 1:
        stage = _named(out, "nextKStage", select(last, w.following, w.stage[0]), "and its stage")
    run = value_of(w.f.run) or 1
    sources = {f.operand: w.source(f.operand, f.buffer) for f in t.body if isinstance(f, Fragment)}
    sources = {x: replace(source, stage=stage if source.k0 is None else None) for x, source in sources.items()}
    body: list[Stmt] = []
    for operand, source in sources.items():
        if operand == "B" or run == 1:
            body += w.f.fetch(operand, source, following, (j + 1) % 2)
    body += w.f.multiply(j, j % 2, (sources["A"], following) if run > 1 else None)
    if not w.s.p.product.pinned:
        return out + body
    return [*out, Pinned(j, tuple(body), "a block of its own, so that the compiler keeps the loads ahead of their use")]


def _named(out: list[Stmt], name: str, value: Expr, why: str) -> Expr:
    known = value_of(value)
    if known is not None:
        return Const(known)
    var = Var(name, 0, None, uniform=True)
    out.append(Let(var, value, why))
    return var


def _slice(w: Walk, b: Bring, k: Expr) -> list[Stmt]:
    """The accesses of a tile on its way that belong to step ``k``."""
    out: list[Stmt] = []
    stage = w.stage_of(b.ahead, out)
    start = w.starts(b.ahead, [])
    for c in w.copies.values():
        out += c.sliced(k, w.s.p.extent("k"), w.tile(c.c.operand, start), start, stage)
    some = w.exists(b.ahead)
    return out if some is None else [If(some, tuple(out))]
