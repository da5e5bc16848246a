"""The second kernel of split-K: adds up the sums that the blocks left, always in the same order."""

from __future__ import annotations

from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Call,
    Compute,
    Constant,
    FBin,
    If,
    KernelIR,
    Load,
    Param,
    Read,
    Ref,
    Scalar,
    Section,
    Stmt,
    Store,
)
from gemmgen.isa.dependent import WAIT_FOR_PREVIOUS_KERNEL
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import BETA, BLOCK_X, BLOCK_Y, GLOBAL, LDC, M, N, let
from gemmgen.tile.program import TileProgram
from gemmgen.tile.rewrites import widest
from gemmgen.tile.variant import Variant

THREADS = 256
WORKSPACE = Array("W", "global", shape=None, const=True)
LDW = Var("ldw", 0, None, uniform=True, dtype="i64")


def reduction(p: TileProgram) -> KernelIR:
    """C = alpha * (sum of the slices of W) + beta * C; slice z of W is M rows of ``ldw`` elements, 16-byte aligned.

    A block takes one row of C (of its columns, where C is stored by columns); the workspace lies as C does.
    """
    by_rows = p.contiguous("C") == "n"
    lines, along = (M, N) if by_rows else (N, M)
    width = widest(p.variant.bytes("C"))
    run = elements_a_block(p.variant)
    out: list[Stmt] = []
    threads = Constant("THREADS", THREADS, str(THREADS), "threads in a block")
    thread = BLOCK_Y * threads.expr + Var("threadIdx.x", 0, THREADS - 1)
    at = let(out, "at", thread * width, "first element of this thread")
    splits = Constant("SPLIT_K", p.split_k, str(p.split_k), "slices to add up")
    shape = (Const(width),) if width > 1 else ()
    total, part = Array("total", "register", shape=shape), Array("part", "register", shape=shape)
    old = Array("old", "register", shape=shape)

    def each(array: Array, v: Expr) -> Ref:
        return Ref(array, (v,) if width > 1 else ())

    def first(array: Array) -> Ref:
        return each(array, Const(0))

    def add(z: Expr) -> list[Stmt]:
        source = Ref(WORKSPACE, (z * LDW * lines + BLOCK_X * LDW + at,))
        more = nest([("v", width, 1)], lambda v: [_add(each(total, v), Read(each(part, v)))])
        return [Alloc(part), Load(first(part), source, width, None, "split_k"), *more]

    target = Ref(GLOBAL["C"], (BLOCK_X * LDC + at,))

    def scale(v: Expr) -> list[Stmt]:
        return [Compute(each(total, v), FBin("*", Scalar("alpha"), Read(each(total, v))))]

    scaled = nest([("v", width, 1)], scale)
    blend = nest([("v", width, 1)], lambda v: [_add(each(total, v), FBin("*", Scalar("beta"), Read(each(old, v))))])
    keep = (Alloc(old), Load(first(old), target, width, None, "split_k"), *blend)
    body: list[Stmt] = [
        Alloc(total, 0.0),
        *nest([("z", splits.expr, 1)], add),
        *scaled,
        If(BETA.ne(0), keep),
        Store(target, first(total), width, None, "split_k"),
    ]
    inside = at.lt(along)
    main = Section("Add up the slices in their order, and store", (*_wait(p), If(inside, tuple(body))))
    return KernelIR(
        name=f"{p.spec.name}_reduce",
        spec=p.spec,
        variant=p.variant,
        summary="Adds up what the blocks that share a tile of C left in W.",
        constants=(splits, threads),
        assertions=(),
        params=(
            Param("M", "int", why="rows of C"),
            Param("N", "int", why="columns of C"),
            Param("alpha", "float"),
            Param("W", "pointer", WORKSPACE, why="the slices, one after another"),
            Param("ldw", "size", why="elements from one row of a slice to the next, as C lies"),
            Param("beta", "float"),
            Param("C", "pointer", GLOBAL["C"]),
            Param("ldc", "size"),
        ),
        threads=THREADS,
        grid=(lines, (along + (run - 1)) // run, Const(1)),
        shared=(),
        body=(Section("Placement: a block works on one line of C", tuple(out)), main),
        finishes=p.spec.name,
        notes=_notes(p),
        arriving=(WORKSPACE.name,) if p.dependent else (),
    )


def _wait(p: TileProgram) -> tuple[Stmt, ...]:
    """In front of the branch: a kernel whose threads all wait ends no earlier than the one before it, and so nothing
    that follows on the stream, as the sums of the next product in the same workspace, starts before that."""
    if not p.dependent:
        return ()
    why = f"the blocks of {p.spec.name} may still be writing W"
    return (Call(WAIT_FOR_PREVIOUS_KERNEL, (), why, origin="use dependentLaunch"),)


def _notes(p: TileProgram) -> tuple[str, ...]:
    """How the kernel is launched, where that is not as its parameters say."""
    if not p.dependent:
        return ()
    return (
        f"Launched right behind {p.spec.name} on its stream, with the launch attribute programmatic stream "
        f"serialization (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) set to 1: its blocks are put on the "
        f"GPU while the last blocks of {p.spec.name} still run.",
    )


def elements_a_block(variant: Variant) -> int:
    """Neighbouring elements of a line that a block of a variant's second kernel works on."""
    return THREADS * widest(variant.bytes("C"))


def _add(to: Ref, what: FBin | Read) -> Compute:
    return Compute(to, FBin("+", Read(to), what))
