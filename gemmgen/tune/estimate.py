"""A quick estimate of a kernel's time, good enough to order candidates and to leave the hopeless ones out.

It looks at the tile program alone: work of the fullest multiprocessor, issue slots, shared memory, what hides latency,
L2 and DRAM. The factors for the ways of bringing tiles were measured on an H200 at 4096 x 4096 x 4096; the order that
follows is corrected by what the tuner measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from gemmgen.analysis.occupancy import occupancy_of
from gemmgen.ir.types import F32, VECTOR_BYTES, WARP
from gemmgen.ir.variant import EXACT
from gemmgen.isa.memory import SECTOR
from gemmgen.isa.table import Completion
from gemmgen.text.numbers import counted
from gemmgen.tile.rewrites import build
from gemmgen.tile.sums import InCluster, InMemory
from gemmgen.tune.shapes import Align, Shape, packed

if TYPE_CHECKING:
    from gemmgen.analysis.occupancy import Occupancy
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu
    from gemmgen.tile.program import TileProgram

ADDRESSES = 28  # registers for indices, addresses and the loop
FEWEST_ADDRESSES = 12  # of those, that no compiler does without
LAUNCH_S = 2.0e-6
EARLY_LAUNCH_S = LAUNCH_S / 4  # of a kernel that is launched while the one before it runs
FMAS_A_WAVEFRONT = 4.0  # warps' instructions that an SM issues while its shared memory serves one wavefront
ROUND_CLOCKS = 1500  # of filling a pipeline, and of starting a block
STORE_BYTES_A_CLOCK = 32
SHARED_BYTES_A_CLOCK = 128
CLUSTER_CLOCKS = 1000  # of meeting the other blocks of a cluster twice
CLUSTER_BYTES_A_CLOCK = 32  # that an SM reads of others' shared memory
HIDDEN = 400.0  # running sums of all warps of an SM at which most latency is hidden
WORST = 4.0
"""A candidate modelled this many times slower than the best one is not tried."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of one product, or infinity where it cannot run: then ``hopeless`` says why."""

    seconds: float
    hopeless: str = ""


def estimate(spec: Spec, shape: Shape, gpu: Gpu, align: Align | None = None) -> Estimate:
    """The modelled time of a checked spec for a product of packed matrices on a GPU."""
    align = packed(shape) if align is None else align
    p = build(spec, EXACT)
    named = sums_of(p) + fragments_of(p)
    most = registers_left(p, gpu)
    if named + FEWEST_ADDRESSES > most:
        return Estimate(float("inf"), f"spills: a thread's own values take {named} registers of {most}")
    fits = occupancy_of(gpu.limits, p.threads, min(most, named + ADDRESSES), p.shared_bytes)
    if not fits.blocks_per_sm:
        return Estimate(float("inf"), f"no block fits on an SM: limited by {fits.limiter}")
    if p.min_blocks > fits.blocks_per_sm:
        return Estimate(
            float("inf"), f"min_blocks {p.min_blocks}: an SM has room for {counted(fits.blocks_per_sm, 'block')}"
        )
    clocks = _clocks(p, shape, gpu, fits, align)
    seconds = max(clocks / gpu.clock_hz, _memory_s(p, shape, gpu)) + LAUNCH_S
    return Estimate(seconds + _reduction_s(p, shape, gpu))


