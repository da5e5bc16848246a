"""The epilogue: C = chain(alpha * acc + beta * C), C read only where beta is not 0; or alpha * acc is added to C in
memory."""

from __future__ import annotations

from collections.abc import Callable

from gemmgen.ir.expr import Const, Expr, both
from gemmgen.ir.nodes import Alloc, Array, Call, Compute, FBin, If, Load, Read, Ref, Scalar, Stmt, Store
from gemmgen.ir.types import Dim, DType
from gemmgen.isa.atomic import global_add
from gemmgen.lower.chain import Element, Values, apply
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.product import Fragments, element
from gemmgen.lower.scope import BETA, LDC, Scope
from gemmgen.tile.sums import InMemory


def epilogue(
    s: Scope, at: Place, f: Fragments, guarded: bool, to: Callable[[Expr, Expr], Ref] | None = None
) -> list[Stmt]:
    """Statements that store a thread's results, or leave them ``to`` where pieces (p, q) lie in shared
    memory. ``guarded``: those outside C are skipped here."""
    p, width = s.p, s.p.output.width
    along_n = p.contiguous("C") == "n"
    steps = (1, width) if along_n else (width, 1)

    def piece(pi: Expr, i: Expr, q: Expr, j: Expr) -> list[Stmt]:
        row = at.row + pi * at.sub_m + i
        col = at.col + q * at.sub_n + j
        offset = row * LDC + col if along_n else col * LDC + row
        target = Ref(at.block["C"], (offset,))

        def result(v: Expr) -> Ref:
            m, n = pi * at.tm + i, q * at.tn + j
            return element(f.acc, (f.rows, f.cols), (m, n + v) if along_n else (m + v, n))

        stored = (
            add(result, target, width)
            if isinstance(p.sums, InMemory)
            else store(s, result, target, (row, col), width, to=None if to is None else to(pi, q))
        )
        where = inside(s, row, col) if guarded else None
        return stored if where is None else [If(where, tuple(stored))]

    return nest([("p", at.m_iter, 1), ("i", at.tm, steps[0]), ("q", at.n_iter, 1), ("j", at.tn, steps[1])], piece)


def inside(s: Scope, row: Expr, col: Expr) -> Expr | None:
    """The condition that an element of the block's tile lies in C; None where it surely does."""
    guard = s.p.output.guard
    edges: tuple[tuple[Dim, Expr], ...] = (("m", row), ("n", col))
    tests = [x.lt(s.left(d)) for d, x in edges if d in guard]
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else both(tests[0], tests[1])


def add(result: Callable[[Expr], Ref], target: Ref, width: int) -> list[Stmt]:
    """Alpha times ``width`` results are added to neighbours of C, to which other blocks add too."""
    out = Array("out", "register", shape=(Const(width),) if width > 1 else ())

    def at(v: Expr) -> Ref:
        return Ref(out, (v,) if width > 1 else ())

    scale = nest([("v", width, 1)], lambda v: [Compute(at(v), FBin("*", Scalar("alpha"), Read(result(v))))])
    values = (at(Const(v)) for v in range(width))
    return [Alloc(out), *scale, Call(global_add(width), (target, *values), origin="use atomics")]


def store(
    s: Scope,
    result: Callable[[Expr], Ref],
    target: Ref,
    where: tuple[Expr, Expr],
    width: int,
    origin: str = "tile thread",
    to: Ref | None = None,
) -> list[Stmt]:
    """One store of ``width`` neighbours of C, with the old values read first where beta asks for them, and the chain of
    the epilogue applied. ``where`` are the row and column of the first in the block's tile.

    All is computed in float32 and rounded once, to the type of C.
    """
    dtype = s.p.stored
    shape = (Const(width),) if width > 1 else ()
    out, old = Array("out", "register", shape=shape), Array("old", "register", dtype, shape)
    first = (Const(0),) if width > 1 else ()

    def at(array: Array, v: Expr) -> Ref:
        return Ref(array, (v,) if width > 1 else ())

    scale = nest([("v", width, 1)], lambda v: [Compute(at(out, v), FBin("*", Scalar("alpha"), Read(result(v))))])
    blend = nest(
        [("v", width, 1)],
        lambda v: [Compute(at(out, v), FBin("+", Read(at(out, v)), FBin("*", Scalar("beta"), Read(at(old, v)))))],
    )
    keep = (Alloc(old), Load(Ref(old, first), target, width, None, origin), *blend)
    return [
        Alloc(out),
        *scale,
        If(BETA.ne(0), keep),
        *apply(s.p, s.p.applied, Values(out, width, s.p.contiguous("C"), Element(*where, s.beside))),
        *put(target if to is None else to, out, width, dtype, origin),
    ]


def put(target: Ref, out: Array, width: int, dtype: DType, origin: str) -> list[Stmt]:
    """Stores float32 values, rounded to another type where C has one."""
    first = (Const(0),) if width > 1 else ()
    if dtype == out.dtype:
        return [Store(target, Ref(out, first), width, None, origin)]
    rounded = Array("rounded", "register", dtype, out.shape)

    def convert(v: Expr) -> list[Stmt]:
        at = (v,) if width > 1 else ()
        return [Compute(Ref(rounded, at), Read(Ref(out, at)))]

    convert_all = nest([("v", width, 1)], convert)
    return [Alloc(rounded), *convert_all, Store(target, Ref(rounded, first), width, None, origin)]


def leave(f: Fragments, to: Ref, at: tuple[Expr, Expr], width: int, by_rows: bool, origin: str) -> list[Stmt]:
    """One store to shared memory of ``width`` of a thread's sums, neighbours in a line of C from (m, n) ``at`` on."""

    def sum_at(m: Expr, n: Expr) -> Ref:
        return element(f.acc, (f.rows, f.cols), (m, n))

    m, n = at
    if by_rows or width == 1:
        return [Store(to, sum_at(m, n), width, None, origin)]
    # Neighbours in a column of C are not neighbours in the registers.
    piece = Array("piece", "register", shape=(Const(width),))
    moved = nest([("v", width, 1)], lambda v: [Compute(Ref(piece, (v,)), Read(sum_at(m + v, n)))])
    return [Alloc(piece), *moved, Store(to, Ref(piece, (Const(0),)), width, None, origin)]
