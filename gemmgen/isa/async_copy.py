"""Asynchronous copies to shared memory: cp.async, and the TMA engine with its barriers.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy" and "mbarrier".
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from gemmgen.ir.types import F32, DType
from gemmgen.isa import async_meaning as meaning
from gemmgen.isa.table import VALUE, Completion, Instruction, Moved, Needs, Operand, Ordering, Proxy

LEAST_ASYNC_BYTES = 4
"""Bytes that one cp.async moves at least (PTX ISA, "cp.async")."""

SHARED_ADDRESS = """// A shared-memory address as PTX instructions take it: 32 bits.
__device__ __forceinline__ unsigned int shared_address(const void* p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
}
"""


BARRIER, SEEN = Operand("barrier", "write"), Operand("barrier")


LEVELS = (".ca: through L1 and L2.", ".cg: L2 only.")
"""What the letters behind cp.async mean. 16 bytes can bypass L1, fewer cannot."""


def _copied(dtype: DType) -> tuple[Operand, ...]:
    """Where to, and where from."""
    to, source = Operand("shared", "write", dtype), Operand("global", "read", dtype)
    return replace(to, completes=Completion.GROUP), replace(source, completes=Completion.GROUP)


@cache
def cp_async(nbytes: int, dtype: DType = F32) -> Instruction:
    """Start a copy of 4, 8 or 16 bytes: ``(dst, src)``. It lands no earlier than its group is waited for."""
    past_l1 = nbytes == 16  # which only whole 16 bytes can
    cache_level = "cg" if past_l1 else "ca"
    helper = f"""// Starts a copy of {nbytes} bytes from global to shared memory, bypassing registers. {LEVELS[past_l1]}
__device__ __forceinline__ void cp_async{nbytes}({dtype.c}* dst, const {dtype.c}* src)
{{
    asm volatile("cp.async.{cache_level}.shared.global [%0], [%1], {nbytes};"
                 :: "r"(shared_address(dst)), "l"(src) : "memory");
}}
"""
    return Instruction(
        f"cp_async{nbytes}",
        helper,
        meaning.copy(dtype.elements(nbytes)),
        operands=_copied(dtype),
        arch=Needs(80),
        needs=(SHARED_ADDRESS,),
        moves=(Moved(1, "load", dtype.elements(nbytes), past_l1=past_l1), Moved(0, "store", dtype.elements(nbytes))),
    )


@cache
def cp_async_or_zero(nbytes: int, dtype: DType = F32) -> Instruction:
    """The same where the condition holds, else zeros: ``(dst, src, condition)``; then nothing is read."""
    past_l1, width = nbytes == 16, dtype.elements(nbytes)
    cache_level = "cg" if past_l1 else "ca"
    helper = f"""// Starts a copy of {nbytes} bytes, or writes zeros if the condition is false. {LEVELS[past_l1]}
__device__ __forceinline__ void cp_async{nbytes}_or_zero({dtype.c}* dst, const {dtype.c}* src, bool some)
{{
    asm volatile("cp.async.{cache_level}.shared.global [%0], [%1], {nbytes}, %2;"
                 :: "r"(shared_address(dst)), "l"(src), "r"(some ? {nbytes} : 0) : "memory");
}}
"""
    return Instruction(
        f"cp_async{nbytes}_or_zero",
        helper,
        meaning.copy(dtype.elements(nbytes)),
        operands=(*_copied(dtype), VALUE),
        arch=Needs(80),
        needs=(SHARED_ADDRESS,),
        moves=(
            Moved(1, "load", width, guard=2, past_l1=past_l1),
            Moved(0, "store", dtype.elements(nbytes)),
        ),
    )


CP_ASYNC_COMMIT = Instruction(
    "cp_async_commit",
    """// Closes a group: all copies that this thread started since the last call.
