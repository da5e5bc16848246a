"""Sums over neighbouring lanes of a warp, passed from register to register.

CUDA C++ Programming Guide, "Warp Shuffle Functions".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gemmgen.ir.types import F32
from gemmgen.isa.table import Instruction, Needs, Operand

if TYPE_CHECKING:
    from gemmgen.isa.machine import Lanes, RegisterArgument

SHUFFLE_ARCH = Needs(50)


@cache
def add_lanes(count: int) -> Instruction:
    """``sum`` becomes the sum over the ``count`` neighbouring lanes of each group, in all of them: ``(sum)``.

    In each step a lane adds what the lane half a group away has, then a quarter, and so on: every lane of a group adds
    the same pairs, so that all have the same bits.
    """

    def meaning(lanes: Lanes, total: RegisterArgument) -> None:
        import numpy as np

        every = np.arange(lanes.batch.lanes)
        if lanes.active is not None and (missing := np.setdiff1d(every, lanes.on)).size:
            lanes.fault("barrier", "lanes", int(missing[0]), (), "this lane takes no part in the warp's shuffle")
        values = total.read()
        apart = count // 2
        while apart:
            values = values + values[:, every ^ apart]
            apart //= 2
        total.write(values)

    helper = f"""// Adds up a value over groups of {count} neighbouring lanes; each lane of a group receives the same sum.
__device__ __forceinline__ void add_lanes{count}(float& sum)
{{
    #pragma unroll
    for (int apart = {count // 2}; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffff, sum, apart);
}}
"""
    operands = (Operand("register", "add", F32),)
    return Instruction(f"add_lanes{count}", helper, meaning, operands, arch=SHUFFLE_ARCH)
