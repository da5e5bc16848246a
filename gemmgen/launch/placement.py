"""How a kernel reaches one operand where it lies: leading dimension and alignment, or a copy that is to be made first.

Pure, like ``launch.plan``, which asks here for A, B and C in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.split import Split
from gemmgen.ir.types import VECTOR_BYTES, Matrix

if TYPE_CHECKING:
    from gemmgen.ir.program import Program

OPERANDS = ("A", "B", "C")
WIDEST = VECTOR_BYTES
FETCHES_WORTH_A_COPY = 4  # by how many blocks each element is fetched, for aligned lines to be worth a copy
PRODUCTS_WORTH_A_COPY = 1 << 28  # multiply-adds below which the launch of a copy costs more than it saves


@dataclass(frozen=True)
class Copy:
    """An input to be copied before the launches, because of its strides or its alignment: into a buffer whose base is
    a multiple of 16 bytes, in the spec's order, rows (or columns, for order "col") ``leading`` elements apart, with
    zeros between the end of one and the start of the next. ``split``: rows of A, or columns of B, of which each has
    the parts of its elements one after another, in as many elements each."""

    operand: str
    leading: int
    bytes: int
    split: Split | None = None


@dataclass(frozen=True)
class Place:
    """How a kernel reaches one operand: leading dimension in elements, alignment in bytes of every row's start."""

    leading: int
    align: int
    copy: Copy | None = None
    padded: bool = False


def placed(x: Matrix, shape: tuple[int, int], strides: tuple[int, int], address: int, *, padding: bool) -> Place:
    """The operand where it lies, or a copy where its strides allow no kernel to read it.

    ``shape`` in elements, ``strides`` in elements, ``address`` in bytes modulo 16. ``padding``: the lines of a copy may
    be padded; a kernel that is given may not know of it. Raises ArgumentError for a C that would need a copy.
    """
    name, order, item = x.name, x.order, x.dtype.bytes
    along, across = (1, 0) if order == "row" else (0, 1)
    extent, rows = shape[along], shape[across]
    if extent == 0 or rows == 0:
        return Place(max(extent, 1), WIDEST)  # never accessed
    leading = strides[across] if rows > 1 else extent  # one row: its stride says nothing
    if address % item == 0 and (extent == 1 or strides[along] == 1) and leading >= extent:
        return Place(leading, alignment(item, address, leading * item, extent * item))
    if name == "C":
        lines, whole = ("rows", "a contiguous array") if order == "row" else ("columns", "one stored by columns")
        raise ArgumentError(
            f"C has strides {strides} (in elements) and address {address} modulo {WIDEST}; an output must have "
            f"stride 1 along its {lines}, at least {extent} from one to the next, "
            f"and be aligned to {item} bytes; pass C=None or {whole}"
        )
    if not padding:
        return Place(extent, alignment(item, extent * item), Copy(name, extent, extent * rows * item))
    return _copy(x, extent, rows)


def _copy(x: Matrix, extent: int, rows: int) -> Place:
    """A copy whose lines are whole accesses of the widest kind."""
    line = x.dtype.elements(WIDEST)
    leading = -(-extent // line) * line
    return Place(leading, WIDEST, Copy(x.name, leading, leading * rows * x.dtype.bytes), leading > extent)


def split_into_parts(program: Program, name: str, shape: tuple[int, int]) -> Place:
    """The copy of A or B as parts, which lie along k: each in whole tiles, with zeros behind."""
    x, bk = program.as_read(name), program.tile[2]
    lines, k = shape if x.order == "row" else shape[::-1]
    leading = x.parts * (-(-k // bk) * bk)
    return Place(leading, WIDEST, Copy(name, leading, leading * lines * x.dtype.bytes, program.split))


def repacked(program: Program, name: str, place: Place, size: tuple[int, int, int]) -> Place:
    """The place, or a copy with aligned lines where so many blocks fetch each element that it pays.

    A copy reads and writes an operand once; narrow accesses slow down every one of the fetches.
    """
    m, n, k = size
    if name == "C" or place.copy is not None or place.align >= program.alignment[name]:
        return place
    x = program.matrix(name)
    rows, columns = (m, k) if name == "A" else (k, n)
    if name in program.aligned:
        return _copy(x, columns, rows) if x.order == "row" else _copy(x, rows, columns)
    fetches = -(-n // program.tile[1]) if name == "A" else -(-m // program.tile[0])
    if fetches < FETCHES_WORTH_A_COPY or m * n * k < PRODUCTS_WORTH_A_COPY:
        return place
    return as_padded(program, name, place, size)


def as_padded(program: Program, name: str, place: Place, size: tuple[int, int, int]) -> Place:
    """The place, or a copy with aligned lines where the operand's own are not."""
    if name == "C" or place.copy is not None or place.align >= program.alignment[name]:
        return place
    m, n, k = size
    x = program.matrix(name)
    rows, columns = (m, k) if name == "A" else (k, n)
    return _copy(x, columns, rows) if x.order == "row" else _copy(x, rows, columns)


def alignment(item: int, *byte_counts: int) -> int:
    """The widest access, of at least ``item`` bytes, to which all of these are multiples."""
    return next(width for width in (WIDEST, 8, 4, 2, 1) if width >= item and all(b % width == 0 for b in byte_counts))
