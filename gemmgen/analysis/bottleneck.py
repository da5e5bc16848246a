"""The bottleneck of a kernel: its name and its cost. Every label and sentence that names it takes the name from here.

Where a memory limits the kernel, the bottleneck is that memory, and its cost is the time the memory is busy. Where
instruction issue or exposed latency limits it, that says little: nearly every fast kernel issues all the time. The
model then removes one cause at a time and computes the time again. The cause whose removal saves most is the
bottleneck, and what it saves is its cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, assert_never, get_args

from gemmgen.analysis.counts import Counts
from gemmgen.analysis.latency import WAITS, Waits
from gemmgen.analysis.model import Run, bounds
from gemmgen.analysis.sass import MainLoop

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation

RESOURCES = {
    "compute": "FP32 arithmetic", "tensor": "tensor cores", "issue": "instruction issue",
    "shared": "shared-memory bandwidth", "l1": "L1 tag lookups", "l2": "L2 bandwidth", "dram": "DRAM bandwidth",
    "latency": "exposed latency",
}  # fmt: skip
"""The name of each resource in every message."""

Cause = Literal["instructions", "ports", "fragments", "loads", "shared", "l1", "idle", "launch"]

CAUSES: dict[str, str] = {
    "instructions": "non-FMA instructions",
    "ports": "register-bank conflicts",
    "fragments": "shared-memory latency",
    "loads": "global-memory latency",
    "shared": "shared-memory bandwidth",
    "l1": "L1 tag lookups",
    "idle": "idle SMs",
    "launch": "launch overhead",
}
"""What a kernel can lose time to, beyond the time that its FMAs need."""

MEANS: dict[str, str] = {
    "instructions": "instructions that are not FMAs take issue slots",
    "ports": "an FMA stalls when its source registers are in the same register bank",
    "fragments": "at each step along k, FMAs stall until their operands arrive from shared memory",
    "loads": "warps stall until a tile arrives from global memory, and no other warp has work",
    "shared": "the shared-memory banks are busy while the schedulers stall",
    "l1": "L1 looks up the lines of global accesses while the schedulers stall",
    "idle": "there are fewer blocks than SMs, so some SMs have no work",
    "launch": "fixed launch overhead, whatever the size of the product",
}
LEAST = 0.02
"""A cause that costs less than this share of the expected time is ignored: the kernel is then limited by arithmetic."""
_PRODUCTS_ONLY = MainLoop(0, 0, 1, 1, {}, 0, 1.0, 0)
"""A main loop of FMAs only, for a kernel that was not compiled."""


@dataclass(frozen=True)
class Bottleneck:
    """What limits a kernel. ``resource`` is a key of RESOURCES, as in ``Bounds.by``; ``cause`` is a key of CAUSES,
    empty where the resource is the whole answer. ``seconds`` is its part of the expected time ``total_s``."""

    resource: str
    cause: str
    seconds: float
    total_s: float

    @property
    def name(self) -> str:
        """The name in every label and sentence: "instruction issue (register-bank conflicts)"."""
        first = RESOURCES[self.resource]
        return f"{first} ({CAUSES[self.cause]})" if self.cause else first

    @property
    def short(self) -> str:
        """The cause, else the resource: what the next kernel has to reduce."""
        return CAUSES[self.cause] if self.cause else RESOURCES[self.resource]

    @property
    def share(self) -> float:
        """Share of the expected time."""
        return self.seconds / self.total_s if self.total_s else 0.0

    def to_dict(self) -> dict[str, str | float]:
        """The ``bottleneck`` of ``explain --json``."""
        return {"name": self.name, "seconds": self.seconds, "share": self.share}


def bottleneck(e: Explanation) -> Bottleneck:
    """The bottleneck of a kernel by the model."""
    by, total = e.bound.by, e.bound.total_s
    if by in ("compute", "issue", "latency") and total:
        found = costs(e)
        cause = max(found, key=found.__getitem__)
        if found[cause] >= LEAST * total:
            # FMAs need issue slots too, so whatever takes time beyond them is lost to instruction issue.
            return Bottleneck("issue" if by == "compute" else by, cause, found[cause], total)
    return Bottleneck(by, "", e.bound.seconds(by), total)


def cost_of(e: Explanation, of: Bottleneck) -> float:
    """Seconds that a bottleneck, of this kernel or another, costs this kernel."""
    return costs(e)[of.cause] if of.cause else e.bound.seconds(of.resource)


def costs(e: Explanation) -> dict[str, float]:
    """Seconds that removing each cause alone would save. They overlap, so they do not add up to the total."""
    found: dict[str, float] = {}
    for cause in get_args(Cause):
        run, waits = _without(cause, e.run)
        found[cause] = max(0.0, e.bound.total_s - bounds(run, waits).total_s)
    return found


def _without(cause: Cause, run: Run) -> tuple[Run, Waits]:
    """The run and the latency constants with one cause removed."""
    loop = run.loop or _PRODUCTS_ONLY
    match cause:
        case "instructions":
            return replace(run, loop=replace(loop, instructions=loop.ffma)), WAITS
        case "ports":
            return replace(run, loop=run.loop and replace(run.loop, port_cycles=float(run.loop.ffma))), WAITS
        case "shared":
            return replace(run, counts=_counts_with(run.counts, merged_wavefronts=0)), WAITS
        case "l1":
            return replace(run, counts=_counts_with(run.counts, lines=0)), WAITS
        case "fragments":
            return run, replace(WAITS, fragment=0)
        case "loads":
            return run, replace(WAITS, step=0, direct=0)
        case "idle":
            return replace(run, spread=True), WAITS
        case "launch":
            return run, replace(WAITS, launch_s=0)
        case _:
            assert_never(cause)


def _counts_with(counts: Counts, **figures: int) -> Counts:
    """The counts with some figures of every access replaced."""
    return replace(counts, accesses=tuple(replace(a, cost=replace(a.cost, **figures)) for a in counts.accesses))
