"""What a kernel addresses: arrays, pointers into them, and single elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gemmgen.ir.expr import Expr, value_of

Space = Literal["global", "shared", "register"]
DTYPE_BYTES = {"f32": 4, "u32": 4, "i32": 4, "u64": 8}


@dataclass(frozen=True)
class Array:
    """Memory with a name. Shape () is one scalar register; global arrays have shape None (their size is the caller's).

    ``shape`` counts elements; an ``Expr`` there is a named constant. ``align`` is in bytes.
    """

    name: str
    space: Space
    dtype: str = "f32"
    shape: tuple[Expr, ...] | None = ()
    align: int = 4
    const: bool = False

    @property
    def operand(self) -> str:
        """The matrix it is, or is a tile of: ``A``, ``B`` or ``C``; of anything else the name."""
        return self.name[0] if self.name in ("As", "Bs", "Cs") else self.name


@dataclass(frozen=True)
class Pointer:
    """A named pointer into a global array: ``const float* tileA = A + offset``, offset in elements."""

    name: str
    base: Array | Pointer
    offset: Expr

    @property
    def array(self) -> Array:
        return self.base if isinstance(self.base, Array) else self.base.array


@dataclass(frozen=True)
class Ref:
    """One element: ``array[i][j]`` (an index for every dimension), or ``pointer[i]``. Shape () has no index."""

    memory: Array | Pointer
    index: tuple[Expr, ...] = ()

    @property
    def array(self) -> Array:
        return self.memory if isinstance(self.memory, Array) else self.memory.array


def shape_of(array: Array) -> tuple[int, ...]:
    """The shape in numbers; () for a scalar. Raises ValueError for a global array, whose size is the caller's."""
    if array.shape is None:
        raise ValueError(f"{array.name} has no static shape")
    dims = [value_of(d) for d in array.shape]
    return tuple(d for d in dims if d is not None)


def size_bytes(array: Array) -> int:
    """Bytes that an array takes. Raises ValueError for a global array, as :func:`shape_of` does."""
    total = DTYPE_BYTES[array.dtype]
    for d in shape_of(array):
        total *= d
    return total
