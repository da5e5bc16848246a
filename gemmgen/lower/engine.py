"""Tiles brought by the TMA engine: the tensor maps, and the copies that one thread has it make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.kernel import TensorMap
from gemmgen.ir.nodes import Array, Call, MapRef, Ref, Stmt
from gemmgen.isa.async_copy import tma_load
from gemmgen.isa.table import Completion
from gemmgen.isa.wgmma import ROWS
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import BIGGEST, Scope, let
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
    copies, parts = p.landing(Completion.BARRIER), p.matrix("A").parts
    start = {"k": s.first_k + k0, "m": s.origin("m"), "n": s.origin("n")}
    barrier = Ref(full, (stage or Const(0),))
    lead = () if stage is None else (stage,)
    if parts > 1:
        return _boxes_of_parts(
            s, [(c, shared[c.buffer], start[p.strided(c.operand)]) for c in copies], lead, barrier, start["k"]
        )
    out: list[Stmt] = []
    for c in copies:
        corner = start[p.contiguous(c.operand)], start[p.strided(c.operand)]
        out += _boxes_of(p, c, shared[c.buffer], corner, lead, barrier)
    return out


def _boxes_of(
    p: TileProgram, c: Copy, array: Array, corner: tuple[Expr, Expr], lead: tuple[Expr, ...], barrier: Ref
) -> list[Stmt]:
    """One box, or one for each panel of the tile."""
    layout = p.buffer(c.operand)
    assert layout is not None
    panels = layout.layout.panels

    def one(panel: Expr) -> list[Stmt]:
        of = (panel,) if panels > 1 else ()
        tile = Ref(array, (*lead, *of, Const(0), Const(0)))
        x = corner[0] + panel * (array.shape or ())[-1] if panels > 1 else corner[0]
        return [_box(c, tile, x, corner[1], barrier)]

    return nest([("p", Const(panels), 1)], one)


def _boxes_of_parts(
    s: Scope, copies: Sequence[tuple[Copy, Array, Expr]], lead: tuple[Expr, ...], barrier: Ref, k: Expr
) -> list[Stmt]:
    """A box for each part of the elements, which lie one behind another in each line."""
    out: list[Stmt] = []
    depth = let(out, "depth", _whole_tiles(s), "elements of a line that each part takes")

    def one(part: Expr) -> list[Stmt]:
        return [
            _box(c, Ref(array, (*lead, part, Const(0), Const(0))), part * depth + k, line, barrier)
            for c, array, line in copies
        ]

    return [*out, *nest([("p", s.constants["PARTS"].expr, 1)], one)]


def _box(c: Copy, tile: Ref, x: Expr, y: Expr, barrier: Ref) -> Call:
    assert isinstance(tile.memory, Array)
    return Call(tma_load(tile.memory.dtype), (tile, MapRef(f"map{c.operand}"), x, y, barrier), origin="use tma")


def _whole_tiles(s: Scope) -> Expr:
    """Elements of a line that one part takes: K in whole tiles."""
    bk = s.extent("k")
    k = Var("K", 0, BIGGEST // s.p.matrix("A").parts - s.p.block[2], uniform=True)  # the launch plan sees to it
    return (k + (bk - 1)) // bk * bk if "k" in s.p.variant.guard else k
