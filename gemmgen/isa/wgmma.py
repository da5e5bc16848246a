"""Asynchronous tensor-core products of Hopper: wgmma, by the four warps of a warp group together.

PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" and "Matrix descriptor". Both operands
are read from shared memory, where TMA left them in rows of 128 bytes, swizzled over 128 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from gemmgen.ir.types import F32, WARP, DType
from gemmgen.isa import wgmma_meaning as meaning
from gemmgen.isa.async_copy import SHARED_ADDRESS
from gemmgen.isa.mma import QUAD
from gemmgen.isa.table import VALUE, WHOLE, Completion, Instruction, Needs, Operand, Ordering, Proxy, Work

Major = Literal["k", "mn"]
"""The dimension along which an operand's elements are neighbours in shared memory."""

GROUP_WARPS = 4
GROUP_THREADS = GROUP_WARPS * WARP
"""Threads of a warp group."""
ROWS = 64
"""Rows of C that one instruction computes."""
ATOM = 128
"""Bytes of a row that the swizzle permutes."""
ATOM_ROWS = 8
"""Rows after which the swizzle's pattern repeats: an atom has 8 rows of 128 bytes."""

DEPTH_BYTES = 32
"""Bytes along k that one instruction multiplies."""

REGISTERS: Mapping[int, tuple[int, int]] = {1: (0, 0), 2: (40, 232), 3: (32, 160)}
"""By how many warp groups multiply: registers per thread of the group that brings tiles, and of theirs (0: as
launched). An SM has 65,536, of which a launch gives every thread equally many; setmaxnreg moves them in multiples of
8."""

HOPPER = Needs(90, exact="sm_90a")

DESCRIPTOR = """\
// What wgmma knows of an operand in shared memory: where it starts, and how many bytes apart its parts are.
// Rows are 128 bytes, swizzled over 128 bytes, as TMA wrote them.
__device__ __forceinline__ unsigned long long wgmma_descriptor(const void* tile, int leading, int stride)
{
    const unsigned long long swizzle128 = 1ull << 62;
    const unsigned int start = (shared_address(tile) & 0x3ffff) >> 4;
    return swizzle128 | (unsigned long long)(stride >> 4) << 32 | (unsigned int)(leading >> 4) << 16 | start;
}
"""

FENCE = Instruction(
    "wgmma_fence",
    """// The registers that this warp group wrote are there for the wgmma that follow.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
""",
    meaning=meaning.fence,
    orders=Ordering.FENCE,
    arch=HOPPER,
)

COMMIT = Instruction(
    "wgmma_commit",
    """// The wgmma that this warp group issued since the last call are one group.
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
""",
    meaning=meaning.commit,
    orders=Ordering.COMMIT,
    arch=HOPPER,
)


@cache
def wait(n: int, arrays: int = 1) -> Instruction:
    """Wait until all groups have completed: ``(sums, ...)``, as many arrays, which may be used from then on. ``n``:
    columns of C."""
    names = ("d", "e")[:arrays]
    listed = " and ".join(names)
    given = ", ".join(f"float (&{x})[2][{n // QUAD}]" for x in names)
    keep = [f'asm volatile("" : "+f"({x}[0][j]), "+f"({x}[1][j]) :: "memory");' for x in names]
    loop = f"    for (int j = 0; j < {n // QUAD}; ++j) "
    kept = f"{loop}{keep[0]}" if arrays == 1 else "\n        ".join((f"{loop}{{", *keep)) + "\n    }"
    return Instruction(
        "wgmma_wait",
        f"""// Waits until all wgmma of this warp group have read their operands and written {listed}. The empty
// asm keeps the compiler from using {"it" if arrays == 1 else "them"} earlier.
__device__ __forceinline__ void wgmma_wait({given})
{{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    #pragma unroll
{kept}
}}
""",
        meaning=meaning.wait,
        operands=tuple(Operand("register", "write", F32, run=WHOLE) for _ in names),
        orders=Ordering.WAIT,
        arch=HOPPER,
    )


