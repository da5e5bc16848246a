"""The bottleneck of a kernel by name, with what it costs: the one source of every label and sentence that names it.

Where a memory binds, the bottleneck is that memory, and its cost the time it is busy. Where instruction issue binds, or
waiting, that says little: nearly every fast kernel issues all the time. What it loses issue slots to is then found by
taking one cause away at a time and modelling the product again; the cause without which it would be fastest is named,
with what that would save.
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
    "compute": "arithmetic", "tensor": "tensor cores", "issue": "instruction issue", "shared": "shared memory",
    "l1": "look-ups in L1", "l2": "traffic to the L2", "dram": "DRAM bandwidth", "latency": "waiting",
}  # fmt: skip
"""What the bound of a resource is called, everywhere."""

Cause = Literal["instructions", "ports", "fragments", "loads", "shared", "l1", "idle", "launch"]

CAUSES: dict[str, str] = {
    "instructions": "other instructions",
    "ports": "register ports",
    "fragments": "latency of shared memory",
    "loads": "latency of global memory",
    "shared": "shared memory",
    "l1": "look-ups in L1",
    "idle": "idle multiprocessors",
    "launch": "the launch itself",
}
"""What a kernel can lose time to that its multiply-adds do not need."""

MEANS: dict[str, str] = {
    "instructions": "instructions that are not multiply-adds take issue slots from those that are",
    "ports": "a multiply-add waits where its operands lie in the same register bank",
    "fragments": "at each step along k, its operands are on their way from shared memory",
    "loads": "a tile is on its way from global memory, and nothing else fills the time",
    "shared": "the banks are busy while the schedulers are not",
    "l1": "global accesses are looked up while the schedulers wait",
    "idle": "there are fewer blocks than SMs, and some have nothing to do",
    "launch": "a launch takes as long however little is to be done",
}
LEAST = 0.02
"""A cause that costs less than this of the expected time is none: what is left is arithmetic."""
_PRODUCTS_ONLY = MainLoop(0, 0, 1, 1, {}, 0, 1.0, 0)
"""A main loop with nothing in it but multiply-adds, for a kernel that was not compiled."""


@dataclass(frozen=True)
class Bottleneck:
    """What holds a kernel back. ``resource`` is what binds, as in ``Bounds.by``; ``cause`` the key in CAUSES of what it
    is lost to, empty where the resource says it all. ``seconds`` are what it costs of the ``total_s`` expected."""

    resource: str
    cause: str
    seconds: float
    total_s: float

    @property
    def name(self) -> str:
        """As every label and sentence has it: "shared memory", "instruction issue: register ports"."""
        first = RESOURCES[self.resource]
        return f"{first}: {CAUSES[self.cause]}" if self.cause else first

    @property
    def short(self) -> str:
        """The last part of the name: what the next kernel would have to lower."""
        return CAUSES[self.cause] if self.cause else RESOURCES[self.resource]

    @property
    def share(self) -> float:
        """Part of the expected time."""
        return self.seconds / self.total_s if self.total_s else 0.0

    def to_dict(self) -> dict[str, str | float]:
        """As in the JSON of ``explain``."""
        return {"name": self.name, "seconds": self.seconds, "share": self.share}


def bottleneck(e: Explanation) -> Bottleneck:
    """The bottleneck of a kernel as modelled."""
    by, total = e.bound.by, e.bound.total_s
    if by in ("compute", "issue", "latency") and total:
        found = costs(e)
        cause = max(found, key=found.__getitem__)
        if found[cause] >= LEAST * total:
            # A loop of multiply-adds alone needs its issue slots: what takes time beyond them is lost there.
            return Bottleneck("issue" if by == "compute" else by, cause, found[cause], total)
    return Bottleneck(by, "", e.bound.seconds(by), total)


def cost_of(e: Explanation, of: Bottleneck) -> float:
    """Seconds that a bottleneck, of this kernel or another, costs this kernel."""
    return costs(e)[of.cause] if of.cause else e.bound.seconds(of.resource)


def costs(e: Explanation) -> dict[str, float]:
    """For each cause the seconds by which the expected time would be less without it. They overlap: what one leaves
    idle another may use, so that together they need not add up."""
    found: dict[str, float] = {}
    for cause in get_args(Cause):
        run, waits = _without(cause, e.run)
        found[cause] = max(0.0, e.bound.total_s - bounds(run, waits).total_s)
    return found


def _without(cause: Cause, run: Run) -> tuple[Run, Waits]:
    """The run, and the constants of waiting, with one cause taken away."""
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
