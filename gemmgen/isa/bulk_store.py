"""Tiles stored by the TMA engine: from shared memory to a matrix, past the threads' registers.

PTX ISA, "cp.async.bulk.tensor", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group" and "bar".
"""

from __future__ import annotations

from functools import cache

from gemmgen.ir.types import DType
from gemmgen.isa import store_meaning as meaning
from gemmgen.isa.async_copy import SHARED_ADDRESS
from gemmgen.isa.table import VALUE, Completion, Instruction, Moved, Needs, Operand, Ordering, Proxy

ENGINE = Needs(90)


@cache
def tma_store(dtype: DType) -> Instruction:
    """Start to store one box: ``(map, x, y, src)``. It is read until its group is waited for."""
    return Instruction(
        "tma_store",
        """// Issues the TMA store of one box: x counts along the matrix's contiguous dimension, y across it. What lies
// outside the matrix is left out.
__device__ __forceinline__ void tma_store(const TensorMap* map, int x, int y, const ELEMENT* src)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(map), "r"(x), "r"(y), "r"(shared_address(src)) : "memory");
}
""".replace("ELEMENT", dtype.c),
        meaning=meaning.store_box,
        operands=(
            Operand("map"),
            VALUE,
            VALUE,
            Operand("shared", "read", dtype, Proxy.ASYNC, Completion.GROUP),
        ),
        arch=ENGINE,
        needs=(SHARED_ADDRESS,),
        moves=(Moved(0, "store", corner=(1, 2)),),
    )


COMMIT = Instruction(
    "store_commit",
    """// The TMA stores that this thread issued since the last call are one group.
__device__ __forceinline__ void store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
""",
    meaning=meaning.commit,
    orders=Ordering.COMMIT,
    arch=ENGINE,
)

WAIT_READ = Instruction(
    "store_wait_read",
    """// Waits until the TMA stores of this thread have read their tiles, which may then be overwritten.
__device__ __forceinline__ void store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
""",
    meaning=meaning.wait_read,
    orders=Ordering.WAIT,
    arch=ENGINE,
)

FENCE = Instruction(
    "fence_async",
    """// Puts what this thread did to shared memory before what the TMA engine does there: the engine reaches memory by
// a path of its own, and a barrier alone does not order the two.
__device__ __forceinline__ void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
""",
    meaning=meaning.fence,
    orders=Ordering.FENCE,
    arch=ENGINE,
)

GROUP_SYNC = Instruction(
    "group_sync",
    """// The 128 threads of a warp group meet; each group has a barrier of its own.
__device__ __forceinline__ void group_sync(int barrier)
{
    asm volatile("bar.sync %0, 128;" :: "r"(barrier) : "memory");
}
""",
    meaning=meaning.meet,
    operands=(VALUE,),
    orders=Ordering.MEET,
)
