"""What keeps the compiler from choosing registers to suit one place at the cost of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.isa.table import Instruction

if TYPE_CHECKING:
    from gemmgen.sim.calls import Lanes, RegisterArgument


def _copy(lanes: Lanes, own: RegisterArgument, value: RegisterArgument) -> None:
    """``(own, value)``"""
    own.write(value.read())


OWN_REGISTER = Instruction(
    "own_register",
    """// A value in a register of its own, wherever the compiler keeps it elsewhere.
__device__ __forceinline__ void own_register(float& own, float value)
{
    asm volatile("mov.b32 %0, %1;" : "=f"(own) : "f"(value));
}
""",
    meaning=_copy,
)
