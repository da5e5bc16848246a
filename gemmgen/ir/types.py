"""Element types and the warp: the only file that knows a size in bytes.

Everything else asks a :class:`DType` for its bytes, its C and NumPy names and its unit roundoff, and a matrix for the
type of its elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Dim: TypeAlias = Literal["m", "n", "k"]
Order: TypeAlias = Literal["row", "col"]
OperandName: TypeAlias = Literal["A", "B", "C"]

WARP = 32
"""Lanes of a warp."""
VECTOR_BYTES = 16
"""Bytes of the widest access of one lane."""


@dataclass(frozen=True)
class DType:
    """A type of elements. ``c`` is how CUDA C++ writes it; ``alias`` the built-in type that this is another name for,
    where the language has none (the emitted text includes no header).

    ``numpy`` is its name in NumPy or ``ml_dtypes``. ``unit_roundoff`` is half the distance from 1 to the next number,
    0 for integers; ``tiny`` the smallest subnormal number. ``arch`` is the first architecture with instructions that
    convert to it (75 as ``sm_75``; 0: all). ``register`` is the letter of inline assembly for a register of this type.
    ``coarse`` is how far a product of two numbers in memory may be from the one that tensor cores add, relative to it.
    """

    name: str
    bits: int
    c: str
    numpy: str
    unit_roundoff: float = 0.0
    tiny: float = 0.0
    arch: int = 0
    alias: str = ""
    register: str = ""
    coarse: float = 0.0

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def floating(self) -> bool:
        return self.unit_roundoff > 0

    def elements(self, nbytes: int) -> int:
        """How many elements ``nbytes`` hold."""
        return nbytes // self.bytes

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy type of the elements in memory. bfloat16 and float8 are those of ``ml_dtypes``."""
        import numpy as np

        if hasattr(np, self.numpy):
            found: np.dtype[Any] = np.dtype(self.numpy)
            return found
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.numpy))
        return extended

    def __str__(self) -> str:
        return self.name


F32 = DType("f32", 32, "float", "float32", 2.0**-24, 2.0**-149, register="f")
F16 = DType("f16", 16, "f16", "float16", 2.0**-11, 2.0**-24, arch=53, alias="unsigned short", register="h")
TF32 = DType("tf32", 32, "float", "float32", 2.0**-24, 2.0**-149, arch=80, register="f", coarse=2.0**-9)
"""float32 in memory, of which tensor cores read the upper 19 bits: 1 sign, 8 exponent and 10 mantissa bits."""
BF16 = DType("bf16", 16, "bf16", "bfloat16", 2.0**-8, 2.0**-133, arch=80, alias="unsigned short", register="h")
E4M3 = DType("e4m3", 8, "e4m3", "float8_e4m3fn", 2.0**-4, 2.0**-9, arch=89, alias="unsigned char", coarse=2.0**-9)
E5M2 = DType("e5m2", 8, "e5m2", "float8_e5m2", 2.0**-3, 2.0**-16, arch=89, alias="unsigned char", coarse=2.0**-9)
I32 = DType("i32", 32, "int", "int32", register="r")
U8 = DType("u8", 8, "unsigned char", "uint8", register="r")
U16 = DType("u16", 16, "unsigned short", "uint16", register="h")
U32 = DType("u32", 32, "unsigned int", "uint32", register="r")
U64 = DType("u64", 64, "unsigned long long", "uint64", register="l")

ELEMENT_TYPES: Mapping[str, DType] = {t.name: t for t in (F32, F16, BF16, TF32, E4M3, E5M2)}
"""The element types of a spec's operands, by name."""
ACCUMULATORS: Mapping[str, DType] = {t.name: t for t in (F32,)}
"""The types of running sums, by name."""

NAMED: Mapping[str, DType] = {t.numpy: t for t in (F32, F16, BF16, E4M3, E5M2, I32, U8, U16, U32, U64)}
"""The types by the name that NumPy has for them."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type of that name, those of ``ml_dtypes`` included."""
    if name in NAMED:
        return NAMED[name].numpy_dtype
    import numpy as np

    found: np.dtype[Any] = np.dtype(name)
    return found


DIMS: Mapping[str, tuple[Dim, Dim]] = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}
"""The two dimensions of each matrix, rows first."""


def batch_stride(name: str) -> str:
    """The kernel parameter that says how many elements one matrix of a batch is from the next: 0 where all are one."""
    return f"stride{name[:1].upper()}{name[1:]}"


@dataclass(frozen=True)
class Matrix:
    """An operand in global memory: ``dims`` are (rows, columns), ``order`` says which of them is contiguous.

    ``batch``: whether it has a matrix for each product of a batch. ``parts``: so many numbers make an element; a line
    has the first part of all its elements, then the second of all, each in as many whole tiles as the line takes.
    """

    name: str
    dims: tuple[Dim, Dim]
    dtype: DType
    order: Order
    batch: bool = False
    parts: int = 1

    @property
    def leading_counts(self) -> str:
        """What its leading dimension is, in words."""
        line = "row" if self.order == "row" else "column"
        return f"elements from one {line} of {self.name} to the next"

    @property
    def contiguous(self) -> Dim:
        """The dimension along which elements are neighbours."""
        return self.dims[1] if self.order == "row" else self.dims[0]

    @property
    def strided(self) -> Dim:
        """The other dimension, whose neighbours are a leading dimension apart."""
        return self.dims[0] if self.order == "row" else self.dims[1]

    @property
    def leading(self) -> str:
        """The kernel parameter that says how many elements apart neighbours along ``strided`` are."""
        return f"ld{self.name.lower()}"

    @property
    def stride(self) -> str:
        """The kernel parameter that says how many elements apart neighbours in a batch are."""
        return batch_stride(self.name)


@dataclass(frozen=True)
class EpilogueOperand:
    """What an epilogue reads beside A, B and C, or writes: ``dims`` are the dimensions of C along which it has
    elements, none for a single one. One with both lies in C's ``order``."""

    name: str
    dims: tuple[Dim, ...]
    dtype: DType
    order: Order
    written: bool = False
    why: str = ""
    batch: bool = False

    @property
    def stride(self) -> str:
        """The kernel parameter that says how many elements apart neighbours in a batch are."""
        return batch_stride(self.name)

    @property
    def matrix(self) -> Matrix | None:
        """The matrix that it is; None where it has one dimension or none."""
        return Matrix(self.name, ("m", "n"), self.dtype, self.order) if len(self.dims) == 2 else None

    def shape(self, m: int, n: int) -> tuple[int, ...]:
        """Its shape beside a C of m x n."""
        return tuple({"m": m, "n": n}[dim] for dim in self.dims) or (1,)
