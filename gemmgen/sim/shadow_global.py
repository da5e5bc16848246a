"""Shadow of a global matrix that the kernel writes: no two threads touch an element unless a barrier orders them, or
both add to it atomically."""

from __future__ import annotations

import numpy as np

from gemmgen.sim.clock import Clock
from gemmgen.sim.count import Site
from gemmgen.sim.lanes import Batch, Bools, Ints
from gemmgen.sim.shadow import Reporter, Touch, touched

NONE = -1


class _Mark:
    """Who touched each unit last, and when: threads numbered through the grid."""

    def __init__(self, units: int) -> None:
        self.who: Ints = np.full(units, NONE, np.int64)
        self.stamp = np.zeros(units, np.int32)

    def late(self, units: Ints, me: Ints, threads: int, floor: int) -> Bools:
        """Where another thread touched a unit with nothing that orders it before now."""
        who = self.who[units]
        ordered = (who // threads == me // threads) & (self.stamp[units] <= floor)
        found: Bools = (who != NONE) & (who != me) & ~ordered
        return found

    def enter(self, units: Ints, me: Ints, now: int) -> Bools:
        """Enter the threads; where two touch one unit at once, true for those that were lost."""
        self.who[units] = me
        self.stamp[units] = now
        lost: Bools = self.who[units] != me
        return lost


class GlobalShadow:
    """Blocks are never ordered; threads of one block are by ``__syncthreads``. It outlives the batches.

    Accesses that may clash with others but not with one another, reads and atomic additions, are kept as two marks:
    two different threads are enough to find a clash with any other one.
    """

    def __init__(self, units: int, report: Reporter) -> None:
        self.units = units
        self.report = report
        self.writer = _Mark(units)
        self.readers: tuple[_Mark, _Mark] | None = None
        self.adders: tuple[_Mark, _Mark] | None = None
        self.batch: Batch | None = None
        self.clock: Clock | None = None

    def start(self, batch: Batch, clock: Clock) -> None:
        self.batch, self.clock = batch, clock

    def read(self, t: Touch) -> None:
        units, lanes, me = self._where(t)
        self._check(t.site, units, lanes, me, (self.writer,), "writes")
        self._check(t.site, units, lanes, me, self.adders, "adds to")
        self.readers = self._noted(self.readers, units, me)

    def write(self, t: Touch) -> None:
        units, lanes, me = self._where(t)
        self._check(t.site, units, lanes, me, (self.writer,), "writes")
        self._check(t.site, units, lanes, me, self.readers, "reads")
        if t.atomic:
            self.adders = self._noted(self.adders, units, me)
            return
        self._check(t.site, units, lanes, me, self.adders, "adds to")
        assert self.clock is not None
        lost = self.writer.enter(units, me, self.clock.now)
        self._blame(t.site, lost, self.writer, units, lanes, "writes")

    def settle(self) -> None:
        """Nothing is kept that a barrier would end."""

    def _where(self, t: Touch) -> tuple[Ints, Ints, Ints]:
        assert self.batch is not None
        units, lanes = touched(t, self.batch, 0)
        return units, lanes, np.broadcast_to(self.batch.gid[lanes], units.shape)

    def _noted(self, marks: tuple[_Mark, _Mark] | None, units: Ints, me: Ints) -> tuple[_Mark, _Mark]:
        """The marks with these threads in them, as far as two marks go."""
        first, second = marks = marks or (_Mark(self.units), _Mark(self.units))
        assert self.clock is not None
        other = self._late(first, units, me)
        if other.any():
            second.enter(units[other], me[other], self.clock.now)
        lost = first.enter(units[~other], me[~other], self.clock.now)
        if lost.any():
            second.enter(units[~other][lost], me[~other][lost], self.clock.now)
        return marks

    def _check(
        self, site: Site, units: Ints, lanes: Ints, me: Ints, marks: tuple[_Mark, ...] | None, verb: str
    ) -> None:
        """Blame this access for a clash with those of the marks."""
        for mark in marks or ():
            self._blame(site, self._late(mark, units, me), mark, units, lanes, verb)

    def _late(self, mark: _Mark, units: Ints, me: Ints) -> Bools:
        assert self.batch is not None and self.clock is not None
        return mark.late(units, me, self.batch.threads, self.clock.floor)

    def _blame(self, site: Site, late: Bools, mark: _Mark, units: Ints, lanes: Ints, verb: str) -> None:
        if not late.any():
            return
        assert self.batch is not None
        row, column = np.unravel_index(int(np.argmax(late)), late.shape)
        unit = int(units[row, column])
        number, thread = divmod(int(mark.who[unit]), self.batch.threads)
        block = tuple(int(i) for i in self.batch.place(np.asarray(number)))
        self.report("race", site, int(lanes[column]), unit, f"thread {thread} of block {block} {verb} it too")
