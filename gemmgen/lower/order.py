"""The order in which blocks go over C: along each row of tiles, or down a group of rows, then on to the next column.

GPUs start blocks in the order of their numbers, x first. Some hundreds of them run at one time: of a wide C those
are a part of one row of tiles, which reads few rows of A and nearly all of B. In groups of rows they are about a square
of tiles, which reads less of both together, so that more of what they read is still in L2.
"""

from __future__ import annotations

from gemmgen.ir.expr import Var, smaller
from gemmgen.ir.nodes import Let, Stmt
from gemmgen.lower.scope import BLOCK_X, BLOCK_Y, GRID_Y, Scope

TILE_ROW = Var("tileRow", BLOCK_Y.lo, BLOCK_Y.hi, uniform=True)
TILE_COL = Var("tileCol", BLOCK_X.lo, BLOCK_X.hi, uniform=True)
RENUMBERED = ((TILE_ROW.name, BLOCK_Y.name), (TILE_COL.name, BLOCK_X.name))

MOST_BLOCKS = 1 << 30
"""The launch plan holds the blocks of a group to this, so that their numbers are C ints."""

WHY = (
    "Blocks go down GROUP_M rows of tiles before they go on to the next column of tiles: those that run at one time "
    "then share rows of A and columns of B, and find more of them in L2."
)


def order_of_blocks(s: Scope) -> list[Stmt]:
    """Which tile of C this block computes, where that is not its place in the grid.

    A group is GROUP_M rows of the grid, so that its blocks are neighbours in time; within it they are numbered along x
    and then y, as they start, and take the group's tiles column by column. The last group may have fewer rows.
    """
    rows = s.p.group_m
    if rows == 1:
        return []
    each = s.constant("GROUP_M", rows, str(rows), "rows of tiles of C in a group, whose blocks go down its columns")
    group = Var("group", 0, 65534 // rows, uniform=True)
    group_rows = Var("groupRows", 1, rows, uniform=True)
    in_group = Var("inGroup", 0, MOST_BLOCKS - 1, uniform=True)
    block_x = Var(BLOCK_X.name, 0, MOST_BLOCKS // rows - 1, uniform=True)
    grid_x = Var("gridDim.x", 1, MOST_BLOCKS // rows, uniform=True)
    s.tile_row, s.tile_col = TILE_ROW, TILE_COL
    return [
        Let(group, BLOCK_Y // each, WHY),
        Let(group_rows, smaller(each, GRID_Y - group * each), "the last group may have fewer"),
        Let(in_group, BLOCK_Y % each * grid_x + block_x, "blocks of the group before this one"),
        Let(TILE_ROW, group * each + in_group % group_rows, "this block's tile of C"),
        Let(TILE_COL, in_group // group_rows),
    ]
