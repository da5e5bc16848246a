"""Matrix multiplications of one warp, and the loads of its fragments: mma.sync and ldmatrix.

PTX ISA, "Matrix multiply-accumulate operation using mma instruction" and "Warp-level matrix load instruction:
ldmatrix".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from gemmgen.ir.types import F32, U32, VECTOR_BYTES, WARP, DType
from gemmgen.isa.async_copy import SHARED_ADDRESS
from gemmgen.isa.fragment import Fragment
from gemmgen.isa.table import Instruction, Moved, Needs, Operand, Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gemmgen.isa.machine import Lanes, MemoryArgument, RegisterArgument

    Ints = NDArray[np.int64]
    Floats = NDArray[Any]

M, N, K_BYTES = 16, 8, 32
"""Rows and columns of the sums of one mma, and the bytes along k that it multiplies."""
EIGHT = 8
"""Rows of the matrices that ldmatrix loads; a row is as many elements of 16 bits."""
QUAD = WARP // EIGHT
"""Lanes that have a row of 8 of the sums between them."""


def per_register(dtype: DType) -> int:
    """Elements in one register."""
    return dtype.elements(U32.bytes)


@cache
def a_fragment(dtype: DType) -> Fragment:
    """A: rows l / 4 and l / 4 + 8 of lane l, neighbours along k together in a register."""
    per = per_register(dtype)
    return Fragment(
        M,
        dtype.elements(K_BYTES),
        QUAD * per,
        lambda lane, i: (lane // QUAD + i // per % 2 * 8, lane % QUAD * per + i % per + i // (2 * per) * (QUAD * per)),
    )


@cache
def b_fragment(dtype: DType) -> Fragment:
    """B, [k, n]: column l / 4 of lane l."""
    per = per_register(dtype)
    return Fragment(
        dtype.elements(K_BYTES),
        N,
        2 * per,
        lambda lane, i: (lane % QUAD * per + i % per + i // per * (QUAD * per), lane // QUAD),
    )


SUMS = Fragment(M, N, 4, lambda lane, i: (lane // QUAD + i // 2 * 8, lane % QUAD * 2 + i % 2), accumulates=True)
"""The sums: two neighbours in row l / 4 and two in row l / 4 + 8 of lane l."""


@cache
def mma(dtype: DType) -> Instruction:
    """``sums += a * b`` of one warp: ``(upper, lower, a, b)``, the sums of a lane being those of its two rows."""
    k = dtype.elements(K_BYTES)
    per, element = per_register(dtype), dtype.name
    held = "a value" if per == 1 else f"{per} neighbours along k"
    helper = f"""\
