"""The steps along k inside one tile: fragments, products, and what is interleaved with them."""

from __future__ import annotations

from gemmgen.ir.expr import Const, Expr, value_of
from gemmgen.ir.nodes import For, If, Pinned, Stmt
from gemmgen.lower.bring import copies_of
from gemmgen.lower.mma import WarpFragments
from gemmgen.lower.nest import nest
from gemmgen.lower.product import Fragments, Renewal, because
from gemmgen.lower.scope import loop
from gemmgen.lower.tiles import Turn
from gemmgen.tile.statements import Bring, Fragment, Inner


def inner_steps(f: Fragments, turn: Turn, t: Inner) -> tuple[list[Stmt], Turn]:
    """for k in 0..BK, all unrolled or some at a time."""
    out: list[Stmt] = []
    for b in t.brings:
        turn = turn.named(b.ahead, out)
        out += turn.pointers(b.ahead, (c.operand for c in b.copies))
    return [*out, *_loops(f, turn, t)], turn


def _loops(f: Fragments, turn: Turn, t: Inner) -> list[Stmt]:
    s = turn.k.s
    if isinstance(f, WarpFragments):
        return _by_warps(f, turn, t)
    steps = s.p.extent("k")
    unroll = s.p.product.unroll or steps
    shared = s.p.product.lanes_k > 1
    by = s.constants["STEP_K"].expr if shared else Const(1)
    if steps == value_of(by):
        return _step(f, turn, t, Const(0), Const(0))
    if unroll == steps:
        k, shape = loop("k", s.extent("k"), step=by)
        return [For(k, shape.start, shape.stop, shape.step, tuple(_step(f, turn, t, k, k)), True)]
    chunk = s.constant("UNROLL", unroll, str(unroll), "unrolled steps along k")
    kk, outer = loop("kk", s.extent("k"), step=chunk, unroll=None)
    # Not j: the loops over a fragment are named i and j.
    j, shape = loop("step", chunk, step=by)
    inner = For(j, shape.start, shape.stop, shape.step, tuple(_step(f, turn, t, kk + j, j)), True)
    return [For(kk, outer.start, outer.stop, outer.step, (inner,), False)]


def _by_warps(f: WarpFragments, turn: Turn, t: Inner) -> list[Stmt]:
    """for k in 0..BK, a step of tensor cores at a time."""
    s, steps = turn.k.s, (value_of(turn.k.s.extent("k")) or 1) // f.math.shape[2]
    prefetch = s.p.pipeline.prefetch

    def one(k: Expr) -> list[Stmt]:
        number = k // f.step
        parity = number % 2 if prefetch else Const(0)
        out = [x for b in t.brings for x in _slice(turn, b, number, steps)]
        for x in t.body:
            if isinstance(x, Fragment):
                out += f.fetch(x.operand, turn.source(x.operand, x.buffer), k, parity)
        return [*out, *(f.behind((number + 1) % 2) if prefetch else f.products(parity))]

    return nest([("k", s.extent("k"), f.step)], one)


def _step(f: Fragments, turn: Turn, t: Inner, k: Expr, j: Expr) -> list[Stmt]:
    """One step: ``k`` within the tile, ``j`` within the unrolled text (of the same parity, and equal modulo the run
    of A's registers)."""
    out = [x for b in t.brings for x in _slice(turn, b, k, turn.k.s.p.extent("k"))]
    fragments = [x for x in t.body if isinstance(x, Fragment)]
    if turn.k.s.p.pipeline.prefetch:
        return [*out, *_behind(f, turn, fragments, k, j)]
    return [*out, *(y for x in fragments for y in _fragment(f, turn, x, k, j)), *f.multiply(j, Const(0))]


def _fragment(f: Fragments, turn: Turn, x: Fragment, k: Expr, j: Expr) -> list[Stmt]:
    run = value_of(f.run) or 1
    body = f.fetch(x.operand, turn.source(x.operand, x.buffer), k, Const(0))
    if x.operand == "A" and run > 1:
        first = (j % run).eq(0)
        return body if value_of(first) == 1 else [If(first, tuple(body))]
    return body


def _behind(f: Fragments, turn: Turn, fragments: list[Fragment], k: Expr, j: Expr) -> list[Stmt]:
    """Fetch for this step, multiply for the one before."""
    run = value_of(f.run) or 1
    body: list[Stmt] = []
    for x in fragments:
        if x.operand == "B" or run == 1:
            body += f.fetch(x.operand, turn.source(x.operand, x.buffer), k, j % 2)
    renewed = next(turn.source(x.operand, x.buffer) for x in fragments if x.operand == "A")
    renew = Renewal(renewed, k, (j % run).eq(0)) if run > 1 else None
    products = f.multiply(j + (run - 1), (j + 1) % 2, renew)
    why = "FMAs of the previous step, whose fragments have arrived (zeros in the first step)"
    body += because(why, products)
    if not turn.k.s.p.product.pinned:
        return body
    why = "runs once: its opaque condition keeps the compiler from moving loads across steps (worth 12% on an H200)"
    return [Pinned(j, tuple(body), why)]


def _slice(turn: Turn, b: Bring, k: Expr, steps: int) -> list[Stmt]:
    """The accesses of a tile on its way that belong to step ``k`` of ``steps``."""
    out: list[Stmt] = []
    for c in copies_of(turn, b):
        come = turn.comes_from(c.c.operand, b.ahead)
        out += c.sliced(k, steps, come, turn.stage_of(b.ahead))
    some = turn.exists(b.ahead)
    return out if some is None else [If(some, tuple(out))]
