"""What keeps the compiler from choosing registers to suit one place at the cost of another."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gemmgen.ir.types import DType
from gemmgen.isa.table import Instruction, Operand

if TYPE_CHECKING:
    from gemmgen.isa.machine import Lanes, RegisterArgument


def _copy(lanes: Lanes, own: RegisterArgument, value: RegisterArgument) -> None:
    """``(own, value)``"""
    own.write(value.read())


@cache
def own_register(dtype: DType) -> Instruction:
    """``own = value``, in a register that the compiler shares with nothing else: ``(own, value)``."""
    kind, letter = dtype.c, dtype.register
    return Instruction(
        "own_register",
        f"""// Copies a value to a register of its own: volatile text, so that the compiler keeps the copy and does not
// exchange the registers of the loop, whose banks suit the FMAs.
__device__ __forceinline__ void own_register({kind}& own, {kind} value)
{{
    asm volatile("mov.b{dtype.bits} %0, %1;" : "={letter}"(own) : "{letter}"(value));
}}
""",
        meaning=_copy,
        operands=(Operand("register", "write", dtype), Operand("register", "read", dtype)),
    )
