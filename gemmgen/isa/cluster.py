"""Thread-block clusters: blocks that run at the same time, meet, and read one another's shared memory.

PTX ISA, "barrier.cluster", "mapa" and "Asynchronous operations: state space shared::cluster".
"""

from __future__ import annotations

from functools import cache

from gemmgen.ir.types import F32
from gemmgen.isa.async_copy import SHARED_ADDRESS
from gemmgen.isa.table import VALUE, Instruction, Needs, Operand, Ordering

PORTABLE_SIZE = 8
"""Blocks of a cluster that every GPU with clusters runs (CUDA C++ Programming Guide, "Thread Block Clusters")."""
CLUSTER_ARCH = Needs(90)

CLUSTER_SYNC = Instruction(
    "cluster_sync",
    """// A barrier for all threads of the cluster: writes to shared memory before it are visible to all after it.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
""",
    orders=Ordering.MEET,
    arch=CLUSTER_ARCH,
)


@cache
def cluster_load(width: int) -> Instruction:
    """Load ``width`` floats of another block's shared memory: ``(array, bytes, rank)``, the array as it is named here.

    The address of a block's array is no ``volatile`` text: it is worked out once for all loads that add to it.
    """
    kind = "float" if width == 1 else f"float{width}"
    parts = ["v"] if width == 1 else [f"v.{x}" for x in "xyzw"[:width]]
    into = ", ".join(f"%{i}" for i in range(width))
    registers = into if width == 1 else f"{{{into}}}"
    suffix = "" if width == 1 else f".v{width}"
    outputs = ", ".join(f'"=f"({part})' for part in parts)
    name = f"load_cluster_float{width if width > 1 else ''}"
    nbytes = F32.bytes * width
    helper = f"""// {nbytes} bytes of shared memory, that many bytes into the array in the block of that rank.
__device__ __forceinline__ {kind} {name}(const float* array, int bytes, int rank)
{{
    unsigned int start;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(start) : "r"(shared_address(array)), "r"(rank));
    {kind} v;
    asm volatile("ld.shared::cluster{suffix}.f32 {registers}, [%{width}];"
                 : {outputs} : "r"(start + bytes));
    return v;
}}
"""
    operands = (Operand("shared", "read", F32), VALUE, VALUE)
    return Instruction(name, helper, operands=operands, arch=CLUSTER_ARCH, needs=(SHARED_ADDRESS,))
