"""Where an element of a tile lies in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.ir.expr import Expr
from gemmgen.ir.nodes import Array, Ref
from gemmgen.tile.program import Dim, Layout

BANK_ROW = 32
"""Elements of 4 bytes in one row of all banks."""


def element_of(array: Array, layout: Layout, at: Mapping[Dim, Expr], stage: Expr | None) -> Ref:
    """The element of a tile at given coordinates; ``stage`` is which of the buffer's tiles, None where it has one."""
    row, col = (at[d] for d in layout.dims)
    if layout.swizzle:
        col = swizzled(row, col, layout.extents[1])
    lead = () if stage is None else (stage,)
    return Ref(array, (*lead, row, col))


def swizzled(row: Expr, col: Expr, length: int) -> Expr:
    """The column with its piece of 16 bytes permuted as TMA does for rows of 32, 64 or 128 bytes: the number of the
    piece, exclusive or the row's number counted in rows of all banks (PTX ISA, "Swizzling modes")."""
    pieces = length // 4
    return ((col // 4) ^ ((row // (BANK_ROW // length)) % pieces)) * 4 + col % 4
