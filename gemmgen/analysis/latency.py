"""What waiting adds: how long a product takes when its loads, barriers and warps are looked at in time.

A block walks along K in steps. Alone on a multiprocessor, a step takes the instructions its schedulers issue, the part
of its shared and L1 traffic that does not overlap with them (the warps of a block load and multiply at the same time,
since a barrier holds them together), the wait for its loads from global memory, and the waits for fragments from shared
memory, which the other warps of a scheduler fill. Blocks that share a multiprocessor fill one another's waits, but not
wholly: what they take together lies above both what one takes alone and what the busiest resource needs for all.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waits:
    """The constants of the model. ``step`` and ``direct``: clocks that a step waits for global memory, through shared
    memory and its barriers or straight into registers. ``fragment``: clocks that a step along k waits for shared memory
    where a scheduler has one warp. ``apart``: the part of the lesser of issue and traffic that adds to the greater.
    ``sharpness``: how well blocks fill one another's waits (infinite: wholly). ``launch_s``: seconds a launch takes,
    ``next_launch_s``: what each further one of the same product adds, ``early_launch_s`` one that is launched while
    the one before it runs.
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
calibration.json): of the constants that fit about as well as the best, those that put the ladder's rungs in their
order. The median error is 7%."""


@dataclass(frozen=True)
class Step:
    """One step of one block: clocks of its ``issue`` on the schedulers it has warps for and ``issue_shared`` where all
    schedulers share it, clocks of shared and L1 ``traffic``, steps along k that fetch ``fragments`` without having
    asked for them ahead, warps a scheduler, whether tiles go through ``shared`` memory, and tiles ``ahead`` on their
    way while one is multiplied."""

    issue: float
    issue_shared: float
    traffic: float
    fragments: int
    warps: float
    shared: bool
    ahead: int = 0

    @property
    def busy(self) -> float:
        """Clocks that the step keeps its multiprocessor's busiest resource."""
        return max(self.issue_shared, self.traffic)

    def alone(self, w: Waits) -> float:
        """Clocks that it takes with no other block beside it."""
        work = max(self.issue, self.traffic) + w.apart * min(self.issue, self.traffic)
        wait = max(0.0, (w.step if self.shared else w.direct) - self.ahead * work)
        return work + wait + w.fragment * self.fragments / max(1.0, self.warps)

    def together(self, blocks: int, w: Waits) -> float:
        """Clocks that it takes ``blocks`` blocks side by side."""
        if blocks == 0:
            return 0.0
        p = w.sharpness
        return float((self.alone(w) ** p + (blocks**p - 1) * self.busy**p) ** (1 / p))


def run_clocks(step: Step, steps: int, blocks: int, sms: int, resident: int, w: Waits = WAITS) -> float:
    """Clocks of a launch of ``blocks`` blocks of ``steps`` steps on ``sms`` multiprocessors that hold ``resident``
    each: those of the one that gets most."""
    most = -(-blocks // sms)
    rounds, rest = divmod(most, min(resident, most))
    return steps * (rounds * step.together(min(resident, most), w) + step.together(rest, w))
