"""Bytes and arithmetic intensity of a product, at each tier of memory.

A product is 2 M N K flops: a multiplication and an addition for each of M N K. The scaling by alpha and beta, 2 M N or
3 M N more, is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from gemmgen.analysis.counts import Counts
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.types import F32

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Intensity:
    """flop/byte; None where a denominator is 0.

    ``naive``: every multiply-add reads its two operands from memory. ``block_tile``: what this program's threads ask of
    global memory, as tiled. ``ideal``: every matrix is moved once, as with a perfect L2. ``flop_per_shared_load``:
    flops for each value that a thread reads from shared memory.
    """

    naive: float | None
    block_tile: float | None
    ideal: float | None
    flop_per_shared_load: float | None

    def to_dict(self) -> dict[str, float | None]:
        """As in ``explain``'s JSON."""
        return {
            "naive": self.naive,
            "block_tile": self.block_tile,
            "ideal": self.ideal,
            "flop_per_shared_load": self.flop_per_shared_load,
        }


def flops(size: Size) -> int:
    """2 M N K."""
    m, n, k = size
    return 2 * m * n * k


SINGLES = (F32.bytes, F32.bytes, F32.bytes)
"""Bytes per element of A, B and C in float32."""


NOTHING: Mapping[str, int] = MappingProxyType({})


def compulsory_bytes(
    size: Size,
    beta: float = 0.0,
    items: tuple[int, int, int] = SINGLES,
    beside: Mapping[str, int] = NOTHING,
) -> int:
    """Bytes that any program moves: A and B are read, C is written, and read too where beta is not 0. ``items`` are
    bytes per element of A, B and C, ``beside`` the bytes of what an epilogue reads and writes besides."""
    (m, n, k), (a, b, c) = size, items
    return a * m * k + b * k * n + c * m * n * (1 if beta == 0 else 2) + sum(beside.values())


def beside_bytes(ir: KernelIR, size: Size) -> dict[str, int]:
    """Bytes of each operand of a kernel's epilogue."""
    beside = () if ir.program is None else ir.program.beside
    return {x.name: x.dtype.bytes * prod(x.shape(*size[:2])) for x in beside}


def intensity(
    size: Size,
    counts: Counts,
    beta: float = 0.0,
    items: tuple[int, int, int] = SINGLES,
    beside: Mapping[str, int] = NOTHING,
) -> Intensity:
    """Intensities of a launch with these counts."""
    work = flops(size)
    inputs = [a for a in counts.accesses if a.space == "global" and a.operand != "C" and a.operand not in beside]
    asked = sum(a.cost.elements * a.item for a in inputs) + counts.total("tma", "load").bytes_used
    return Intensity(
        naive=ratio(2 * work, (items[0] + items[1]) * work),
        block_tile=ratio(work, asked),
        ideal=ratio(work, compulsory_bytes(size, beta, items, beside)),
        flop_per_shared_load=ratio(2 * counts.products, counts.total("shared", "load").elements),
    )


def items_of(ir: KernelIR) -> tuple[int, int, int]:
    """Bytes per element of A, B and C, all parts of one together."""
    a, b, c = (x.dtype.bytes * x.parts for x in ir.matrices)
    return a, b, c


def ratio(a: float, b: float) -> float | None:
    """a / b; None where b is 0."""
    return a / b if b else None
