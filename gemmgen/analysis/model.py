"""How long a product takes, by each resource, and which of them binds.

The bound of a resource is a lower limit: what the counts need of it over what the whole GPU has of it. ``latency_s`` is
the exposed latency, what waiting adds to the largest of them; it is an estimate (:mod:`gemmgen.analysis.latency`), and
so is their sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from gemmgen.analysis.counts import Counts
from gemmgen.analysis.latency import WAITS, Step, Waits, run_clocks
from gemmgen.analysis.occupancy import Occupancy
from gemmgen.analysis.sass import MainLoop
from gemmgen.analysis.traffic import Size, beside_bytes, compulsory_bytes, items_of
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Call, walk
from gemmgen.ir.types import WARP
from gemmgen.isa.memory import BANK_BYTES, BANKS, SECTOR
from gemmgen.target import GB, Gpu

RESOURCES = ("compute", "tensor", "issue", "shared", "l1", "l2", "dram", "latency")

TERA = 1e12
LOADS_AHEAD = 4
"""Turns of a rolled loop over K whose loads the compiler issues together."""


@dataclass(frozen=True)
class Bounds:
    """Seconds that each resource needs at least; ``latency_s`` is what waiting adds to the largest of them.

    ``compute_s`` is of the pipe of multiply-adds, ``tensor_s`` of the tensor cores.
    """

    compute_s: float
    tensor_s: float
    issue_s: float
    shared_s: float
    l1_s: float
    l2_s: float
    dram_s: float
    latency_s: float

    @property
    def by(self) -> str:
        """What binds: one of RESOURCES, the first of those that need the same. It is latency where more time is waited
        than any resource is busy."""
        return max(RESOURCES, key=self.seconds)

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that there is something to say of: the tensor cores where the program uses them."""
        return tuple(r for r in RESOURCES if r != "tensor" or self.tensor_s)

    def seconds(self, resource: str) -> float:
        """The bound of one resource by name."""
        value: float = getattr(self, f"{resource}_s")
        return value

    @property
    def floor_s(self) -> float:
        """The largest bound, latency aside: no run of this program is faster."""
        return max(self.seconds(r) for r in RESOURCES if r != "latency")

    @property
    def total_s(self) -> float:
        """The time that is expected: the largest bound and the exposed latency."""
        return self.floor_s + self.latency_s

    def to_dict(self) -> dict[str, float | str]:
        """As in ``explain``'s JSON."""
        return {**{f"{r}_s": self.seconds(r) for r in self.resources}, "by": self.by}


@dataclass(frozen=True)
class Run:
    """What is timed: a kernel, the product's ``size`` and ``beta``, the counts and ``blocks`` of all its launches, the
    GPU, how many blocks ``fits`` on a multiprocessor, the main ``loop`` as compiled, where it is known, the number
    of ``launches``, one after another, and the tiles of C that all blocks compute (of each slice of K; None: one a
    block). ``spread``: as if the work of few blocks were spread over all multiprocessors."""

    ir: KernelIR
    size: Size
    counts: Counts
    blocks: int
    gpu: Gpu
    fits: Occupancy
    beta: float = 0.0
    loop: MainLoop | None = None
    launches: int = 1
    tiles: int | None = None
    spread: bool = False

    @property
    def computed(self) -> int:
        """Tiles of C that all blocks compute."""
        return self.blocks if self.tiles is None else self.tiles

    @property
    def instructions(self) -> float:
        """Instructions of all warps, a slot of a scheduler each."""
        products = self.counts.issued
        if self.loop is not None and self.loop.ffma:
            return products * self.loop.instructions / self.loop.ffma
        both = ("load", "store")
        asked = sum(self.counts.total("global", op).requests for op in both)
        return products + asked + sum(self.counts.total("shared", op).merged_requests for op in both)

    @property
    def issue_clocks(self) -> float:
        """Clocks that they take one scheduler, with what register ports add where the loop is known."""
        stalls = self.loop.port_stall if self.loop is not None else 0.0
        return self.instructions + stalls * self.counts.issued

    @property
    def shared_clocks(self) -> float:
        """Clocks that the wavefronts of shared memory take one multiprocessor."""
        wavefronts = sum(self.counts.total("shared", op).merged_wavefronts for op in ("load", "store"))
        return wavefronts * BANKS * BANK_BYTES / self.gpu.limits.shared_bytes_per_clock

    @property
    def l1_clocks(self) -> float:
        """Clocks that looking up the lines of global accesses takes one multiprocessor."""
        lines = sum(self.counts.total("global", op).lines for op in ("load", "store"))
        return lines / self.gpu.limits.l1_lines_per_clock


