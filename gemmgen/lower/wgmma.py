"""Products that a warp group starts together: the tensor cores read both tiles from shared memory."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Alloc, Array, Call, Compute, FBin, For, Read, Ref, Stmt
from gemmgen.isa.wgmma import Major, wgmma
from gemmgen.lower.layout import start_of
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.product import Fragments
from gemmgen.lower.scope import Scope
from gemmgen.lower.tiles import Turn
from gemmgen.tile.program import Buffer, TileProgram
from gemmgen.tile.statements import Issue


class GroupSums(Fragments):
    """The registers of a warp group's product: sums alone, in two rows of a thread."""

    def __init__(self, s: Scope, at: Place) -> None:
        super().__init__(s, at)
        self.acc = Array("acc", "register", shape=(self.rows, self.cols))
        self.part = Array("part", "register", shape=(self.rows, self.cols)) if s.p.product.promote else self.acc

    def clear(self) -> list[Stmt]:
        sums = Alloc(self.acc, 0.0, "this thread's elements of C, in registers throughout")
        if not self.s.p.product.promote:
            return [sums]
        return [sums, Alloc(self.part, 0.0, "what the tensor cores add up of one tile, in fewer bits than float32 has")]

    def promote(self) -> list[Stmt]:
        """acc += part."""

        def one(i: Expr, j: Expr) -> list[Stmt]:
            own, part = Ref(self.acc, (i, j)), Ref(self.part, (i, j))
            return [Compute(own, FBin("+", Read(own), Read(part)))]

        first, *rest = nest([("p", self.rows, 1), ("j", self.cols, 1)], one)
        why = "promotion: rounded to nearest in float32, which the tensor cores' own sums are not"
        return [replace(first, why=why) if isinstance(first, For) else first, *rest]

    def declare(self) -> list[Stmt]:
        return []


def first_sum(f: Fragments) -> Ref:
    """A thread's sums that the tensor cores add to, by the first of them."""
    return Ref(f.part if isinstance(f, GroupSums) else f.acc, (Const(0), Const(0)))


def issue(f: Fragments, turn: Turn, t: Issue) -> list[Stmt]:
    """The products of the turn's tile, step by step along k."""
    s = turn.k.s
    tiles = [_buffer(s.p, x) for x in ("A", "B")]
    arrays = [turn.k.shared[b.name] for b in tiles]
    rows = (tiles[0].layout.extents[0], tiles[1].layout.extents[0])
    row = wgmma(s.p.block[1], tiles[0].dtype, (major(tiles[0]), major(tiles[1])), rows, s.p.product.promote)
    stage = turn.stage_of(0)

    def step(k: Expr) -> list[Stmt]:
        a = start_of(arrays[0], tiles[0].layout, {"m": f.at.warp_row, "k": k}, stage)
        b = start_of(arrays[1], tiles[1].layout, {"n": Const(0), "k": k}, stage)
        return [Call(row, (first_sum(f), a, b, *((k,) if s.p.product.promote else ())), origin="math")]

    return nest([("k", s.extent("k"), s.p.product.math.shape[2])], step)


def major(b: Buffer) -> Major:
    """The dimension along which a tile's elements are neighbours."""
    return "k" if b.layout.contiguous == "k" else "mn"


def _buffer(p: TileProgram, operand: str) -> Buffer:
    found = p.buffer(operand)
    assert found is not None
    return found
