"""Global arrays that the kernel before may still be writing, where a kernel is launched while that one runs."""

from __future__ import annotations

import numpy as np

from gemmgen.sim.clock import Clock
from gemmgen.sim.lanes import Active, Batch, Bools
from gemmgen.sim.shadow import Reporter, Touch, touched
from gemmgen.sim.shadow_global import GlobalShadow

EARLY = "the kernel before may still be writing it: this thread has not waited for that kernel's end"


class ArrivingShadow:
    """Shadow of such an array: a thread may use it once it has waited for the end of the kernel before.

    The simulator runs launches one after another, so that the values are there in any case; what a thread may know is
    kept for each by itself. Threads of a block need not wait for one another: the wait makes all visible to who waits.
    ``within`` is the shadow for what the kernel's own threads do to one another, where it writes the array.
    """

    def __init__(self, report: Reporter, within: GlobalShadow | None = None) -> None:
        self.report = report
        self.within = within
        self.batch: Batch | None = None
        self.waited: Bools = np.zeros(0, np.bool_)

    def start(self, batch: Batch, clock: Clock) -> None:
        """None of the threads of a new batch has waited."""
        self.batch, self.waited = batch, np.zeros(batch.lanes, np.bool_)
        if self.within is not None:
            self.within.start(batch, clock)

    def wait(self, active: Active) -> None:
        """The active lanes have waited."""
        self.waited[slice(None) if active is None else active.array] = True

    def read(self, t: Touch) -> None:
        self._check(t)
        if self.within is not None:
            self.within.read(t)

    def write(self, t: Touch) -> None:
        self._check(t)
        if self.within is not None:
            self.within.write(t)

    def settle(self) -> None:
        """Nothing that a barrier would end."""

    def _check(self, t: Touch) -> None:
        assert self.batch is not None
        units, lanes = touched(t, self.batch, 0)
        early = ~self.waited[lanes]
        if early.any():
            column = int(np.argmax(early))
            self.report("async", t.site, int(lanes[column]), int(units[0, column]), EARLY)
