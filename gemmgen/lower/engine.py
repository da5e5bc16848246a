"""Tiles brought by the TMA engine: the tensor maps, and the copies that one thread has it make."""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.kernel import TensorMap
from gemmgen.ir.nodes import Array, Call, MapRef, Ref, Stmt
from gemmgen.isa.async_copy import tma_load
from gemmgen.isa.table import Completion
from gemmgen.lower.scope import Scope
from gemmgen.tile.program import TileProgram


def tensor_maps(p: TileProgram) -> tuple[TensorMap, ...]:
    """What the engine knows of each operand that it brings."""
    return tuple(_map(p, c.operand) for c in p.landing(Completion.BARRIER))


def _map(p: TileProgram, operand: str) -> TensorMap:
    tile = p.buffer(operand)
    assert tile is not None
    along, across = p.contiguous(operand), p.strided(operand)
    swizzle = tile.dtype.bytes * tile.layout.extents[1] if tile.layout.swizzle else 0
    return TensorMap(f"map{operand}", operand, (p.extent(along), p.extent(across)), swizzle, tile.dtype)


def boxes(s: Scope, shared: Mapping[str, Array], k0: Expr, stage: Expr | None, full: Array) -> list[Stmt]:
    """Have the engine copy the tiles that start at ``k0``; the stage's mbarrier counts their bytes."""
    p = s.p
    out: list[Stmt] = []
    for c in p.landing(Completion.BARRIER):
        start = {"k": s.first_k + k0, "m": s.origin("m"), "n": s.origin("n")}
        x, y = start[p.contiguous(c.operand)], start[p.strided(c.operand)]
        lead = () if stage is None else (stage,)
        tile = Ref(shared[c.buffer], (*lead, Const(0), Const(0)))
        barrier = Ref(full, (stage or Const(0),))
        row = tma_load(shared[c.buffer].dtype)
        out.append(Call(row, (tile, MapRef(f"map{c.operand}"), x, y, barrier), origin="use tma"))
    return out
