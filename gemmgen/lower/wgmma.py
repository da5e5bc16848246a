"""Products that a warp group starts together: the tensor cores read both tiles from shared memory."""

from __future__ import annotations

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Array, Call, Ref, Stmt
from gemmgen.isa.wgmma import ROWS, Major, wgmma
from gemmgen.lower.layout import element_of
from gemmgen.lower.nest import nest
from gemmgen.lower.product import Fragments
from gemmgen.lower.scope import let
from gemmgen.lower.tiles import Turn
from gemmgen.tile.program import Buffer, TileProgram
from gemmgen.tile.statements import Issue

ORIGIN = "math"


def first_sum(f: Fragments) -> Ref:
    """The first of a thread's sums, in their two rows."""
    return Ref(f.acc, (Const(0), Const(0)))


def issue(f: Fragments, turn: Turn, t: Issue) -> list[Stmt]:
    """The products of the turn's tile, step by step along k."""
    s = turn.k.s
    p = s.p
    depth = p.product.math.shape[2]
    tiles = [(b, turn.k.shared[b.name]) for b in (_buffer(p, "A"), _buffer(p, "B"))]
    majors = (major(tiles[0][0]), major(tiles[1][0]))
    row = wgmma(p.block[1], tiles[0][0].dtype, majors, (tiles[0][0].layout.rows, tiles[1][0].layout.rows))
    out: list[Stmt] = []
    group = let(out, "groupRow", f.at.row_of_group, "first row of this warp group in the block's tile")
    stage = turn.stage_of(0)

    def step(k: Expr) -> list[Stmt]:
        a = _first(*tiles[0], {"m": group, "k": k}, stage)
        b = _first(*tiles[1], {"n": Const(0), "k": k}, stage)
        return [Call(row, (first_sum(f), a, b), origin=ORIGIN)]

    return [*out, *nest([("k", s.extent("k"), depth)], step)]


def major(b: Buffer) -> Major:
    """The dimension along which a tile's elements are neighbours."""
    return "k" if b.layout.contiguous == "k" else "mn"


def _buffer(p: TileProgram, operand: str) -> Buffer:
    found = p.buffer(operand)
    assert found is not None
    return found