// A warp multiplies {M}x{k} of A by {k}x{N} of B and adds the product to {M}x{N} sums. Lane l has two neighbours each
// of the sums' rows l / 4 (upper) and l / 4 + 8 (lower). A register of a or b holds {held}.
__device__ __forceinline__ void mma_{M}x{N}x{k}(float* upper, float* lower, const {dtype.c}* a, const {dtype.c}* b)
{{
    const unsigned int* aRegs = reinterpret_cast<const unsigned int*>(a);
    const unsigned int* bRegs = reinterpret_cast<const unsigned int*>(b);
    asm volatile("mma.sync.aligned.m{M}n{N}k{k}.row.col.f32.{element}.{element}.f32"
                 " {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
                 : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
                 : "r"(aRegs[0]), "r"(aRegs[1]), "r"(aRegs[2]), "r"(aRegs[3]), "r"(bRegs[0]), "r"(bRegs[1]));
}}
"""
    a, b = a_fragment(dtype), b_fragment(dtype)
    return Instruction(
        f"mma_{M}x{N}x{k}",
        helper,
        _multiply(dtype),
        operands=(
            Operand("register", "add", F32, run=2),
            Operand("register", "add", F32, run=2),
            Operand("register", "read", dtype, run=a.elements),
            Operand("register", "read", dtype, run=b.elements),
        ),
        arch=Needs(max(80, dtype.arch)),
        work=Work("tensor", 2 * M * N * k // WARP),
    )


def _multiply(dtype: DType) -> Callable[..., None]:
    """The sums of all warps, in float32. Of tf32 what a tensor core reads: the lowest 13 bits count for nothing."""

    def meaning(
        lanes: Lanes, upper: RegisterArgument, lower: RegisterArgument, a: RegisterArgument, b: RegisterArgument
    ) -> None:
        import numpy as np

        _whole_warps(lanes, "mma")
        fa, fb = a_fragment(dtype), b_fragment(dtype)
        left, right = (_tiles(x.read(f.elements), f, dtype) for x, f in ((a, fa), (b, fb)))
        sums = np.concatenate([upper.read(2), lower.read(2)])
        with np.errstate(all="ignore"):
            total = (left @ right).reshape(-1, M * N)[:, _places(SUMS)]  # [warps, lanes, elements]
            sums = sums + total.reshape(-1, SUMS.elements).T
        upper.write(sums[:2])
        lower.write(sums[2:])

    return meaning


def _tiles(values: NDArray[np.generic], f: Fragment, dtype: DType) -> Floats:
    """Values of registers, [elements, lanes], as the tiles of all warps in float32, [warps, rows, cols]."""
    import numpy as np

    numbers = values.astype(F32.numpy_dtype)
    if dtype.bits == F32.bits:
        numbers = (numbers.view(np.uint32) & np.uint32(0xFFFFE000)).view(F32.numpy_dtype)
    out = np.empty((numbers.shape[1] // WARP, f.rows * f.cols), F32.numpy_dtype)
    out[:, _places(f)] = numbers.T.reshape(-1, WARP, f.elements)
    return out.reshape(-1, f.rows, f.cols)


@lru_cache(maxsize=64)
def _places(f: Fragment) -> Ints:
    """Where in a tile each element of each lane is, [lanes, elements]."""
    import numpy as np

    row, col = f.at(np.arange(f.lanes)[:, None], np.arange(f.elements)[None, :])
    return np.asarray(row * f.cols + col, np.int64)


def _whole_warps(lanes: Lanes, name: str) -> None:
    """A fault where lanes of a warp do not take part."""
    if lanes.active is None:
        return
    by_warp = lanes.active.array.reshape(-1, WARP)
    torn = by_warp.any(axis=1) & ~by_warp.all(axis=1)
    if torn.any():
        lanes.fault("barrier", name, int(torn.argmax()) * WARP, (), "not all lanes of the warp are here")


# --- ldmatrix -----------------------------------------------------------------------------------------------------


@cache
def ldmatrix(count: int, dtype: DType, trans: bool = False) -> Instruction:
    """Load ``count`` (1, 2 or 4) matrices of 8 rows of 16 bytes: ``(registers, row)``; lanes 8i to 8i + 7 name the rows
    of matrix i. A lane gets word l % 4 of row l / 4; with ``trans`` elements 2 (l % 4) and the next of column l / 4."""
    name, form = f"ldmatrix_x{count}{'_trans' if trans else ''}", f"x{count}{'.trans' if trans else ''}"
    rows = EIGHT * count
    what = "two elements of column l / 4" if trans else "4 bytes of row l / 4"
    many = "an 8x8 matrix" if count == 1 else f"{count} 8x8 matrices"
    lane = f"Lane l{'' if rows == WARP else f' < {rows}'} gives the address of row l % 8 of matrix l / 8"
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    helper = f"""\
// A warp loads {many} with rows of 16 bytes. {lane};
// every lane gets {what} of each.
__device__ __forceinline__ void {name}({dtype.c}* to, const {dtype.c}* row)
{{
    unsigned int* r = reinterpret_cast<unsigned int*>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.{form}.shared.b16 {{{registers}}}, [%{count}];"
                 : {outputs} : "r"(shared_address(row)) : "memory");
}}
"""
    width = dtype.elements(VECTOR_BYTES)
    return Instruction(
        name,
        helper,
        _load_matrices(count, dtype, trans),
        operands=(
            Operand("register", "write", dtype, run=count * per_register(dtype)),
            Operand("shared", "read", dtype),
        ),
        arch=Needs(75),
        needs=(SHARED_ADDRESS,),
        moves=(Moved(1, "load", width, lanes=rows),),
    )


def _load_matrices(count: int, dtype: DType, trans: bool) -> Callable[..., None]:
    """``(registers, row)``"""

    def meaning(lanes: Lanes, to: RegisterArgument, row: MemoryArgument) -> None:
        import numpy as np

        _whole_warps(lanes, "ldmatrix")
        values = row.load(dtype.elements(VECTOR_BYTES), lanes.first(EIGHT * count))
        element, source = _received(count, dtype, trans)
        warp = np.arange(values.shape[1]) // WARP * WARP
        to.write(values[element[:, lanes.batch.thread % WARP], warp + source[:, lanes.batch.thread % WARP]])

    return meaning


@lru_cache(maxsize=64)
def _received(count: int, dtype: DType, trans: bool) -> tuple[Ints, Ints]:
    """Which element of whose row each element of a lane's registers is, both [elements, lanes]."""
    import numpy as np

    per = per_register(dtype)
    i, lane = np.arange(count * per)[:, None], np.arange(WARP)[None, :]
    if trans:
        return lane // QUAD + 0 * i, i // per * EIGHT + lane % QUAD * per + i % per
    return lane % QUAD * per + i % per, i // per * EIGHT + lane // QUAD
