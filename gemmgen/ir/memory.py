"""What a kernel addresses: arrays, pointers into them, and single elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

from gemmgen.ir.expr import Expr, value_of
from gemmgen.ir.types import F32, DType

Space = Literal["global", "shared", "register"]
STATIC_SHARED_BYTES = 48 * 1024
"""What a kernel may declare; more has to be asked for at launch (CUDA C++ Programming Guide, compute capabilities)."""


@dataclass(frozen=True)
class Array:
    """Memory with a name. Shape () is one scalar register; global arrays have shape None (their size is the caller's).

    ``shape`` counts elements; an ``Expr`` there is a named constant. ``align`` is in bytes. ``over`` are the shared
    arrays whose memory it takes, from the first of them on, once the program has no more use for them.
    """

    name: str
    space: Space
    dtype: DType = F32
    shape: tuple[Expr, ...] | None = ()
    align: int = 4
    const: bool = False
    over: tuple[str, ...] = ()

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
    total = array.dtype.bytes
    for d in shape_of(array):
        total *= d
    return total


def in_memory_order(shared: Sequence[Array]) -> list[Array]:
    """Shared arrays of a block in the order in which they lie one behind another, without those that replace others.

    The most aligned come first, then those of whole 16 bytes, so that each starts as aligned as its own rows are.
    """

    def rank(a: Array) -> tuple[bool, int, int]:
        return not _replaced(a, shared), -a.align, -gcd(size_bytes(a), 16)

    return sorted((a for a in shared if not a.over), key=rank)


def _replaced(a: Array, shared: Sequence[Array]) -> bool:
    return any(a.name in x.over for x in shared)


def replaced_bytes(shared: Sequence[Array]) -> tuple[int, int]:
    """Bytes of the shared arrays whose place others take, and of the largest that takes it; (0, 0) where none does."""
    own = sum(size_bytes(a) for a in shared if _replaced(a, shared))
    return own, max((size_bytes(a) for a in shared if a.over), default=0)


def declared_apart(shared: Sequence[Array]) -> bool:
    """Whether the kernel declares each array by itself. Else they are parts of one array, without gaps: where one takes
    the place of others, and where they are more than a kernel may declare, with the gaps that alignment leaves."""
    return not any(a.over for a in shared) and _aligned_size(_extents(shared)) <= STATIC_SHARED_BYTES


def shared_size(shared: Sequence[Array]) -> int:
    """Bytes of shared memory that a block takes, as the compiler lays the arrays out."""
    own, over = replaced_bytes(shared)
    return declared_size(_extents(a for a in shared if not a.over), max(0, over - own), bool(over))


def declared_size(extents: Sequence[tuple[int, int]], more: int = 0, together: bool = False) -> int:
    """Bytes of arrays of these (sizes, alignments), in the order in which they are declared: with gaps between them
    where each is declared by itself. ``together``: they are parts of one array, which has ``more`` bytes behind them.
    """
    apart = _aligned_size(extents)
    return apart if apart <= STATIC_SHARED_BYTES and not together else sum(size for size, _ in extents) + more


def _extents(shared: Iterable[Array]) -> list[tuple[int, int]]:
    return [(size_bytes(a), a.align) for a in shared]


def _aligned_size(extents: Iterable[tuple[int, int]]) -> int:
    end = 0
    for size, align in extents:
        end = -(-end // align) * align + size
    return end