def registers_left(p: TileProgram, gpu: Gpu) -> int:
    """Registers that a thread can have: all that it can name, or what ``min_blocks`` blocks leave it."""
    limits = gpu.limits
    if p.min_blocks < 1:
        return limits.registers_per_thread
    warps = -(-p.threads // WARP) * p.min_blocks
    a_warp = limits.registers // (warps * limits.register_unit) * limits.register_unit
    return min(limits.registers_per_thread, a_warp // WARP)


def sums_of(p: TileProgram) -> int:
    """Running sums that a thread keeps."""
    rows, cols = _own(p)
    return rows * cols


def fragments_of(p: TileProgram) -> int:
    """Values of A and B that a thread holds at one time: with prefetch those of two steps, pieces along k but once."""
    (rows, cols), twice = _own(p), 2 if p.pipeline.prefetch else 1
    if p.product.math.by_warp:  # registers, not values: a row of a lane's fragments is two, a column pair as many
        return 2 * (rows + cols // 2) * twice
    return rows * (p.product.a_width if p.product.along_k else twice) + cols * twice


def _own(p: TileProgram) -> tuple[int, int]:
    """Rows and columns of C that a thread computes."""
    piece, thread = p.product.level("piece"), p.product.level("thread")
    return piece.m * thread.m, piece.n * thread.n


def tiles_of(p: TileProgram, shape: Shape) -> int:
    """Tiles of C."""
    (m, n, _), (bm, bn, _) = shape, p.block
    return -(-m // bm) * -(-n // bn)


def blocks_of(p: TileProgram, shape: Shape) -> int:
    """Blocks that are launched."""
    tiles = tiles_of(p, shape)
    return min(tiles, p.persistent or tiles) * p.sums.parts


def tiles_a_block(p: TileProgram, shape: Shape) -> int:
    """The most tiles of C that a block computes, one after another."""
    return -(-tiles_of(p, shape) // p.persistent) if p.persistent else 1


def _clocks(p: TileProgram, shape: Shape, gpu: Gpu, fits: Occupancy, align: Align) -> float:
    """Clocks of the SM that has most blocks, in rounds of as many as fit."""
    bm, bn, bk = p.block
    deep = -(-shape[2] // (bk * p.sums.parts)) * bk
    own = bm * bn * deep / gpu.limits.fp32_lanes / _efficiency(p, align)
    stores = p.stored.bytes * bm * bn * _clocks_a_byte_stored(p)
    rounds, rest = divmod(-(-blocks_of(p, shape) // gpu.sms), fits.blocks_per_sm)

    def of(here: int) -> float:
        hidden = 1 - exp(-here * p.threads / WARP * sums_of(p) / HIDDEN)
        return here * (own / hidden + stores) + ROUND_CLOCKS

    together = rounds * of(fits.blocks_per_sm) + (of(rest) if rest else 0.0)
    return together * tiles_a_block(p, shape)


def _clocks_a_byte_stored(p: TileProgram) -> float:
    """Clocks of an SM for a byte of C: more where a warp's stores leave sectors partly filled, or pass through shared
    memory, twice."""
    if p.output.tile is not None:
        return 1 / STORE_BYTES_A_CLOCK + 2 / SHARED_BYTES_A_CLOCK
    along, thread = p.contiguous("C"), p.product.level("thread")
    run, width = thread.n if along == "n" else thread.m, p.output.width
    coalesced = p.product.level("lane").walk == along
    filled = 1.0 if coalesced and run == width else width * p.stored.bytes / SECTOR
    return 1 / (STORE_BYTES_A_CLOCK * filled)


def _efficiency(p: TileProgram, align: Align) -> float:
    """Part of the FMA rate that a full SM reaches in the main loop."""
    sums = sums_of(p)
    loads, wavefronts = _shared_accesses(p)
    issue = sums / (sums + loads + 3)
    shared = min(1.0, sums / (FMAS_A_WAVEFRONT * wavefronts))
    return min(issue, shared) * _overlap(p) * _aligned(p, align)


def _shared_accesses(p: TileProgram) -> tuple[float, float]:
    """Loads of fragments that a warp issues a step along k, and what they take of the shared memory's clocks."""
    rows, cols = _own(p)
    if not p.copies:
        return rows + cols, 8.0 * (rows + cols)  # from global memory: a line's tag a clock, and far away
    wide_a, wide_b = (
        p.product.a_width > 2,
        p.product.b_width > 2,
    )  # accesses of two elements pay no more than two of one
    a = rows / p.product.a_width if wide_a else rows
    b = cols / p.product.b_width if wide_b else cols
    if p.buffer("B") is None:
        return a + b, 2 * a + 4 * b
    return a + b, (2 if wide_a else 1) * a + (2 if wide_b else 1) * b


def _overlap(p: TileProgram) -> float:
    """The share of issue slots that exposed load latency leaves, by the way tiles come."""
    prefetch, deep = p.pipeline.prefetch, p.pipeline.depth > 1
    coalesced = p.product.level("lane").walk == p.contiguous("C")
    coalesced = coalesced or p.output.tile is not None or bool(p.landing(Completion.BARRIER))
    if not p.copies:
        return 0.5 if coalesced else 0.1
    if p.buffer("B") is None:
        base = 0.70 if p.product.unroll or not deep else 0.75
    elif p.landing(Completion.BARRIER):
        base = 0.88 if prefetch else 0.82
        base += (0.06 if p.product.pinned else 0.0) + (0.01 if p.pipeline.release else 0.0)
    elif p.landing(Completion.GROUP):
        base = (0.86 if prefetch else 0.78) + (0.03 if p.pipeline.spread else 0.0)
    else:
        base = (0.82 if prefetch else 0.74) if deep else (0.68 if prefetch else 0.60)
    if not deep and not p.landing(Completion.NOW) and p.buffer("B") is not None:
        base -= 0.15
    return base * (1.02 if p.product.snake else 1.0) * (1.0 if coalesced else 0.3)


def _aligned(p: TileProgram, align: Align) -> float:
    """Narrower copies where rows are no multiples of 16 bytes."""
    vectors = p.copies and max(c.width for c in p.copies) > 1
    if min(align[:2]) >= VECTOR_BYTES or not vectors:
        return 1.0
    engine, groups = p.landing(Completion.BARRIER), p.landing(Completion.GROUP)
    return 0.88 if engine or (groups and p.product.along_k) else 0.94


def _memory_s(p: TileProgram, shape: Shape, gpu: Gpu) -> float:
    (m, n, k), (bm, bn, _) = shape, p.block
    a, b, c = (float(x.dtype.bytes) for x in p.matrices)
    least = a * m * k + b * k * n + c * m * n
    tiles = a * k * m * -(-n // bn) + b * k * n * -(-m // bm)
    return max(least / (gpu.dram_gb_s * 1e9), tiles / (gpu.l2_gb_s * 1e9))


def _reduction_s(p: TileProgram, shape: Shape, gpu: Gpu) -> float:
    """Writing and adding the partial sums of a split K."""
    split, sum_bytes = p.sums.parts, float(F32.bytes)
    if split == 1:
        return 0.0
    if isinstance(p.sums, InCluster):  # a block's tile of sums passes between the SMs while the block is there
        (bm, bn, _), rounds = p.block, -(-blocks_of(p, shape) // gpu.sms)
        return rounds * (CLUSTER_CLOCKS + sum_bytes * bm * bn / CLUSTER_BYTES_A_CLOCK) / gpu.clock_hz
    launch = EARLY_LAUNCH_S if p.sums.early else LAUNCH_S
    if isinstance(p.sums, InMemory):  # C is written once, and each part added to it in the L2 cache
        return launch + sum_bytes * (1 + split) * shape[0] * shape[1] / (gpu.l2_gb_s * 1e9)
    return launch + 2 * sum_bytes * split * shape[0] * shape[1] / (gpu.l2_gb_s * 1e9)


def floor_s(shape: Shape, gpu: Gpu, *, clock_hz: float, sms: int, warm: bool) -> float:
    """Seconds below which no float32 product can be: its multiply-adds at the highest clock, its inputs from DRAM.

    With a warm cache the inputs may come faster than that, and only the arithmetic counts.
    """
    m, n, k = shape
    arithmetic = m * n * k / (sms * gpu.limits.fp32_lanes * clock_hz)
    read = 0.0 if warm else F32.bytes * (m * k + k * n) / (1.2 * gpu.dram_gb_s * 1e9)
    return max(arithmetic, read)
