"""The operands of an epilogue at a launch: their shapes, where they lie, and how widely that lets a kernel reach.

Pure, like ``launch.planning``, which asks here for what is beside A, B and C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.types import DType, EpilogueOperand
from gemmgen.launch.placement import WIDEST, Place, alignment, placed

if TYPE_CHECKING:
    from gemmgen.ir.program import Program

Strides = tuple[int, ...]


class Chained(Protocol):
    """What has an epilogue: a spec, or a program."""

    @property
    def name(self) -> str: ...
    @property
    def beside(self) -> tuple[EpilogueOperand, ...]: ...


def refuse_names(named: Mapping[str, Any], of: Chained) -> None:
    """Raise ArgumentError where an operand is missing, or one is given that the epilogue does not take."""
    wanted = [x.name for x in of.beside]
    for name, value in named.items():
        if name not in wanted and value is not None:
            takes = f"takes {' and '.join(wanted)}" if wanted else "takes no operands beside A, B and C"
            raise ArgumentError(f"{name} is given, and the epilogue of {of.name!r} {takes}")
    for x in of.beside:
        if named.get(x.name) is None:
            does = "stores to it" if x.written else "reads it"
            raise ArgumentError(f"{x.name} is missing: the epilogue of {of.name!r} {does}; pass {x.name}=")


def refuse_type(x: EpilogueOperand, dtype: str, of: Chained) -> None:
    """Raise ArgumentError where an operand is not of its type."""
    if dtype != x.dtype.numpy:
        raise ArgumentError(f"{x.name} has element type {dtype}; the kernel {of.name!r} wants {x.dtype.numpy}")


def refuse_shapes(program: Program, shapes: Mapping[str, tuple[int, ...]], m: int, n: int) -> None:
    """Raise ArgumentError where an operand has not the shape that a C of m x n asks for."""
    for x in program.beside:
        refuse_shape(x, shapes[x.name], m, n)


def refuse_shape(x: EpilogueOperand, given: tuple[int, ...], m: int, n: int) -> None:
    """Raise ArgumentError where an operand has not the shape that a C of m x n asks for."""
    wanted = x.shape(m, n)
    if given != wanted and not (not x.dims and given == ()):
        raise ArgumentError(f"{x.name} has shape {given}; {wanted} is wanted: {_each(x)}")


def _each(x: EpilogueOperand) -> str:
    match x.dims:
        case ():
            return "one element for all of C"
        case ("m",):
            return "one element per row of C"
        case ("n",):
            return "one element per column of C"
        case _:
            return "the shape of C"


def packed(x: EpilogueOperand, m: int, n: int) -> Strides:
    """The strides of an operand without gaps."""
    if x.matrix is None:
        return (1,)
    return (n, 1) if x.order == "row" else (1, m)


def places(
    program: Program, size: tuple[int, int], strides: Sequence[Strides], addresses: Sequence[int]
) -> dict[str, Place]:
    """Where each operand lies. Raises ArgumentError for one that a kernel cannot reach in place."""
    m, n = size
    return {x.name: _place(x, (m, n), strides[i], addresses[i]) for i, x in enumerate(program.beside)}


def _place(x: EpilogueOperand, size: tuple[int, int], strides: Strides, address: int) -> Place:
    if x.matrix is not None:
        found = placed(x.matrix, size, (strides[0], strides[1]), address, padding=False)
        if found.copy is not None:
            lines = "rows" if x.order == "row" else "columns"
            raise ArgumentError(
                f"{x.name} has strides {tuple(strides)} (in elements); it must have stride 1 along its {lines}, as C "
                f"has: pass a contiguous copy"
            )
        return found
    count = x.shape(*size)[0]
    if count > 1 and strides and strides[0] != 1:
        raise ArgumentError(f"{x.name} has stride {strides[0]} (in elements); 1 is wanted: pass a contiguous copy")
    return Place(0, alignment(x.dtype.bytes, address))


def narrowed(program: Program, c: Place, beside: Mapping[str, Place]) -> Place:
    """C's place with the alignment that it has together with what is read beside it: accesses are as wide for all."""
    item = program.matrix("C").dtype
    align = min([c.align, *(_allowed(x.dtype, item, beside[x.name].align) for x in program.beside if _wide(x))])
    return Place(c.leading, align, c.copy, c.padded)


def _wide(x: EpilogueOperand) -> bool:
    """Whether neighbours are read together: along the dimension in which C is contiguous."""
    return ("n" if x.order == "row" else "m") in x.dims


def _allowed(own: DType, c: DType, align: int) -> int:
    """The bytes of C beside as many elements as an operand with this alignment gives in one access."""
    return WIDEST if align >= WIDEST else max(c.bytes, own.elements(align) * c.bytes)


def offsets(program: Program, i: int, j: int, beside: Mapping[str, Place]) -> tuple[tuple[str, int, int], ...]:
    """(name, elements from the first to that beside C[i, j], leading dimension) of each operand."""
    found = []
    for x in program.beside:
        leading = beside[x.name].leading
        if x.matrix is not None:
            at = i * leading + j if x.order == "row" else j * leading + i
        else:
            at = {(): 0, ("m",): i, ("n",): j}[x.dims]
        found.append((x.name, at, leading))
    return tuple(found)
