"""Sums over neighbouring lanes of a warp, passed from register to register.

CUDA C++ Programming Guide, "Warp Shuffle Functions".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gemmgen.ir.types import F32, WARP
from gemmgen.isa.table import Instruction, Needs, Operand

if TYPE_CHECKING:
    from gemmgen.isa.machine import Ints, Lanes, RegisterArgument

SHUFFLE_ARCH = Needs(50)


@cache
def share_lanes(apart: int) -> Instruction:
    """Of two sums, a lane keeps one and leaves the other to the lane so far apart: ``(first, second)``.

    The lower lane adds up the first of both lanes, the upper one the second of both; ``first`` is what is kept.
    """

    def meaning(lanes: Lanes, first: RegisterArgument, second: RegisterArgument) -> None:
        import numpy as np

        every = _taking_part(lanes)
        upper = every & apart != 0
        one, other = first.read(), second.read()
        left = np.where(upper, one, other)
        first.write(np.where(upper, other, one) + left[:, every ^ apart])

    helper = f"""// Lanes {apart} apart share two sums: the lower one gets that of both firsts, the upper one the other.
__device__ __forceinline__ void share_lanes{apart}(float& first, float second)
{{
    const bool upper = threadIdx.x & {apart};
    const float left = upper ? first : second;
    first = (upper ? second : first) + __shfl_xor_sync(0xffffffff, left, {apart});
}}
"""
    operands = (Operand("register", "add", F32), Operand("register", "read", F32))
    return Instruction(f"share_lanes{apart}", helper, meaning, operands, arch=SHUFFLE_ARCH)


def _taking_part(lanes: Lanes) -> Ints:
    """All lanes; a fault where one of a warp is elsewhere."""
    import numpy as np

    every = np.arange(lanes.batch.lanes)
    here = np.isin(every, lanes.on)
    missing = np.flatnonzero(~here & here.reshape(-1, WARP).any(axis=1).repeat(WARP))
    if missing.size:
        lanes.fault("barrier", "lanes", int(missing[0]), (), "this lane takes no part in its warp's shuffle")
    return every


@cache
def add_lanes(count: int) -> Instruction:
    """``sum`` becomes the sum over the ``count`` neighbouring lanes of each group, in all of them: ``(sum)``.

    In each step a lane adds what the lane half a group away has, then a quarter, and so on: every lane of a group adds
    the same pairs, so that all have the same bits.
    """

    def meaning(lanes: Lanes, total: RegisterArgument) -> None:
        every, values = _taking_part(lanes), total.read()
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
