"""Ways to bring an operand's tile to shared memory, and the one place that chooses between them.

Nothing else asks which way it is: sequencing asks when a copy ``lands``, the rewrites what it ``may_transpose``, the
lowering who issues it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from gemmgen.ir.types import VECTOR_BYTES, DType
from gemmgen.isa.async_copy import LEAST_ASYNC_BYTES, cp_async, tma_load
from gemmgen.isa.table import ANYWHERE, Completion, Needs

if TYPE_CHECKING:
    from gemmgen.tile.program import Copy, Layout, TileProgram


@dataclass(frozen=True)
class ThroughRegisters:
    """Each thread loads its part of the tile, and stores it when the loads are there."""

    lands: ClassVar = Completion.NOW
    may_transpose: ClassVar = True
    by_threads: ClassVar = True
    needs: ClassVar[Needs] = ANYWHERE

    def align(self, layout: Layout) -> int:
        """Bytes to which a buffer that is filled so must be aligned."""
        return VECTOR_BYTES


@dataclass(frozen=True)
class CpAsync:
    """Each thread starts copies past its registers, and waits for groups of them. An access is not taken apart: it is
    transposed only one element at a time."""

    lands: ClassVar = cp_async(VECTOR_BYTES).operands[0].completes
    may_transpose: ClassVar = False
    by_threads: ClassVar = True
    needs: ClassVar[Needs] = cp_async(VECTOR_BYTES).arch

    def align(self, layout: Layout) -> int:
        """Bytes to which a buffer that is filled so must be aligned."""
        return VECTOR_BYTES


@dataclass(frozen=True)
class Tma:
    """One thread has the TMA engine copy the whole tile as a box, with zeros outside the matrix; an mbarrier counts
    the bytes that arrive."""

    lands: ClassVar = tma_load().operands[0].completes
    may_transpose: ClassVar = False
    by_threads: ClassVar = False
    needs: ClassVar[Needs] = tma_load().arch

    def align(self, layout: Layout) -> int:
        """Bytes to which a buffer that is filled so must be aligned (PTX ISA, "cp.async.bulk.tensor" and "Swizzling
        modes")."""
        return 1024 if layout.swizzle else 128


REGISTERS = ThroughRegisters()
Transport: TypeAlias = ThroughRegisters | CpAsync | Tma
WAYS: tuple[Transport, ...] = (Tma(), CpAsync(), REGISTERS)
"""The most capable first: who cannot serve an operand is replaced by the next."""


def transport(p: TileProgram, c: Copy, wanted: Transport, vectors: bool) -> Transport:
    """The way to bring one operand: what is ``wanted``, or the next that can address its rows in this variant.
    ``vectors``: whether an access moves several elements."""
    return next(via for via in WAYS[WAYS.index(wanted) :] if _serves(p, c, via, vectors))


def transports(
    p: TileProgram, wanted: Transport, vectors: bool, beside: frozenset[str] = frozenset()
) -> tuple[Copy, ...]:
    """The copies of a program, each with its way. An operand that falls back takes the others with it, but those
    ``beside`` them, which keep their way: two kinds of waits per tile pay only where one way cannot transpose."""
    mine = [c for c in p.copies if c.operand not in beside]
    last = max((WAYS.index(transport(p, c, wanted, vectors)) for c in mine), default=0)
    return tuple(c if c.operand in beside else replace(c, via=WAYS[last]) for c in p.copies)


def turned(p: TileProgram) -> frozenset[str]:
    """The operands whose tiles are transposed on their way."""
    return frozenset(b.operand for b in p.buffers if b.layout.contiguous != p.contiguous(b.operand))


def copy_width(p: TileProgram, c: Copy, via: Transport) -> int:
    """Elements of the widest access that copies an operand so, in this variant."""
    buffer = p.buffer(c.operand)
    assert buffer is not None
    along = p.contiguous(c.operand)
    extents = [p.extent(along)]
    if buffer.layout.contiguous == along:
        extents.append(buffer.layout.pitch)
    elif not via.may_transpose:
        return 1
    return widest(buffer.dtype, p.variant.bytes(c.operand), *extents)


def widest(dtype: DType, align_bytes: int, *extents: int) -> int:
    """The most elements of one access: 16 bytes at most, as the alignment allows, and dividing every extent."""
    fits = (w for w in (16, 8, 4, 2, 1) if w == 1 or w * dtype.bytes <= min(align_bytes, VECTOR_BYTES))
    return next(w for w in fits if all(e % w == 0 for e in extents))


def _serves(p: TileProgram, c: Copy, via: Transport, vectors: bool) -> bool:
    match via:
        case Tma():
            return p.variant.bytes(c.operand) >= VECTOR_BYTES
        case CpAsync():
            width = copy_width(p, c, via) if vectors else 1
            return p.matrix(c.operand).dtype.bytes * width >= LEAST_ASYNC_BYTES
        case ThroughRegisters():
            return True
