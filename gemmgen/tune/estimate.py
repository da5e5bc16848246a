"""A quick estimate of a kernel's time, good enough to order candidates and to leave the hopeless ones out.

It looks at the spec alone: work of the fullest multiprocessor, issue slots, shared memory, what hides latency, L2
and DRAM. The factors for the ways of bringing tiles were measured on an H200 at 4096 x 4096 x 4096; the order that
follows is corrected by what the tuner measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from gemmgen.ir.types import WARP
from gemmgen.tune.shapes import Align, Shape, packed

if TYPE_CHECKING:
    from gemmgen.analysis.occupancy import Occupancy
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu

ADDRESSES = 28  # registers for indices, addresses and the loop
FEWEST_ADDRESSES = 12  # of those, that no compiler does without
LAUNCH_S = 2.0e-6
EARLY_LAUNCH_S = LAUNCH_S / 4  # of a kernel that is launched while the one before it runs
ROUND_CLOCKS = 1500  # of filling a pipeline, and of starting a block
STORE_BYTES_A_CLOCK = 32
SHARED_BYTES_A_CLOCK = 128
SECTOR_ELEMENTS = 8
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
    named = sums_of(spec) + fragments_of(spec)
    most = registers_left(spec, gpu)
    if named + FEWEST_ADDRESSES > most:
        return Estimate(float("inf"), f"spills: a thread's own values take {named} registers of {most}")
    fits = occupancy_of_spec(spec, gpu, min(most, named + ADDRESSES))
    if not fits.blocks_per_sm:
        return Estimate(float("inf"), f"no block fits on an SM: limited by {fits.limiter}")
    if spec.min_blocks > fits.blocks_per_sm:
        return Estimate(float("inf"), f"min_blocks {spec.min_blocks} do not fit on an SM: {fits.blocks_per_sm} do")
    clocks = _clocks(spec, shape, gpu, fits, align)
    seconds = max(clocks / gpu.clock_hz, _memory_s(spec, shape, gpu)) + LAUNCH_S
    return Estimate(seconds + _reduction_s(spec, shape, gpu))


def registers_left(spec: Spec, gpu: Gpu) -> int:
    """Registers that a thread can have: all that it can name, or what ``min_blocks`` blocks leave it."""
    limits = gpu.limits
    if spec.min_blocks < 1:
        return limits.registers_per_thread
    warps = -(-spec.threads // WARP) * spec.min_blocks
    a_warp = limits.registers // (warps * limits.register_unit) * limits.register_unit
    return min(limits.registers_per_thread, a_warp // WARP)


def sums_of(spec: Spec) -> int:
    """Running sums that a thread keeps."""
    m_iter, n_iter = spec.warp_iterations
    return spec.thread[0] * m_iter * spec.thread[1] * n_iter


def fragments_of(spec: Spec) -> int:
    """Values of A and B that a thread holds at one time: with prefetch those of two steps, pieces along k but once."""
    m_iter, n_iter = spec.warp_iterations
    twice = 2 if spec.has("prefetch") else 1
    return spec.thread[0] * m_iter * (4 if spec.has("alongK") else twice) + spec.thread[1] * n_iter * twice


def occupancy_of_spec(spec: Spec, gpu: Gpu, registers: int) -> Occupancy:
    """What fits on an SM; ``min_blocks`` makes the compiler keep within its registers."""
    from gemmgen.analysis.occupancy import occupancy_of
    from gemmgen.ir.variant import EXACT
    from gemmgen.tile import build

    return occupancy_of(gpu.limits, spec.threads, registers, build(spec, EXACT).shared_bytes)


def split_of(spec: Spec) -> int:
    """Blocks that share one tile of C along K."""
    return max(1, int(getattr(spec, "split_k", 1) or 1))


def tiles_of(spec: Spec, shape: Shape) -> int:
    """Tiles of C."""
    (m, n, _), (bm, bn, _) = shape, spec.block
    return -(-m // bm) * -(-n // bn)


def blocks_of(spec: Spec, shape: Shape) -> int:
    """Blocks that are launched."""
    tiles = tiles_of(spec, shape)
    return min(tiles, spec.persistent or tiles) * split_of(spec)


def tiles_a_block(spec: Spec, shape: Shape) -> int:
    """The most tiles of C that a block computes, one after another."""
    return -(-tiles_of(spec, shape) // spec.persistent) if spec.persistent else 1


def _clocks(spec: Spec, shape: Shape, gpu: Gpu, fits: Occupancy, align: Align) -> float:
    """Clocks of the SM that has most blocks, in rounds of as many as fit."""
    bm, bn, bk = spec.block
    deep = -(-shape[2] // (bk * split_of(spec))) * bk
    own = bm * bn * deep / gpu.limits.fp32_lanes / _efficiency(spec, align)
    stores = 4 * bm * bn * _clocks_a_byte_stored(spec)
    rounds, rest = divmod(-(-blocks_of(spec, shape) // gpu.sms), fits.blocks_per_sm)

    def of(here: int) -> float:
        hidden = 1 - exp(-here * spec.threads / WARP * sums_of(spec) / HIDDEN)
        return here * (own / hidden + stores) + ROUND_CLOCKS

    together = rounds * of(fits.blocks_per_sm) + (of(rest) if rest else 0.0)
    return together * tiles_a_block(spec, shape)


def _clocks_a_byte_stored(spec: Spec) -> float:
    """Clocks of an SM for a byte of C: more where a warp's stores leave sectors partly filled, or pass through shared
    memory, twice."""
    if spec.has("stageC"):
        return 1 / STORE_BYTES_A_CLOCK + 2 / SHARED_BYTES_A_CLOCK
    run = spec.thread[1 if spec.C.order == "row" else 0]
    width = next(w for w in (4, 2, 1) if run % w == 0) if spec.has("float4") else 1
    filled = 1.0 if spec.has("coalescing") and run == width else width / SECTOR_ELEMENTS
    return 1 / (STORE_BYTES_A_CLOCK * filled)


def _efficiency(spec: Spec, align: Align) -> float:
    """Part of the FMA rate that a full SM reaches in the main loop."""
    sums = sums_of(spec)
    loads, wavefronts = _shared_accesses(spec)
    issue = sums / (sums + loads + 3)
    shared = min(1.0, sums / (4.0 * wavefronts))
    return min(issue, shared) * _overlap(spec) * _aligned(spec, align)


def _shared_accesses(spec: Spec) -> tuple[float, float]:
    """Loads of fragments that a warp issues a step along k, and what they take of the shared memory's clocks."""
    (tm, tn), (m_iter, n_iter) = spec.thread, spec.warp_iterations
    if not spec.has("smem"):
        return tm + tn, 8.0 * (tm + tn)  # from global memory: a line's tag a clock, and far away
    wide_a = spec.has("float4") and spec.has("transposeA") and tm % 4 == 0
    wide_b = spec.has("float4") and tn % 4 == 0
    a = m_iter * tm / 4 if wide_a or spec.has("alongK") else m_iter * tm
    b = n_iter * tn / 4 if wide_b else n_iter * tn
    if spec.has("directB"):
        return a + b, 2 * a + 4 * b
    return a + b, (2 if wide_a or spec.has("alongK") else 1) * a + (2 if wide_b else 1) * b


