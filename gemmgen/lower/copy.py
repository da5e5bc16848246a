"""Copies: all threads of a block move one tile from global to shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmgen.ir.expr import Const, Expr, smaller, value_of
from gemmgen.ir.nodes import Alloc, Array, If, Load, Pointer, Ref, Stmt, Store
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import K, LEADING, Scope, let
from gemmgen.tile.program import Copy, Dim

Body = Callable[[Expr, Expr, Expr | None], list[Stmt]]


@dataclass(frozen=True)
class Lanes:
    """How threads spread over a tile of ``slow`` x ``fast`` accesses, ``fast`` being what consecutive threads walk.

    ``index`` statements stand before the K loop; ``loops(body)`` makes the copy's loops around
    ``body(slow, fast, condition)``, where a condition other than None says which threads take part.
    """

    index: tuple[Stmt, ...]
    loops: Callable[[Body], list[Stmt]]


def spread(s: Scope, operand: str, slow: Expr, fast: Expr, slow_name: str, fast_name: str) -> Lanes:
    """Shares slow x fast accesses among the block's threads, with as little index arithmetic as the sizes allow."""
    threads, rows, cols = s.threads, value_of(slow), value_of(fast)
    assert rows is not None and cols is not None
    t = s.constants["THREADS"].expr
    out: list[Stmt] = []
    if threads % cols == 0:
        first = let(out, slow_name, s.tid // fast)
        at = let(out, fast_name, s.tid % fast)
        stride = threads // cols
        if stride >= rows:
            condition = None if stride == rows else first.lt(slow)
            return Lanes(tuple(out), lambda body: body(first, at, condition))
        by = s.constant(f"STRIDE_{operand}", stride, f"THREADS / {_atom(fast)}", f"{_lines(operand)} one pass of the block loads")

        def passes(body: Body) -> list[Stmt]:
            def one(offset: Expr) -> list[Stmt]:
                inside = None if rows % stride == 0 else (first + offset).lt(slow)
                return body(first + offset, at, inside)

            return nest([("offset", slow, by)], one)

        return Lanes(tuple(out), passes)
    if cols % threads == 0:
        at = let(out, fast_name, s.tid)

        def pieces(body: Body) -> list[Stmt]:
            return nest([("line", slow, 1), ("offset", fast, t)], lambda line, offset: body(line, at + offset, None))

        return Lanes(tuple(out), pieces)
    total = slow * fast

    def linear(body: Body) -> list[Stmt]:
        def one(offset: Expr) -> list[Stmt]:
            found: list[Stmt] = []
            i = let(found, "i", s.tid + offset, "the threads do not divide a line: number the accesses through")
            inside = None if rows * cols % threads == 0 else i.lt(total)
            return found + body(i // fast, i % fast, inside)

        return nest([("offset", total, t)], one)

    return Lanes((), linear)


def _lines(operand: str) -> str:
    return f"lines of the tile of {operand} that"


def _atom(e: Expr) -> str:
    text = str(e)
    return f"({text})" if " " in text else text


@dataclass(frozen=True)
class TileCopy:
    """The lowered form of a Copy: index values found once, and the statements of each step along K."""

    index: tuple[Stmt, ...]
    body: Callable[[Pointer, Expr], list[Stmt]]


def tile_copy(s: Scope, c: Copy, shared: Array) -> TileCopy:
    """Lowers one copy. ``body(tile, k0)`` are the statements that bring in the tile which starts at ``k0``."""
    p = s.p
    along, across = p.contiguous(c.operand), p.strided(c.operand)
    width = c.width
    runs = s.extent(along) // width if width > 1 else s.extent(along)
    names = {d: f"inner{'Row' if d in _row_dims(c.operand) else 'Col'}{c.operand}" for d in (along, across)}
    if c.lanes == along:
        lanes = spread(s, c.operand, s.extent(across), runs, names[across], names[along])
    else:
        lanes = spread(s, c.operand, runs, s.extent(across), names[along], names[across])

    def body(tile: Pointer, k0: Expr) -> list[Stmt]:
        def access(slow: Expr, fast: Expr, condition: Expr | None) -> list[Stmt]:
            line, run = (slow, fast) if c.lanes == along else (fast, slow)
            moved = _move(s, c, tile, k0, line, run * width, shared)
            return moved if condition is None else [If(condition, tuple(moved))]

        return lanes.loops(access)

    return TileCopy(lanes.index, body)


def _row_dims(operand: str) -> tuple[Dim, ...]:
    return ("m",) if operand == "A" else ("k",)


def _move(s: Scope, c: Copy, tile: Pointer, k0: Expr, line: Expr, run: Expr, shared: Array) -> list[Stmt]:
    """One access: ``width`` neighbours from global memory, and their place in shared memory."""
    p, width = s.p, c.width
    along, across = p.contiguous(c.operand), p.strided(c.operand)
    at = {across: line, along: run}
    guard: Expr | None = None
    source = dict(at)
    for dim in (across, along):
        if dim not in c.guard:
            continue
        if dim == "k":
            guard = (k0 + at[dim]).lt(K)
        else:
            # Past the edge the last line is read again: what it gives is never stored.
            source[dim] = smaller(at[dim], s.left(dim) - (width if dim == along else 1))
    src = Ref(tile, (source[across] * LEADING[c.operand] + source[along],))
    buffer = p.buffer(c.operand)
    assert buffer is not None
    dims = buffer.layout.dims
    origin = "use float4" if width > 1 else "use smem"
    staged = Array("staged", "register", shape=(Const(width),) if width > 1 else ())
    zero = (Const(0),) if width > 1 else ()
    out: list[Stmt] = [Alloc(staged), Load(Ref(staged, zero), src, width, guard, origin)]
    if dims[1] == along:
        out.append(Store(Ref(shared, (at[dims[0]], at[dims[1]])), Ref(staged, zero), width, None, origin))
        return out

    def scatter(v: Expr) -> list[Stmt]:
        place = {across: line, along: run + v}
        element = (v,) if width > 1 else ()
        return [Store(Ref(shared, (place[dims[0]], place[dims[1]])), Ref(staged, element), 1, None, "use transposeA")]

    return out + nest([("v", width, 1)], scatter)

