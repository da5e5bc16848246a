"""Exposed latency: the time that loads, barriers and too few resident warps add to a product.

A block walks along K in steps. Alone on an SM, a step takes: the issue slots of its instructions; the part of its
shared and L1 traffic that does not overlap with them (a barrier keeps the warps of a block in step, so they load at the
same time and multiply at the same time); the latency of its loads from global memory; and the latency of fragments from
shared memory, which the other warps of a scheduler hide. Blocks on the same SM hide part of one another's latency:
together they take longer than one block alone, and longer than the busiest resource needs for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waits:
    """The constants of the model. ``step`` and ``direct``: clocks of global-memory latency per step, through shared
    memory and its barriers, or straight into registers. ``fragment``: clocks of shared-memory latency per step along k
    where a scheduler has one warp. ``apart``: the share of the smaller of issue and traffic that adds to the larger.
    ``sharpness``: how well blocks hide one another's latency (infinite: completely). ``launch_s``: seconds per launch;
    ``next_launch_s``: seconds per further launch of the same product; ``early_launch_s``: the same for a kernel that is
    launched while the one before it runs.
    """

    step: float = 550
    direct: float = 167
    fragment: float = 41
    apart: float = 0.4
    sharpness: float = 2.5
    launch_s: float = 3.2e-6
    next_launch_s: float = 2.0e-6
    early_launch_s: float = 0.5e-6


WAITS = Waits()
"""Fitted to 41 specs outside the ladder at 2048^3 and 768^3 on an H200 (tests/gpu/calibrate.py, generated/h200/
calibration.json): among the constants that fit nearly best, those that order the ladder's rungs as measured. The median
error is 7%."""


@dataclass(frozen=True)
class Step:
    """One step of one block: clocks of its ``issue`` on the schedulers that have warps of it, and ``issue_shared``
    where all schedulers share it; clocks of shared and L1 ``traffic``; steps along k that load ``fragments`` without
    prefetch; warps per scheduler; whether tiles go through ``shared`` memory; tiles ``ahead`` in flight while one is
    multiplied."""

    issue: float
    issue_shared: float
    traffic: float
    fragments: int
    warps: float
    shared: bool
    ahead: int = 0

    @property
    def busy(self) -> float:
        """Clocks for which the step occupies the SM's busiest resource."""
        return max(self.issue_shared, self.traffic)

    def alone(self, w: Waits) -> float:
        """Clocks of the step with no other block on the SM."""
        work = max(self.issue, self.traffic) + w.apart * min(self.issue, self.traffic)
        wait = max(0.0, (w.step if self.shared else w.direct) - self.ahead * work)
        return work + wait + w.fragment * self.fragments / max(1.0, self.warps)

    def together(self, blocks: int, w: Waits) -> float:
        """Clocks of the step for ``blocks`` blocks on the same SM."""
        if blocks == 0:
            return 0.0
        p = w.sharpness
        return float((self.alone(w) ** p + (blocks**p - 1) * self.busy**p) ** (1 / p))


def run_clocks(step: Step, steps: int, blocks: int, sms: int, resident: int, w: Waits = WAITS) -> float:
    """Clocks of a launch of ``blocks`` blocks of ``steps`` steps on ``sms`` SMs with ``resident`` blocks per SM: those
    of the SM that gets the most blocks."""
    most = -(-blocks // sms)
    rounds, rest = divmod(most, min(resident, most))
    return steps * (rounds * step.together(min(resident, most), w) + step.together(rest, w))
