"""Tile program -> kernel IR: each tile statement becomes the loops and accesses of one thread.

One straight function of named parts: constants, placement, the walk along K, the epilogue.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gemmgen.ir.expr import Const, Expr, both, value_of
from gemmgen.ir.nodes import Array, For, If, KernelIR, LetPointer, Param, Pointer, Section, Stmt, Sync
from gemmgen.lower.asserts import assertions
from gemmgen.lower.copy import TileCopy, tile_copy
from gemmgen.lower.epilogue import epilogue
from gemmgen.lower.place import Place, constants, place
from gemmgen.lower.product import Fragments
from gemmgen.lower.scope import GLOBAL, LEADING, K, M, N, Scope, loop
from gemmgen.tile.program import Buffer, TileProgram
from gemmgen.tile.rewrites import build
from gemmgen.tile.sequence import Barrier, Clear, Finish, Fragment, Inner, Multiply, Stage, Steps, TileStmt, sequence
from gemmgen.tile.variant import EXACT, Variant

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

__all__ = ["lower", "lower_program"]


@lru_cache(maxsize=256)
def lower(spec: Spec, variant: Variant = EXACT) -> KernelIR:
    """The kernel IR of a checked spec."""
    return lower_program(build(spec, variant))


def lower_program(p: TileProgram) -> KernelIR:
    """The kernel IR of a tile program."""
    s = Scope(p)
    constants(s)
    placement, at = place(s)
    shared = {b.name: _shared(s, b) for b in p.buffers}
    low = _Lowering(s, at, Fragments(s, at), shared)
    body = low.kernel(placement)
    bm, bn = s.constants["BM"].expr, s.constants["BN"].expr
    return KernelIR(
        name=p.spec.name,
        spec=p.spec,
        variant=p.variant,
        summary=p.spec.comment,
        constants=tuple(s.constants.values()),
        assertions=assertions(p),
        params=PARAMS,
        threads=p.threads,
        grid=((N + (value_of(bn) or 1) - 1) // bn, (M + (value_of(bm) or 1) - 1) // bm, Const(1)),
        shared=tuple(shared.values()),
        body=body,
    )


PARAMS = (
    Param("M", "int", why="rows of A and C"),
    Param("N", "int", why="columns of B and C"),
    Param("K", "int", why="columns of A, rows of B"),
    Param("alpha", "float"),
    Param("A", "pointer", GLOBAL["A"]),
    Param("lda", "size", why="elements from one row of A to the next"),
    Param("B", "pointer", GLOBAL["B"]),
    Param("ldb", "size"),
    Param("beta", "float"),
    Param("C", "pointer", GLOBAL["C"]),
    Param("ldc", "size"),
)


def _shared(s: Scope, b: Buffer) -> Array:
    rows, cols = (s.extent(d) for d in b.layout.dims)
    return Array(b.name, "shared", shape=(rows, cols + b.layout.pad), align=16)


class _Lowering:
    """Lowers the statements of ``sequence(p)`` one by one."""

    def __init__(self, s: Scope, at: Place, f: Fragments, shared: dict[str, Array]) -> None:
        self.s, self.at, self.f, self.shared = s, at, f, shared
        self.copies: dict[str, TileCopy] = {c.operand: tile_copy(s, c, shared[c.buffer]) for c in s.p.copies}
        # A thread that computes one element, with no barrier to keep, simply does nothing outside C.
        self.skips = not s.p.copies and not f.clamped and bool(s.p.output.guard)
        self.k0: Expr = Const(0)

    def kernel(self, placement: list[Stmt]) -> tuple[Stmt, ...]:
        *walk, last = sequence(self.s.p)
        assert isinstance(last, Finish)
        index = [x for c in self.copies.values() for x in c.index]
        main = Section("Walk along K", tuple(self.all(walk)), _walk_why(self.s.p))
        end = Section("Epilogue: C = alpha * A B + beta * C", tuple(self.one(last)))
        parts: tuple[Stmt, ...] = (main, end)
        if self.skips:
            left = both(self.at.row.lt(self.s.left("m")), self.at.col.lt(self.s.left("n")))
            parts = (If(left, parts, why="threads outside C have nothing to do"),)
        return (Section("Placement: what this thread computes", (*placement, *index)), *parts)

    def all(self, body: tuple[TileStmt, ...] | list[TileStmt]) -> list[Stmt]:
        return [x for s in body for x in self.one(s)]

    def one(self, t: TileStmt) -> list[Stmt]:
        match t:
            case Clear():
                return self.f.clear() + self.f.declare()
            case Steps(body):
                return self.steps(body)
            case Inner(body, whole):
                return self.inner(body, whole)
            case Stage(c):
                return self.copies[c.operand].body(self.tile(c.operand), self.k0)
            case Barrier(hazard):
                self.s.syncs += 1
                return [Sync(self.s.syncs - 1, hazard)]
            case Fragment(operand, buffer):
                source = self.shared[buffer] if buffer else self.at.block[operand]
                return self.f.fetch(operand, source, self.k)
            case Multiply():
                return self.f.multiply()
            case Finish():
                return epilogue(self.s, self.at, self.f, bool(self.s.p.output.guard) and not self.skips)

    def steps(self, body: tuple[TileStmt, ...]) -> list[Stmt]:
        var, shape = loop("k0", K, step=self.s.extent("k"), unroll=None)
        self.k0 = var
        tiles = [LetPointer(self.tile(x)) for x in self.copies]
        return [For(var, shape.start, K, shape.step, (*tiles, *self.all(body)))]

    def inner(self, body: tuple[TileStmt, ...], whole: bool) -> list[Stmt]:
        stop = K if whole else self.s.extent("k")
        if value_of(stop) == 1:
            self.k: Expr = Const(0)
            return self.all(body)
        var, shape = loop("k", stop, unroll=None if whole else True)
        self.k = var
        return [For(var, shape.start, stop, shape.step, tuple(self.all(body)), None if whole else True)]

    def tile(self, operand: str) -> Pointer:
        """Where this step's tile of an operand begins."""
        offset = self.k0 if self.s.p.contiguous(operand) == "k" else self.k0 * LEADING[operand]
        return Pointer(f"tile{operand}", self.at.block[operand], offset)


def _walk_why(p: TileProgram) -> str:
    if not p.copies:
        return ""
    return "each step stages one tile of A and one of B, then multiplies them"
