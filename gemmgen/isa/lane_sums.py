"""Sums over neighbouring lanes of a warp, passed from register to register.

CUDA C++ Programming Guide, "Warp Shuffle Functions".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gemmgen.ir.types import F32, WARP
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
        here = np.isin(every, lanes.on)
        apart = np.flatnonzero(~here & here.reshape(-1, WARP).any(axis=1).repeat(WARP))
        if apart.size:
            lanes.fault("barrier", "lanes", int(apart[0]), (), "this lane takes no part in its warp's shuffle")
        values = total.read()
        for step in (16, 8, 4, 2, 1):
            if step < count:
                values = values + values[:, every ^ step]
        total.write(values)

    helper = f"""// Adds up a value over groups of {count} neighbouring lanes; every lane of a group receives the sum.
__device__ __forceinline__ void add_lanes{count}(float& sum)
{{
    #pragma unroll
    for (int apart = {count // 2}; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffff, sum, apart);
}}
"""
    operands = (Operand("register", "add", F32),)
    return Instruction(f"add_lanes{count}", helper, meaning, operands, arch=SHUFFLE_ARCH)
