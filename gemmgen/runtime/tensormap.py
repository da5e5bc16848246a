"""Tensor maps: what the TMA engine of sm_90 knows of a matrix, as 128 opaque bytes that the driver makes."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.diagnostics import LaunchError
from gemmgen.ir.types import BF16, E4M3, E5M2, F16, F32, TF32, DType
from gemmgen.ir.types import Matrix as Operand
from gemmgen.runtime import driver

if TYPE_CHECKING:
    from gemmgen.ir.kernel import TensorMap

BYTES = 128
_ALIGN = 64  # where the driver wants to write one
_REMEMBERED = 64  # addresses for which a launch keeps its map

# CUDA driver API, cuTensorMapEncodeTiled
# CU_TENSOR_MAP_DATA_TYPE_*: denormals are kept, and float8 has no type of its own but that of bytes
_TYPES = {F32: 7, TF32: 7, F16: 6, BF16: 9, E4M3: 0, E5M2: 0}
_NOT_INTERLEAVED = 0
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CU_TENSOR_MAP_SWIZZLE_*, by the bytes of a swizzled row
_PROMOTE_128, _PROMOTE_256 = 2, 3  # CU_TENSOR_MAP_L2_PROMOTION_*: what the L2 cache fetches at least
_OUTSIDE_IS_ZERO = 0


class Encoded:
    """The bytes of one map, at ``address``."""

    __slots__ = ("_memory", "address")

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(BYTES + _ALIGN)
        at = ctypes.addressof(self._memory)
        self.address = at + -at % _ALIGN


@dataclass(frozen=True)
class Matrix:
    """A matrix as its map sees it: ``extents`` in elements, the contiguous dimension first, and the bytes from one row
    to the next. ``box`` and ``swizzle`` are those of ``ir.nodes.TensorMap``."""

    extents: tuple[int, int]
    pitch: int
    box: tuple[int, int]
    swizzle: int
    dtype: DType = F32

    @property
    def promotion(self) -> int:
        return _PROMOTE_256 if self.box[0] * self.dtype.bytes >= 256 else _PROMOTE_128

    def encode(self, address: int) -> Encoded:
        """The map of the matrix at an address. Raises LaunchError where the hardware cannot read it so.

        A matrix without elements is never read, and has no map: its bytes are zero.
        """
        encoded = Encoded()
        if 0 in self.extents:
            return encoded
        status = _encode()(
            encoded.address, _TYPES[self.dtype], 2, address, (ctypes.c_uint64 * 2)(*self.extents),
            (ctypes.c_uint64 * 1)(self.pitch), (ctypes.c_uint32 * 2)(*self.box), (ctypes.c_uint32 * 2)(1, 1),
            _NOT_INTERLEAVED, _SWIZZLES[self.swizzle], self.promotion, _OUTSIDE_IS_ZERO,
        )  # fmt: skip
        if status != 0:
            raise driver.failure(f"cuTensorMapEncodeTiled({address:#x}, {self})", status)
        return encoded


class Maps:
    """The map of one operand of a launch, wherever the operand lies: made once for each address."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self._made: dict[int, Encoded] = {}

    def at(self, address: int) -> Encoded:
        found = self._made.get(address)
        if found is None:
            if len(self._made) >= _REMEMBERED:
                self._made.clear()
            found = self._made[address] = self.matrix.encode(address)
        return found


def maps_of(m: TensorMap, lies: Operand, size: tuple[int, int, int], leading: int) -> Maps:
    """Of operand "A" or "B" of a product (M, N, K), which ``lies`` in memory with a leading dimension in elements."""
    rows_and_columns = {"A": (size[0], size[2]), "B": (size[2], size[1]), "C": (size[0], size[1])}[m.operand]
    rows, columns = rows_and_columns
    if m.swizzle not in _SWIZZLES:
        raise LaunchError(f"a tile of {m.operand} swizzled over {m.swizzle} bytes; the TMA engine knows 32, 64 and 128")
    extents = (columns, rows) if lies.order == "row" else (rows, columns)
    if lies.parts > 1 and 0 not in extents:
        extents = (leading, extents[1])  # a line has all parts of its elements
    return Maps(Matrix(extents, leading * lies.dtype.bytes, m.box, m.swizzle, lies.dtype))


@functools.cache
def _encode() -> ctypes._NamedFuncPointer:
    function = driver.library().cuTensorMapEncodeTiled
    number, pointer = ctypes.c_int, ctypes.c_void_p
    function.argtypes = (
        pointer, number, ctypes.c_uint32, pointer, pointer, pointer, pointer, pointer, number, number, number, number,
    )  # fmt: skip
    return function
