"""The order in which blocks go over C: along each row of tiles, or down a group of rows, then on to the next column.

GPUs start blocks in the order of their numbers, x first. Some hundreds of them run at one time: of a wide C those
are a part of one row of tiles, which reads few rows of A and nearly all of B. In groups of rows they are about a square
of tiles, which reads less of both together, so that more of what they read is still in L2.

Persistent blocks number the tiles of C in the same order, and take as many steps from tile to tile as there are blocks.
"""

from __future__ import annotations

from gemmgen.ir.expr import Const, Expr, Var, smaller
from gemmgen.ir.nodes import For, Let, Stmt
from gemmgen.ir.types import Dim
from gemmgen.lower.scope import BLOCK_X, BLOCK_Y, GRID_X, GRID_Y, SIZES, Scope

TILE_ROW = Var("tileRow", BLOCK_Y.lo, BLOCK_Y.hi, uniform=True)
TILE_COL = Var("tileCol", BLOCK_X.lo, BLOCK_X.hi, uniform=True)
RENUMBERED = ((TILE_ROW.name, BLOCK_Y.name), (TILE_COL.name, BLOCK_X.name))

MOST_BLOCKS = 1 << 30
"""The launch plan holds the blocks of a group, and the tiles of persistent blocks, to this: numbers are C ints."""

MOST_ROWS = 65535
TILE_ROWS = Var("tileRows", 1, MOST_ROWS, uniform=True)
TILE_COLS = Var("tileCols", 1, MOST_BLOCKS // (MOST_ROWS + 1), uniform=True)
TILE = Var("tile", 0, MOST_BLOCKS - 1, uniform=True)

WHY = (
    "Blocks go down GROUP_M rows of tiles before they go on to the next column of tiles: those that run at one time "
    "then share rows of A and columns of B, and find more of them in L2."
)
WHY_EACH = "This block's tiles of C, one after another: as many apart as there are blocks."


def order_of_blocks(s: Scope) -> list[Stmt]:
    """Which tile of C this block computes, where that is not its place in the grid.

    A group is GROUP_M rows of the grid, so that its blocks are neighbours in time; within it they are numbered along x
    and then y, as they start, and take the group's tiles column by column. The last group may have fewer rows.
    """
    rows = s.p.group_m
    if rows == 1:
        return []
    each = _group_m(s)
    block_x = Var(BLOCK_X.name, 0, MOST_BLOCKS // rows - 1, uniform=True)
    grid_x = Var(GRID_X.name, 1, MOST_BLOCKS // rows, uniform=True)
    number = BLOCK_Y % each * grid_x + block_x
    return _in_groups(s, BLOCK_Y // each, GRID_Y, number, ("blocks", "this block's tile of C"), WHY)


# --- Persistent blocks ------------------------------------------------------------------------------------------------


def tiles_of_c(s: Scope) -> list[Stmt]:
    """How many tiles C has: what the grid no longer says."""
    why = "tiles of C, down a column and along a row"
    return [Let(TILE_ROWS, _tiles_along(s, "m"), why), Let(TILE_COLS, _tiles_along(s, "n"))]


def order_of_tiles(s: Scope) -> list[Stmt]:
    """Which tile of C has the number ``tile``: row by row, or group of rows by group of rows."""
    if s.p.group_m == 1:
        s.tile_row, s.tile_col = TILE_ROW, TILE_COL
        return [Let(TILE_ROW, TILE // TILE_COLS, "which tile of C this is"), Let(TILE_COL, TILE % TILE_COLS)]
    a_group = _group_m(s) * TILE_COLS
    words = ("tiles", "which tile of C this is")
    return _in_groups(s, TILE // a_group, TILE_ROWS, TILE % a_group, words, WHY)


def each_tile(body: tuple[Stmt, ...]) -> For:
    """The loop over the tiles of C that a block computes."""
    shared = TILE_COLS, TILE_ROWS
    return For(TILE, BLOCK_X, TILE_ROWS * TILE_COLS, GRID_X, body, None, WHY_EACH, shared)


def grid_of_blocks(s: Scope) -> tuple[Expr, Expr, Expr]:
    """The blocks that are launched along x, y and z, from M and N."""
    rows, columns = (_tiles_along(s, dim, always=True) for dim in ("m", "n"))
    if not s.p.persistent:
        return columns, rows, Const(s.p.sums.parts)
    return smaller(s.p.persistent, rows * columns), Const(1), Const(s.p.sums.parts)


# --- Both -------------------------------------------------------------------------------------------------------------


def _tiles_along(s: Scope, dim: Dim, always: bool = False) -> Expr:
    """Tiles along M or N, rounded up where the size may be ragged (or ``always``)."""
    tile = s.extent(dim)
    ragged = always or dim in s.p.variant.guard
    return (SIZES[dim] + (s.p.extent(dim) if always else tile) - 1) // tile if ragged else SIZES[dim] // tile


def _group_m(s: Scope) -> Expr:
    rows = s.p.group_m
    return s.constant("GROUP_M", rows, str(rows), "rows of tiles of C in a group, whose blocks go down its columns")


def _in_groups(s: Scope, number: Expr, rows: Expr, before: Expr, words: tuple[str, str], why: str) -> list[Stmt]:
    """The tile of a group that has ``before`` others before it, the group being that of this ``number`` of a C of so
    many ``rows`` of tiles."""
    most = s.p.group_m
    each = _group_m(s)
    group = Var("group", 0, (MOST_ROWS - 1) // most, uniform=True)
    group_rows = Var("groupRows", 1, most, uniform=True)
    in_group = Var("inGroup", 0, MOST_BLOCKS - 1, uniform=True)
    s.tile_row, s.tile_col = TILE_ROW, TILE_COL
    return [
        Let(group, number, why),
        Let(group_rows, smaller(each, rows - group * each), "the last group may have fewer"),
        Let(in_group, before, f"{words[0]} of the group before this one"),
        Let(TILE_ROW, group * each + in_group % group_rows, words[1]),
        Let(TILE_COL, in_group // group_rows),
    ]
