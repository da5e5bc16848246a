"""Conversions between float32 and the 16-bit types: exact one way, rounded to nearest even the other.

PTX ISA, "cvt". The emitted text includes no header, so that it has no ``__half``: the types are other names of
``unsigned short``, which these functions read and make.
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.ir.types import BF16, E4M3, E5M2, F16, DType


def to_float(dtype: DType) -> str:
    """The name of the function that gives a value of a type as float; empty where it is one."""
    return f"{dtype.c}_to_float" if dtype.alias else ""


def from_float(dtype: DType) -> str:
    """The name of the function that rounds a float to a type; empty where that does nothing."""
    return f"float_to_{dtype.c}" if dtype.alias else ""


TYPE_NAMES: Mapping[DType, str] = {
    BF16: "using bf16 = unsigned short;  // the upper half of a float: 1 sign, 8 exponent and 7 mantissa bits",
    F16: "using f16 = unsigned short;  // IEEE half precision: 1 sign, 5 exponent and 10 mantissa bits",
    E4M3: "using e4m3 = unsigned char;  // 1 sign, 4 exponent and 3 mantissa bits, no infinity",
    E5M2: "using e5m2 = unsigned char;  // 1 sign, 5 exponent and 2 mantissa bits",
}

CONVERSIONS: Mapping[str, str] = {
    to_float(BF16): """\
__device__ __forceinline__ float bf16_to_float(bf16 x) { return __uint_as_float((unsigned int)x << 16); }
""",
    from_float(BF16): """\
// Rounds to the nearest bf16, ties to even.
__device__ __forceinline__ bf16 float_to_bf16(float x)
{
    bf16 rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return rounded;
}
""",
    to_float(F16): """\
__device__ __forceinline__ float f16_to_float(f16 x)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
    return value;
}
""",
    from_float(F16): """\
// Rounds to the nearest f16, ties to even; infinity beyond 65504.
__device__ __forceinline__ f16 float_to_f16(float x)
{
    f16 rounded;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return rounded;
}
""",
}
"""The text of each function, by its name."""
