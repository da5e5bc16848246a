"""Tiles brought by the TMA engine: the tensor maps, and the copies that one thread has it make."""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.kernel import TensorMap
from gemmgen.ir.nodes import Array, Call, MapRef, Ref, Stmt
from gemmgen.isa.async_copy import tma_load
from gemmgen.isa.table import Completion
from gemmgen.isa.wgmma import ROWS
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import Scope
from gemmgen.tile.program import Buffer, Copy, TileProgram


def tensor_maps(p: TileProgram) -> tuple[TensorMap, ...]:
    """What the engine knows of each operand that it brings."""
    maps = tuple(_map(p, c.operand) for c in p.landing(Completion.BARRIER))
    return maps if p.output.box is None else (*maps, _map_of_c(p.output.box))


def _map_of_c(tile: Buffer) -> TensorMap:
    """What the engine knows of C: boxes of a warp group's rows."""
    width = tile.layout.panel or tile.layout.extents[1]
    return TensorMap("mapC", "C", (width, ROWS), tile.dtype.bytes * width, tile.dtype)


def _map(p: TileProgram, operand: str) -> TensorMap:
    tile = p.buffer(operand)
    assert tile is not None
    along, across = p.contiguous(operand), p.strided(operand)
    swizzle = tile.dtype.bytes * tile.layout.extents[1] if tile.layout.swizzle else 0
    width = tile.layout.panel or p.extent(along)
    if tile.layout.swizzle:
        swizzle = tile.dtype.bytes * width
    return TensorMap(f"map{operand}", operand, (width, p.extent(across)), swizzle, tile.dtype)


def boxes(s: Scope, shared: Mapping[str, Array], k0: Expr, stage: Expr | None, full: Array) -> list[Stmt]:
    """Have the engine copy the tiles that start at ``k0``; the stage's mbarrier counts their bytes."""
    p = s.p
    out: list[Stmt] = []
    for c in p.landing(Completion.BARRIER):
        start = {"k": s.first_k + k0, "m": s.origin("m"), "n": s.origin("n")}
        x, y = start[p.contiguous(c.operand)], start[p.strided(c.operand)]
        barrier = Ref(full, (stage or Const(0),))
        out += _boxes_of(p, c, shared[c.buffer], (x, y), stage, barrier)
    return out


def _boxes_of(
    p: TileProgram, c: Copy, array: Array, corner: tuple[Expr, Expr], stage: Expr | None, barrier: Ref
) -> list[Stmt]:
    """One box, or one for each panel of the tile."""
    lead = () if stage is None else (stage,)
    row = tma_load(array.dtype)
    layout = p.buffer(c.operand)
    assert layout is not None
    panels = layout.layout.panels

    def one(panel: Expr) -> list[Stmt]:
        of = (panel,) if panels > 1 else ()
        tile = Ref(array, (*lead, *of, Const(0), Const(0)))
        x = corner[0] + panel * (array.shape or ())[-1] if panels > 1 else corner[0]
        return [Call(row, (tile, MapRef(f"map{c.operand}"), x, corner[1], barrier), origin="use tma")]

    return nest([("p", Const(panels), 1)], one)
