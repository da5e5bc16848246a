"""How long a product takes at least, by each resource, and which of them binds.

Every bound is a lower limit: what the counts need of one resource over what the whole GPU has of it. The latency
bound is the time of one block's steps one after another, each waiting for its loads, times the waves of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.analysis.counts import Counts
from gemmgen.analysis.occupancy import Occupancy
from gemmgen.analysis.traffic import Size, compulsory_bytes
from gemmgen.ir.nodes import KernelIR
from gemmgen.target import GB, Gpu

RESOURCES = ("compute", "issue", "shared", "l1", "l2", "dram", "latency")
SECTOR = 32
WARP = 32

# Clocks until a value is there: pointer chasing on an H100, an A100 and an RTX 4090 (arXiv:2402.13499), the shortest.
L1_LATENCY = 37
SHARED_LATENCY = 29
L2_LATENCY = 260
LOADS_AHEAD = 4
"""Turns of a rolled loop over K whose loads the compiler issues together."""


@dataclass(frozen=True)
class Bounds:
    """Seconds that each resource needs at least, and the one that needs most."""

    compute_s: float
    issue_s: float
    shared_s: float
    l1_s: float
    l2_s: float
    dram_s: float
    latency_s: float

    @property
    def by(self) -> str:
        """The resource that binds: one of RESOURCES, the first of those that need the same."""
        return max(RESOURCES, key=self.seconds)

    def seconds(self, resource: str) -> float:
        """The bound of one resource by name."""
        value: float = getattr(self, f"{resource}_s")
        return value

    @property
    def total_s(self) -> float:
        """The largest bound: no run of this program is faster."""
        return self.seconds(self.by)

    def to_dict(self) -> dict[str, float | str]:
        """As in ``explain``'s JSON."""
        return {**{f"{r}_s": self.seconds(r) for r in RESOURCES}, "by": self.by}


def bounds(ir: KernelIR, size: Size, counts: Counts, blocks: int, gpu: Gpu, fits: Occupancy, beta: float) -> Bounds:
    """The bounds of a product of ``blocks`` blocks with these counts on a GPU."""
    clocks = gpu.sms * gpu.clock_hz
    loads, stores = counts.total("global", "load"), counts.total("global", "store")
    shared = [counts.total("shared", op) for op in ("load", "store")]
    requests = loads.requests + stores.requests + sum(s.requests for s in shared)
    wavefronts = sum(s.merged_wavefronts for s in shared)
    # Loads joined by the compiler are fewer instructions too.
    joined = sum(s.wavefronts for s in shared) - wavefronts
    instructions = counts.fma / WARP + max(0, requests - joined)
    limits = gpu.limits
    return Bounds(
        compute_s=2 * counts.fma / (gpu.fp32_tflops * 1e12),
        issue_s=instructions / (limits.schedulers * clocks),
        shared_s=wavefronts * WARP * 4 / (limits.shared_bytes_per_clock * clocks),
        l1_s=(loads.lines + stores.lines) / (limits.l1_lines_per_clock * clocks),
        l2_s=_l2_bytes(ir, size, counts) / (gpu.l2_gb_s * GB),
        dram_s=compulsory_bytes(size, beta) / (gpu.dram_gb_s * GB) if blocks else 0.0,
        latency_s=_latency(ir, size, counts, blocks, gpu, fits),
    )


def _l2_bytes(ir: KernelIR, size: Size, counts: Counts) -> int:
    """Bytes that pass between the SMs and the L2: each block's tiles once, or the sectors asked for if fewer."""
    (m, n, k), (bm, bn, _) = size, ir.spec.block
    loads = [a for a in counts.accesses if (a.space, a.op) == ("global", "load")]
    tiles = 4 * k * (m * -(-n // bn) + n * -(-m // bm))
    inputs = min(tiles, SECTOR * sum(a.cost.sectors for a in loads if a.operand != "C"))
    rest = sum(a.cost.sectors for a in loads if a.operand == "C") + counts.total("global", "store").sectors
    return inputs + SECTOR * rest


def _latency(ir: KernelIR, size: Size, counts: Counts, blocks: int, gpu: Gpu, fits: Occupancy) -> float:
    if not blocks or not fits.blocks_per_sm:
        return 0.0
    waves = -(-blocks // (gpu.sms * fits.blocks_per_sm))
    k, bk = size[2], max(1, ir.spec.block[2])
    steps, wait = (-(-k // bk), L2_LATENCY + SHARED_LATENCY) if ir.shared else (-(-k // LOADS_AHEAD), L1_LATENCY)
    # A block's own multiply-adds come after its loads; only other blocks can fill the wait.
    own = counts.fma / blocks / gpu.limits.fp32_lanes
    return waves * (steps * wait + own) / gpu.clock_hz
