"""Additions to global memory that are made where the memory is: no thread reads the sum, and none is lost.

PTX ISA, "red" (vectors of float32 from 8.1 on, sm_90); CUDA C++ Programming Guide, "Atomic Functions".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gemmgen.ir.types import F32
from gemmgen.isa.table import Instruction, Moved, Needs, Operand

if TYPE_CHECKING:
    from gemmgen.isa.machine import Lanes, MemoryArgument, RegisterArgument

VECTOR_ARCH = Needs(90)
"""The architectures that add several neighbours in one access."""


def _add(lanes: Lanes, target: MemoryArgument, *values: RegisterArgument) -> None:
    """``(target, value, ...)``: lanes that add to one element all count, in an order that nobody may rely on."""
    import numpy as np

    target.add(np.concatenate([value.read() for value in values]))


@cache
def global_add(width: int) -> Instruction:
    """Add ``width`` registers to neighbours in global memory, aligned as one access is: ``(target, value, ...)``.

    One is CUDA's own ``atomicAdd``; its result is not used, so that the compiler makes a reduction of it, which
    returns nothing. Of several CUDA has no function without an old value to return, so they are PTX.
    """
    # The hardware counts them as reductions (op_red), apart from its stores; here they are stores like any other, of as
    # many requests and sectors.
    moves = (Moved(0, "store", width),)
    operands = (Operand("global", "add", F32), *(Operand("register", "read", F32) for _ in range(width)))
    if width == 1:
        return Instruction("atomicAdd", "", _add, operands, moves=moves)
    letters = "xyzw"[:width]
    parameters = ", ".join(f"float {x}" for x in letters)
    registers = ", ".join(f"%{i + 1}" for i in range(width))
    inputs = ", ".join(f'"f"({x})' for x in letters)
    where = f"{width} neighbours in global memory, each atomically, in one access"
    helper = f"""// Adds to {where}: p must be aligned to {F32.bytes * width} bytes.
__device__ __forceinline__ void add_float{width}(float* p, {parameters})
{{
    asm volatile("red.global.add.v{width}.f32 [%0], {{{registers}}};"
                 :: "l"(p), {inputs} : "memory");
}}
"""
    return Instruction(f"add_float{width}", helper, _add, operands, arch=VECTOR_ARCH, moves=moves)
