"""Copies of badly strided or aligned inputs into dense lines, both inputs of a product by one launch."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gemmgen.ir.split import Split
from gemmgen.ir.types import F32, U8, U16, U32
from gemmgen.runtime.frame import WORKSPACE, A, B, C, Constant, Frame

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.launch import Module

NAME = "gemmgen_copy"
THREADS = 256
A_THREAD = 8  # elements that a thread has on their way at a time
A_BLOCK = THREADS * A_THREAD
TILE = 32
"""Lines, and elements of each, that a block transposes: they are read across lines, and written along them."""
MOST = 1 << 31  # elements of a part that are numbered in 32 bits, by a division that is exact below this
ALIGN = 256  # bytes to whose multiples every copy is placed

KINDS = {x.bytes: x for x in (U32, U16, U8)}
"""What elements are copied as, by their bytes: bits are only moved."""

_TEXT = r"""
// Two copies, of matrices of any strides into lines that lie one after another: the first blocks make the first, the
// others the second. Element number e of a copy is element e % leading of line e / leading, and zero from extent on.
// e / leading is ((e * magic) >> 32) >> shift. Strides are in elements.
// Neighbouring threads have neighbouring elements, whatever the length of a line: no thread is left without one.
__device__ __forceinline__ void copyBlock(unsigned block, unsigned total, unsigned extent, unsigned leading,
    unsigned magic, unsigned shift, OFFSET across, OFFSET along, const ELEMENT* src, TARGET* dst)
{
    const unsigned first = block * A_BLOCK + threadIdx.x;
    ELEMENT value[A_THREAD];
    #pragma unroll
    for (int i = 0; i < A_THREAD; ++i) {
        const unsigned e = first + i * THREADS;
        const unsigned line = __umulhi(e, magic) >> shift;
        const unsigned at = e - line * leading;
        value[i] = 0;
        if (e < total && at < extent) value[i] = src[(OFFSET)line * across + (OFFSET)at * along];
    }
    #pragma unroll
    for (int i = 0; i < A_THREAD; ++i)
        if (first + i * THREADS < total) put(value[i], first + i * THREADS, leading, dst);
}

// The same where neighbours in the source are on neighbouring lines: a tile of TILE lines and as many elements of each
// passes through shared memory, so that a warp both reads and writes neighbours.
__device__ __forceinline__ void transposeBlock(unsigned block, unsigned total, unsigned extent, unsigned leading,
    OFFSET along, const ELEMENT* src, TARGET* dst)
{
    __shared__ ELEMENT tile[TILE][TILE + 1];
    const unsigned lines = total / leading, tiles = (leading + TILE - 1) / TILE;
    const unsigned line = block / tiles * TILE, at = block % tiles * TILE;
    const unsigned x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    #pragma unroll
    for (unsigned i = y; i < TILE; i += THREADS / TILE)
        tile[i][x] = line + x < lines && at + i < extent ? src[(OFFSET)(line + x) + (OFFSET)(at + i) * along] : 0;
    __syncthreads();  // tile: written by all threads above, read by all below
    #pragma unroll
    for (unsigned i = y; i < TILE; i += THREADS / TILE)
        if (line + i < lines && at + x < leading) put(tile[x][i], (line + i) * leading + at + x, leading, dst);
}

__device__ __forceinline__ void copyPart(unsigned block, unsigned total, unsigned extent, unsigned leading,
    unsigned magic, unsigned shift, OFFSET across, OFFSET along, const ELEMENT* src, TARGET* dst)
{
    if (across == 1 && along != 1) transposeBlock(block, total, extent, leading, along, src, dst);
    else copyBlock(block, total, extent, leading, magic, shift, across, along, src, dst);
}

