"""Values that hardware gives a thread beside its number: which warp it is in, and whether it is the one of its warp.

Each is a function of the thread's number, which is what the simulator and the counts know of it; the CUDA asks for it
in a way that tells the compiler that a whole warp agrees.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.types import WARP
from gemmgen.isa.table import Needs

THREAD = Var("threadIdx.x", 0, 1023)


@dataclass(frozen=True)
class LaneValue:
    """``var`` prints as a call of ``helper``, from ``arch`` on; ``meaning`` is its value in terms of THREAD."""

    var: Var
    meaning: Expr
    helper: str
    arch: Needs


WARP_INDEX = LaneValue(
    Var("warp_index()", 0, 31),
    THREAD // WARP,
    """// The index of this thread's warp. The shuffle tells the compiler that it is uniform across the warp.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xffffffff, threadIdx.x / WARP, 0); }
""",
    arch=Needs(70),
)

ELECT_ONE = LaneValue(
    Var("elect_one()", 0, 1, dtype="bool"),
    (THREAD % WARP).eq(0),
    """// True in one lane of the warp, always the same: one lane is enough to issue TMA copies. The instruction tells
// the compiler so, which a comparison of threadIdx.x does not.
__device__ __forceinline__ bool elect_one()
{
    int elected;
    asm volatile(
        "{\\n"
        ".reg .pred one;\\n"
        "elect.sync _|one, 0xffffffff;\\n"
        "selp.s32 %0, 1, 0, one;\\n"
        "}" : "=r"(elected));
    return elected;
}
""",
    arch=Needs(90),
)

LANE_VALUES = {v.var.name: v for v in (WARP_INDEX, ELECT_ONE)}
