"""Where an element of a tile lies in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.ir.expr import Expr
from gemmgen.ir.nodes import Array, Ref
from gemmgen.ir.types import VECTOR_BYTES, Dim
from gemmgen.lower.scope import Scope
from gemmgen.tile.program import SWIZZLE_ALIGN, Buffer, Layout

BANK_UNITS = 8
"""Pieces of 16 bytes in one row of all banks."""


def tile_array(s: Scope, b: Buffer) -> Array:
    """The shared array of a buffer, which may take the place of others."""
    rows, cols = (s.extent(d) for d in b.layout.dims)
    lead: tuple[Expr, ...] = ()
    if b.stages > 1:
        lead = (s.constant("STAGES", b.stages, str(b.stages), "tiles of A and of B in shared memory"),)
    if b.parts > 1:
        lead = (*lead, s.constant("PARTS", b.parts, str(b.parts), "numbers that an element of A or B is split into"))
    align = _align(s, b)
    if b.layout.pad:
        why = f"padding elements after each row of {b.name}"
        cols = cols + s.constant(f"PAD_{b.operand}", b.layout.pad, str(b.layout.pad), why)
    if b.layout.panels > 1:
        panel = s.constant(
            "PANEL_C" if b.operand == "C" else "PANEL",
            b.layout.panel,
            str(b.layout.panel),
            "elements of a row of a tile that lie together",
        )
        lead, cols = (*lead, cols // panel), panel
    return Array(b.name, "shared", b.dtype, (*lead, rows, cols), align=align, over=b.over)


def _align(s: Scope, b: Buffer) -> int:
    if b.over:
        return VECTOR_BYTES
    return SWIZZLE_ALIGN if b.operand == "C" else s.p.copy(b.operand).via.align(b.layout)


def element_of(
    array: Array, layout: Layout, at: Mapping[Dim, Expr], stage: Expr | None, bits: Expr | None = None
) -> Ref:
    """The element of a tile at given coordinates; ``stage`` is which of the buffer's tiles, None where it has one.

    ``bits`` are the row's bits that a swizzle uses, where the caller has a simpler expression for them.
    """
    row, col = (at[d] for d in layout.dims)
    assert layout.panels == 1, "threads copy no panels"
    if layout.swizzle:
        length, unit = layout.extents[1], array.dtype.elements(VECTOR_BYTES)
        col = ((col // unit) ^ (row_bits(row, length, unit) if bits is None else bits)) * unit + col % unit
    lead = () if stage is None else (stage,)
    return Ref(array, (*lead, row, col))


def start_of(array: Array, layout: Layout, at: Mapping[Dim, Expr], *lead: Expr) -> Ref:
    """The element at given coordinates as if nothing were permuted: what engines are told, which permute themselves.
    ``lead``: the stage, where there are several, and the part."""
    row, col = (at[d] for d in layout.dims)
    if layout.panels == 1:
        return Ref(array, (*lead, row, col))
    panel = (array.shape or ())[-1]
    return Ref(array, (*lead, col // panel, row, col % panel))


def row_bits(row: Expr, length: int, unit: int) -> Expr:
    """What TMA's swizzle of rows of 32, 64 or 128 bytes takes of a row's number: rows of all banks, counted modulo the
    pieces of 16 bytes, of ``unit`` elements, in a row (PTX ISA, "Swizzling modes"). Longer rows are as of 128."""
    pieces = min(length // unit, BANK_UNITS)
    return (row // (BANK_UNITS // pieces)) & (pieces - 1)


def row_remainder(row: Expr, length: int, unit: int) -> Expr:
    """The same as a remainder, in which rows that are apart by whole repetitions of the pattern leave no trace."""
    pieces = min(length // unit, BANK_UNITS)
    return row // (BANK_UNITS // pieces) % pieces


def split_bits(low: Expr, high: Expr, length: int, unit: int) -> Expr:
    """The same of ``low + high``, where no bit is set in both: part by part, of which one is known when unrolled."""
    pieces, per = length // unit, BANK_UNITS * unit // length
    return (low // per % pieces) ^ (high // per % pieces)