def work(n: int, dtype: DType) -> Work:
    """What each thread of a warp group does in one product of ``n`` columns."""
    return Work("tensor", 2 * ROWS * n * dtype.elements(DEPTH_BYTES) // GROUP_THREADS)


@cache
def wgmma(n: int, dtype: DType, majors: tuple[Major, Major], rows: tuple[int, int], anew: bool = False) -> Instruction:
    """Start d += A B: ``(d, a, b)``, of which d are a thread's sums of 64 x ``n``, a and b the tiles' first elements.
    With ``anew``, ``(d, a, b, add)``: where ``add`` is 0, d = A B.

    ``majors``: how A and B lie. ``rows``: of an operand in rows of 128 bytes along M or N, the rows of one such panel
    (the steps along k of a tile), after which the next 64 columns follow; of one in rows along k it does not matter.
    """
    depth = dtype.elements(DEPTH_BYTES)
    shape = f"m{ROWS}n{n}k{depth}"
    kinds = f"f32.{dtype.name}.{dtype.name}"
    majors_text = "".join("0" if x == "k" else "1" for x in majors)
    transposed = ", " + ", ".join(majors_text) if dtype.bits == 16 else ""  # others are read along k alone
    leading = [ATOM * r if major == "mn" else ATOM // 8 for major, r in zip(majors, rows, strict=True)]
    registers = _listed([f"%{i}" for i in range(n // 2)], 16)
    sums = ", ".join(f"D32({j})" for j in range(0, n // QUAD - 15, 16))
    rest = ", ".join(f"D4({j})" for j in range(n // 64 * 16, n // QUAD, 2))
    listed = ", ".join(x for x in (sums, rest) if x)
    macro = "    #define D32(j) D4(j), D4(j + 2), D4(j + 4), D4(j + 6), D4(j + 8), D4(j + 10), D4(j + 12), D4(j + 14)\n"
    more, add = (", int add", f"%{n // 2 + 2}") if anew else ("", "0")
    test, value = ("ne", ', "r"(add)') if anew else ("eq", "")
    begins = "// Where add is 0, d = A B, and else:\n" if anew else ""
    helper = f"""\
{begins}// Starts d += A B: {ROWS} x {n} sums, {depth} steps along k, by the four warps of a warp group. A and B are
// read from shared memory until a wait for the group returns. Each thread has {n // 2} sums: of row lane / 4 of its
// warp's 16 rows, and of the row 8 further down.
__device__ __forceinline__ void wgmma_{shape}(float (&d)[2][{n // QUAD}], const {dtype.c}* a, const {dtype.c}* b{more})
{{
    #define D4(j) "+f"(d[0][j]), "+f"(d[0][j + 1]), "+f"(d[1][j]), "+f"(d[1][j + 1])
{macro if sums else ""}    asm volatile(
        "{{\\n"
        ".reg .pred add;\\n"
        "setp.{test}.u32 add, {add}, 0;\\n"
        "wgmma.mma_async.sync.aligned.{shape}.{kinds} "
{registers}
        "%{n // 2}, %{n // 2 + 1}, add, 1, 1{transposed};\\n"
        "}}"
        : {listed}
        : "l"(wgmma_descriptor(a, {leading[0]}, 1024)), "l"(wgmma_descriptor(b, {leading[1]}, 1024)){value});
    #undef D4
{"    #undef D32" + chr(10) if sums else ""}}}
"""
    read = Operand("shared", "read", dtype, Proxy.ASYNC, Completion.GROUP)
    sums_operand = Operand("register", "add", F32, completes=Completion.GROUP, run=WHOLE)
    return Instruction(
        f"wgmma_{shape}",
        helper,
        meaning.product(n, depth, dtype, majors, rows),
        operands=(sums_operand, read, read, *([VALUE] if anew else [])),
        arch=HOPPER,
        needs=(SHARED_ADDRESS, DESCRIPTOR),
        work=work(n, dtype),
    )


def _listed(names: list[str], per_line: int) -> str:
    """Register names in braces, as lines of an asm statement."""
    lines = [", ".join(names[i : i + per_line]) for i in range(0, len(names), per_line)]
    lines[0] = "{" + lines[0]
    lines[-1] += "}"
    return "\n".join(f'        "{line}, "' for line in lines)


@cache
def registers(count: int, take: bool) -> Instruction:
    """A warp group gives registers back, or takes more: ``()``. ``count`` are those of a thread from then on."""
    what, action = ("takes as many", "inc") if take else ("keeps only as many", "dec")
    return Instruction(
        f"registers_{'take' if take else 'keep'}{count}",
        f"""// Each thread of this warp group {what} as {count} registers from here on.
__device__ __forceinline__ void registers_{"take" if take else "keep"}{count}()
{{
    asm volatile("setmaxnreg.{action}.sync.aligned.u32 {count};");
}}
""",
        meaning=meaning.nothing,
        arch=HOPPER,
    )


__all__ = ["COMMIT", "FENCE", "VALUE", "Major", "registers", "wait", "wgmma"]