def _overlap(spec: Spec) -> float:
    """What is left of the issue slots once loads are waited for, by the way tiles come."""
    prefetch, deep = spec.has("prefetch"), spec.stages > 1
    if not spec.has("smem"):
        return 0.5 if spec.has("coalescing") else 0.1
    if spec.has("directB"):
        base = 0.70 if spec.unroll or not deep else 0.75
    elif spec.has("tma"):
        base = 0.88 if prefetch else 0.82
        base += (0.06 if spec.has("separators") else 0.0) + (0.01 if spec.has("release") else 0.0)
    elif spec.has("cpasync"):
        base = (0.86 if prefetch else 0.78) + (0.03 if spec.has("spread") else 0.0)
    else:
        base = (0.82 if prefetch else 0.74) if deep else (0.68 if prefetch else 0.60)
    if not deep and (spec.has("tma") or spec.has("cpasync")) and not spec.has("directB"):
        base -= 0.15
    return base * (1.02 if spec.has("snake") else 1.0) * (1.0 if spec.has("coalescing") else 0.3)


def _aligned(spec: Spec, align: Align) -> float:
    """Narrower copies where rows are no multiples of 16 bytes."""
    if min(align[:2]) >= 16 or not spec.has("float4"):
        return 1.0
    return 0.88 if spec.has("tma") or (spec.has("cpasync") and spec.has("alongK")) else 0.94


def _memory_s(spec: Spec, shape: Shape, gpu: Gpu) -> float:
    (m, n, k), (bm, bn, _) = shape, spec.block
    least = 4.0 * (m * k + k * n + m * n)
    tiles = 4.0 * (k * m * -(-n // bn) + k * n * -(-m // bm))
    return max(least / (gpu.dram_gb_s * 1e9), tiles / (gpu.l2_gb_s * 1e9))


def _reduction_s(spec: Spec, shape: Shape, gpu: Gpu) -> float:
    """Writing and adding the partial sums of a split K."""
    split = split_of(spec)
    if split == 1:
        return 0.0
    if spec.has("clusterReduce"):  # a block's tile of sums passes between the SMs while the block is there
        (bm, bn, _), rounds = spec.block, -(-blocks_of(spec, shape) // gpu.sms)
        return rounds * (CLUSTER_CLOCKS + 4 * bm * bn / CLUSTER_BYTES_A_CLOCK) / gpu.clock_hz
    launch = EARLY_LAUNCH_S if spec.has("dependentLaunch") else LAUNCH_S
    if spec.unordered:  # C is written once, and each part added to it in the L2 cache
        return launch + 4.0 * (1 + split) * shape[0] * shape[1] / (gpu.l2_gb_s * 1e9)
    return launch + 8.0 * split * shape[0] * shape[1] / (gpu.l2_gb_s * 1e9)


def floor_s(shape: Shape, gpu: Gpu, *, clock_hz: float, sms: int, warm: bool) -> float:
    """Seconds below which no float32 product can be: its multiply-adds at the highest clock, its inputs from DRAM.

    With a warm cache the inputs may come faster than that, and only the arithmetic counts.
    """
    m, n, k = shape
    arithmetic = m * n * k / (sms * gpu.limits.fp32_lanes * clock_hz)
    read = 0.0 if warm else 4.0 * (m * k + k * n) / (1.2 * gpu.dram_gb_s * 1e9)
    return max(arithmetic, read)
