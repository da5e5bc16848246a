"""The second kernel of split-K: adds up the sums that the blocks left, always in the same order."""

from __future__ import annotations

from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.kernel import Constant, KernelIR, Param
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Compute,
    FBin,
    If,
    Load,
    Read,
    Ref,
    Scalar,
    Section,
    Stmt,
)
from gemmgen.lower.chain import Element, Values, apply, params, pointers, strides
from gemmgen.lower.epilogue import put
from gemmgen.lower.lines import Lines, launched_early, lines_of
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import BETA, BLOCK_X, BLOCK_Z, global_array, stride_of
from gemmgen.lower.syncs import beside
from gemmgen.tile.order import order
from gemmgen.tile.program import TileProgram
from gemmgen.tile.statements import AddUp

WORKSPACE = Array("W", "global", shape=None, const=True)
LDW = Var("ldw", 0, None, uniform=True, dtype="i64")


def reduction(p: TileProgram) -> KernelIR:
    """C = alpha * (sum of the slices of W) + beta * C; slice z of W is M rows of ``ldw`` elements, 16-byte aligned.

    A block takes one row of C (of its columns, where C is stored by columns); the workspace lies as C does.
    """
    x = lines_of(p)
    # Waits stand in front of the branch: a kernel whose threads all wait ends no earlier than the one before it, and so
    # nothing that follows on the stream, as the sums of the next product in the same workspace, starts before that.
    waits = beside(order(p, (AddUp(),), "then"))
    splits = Constant("SPLIT_K", p.sums.parts, str(p.sums.parts), "slices to add up")
    main = Section(
        "Add up the slices in their order, and store",
        (*waits, If(x.inside, tuple(_sum(p, x, splits.expr)))),
    )
    return KernelIR(
        name=f"{p.name}_reduce",
        variant=p.variant,
        summary="Adds up what the blocks that share a tile of C left in W.",
        constants=(splits, x.threads),
        assertions=(),
        params=(
            Param("M", "int", why="rows of C"),
            Param("N", "int", why="columns of C"),
            Param("alpha", "float"),
            Param("W", "pointer", WORKSPACE, why="the slices, one after another"),
            Param("ldw", "size", why="elements from one row of a slice to the next, as C lies"),
            Param("beta", "float"),
            Param("C", "pointer", global_array("C", x.dtype)),
            Param("ldc", "size"),
            *(strides(p.matrices[2:]) if p.batched else ()),
            *params(p.beside),
        ),
        threads=x.threads.value,
        grid=x.grid,
        shared=(),
        body=(x.placement, main),
        part="then",
        main=p.name,
        matrices=p.matrices,
        notes=(launched_early(p.name),) if p.sums.early else (),
        arriving=(WORKSPACE.name,) if p.sums.early else (),
    )


def _sum(p: TileProgram, x: Lines, splits: Expr) -> list[Stmt]:
    """The elements of a thread: their sums over the slices, scaled, and what C had of them."""
    total, part, old = x.registers("total"), x.registers("part"), x.registers("old", x.dtype)
    width = x.width
    row, col = (BLOCK_X, x.at) if p.contiguous("C") == "n" else (x.at, BLOCK_X)

    batch = {o.name: BLOCK_Z * stride_of(o) for o in p.beside} if p.batched else {}
    begin, memory = pointers(p.beside, Const(0), Const(0), batch)

    def first(array: Array) -> Ref:
        return x.each(array, Const(0))

    def add(z: Expr) -> list[Stmt]:
        slice_of = BLOCK_Z * splits + z if p.batched else z
        source = Ref(WORKSPACE, (slice_of * LDW * x.lines + BLOCK_X * LDW + x.at,))
        more = nest([("v", width, 1)], lambda v: [_add(x.each(total, v), Read(x.each(part, v)))])
        return [Alloc(part), Load(first(part), source, width, None, "split_k"), *more]

    def scale(v: Expr) -> list[Stmt]:
        return [Compute(x.each(total, v), FBin("*", Scalar("alpha"), Read(x.each(total, v))))]

    def blend(v: Expr) -> list[Stmt]:
        return [_add(x.each(total, v), FBin("*", Scalar("beta"), Read(x.each(old, v))))]

    keep = (Alloc(old), Load(first(old), x.target, width, None, "split_k"), *nest([("v", width, 1)], blend))
    return [
        Alloc(total, 0.0),
        *nest([("z", splits, 1)], add),
        *nest([("v", width, 1)], scale),
        If(BETA.ne(0), keep),
        *begin,
        *apply(p, p.chain, Values(total, width, p.contiguous("C"), Element(row, col, memory))),
        *put(x.target, total, width, x.dtype, "split_k"),
    ]


def _add(to: Ref, what: FBin | Read) -> Compute:
    return Compute(to, FBin("+", Read(to), what))