def tiles_computed(ir: KernelIR, grid: tuple[int, int, int], scalars: Mapping[str, float]) -> int:
    """Tiles of C that a launch computes, each as often as blocks share its sum."""
    if not ir.renumbered:
        return grid[0] * grid[1] * grid[2]
    return -(-int(scalars["M"]) // ir.tile[0]) * -(-int(scalars["N"]) // ir.tile[1]) * grid[2]


def bounds(run: Run, waits: Waits = WAITS) -> Bounds:
    """The bounds of a run, and what waiting adds."""
    gpu, limits = run.gpu, run.gpu.limits
    clocks = gpu.sms * gpu.clock_hz
    needs = {
        "compute_s": run.counts.math.get("fma", 0) / (gpu.fp32_tflops * TERA),
        "tensor_s": _tensor_s(run),
        "issue_s": run.instructions / (limits.schedulers * clocks),
        "shared_s": run.shared_clocks / clocks,
        "l1_s": run.l1_clocks / clocks,
        "l2_s": _l2_bytes(run) / (gpu.l2_gb_s * GB),
        "dram_s": _dram_bytes(run) / (gpu.dram_gb_s * GB) if run.blocks else 0.0,
    }
    return Bounds(**needs, latency_s=max(0.0, _waiting_s(run, waits) - max(needs.values())))


def _dram_bytes(run: Run) -> int:
    return compulsory_bytes(run.size, run.beta, items_of(run.ir), beside_bytes(run.ir, run.size))


def _tensor_s(run: Run) -> float:
    """Seconds of the tensor cores, whose rate is that of the operands' type."""
    flops = run.counts.math.get("tensor", 0)
    if not flops:
        return 0.0
    rate = tensor_rate(run.gpu, run.ir)
    return flops / (rate * TERA) if rate else inf


def tensor_rate(gpu: Gpu, ir: KernelIR) -> float | None:
    """TFLOP/s that a kernel's instructions of the tensor cores can reach; None where the GPU has none of that type."""
    rate = gpu.tensor_tflops(ir.matrix("A").dtype.bits)
    if rate and any(isinstance(s, Call) and s.row.name.startswith("mma_") for s in walk(ir.body)):
        rate *= gpu.limits.mma_share
    return rate


def _l2_bytes(run: Run) -> int:
    """Bytes that pass between the SMs and the L2: each block's tiles once, or the sectors asked for if fewer."""
    (m, n, k), (bm, bn, _) = run.size, run.ir.tile
    loads = [a for a in run.counts.accesses if (a.space, a.op) == ("global", "load")]
    a, b, _ = items_of(run.ir)
    late = {"C", *beside_bytes(run.ir, run.size)}
    tiles = k * (a * m * -(-n // bn) + b * n * -(-m // bm))
    boxes = run.counts.total("tma", "load").bytes_used
    inputs = min(tiles, boxes + SECTOR * sum(a.cost.sectors for a in loads if a.operand not in late))
    rest = sum(a.cost.sectors for a in loads if a.operand in late) + run.counts.total("global", "store").sectors
    return inputs + SECTOR * rest


def _waiting_s(run: Run, waits: Waits) -> float:
    """Seconds that the run takes with its waits."""
    if not run.blocks or not run.fits.blocks_per_sm:
        return 0.0
    step, steps = block_step(run)
    clocks = run_clocks(step, steps, run.blocks, run.gpu.sms, run.fits.blocks_per_sm, waits)
    if run.spread:
        clocks *= min(1.0, run.blocks / run.gpu.sms)
    early = run.launches // 2 if any(ir.arriving for ir in run.ir.kernels) else 0
    launches = waits.launch_s + (run.launches - 1 - early) * waits.next_launch_s + early * waits.early_launch_s
    return clocks / run.gpu.clock_hz + launches


def block_step(run: Run) -> tuple[Step, int]:
    """One step of one block, and how many a block takes: the one that computes most tiles of C."""
    ir, limits = run.ir, run.gpu.limits
    bm, bn, bk = ir.tile
    deep = max(1, bk) if ir.shared else LOADS_AHEAD
    steps = max(1, -(-run.counts.products // (run.computed * bm * bn * deep)))
    turns = run.computed * steps
    warps = -(-ir.threads // WARP)
    issue = run.issue_clocks / turns / limits.schedulers
    lanes = run.counts.fma / turns / limits.fp32_lanes
    lanes += _tensor_s(run) * run.gpu.sms * run.gpu.clock_hz / turns
    return Step(
        issue=issue * limits.schedulers / warps * -(-warps // limits.schedulers),
        issue_shared=max(issue, lanes),
        traffic=(run.shared_clocks + run.l1_clocks) / turns,
        fragments=bk if ir.shared and not ir.pipeline.fetches_ahead else 0,
        warps=warps / limits.schedulers,
        shared=bool(ir.shared),
        ahead=ir.pipeline.ahead,
    ), steps * -(-run.computed // run.blocks)