__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
""",
    meaning=meaning.commit,
    orders=Ordering.COMMIT,
    arch=Needs(80),
)


@cache
def cp_async_wait(pending: int) -> Instruction:
    """Wait until no more than ``pending`` of this thread's groups are in flight: ``()``."""
    what = "all groups have" if pending == 0 else f"all groups but the last{'' if pending == 1 else f' {pending}'} have"
    return Instruction(
        f"cp_async_wait{pending}",
        f"""// Waits until {what} completed, of those that this thread committed.
__device__ __forceinline__ void cp_async_wait{pending}()
{{
    asm volatile("cp.async.wait_group {pending};" ::: "memory");
}}
""",
        meaning=meaning.wait_group(pending),
        orders=Ordering.WAIT,
        arch=Needs(80),
    )


MBARRIER_INIT = Instruction(
    "mbarrier_init",
    """// A barrier in shared memory: a phase completes when all have arrived and all expected bytes are written.
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
""",
    meaning=meaning.initialise,
    operands=(BARRIER, VALUE),
    orders=Ordering.INIT,
    arch=Needs(90),
    needs=(SHARED_ADDRESS,),
)

MBARRIER_FENCE = Instruction(
    "mbarrier_fence",
    """// Makes initialised barriers visible: the first fence to the threads of the cluster, the second to the async
// proxy, which is how the TMA engine accesses shared memory.
__device__ __forceinline__ void mbarrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
""",
    meaning=meaning.fence,
    orders=Ordering.FENCE,
    arch=Needs(90),
)

MBARRIER_EXPECT = Instruction(
    "mbarrier_expect",
    """// Arrives, and adds bytes to those that the current phase expects.
__device__ __forceinline__ void mbarrier_expect(unsigned long long* barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                 :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}
""",
    meaning=meaning.expect,
    operands=(BARRIER, VALUE),
    orders=Ordering.ARRIVE,
    arch=Needs(90),
    needs=(SHARED_ADDRESS,),
)

WARP_SYNC = Instruction("__syncwarp", "", meaning=meaning.meet_in_warps, orders=Ordering.MEET)
"""The lanes of a warp meet: what each did is done before what all do next."""

MBARRIER_RELEASE = Instruction(
    "mbarrier_release",
    """// The warp's first lane arrives: it releases what the barrier guards.
__device__ __forceinline__ void mbarrier_release(unsigned long long* barrier)
{
    asm volatile(
        "{\\n"
        ".reg .pred first;\\n"
        "setp.eq.u32 first, %1, 0;\\n"
        "@first mbarrier.arrive.shared.b64 _, [%0];\\n"
        "}" :: "r"(shared_address(barrier)), "r"(threadIdx.x % WARP) : "memory");
}
""",
    meaning=meaning.release,
    operands=(BARRIER,),
    orders=Ordering.ARRIVE,
    arch=Needs(90),
    needs=(SHARED_ADDRESS,),
)

MBARRIER_WAIT = Instruction(
    "mbarrier_wait",
    """// Waits until the phase with this parity has completed.
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, int parity)
{
    asm volatile(
        "{\\n"
        ".reg .pred ready;\\n"
        "wait_%=: mbarrier.try_wait.parity.shared.b64 ready, [%0], %1;\\n"
        "@!ready bra wait_%=;\\n"
        "}" :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}
""",
    meaning=meaning.wait,
    operands=(SEEN, VALUE),
    orders=Ordering.ACQUIRE,
    arch=Needs(90),
    needs=(SHARED_ADDRESS,),
)


@cache
def tma_load(dtype: DType = F32) -> Instruction:
    """Start to copy one box: ``(dst, map, x, y, barrier)``."""
    return Instruction(
        "tma_load",
        """// Issues the TMA copy of one box: x counts along the matrix's contiguous dimension, y across it. Elements
// outside the matrix arrive as zeros.
__device__ __forceinline__ void tma_load(ELEMENT* dst, const TensorMap* map, int x, int y, unsigned long long* barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(shared_address(dst)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)) : "memory");
}
""".replace("ELEMENT", dtype.c),
        meaning=meaning.load_box,
        operands=(
            Operand("shared", "write", dtype, Proxy.ASYNC, Completion.BARRIER),
            Operand("map"),
            VALUE,
            VALUE,
            BARRIER,
        ),
        arch=Needs(90),
        needs=(SHARED_ADDRESS,),
        moves=(Moved(1, "load", corner=(2, 3)),),
    )
