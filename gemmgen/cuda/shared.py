"""Shared memory that is one array, of which the tiles are parts: where it is more than a kernel may declare, or where
something else takes the tiles' place later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gemmgen.cuda.layout import Line
from gemmgen.cuda.terms import dimensions
from gemmgen.ir.expr import Expr, show
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.memory import STATIC_SHARED_BYTES, in_memory_order, replaced_bytes
from gemmgen.ir.nodes import Array
from gemmgen.ir.types import DType


def shared_parts(ir: KernelIR, dynamic: bool) -> Iterator[Line]:
    """The one array, and each of the kernel's as a pointer into it."""
    align = max(16, *(a.align for a in ir.shared))
    unit = min((a.dtype for a in ir.shared), key=lambda t: (t.bytes, t.name))
    placed, size = _placed(ir.shared, unit)
    if dynamic:
        limit = f"more than the {STATIC_SHARED_BYTES} that a kernel may declare: given at launch."
        yield Line(1, "", f"{ir.shared_bytes} bytes, {limit}")
        yield Line(1, f"extern __shared__ __align__({align}) {unit.c} dynamicShared[];")
    else:
        yield Line(1, f"__shared__ __align__({align}) {unit.c} blockShared[{size}];")
    for array, offsets in placed:
        code, *tail = _part(array, unit, ["dynamicShared" if dynamic else "blockShared", *offsets])
        others = " and ".join(array.over)
        yield Line(1, code, f"takes the place of {others}, once all is multiplied" if others else "", tail=tuple(tail))


def _placed(shared: Sequence[Array], unit: DType) -> tuple[list[tuple[Array, list[str]]], str]:
    """Each array with the sizes of those before it, and the size of all, in elements of ``unit``."""
    own, over = replaced_bytes(shared)
    replaced = {name for a in shared for name in a.over}
    found: list[tuple[Array, list[str]]] = []
    sizes: list[str] = []
    for array in in_memory_order(shared):
        if over > own and array.name not in replaced:
            sizes, over = [_units(next(a for a in shared if a.over), unit)], 0
        found.append((array, list(sizes)))
        sizes.append(_units(array, unit))
    if over > own:
        sizes = [_units(next(a for a in shared if a.over), unit)]
    return [*found, *((a, []) for a in shared if a.over)], " + ".join(sizes)


def _units(array: Array, unit: DType) -> str:
    """The size of an array in elements of ``unit``."""
    each = array.dtype.bytes // unit.bytes
    return " * ".join([*([str(each)] if each > 1 else []), *map(_factor, array.shape or ())])


def _factor(extent: Expr) -> str:
    """An extent as part of a product."""
    text = show(extent)
    return f"({text})" if " " in text else text


def _part(array: Array, unit: DType, offsets: list[str]) -> list[str]:
    kind = array.dtype.c
    start = " + ".join(offsets)
    inner = dimensions((array.shape or ())[1:])
    if inner:
        return [f"{kind} (*{array.name}){inner} =", f"reinterpret_cast<{kind} (*){inner}>({start});"]
    cast = start if kind == unit.c else f"reinterpret_cast<{kind}*>({start})"
    return [f"{kind}* {array.name} =", f"{cast};"]
