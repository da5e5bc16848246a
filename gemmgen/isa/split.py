"""What is added up of numbers that were split into parts: see :mod:`gemmgen.ir.split`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.ir.types import F32
from gemmgen.isa.table import Instruction, Operand

if TYPE_CHECKING:
    from gemmgen.isa.machine import Lanes, RegisterArgument


def _add_finite(lanes: Lanes, total: RegisterArgument, value: RegisterArgument) -> None:
    import numpy as np

    x = value.read()
    with np.errstate(over="ignore", invalid="ignore"):
        total.write(total.read() + np.where(np.isfinite(x), x, F32.numpy_dtype.type(0)))


ADD_FINITE = Instruction(
    "add_finite",
    """// Adds x where it is finite. Of factors that are not, the product of the first parts says all: other products
// may be infinite with another sign.
__device__ __forceinline__ void add_finite(float& sum, float x)
{
    sum += (__float_as_uint(x) & 0x7f800000) != 0x7f800000 ? x : 0.0f;
}
""",
    _add_finite,
    (Operand("register", "add", F32), Operand("register", "read", F32)),
)