extern "C" __global__ void __launch_bounds__(THREADS)
gemmgen_copy(unsigned blocks, unsigned total0, unsigned extent0, unsigned leading0, unsigned magic0, unsigned shift0,
    OFFSET across0, OFFSET along0, const ELEMENT* src0, TARGET* dst0, unsigned total1, unsigned extent1,
    unsigned leading1, unsigned magic1, unsigned shift1, OFFSET across1, OFFSET along1, const ELEMENT* src1,
    TARGET* dst1)
{
    if (blockIdx.x < blocks)
        copyPart(blockIdx.x, total0, extent0, leading0, magic0, shift0, across0, along0, src0, dst0);
    else
        copyPart(blockIdx.x - blocks, total1, extent1, leading1, magic1, shift1, across1, along1, src1, dst1);
}
"""


_WHOLE = """
__device__ __forceinline__ void put(ELEMENT value, unsigned e, unsigned, TARGET* dst) { dst[e] = value; }
"""
_SPLIT = """\
// The bits of PARTS KIND whose sum is x: each is what is left, rounded to the nearest, or cut off where that would be
// an infinity. Of what is not finite there is one part.
__device__ __forceinline__ void split(float x, BITS* part)
{
    #pragma unroll
    for (int p = 0; p < PARTS; ++p) {
        const unsigned u = __float_as_uint(x), size = u & 0x7fffffff;
        const bool finite = size < 0x7f800000;
        unsigned kept = finite ? u + HALF + (u >> LOW & 1) : size > 0x7f800000 ? u | 0x400000 : u;
        if (finite && (kept & 0x7f800000) == 0x7f800000) kept = u;
        kept = kept >> LOW << LOW;
        part[p] = keptSHIFT;
        x = finite ? x - __uint_as_float(kept) : 0.0f;
    }
}
"""
_PARTS = """
// Element e of the copy is its parts, of which a line has one behind another, as many elements of each as it is long.
__device__ __forceinline__ void put(float value, unsigned e, unsigned leading, TARGET* dst)
{
    TARGET part[PARTS];
    split(value, part);
    dst += (size_t)(e / leading) * PARTS * leading + e % leading;
    #pragma unroll
    for (int p = 0; p < PARTS; ++p) dst[p * leading] = part[p];
}
"""


def _splitting(split: Split) -> str:
    """``split(x, part)`` in CUDA: the bits of the parts of x."""
    found, low = _SPLIT, 32 - split.bits
    shift = 32 - 8 * split.part.bytes
    for name, value in {
        "PARTS": str(split.parts),
        "KIND": split.part.name,
        "BITS": f"unsigned {'short' if shift else 'int'}",
        "HALF": hex((1 << (low - 1)) - 1),
        "LOW": str(low),
        "SHIFT": f" >> {shift}" if shift else "",
    }.items():
        found = found.replace(name, value)
    return found


def text(*, far: bool, item: int = F32.bytes, split: Split | None = None) -> str:
    """The kernel in CUDA. ``far``: offsets in the source have 64 bits, which takes more than twice the instructions.
    ``split``: each element is stored as its parts."""
    put = _WHOLE if split is None else _splitting(split) + _PARTS.replace("PARTS", str(split.parts))
    kind, to = (KINDS[item].c, KINDS[item].c) if split is None else (split.whole.c, KINDS[split.part.bytes].c)
    found = (put + _TEXT).replace("OFFSET", "long long" if far else "int").replace("ELEMENT", kind)
    found = found.replace("TARGET", to)
    for name, value in (("A_THREAD", A_THREAD), ("A_BLOCK", A_BLOCK), ("THREADS", THREADS), ("TILE", TILE)):
        found = found.replace(name, str(value))
    return found


@dataclass(frozen=True, slots=True)
class Dense:
    """A copy to be made: ``lines`` of ``extent`` elements, into lines of ``leading`` elements, one after another.

    What is beyond ``extent`` becomes zero. The strides are the source's, in elements: ``across`` from line to line,
    ``along`` from element to element. ``item`` is bytes per element. ``split``: each line has one part of its elements
    behind another; ``leading`` are the elements of one.
    """

    lines: int
    extent: int
    leading: int
    across: int
    along: int
    item: int = F32.bytes
    split: Split | None = None

    @property
    def line(self) -> int:
        """Bytes of a line."""
        return self.leading * (self.item if self.split is None else self.split.parts * self.split.part.bytes)

    @property
    def bytes(self) -> int:
        """What the copy takes, in whole multiples of ALIGN."""
        return -(-self.lines * self.line // ALIGN) * ALIGN

    @property
    def turned(self) -> bool:
        """Whether neighbours in the source are on neighbouring lines: tiles are transposed, as the kernel decides."""
        return self.across == 1 and self.along != 1

    @property
    def far(self) -> bool:
        """Whether offsets in the source, in elements, need more than 32 bits."""
        return (self.lines - 1) * abs(self.across) + (self.extent - 1) * abs(self.along) >= 1 << 31


def dense(
    shape: tuple[int, ...], strides: tuple[int, ...], order: str, leading: int, item: int = F32.bytes,
    split: Split | None = None,
) -> Dense:  # fmt: skip
    """The copy of a matrix with elements in it, its strides in elements, into rows ("row") or columns ("col").
    ``leading`` are the elements of a line of the copy, all parts of a ``split`` among them."""
    along, across = (1, 0) if order == "row" else (0, 1)
    if split is not None:
        each = leading // split.parts
        return Dense(shape[across], shape[along], each, strides[across], strides[along], item, split)
    if leading == 1:  # lines of one element are elements of one line
        return Dense(1, shape[across], shape[across], 0, strides[across], item)
    return Dense(shape[across], shape[along], leading, strides[across], strides[along], item)


def division(divisor: int) -> tuple[int, int]:
    """(magic, shift): e // divisor == ((e * magic) >> 32) >> shift for every e below 2^31; ``divisor`` from 2 on.

    Exact since magic * divisor passes 2^(32 + shift) by less than divisor, which is at most 2^(1 + shift).
    """
    shift = (divisor - 1).bit_length() - 1
    return -(-(1 << (32 + shift)) // divisor), shift


@dataclass(frozen=True, slots=True)
class _Part:
    """As much of a copy as one launch can number. Offsets in bytes: from the source's and the workspace's start."""

    operand: int  # A or B
    copy: Dense
    source: int
    target: int

    @property
    def total(self) -> int:
        return self.copy.lines * self.copy.leading

    @property
    def blocks(self) -> int:
        if self.copy.turned:
            return -(-self.copy.lines // TILE) * -(-self.copy.leading // TILE)
        return -(-self.total // A_BLOCK)

    def arguments(self, letter: str, source: int, target: int) -> list[Constant | int]:
        """As the kernel takes them; ``source`` and ``target`` are numbers of addresses in a Frame."""
        copy = self.copy
        magic, shift = division(max(copy.leading, 2))  # one element alone: 0 // 2 as well
        counts = self.total, copy.extent, copy.leading, magic, shift
        return [*(("I", x) for x in counts), *((letter, x) for x in (copy.across, copy.along)), source, target]


def _parts(operand: int, copy: Dense, target: int) -> Iterator[_Part]:
    lines = max(1, MOST // copy.leading)
    for first in range(0, copy.lines, lines):
        some = replace(copy, lines=min(lines, copy.lines - first))
        yield _Part(operand, some, first * copy.across * copy.item, target + first * copy.line)


class _Step:
    """One launch, of one part or two. May be called from several threads."""

    def __init__(self, here: Device, parts: Sequence[_Part]) -> None:
        far = any(part.copy.far for part in parts)
        letter = "q" if far else "i"
        one, two = parts[0], parts[-1]  # of one part alone, the second is given no block
        self._module = copier(here, far, one.copy.item, one.copy.split)
        self._grid = sum(part.blocks for part in parts), 1, 1
        self._arguments = [("I", one.blocks), *one.arguments(letter, A, WORKSPACE), *two.arguments(letter, B, C)]
        self._places = one.operand, one.source, one.target, two.operand, two.source, two.target
        self._free: list[Frame] = []  # frames that no call is using: taken and put back whole, which threads may do

    def __call__(self, a: int, b: int, base: int, stream: int) -> None:
        first, source, target, second, source2, target2 = self._places
        try:
            frame = self._free.pop()
        except IndexError:
            frame = Frame(self._grid, THREADS, 0, self._arguments)
        frame.fill(
            stream, (a if first == A else b) + source, (a if second == A else b) + source2, base + target2,
            base + target,
        )  # fmt: skip
        self._module.start(frame)
        self._free.append(frame)


class Copies:
    """The copies that a product needs, ready to be launched; ``bytes`` is the memory that they take together.

    ``wanted`` says what to copy: of A, of B, or of both. Raises LaunchError, CompileError. May be called from several
    threads.
    """

    def __init__(self, here: Device, wanted: dict[int, Dense]) -> None:
        parts: list[_Part] = []
        self.bytes = 0
        self._targets: dict[int, int] = {}
        for operand, copy in wanted.items():
            self._targets[operand] = self.bytes
            parts += _parts(operand, copy, self.bytes)
            self.bytes += copy.bytes
        self._steps = [_Step(here, parts[i : i + 2]) for i in range(0, len(parts), 2)]

    def __call__(self, a: int, b: int, base: int, stream: int) -> tuple[int, int]:
        """Enqueues the copies of A and B, at these addresses, to memory from ``base``, a multiple of ALIGN, on.

        In the current context. Returns the addresses where A and B are to be read.
        """
        for step in self._steps:
            step(a, b, base, stream)
        targets = self._targets
        return base + targets[A] if A in targets else a, base + targets[B] if B in targets else b


@functools.cache
def copier(here: Device, far: bool, item: int, split: Split | None = None) -> Module:
    """The copy kernel, loaded once for each GPU."""
    from gemmgen.runtime.build import compile_for
    from gemmgen.runtime.launch import Module

    built = compile_for(text(far=far, item=item, split=split), here, name=NAME)
    return Module(built.code, NAME, THREADS, kind=built.kind, device=here)
