"""Occupancy: how many blocks of a kernel fit on an SM at once, by the published allocation rules."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gemmgen.diagnostics import ArgumentError, whole_number
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Alloc, Array, Section, Stmt, children, shape_of
from gemmgen.ir.references import touches
from gemmgen.ir.types import U32, VECTOR_BYTES, WARP
from gemmgen.target import Gpu, Limits
from gemmgen.target import gpu as find_gpu


@dataclass(frozen=True)
class Occupancy:
    """What is resident on one SM. ``fraction`` is the share of its warps that are in use; ``limiter`` is what prevents
    one more block: "threads" (warps), "blocks", "registers" or "shared memory" (the first of them where several do)."""

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limiter: str

    def to_dict(self) -> dict[str, int | float | str]:
        """The ``occupancy`` of ``explain --json``."""
        return {
            "blocks_per_sm": self.blocks_per_sm,
            "warps_per_sm": self.warps_per_sm,
            "fraction": self.fraction,
            "limiter": self.limiter,
        }


def occupancy(gpu: str | Gpu, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Occupancy of a kernel with ``threads`` per block, ``registers`` per thread and ``shared_bytes`` per block (static
    and dynamic, without the 1 KB that the system reserves).

    ``gpu`` is a row of ``gemmgen.target.GPUS`` or its name. A kernel that cannot be launched has 0 blocks per SM and a
    limiter. Raises ArgumentError for an unknown GPU and for figures that are negative or not whole numbers.
    """
    row = find_gpu(gpu)
    try:
        threads, registers = whole_number("threads", threads, 1), whole_number("registers", registers)
        shared_bytes = whole_number("shared_bytes", shared_bytes)
    except ArgumentError as error:
        raise ArgumentError(f"{error}: threads and shared_bytes per block, registers per thread") from None
    return occupancy_of(row.limits, threads, registers, shared_bytes)


def occupancy_of(limits: Limits, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """:func:`occupancy` from the limits of an architecture."""
    warps = -(-threads // WARP)
    fits = {
        "threads": 0 if threads > limits.threads_per_block else limits.warps // warps,
        "registers": _by_registers(limits, warps, registers),
        "shared memory": _by_shared(limits, shared_bytes),
        "blocks": limits.blocks,
    }
    limiter = min(fits, key=lambda name: fits[name])
    blocks = fits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, limiter)


def registers_per_block(limits: Limits, threads: int, registers: int) -> int:
    """Registers that the hardware allocates per block: in units of 256 per warp, and of 4 warps."""
    return _round_up(registers * WARP, limits.register_unit) * _round_up(-(-threads // WARP), limits.warp_unit)


def _by_registers(limits: Limits, warps: int, registers: int) -> int:
    if registers == 0:
        return limits.blocks
    if registers > limits.registers_per_thread:
        return 0
    if registers_per_block(limits, warps * WARP, registers) > limits.registers_per_block:
        return 0
    # Each quarter of the SM has its own registers, so warps are counted per quarter.
    per_quarter = limits.registers // limits.warp_unit // _round_up(registers * WARP, limits.register_unit)
    return per_quarter * limits.warp_unit // warps


def _by_shared(limits: Limits, shared_bytes: int) -> int:
    if shared_bytes > limits.shared_per_block:
        return 0
    need = _round_up(shared_bytes + limits.shared_reserved, limits.shared_unit)
    return limits.shared_per_sm // need if need else limits.blocks


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def named_registers(body: tuple[Stmt, ...]) -> int:
    """Registers that the program's own arrays (accumulators, fragments, values in flight) take at most at one time.

    An array is live from its declaration to the last statement of the body that touches it.
    """
    flat = [x for s in body for x in (s.body if isinstance(s, Section) else (s,))]
    most = 0
    live: list[tuple[int, int]] = []  # words of an array, and where it is touched last
    for at, s in enumerate(flat):
        if isinstance(s, Alloc):
            last = max((i for i, x in enumerate(flat) if touches(x, s.array)), default=at)
            live.append((_registers(s.array), last))
        inner = max((named_registers(part) for part in children(s)), default=0)
        most = max(most, inner + sum(words for words, last in live if last >= at))
    return most


def _registers(array: Array) -> int:
    """Registers of an array: one for each element, unless it is laid out as instructions take it, several together."""
    elements = prod(shape_of(array))
    return -(-elements * array.dtype.bytes // U32.bytes) if array.align == VECTOR_BYTES else elements


def register_limit(ir: KernelIR, gpu: Gpu) -> int:
    """The most registers per thread with which a block of this size can launch."""
    limits = gpu.limits
    fits = [
        r for r in range(8, limits.registers_per_thread + 1)
        if registers_per_block(limits, ir.threads, r) <= limits.registers_per_block
    ]  # fmt: skip
    return max(fits, default=0)
