"""Shadow memory: who wrote and read each unit of shared memory last, and when.

A unit is the smallest element that lies in the memory: two threads that use different 16-bit elements of one 32-bit
word do not clash, unless another array of the same memory has larger elements there.

Writes are entered as they happen. Reads are only noted, and entered when a write comes that they may clash with:
in a right program a barrier comes first and the notes are dropped.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.types import WARP
from gemmgen.sim.clock import IN_FLIGHT, Clock
from gemmgen.sim.count import Site
from gemmgen.sim.faults import FaultKind
from gemmgen.sim.lanes import Active, Batch, Bools, Ints
from gemmgen.sim.values import Part

Threads = NDArray[np.int32]
SEVERAL = -1
NOTED = 4096
"""Reads noted before they are entered, so that a long stretch without a barrier takes bounded memory."""


class Touch(NamedTuple):
    """An access by the active lanes: ``width`` elements from ``part + offset``, of their own block's shared memory or
    of that of their cluster's block number ``rank``. ``atomic``: a write that adds to what is there, in one go.
    ``scale``: units of an element."""

    site: Site
    part: Part
    offset: int
    active: Active
    rank: int | None = None
    atomic: bool = False
    scale: int = 1


class Reporter(Protocol):
    """Takes a fault at a unit; ``lane`` is the lane of the batch that it is blamed on."""

    def __call__(self, kind: FaultKind, site: Site, lane: int, unit: int, other: str = "") -> None: ...


class Shadow(Protocol):
    """What checks the accesses to a memory for races."""

    def read(self, t: Touch) -> None: ...

    def write(self, t: Touch) -> None: ...

    def settle(self) -> None: ...


def touched(t: Touch, batch: Batch, block_units: int) -> tuple[Ints, Ints]:
    """Units [width, n] of an access and the n lanes that make it."""
    first = t.part.array + t.offset
    if t.scale != 1:
        first = first * t.scale
    if block_units:
        first = first + batch.blocks_of(t.rank) * block_units
    lanes = np.arange(batch.lanes) if t.active is None else np.flatnonzero(t.active.array)
    return first[lanes][None, :] + np.arange(t.site.width * t.scale, dtype=np.int64)[:, None], lanes


def units_of(elements: Ints, scale: int) -> Ints:
    """The units [n * scale, lanes] of elements [n, lanes]."""
    if scale == 1:
        return elements
    units: Ints = elements[:, None, :] * scale + np.arange(scale, dtype=np.int64)[None, :, None]
    return units.reshape(-1, elements.shape[1])


class SharedShadow:
    """Shadow of one shared array over all blocks of a batch; or of several whose memory is the same (``several``): then
    what one of them left is nothing that another may read."""

    def __init__(
        self, batch: Batch, clock: Clock, block_units: int, sites: list[Site], report: Reporter, several: bool = False
    ) -> None:
        total = batch.blocks * block_units
        self.batch, self.clock, self.block_units = batch, clock, block_units
        self.sites, self.report, self.several = sites, report, several
        self.foreign: ForeignReads | None = None
        self.stamp = np.zeros(total, np.int32)
        self.writer: Threads = np.zeros(total, np.int32)
        self.site = np.zeros(total, np.int16)
        self.last_write = 0
        self.complete = False
        self.in_flight = 0
        self._noted: list[tuple[int, Touch]] = []
        self._readers: Readers | None = None
        self._used: NDArray[np.int16] | None = None
        self._unfenced: list[tuple[int, Touch]] | None = None
        """Reads that no fence puts before what the TMA engine writes, once it has written here."""

    def read(self, t: Touch) -> None:
        """Check a read against what was written, and note it."""
        if t.rank is not None:
            self._read_of_others(t)
            return
        if not (self.complete and self.last_write <= self.clock.floor):
            self._check_read(t)
        self._noted.append((self.clock.now, t))
        if len(self._noted) > NOTED:
            self._enter()
        if self._unfenced is not None and len(self._unfenced) < NOTED:
            self._unfenced.append((self.clock.now, t))

    def write(self, t: Touch) -> None:
        """Check a write against what was written and read, and enter it."""
        units, lanes = touched(t, self.batch, self.block_units)
        self._check_written(t.site, units, lanes)
        self._check_readers(t.site, units, lanes)
        self.stamp[units] = self.clock.now
        self._enter_writer(t, units, lanes)
        self.last_write = max(self.last_write, self.clock.now)

    def settle(self) -> None:
        """All threads have met: reads made before cannot clash with what comes."""
        self._noted = [x for x in self._noted if x[0] > self.clock.floor]
        if not self.complete and not self.several:
            self.complete = bool(self.stamp.all())

    def check(self, t: Touch) -> None:
        """Check an access that orders itself with others of its kind, only against what was written."""
        if not (self.complete and self.last_write <= self.clock.floor):
            self._check_read(t)

    def launch(self, site: Site, units: Ints, lanes: Ints, engine: int) -> None:
        """An asynchronous engine starts writing units [width, n] for n lanes; they are no one's to touch until
        :meth:`land`."""
        self._check_written(site, units, lanes)
        self._check_readers(site, units, lanes)
        if engine:
            self._check_fenced(site, units, lanes)
        self.stamp[units] = IN_FLIGHT
        self.writer[units] = self.clock.engine(engine)
        self.site[units] = site.number
        self.last_write = IN_FLIGHT
        self.in_flight += units.size

    def land(self, units: Ints, writers: Threads | int) -> None:
        """Units in flight have arrived; from now they count as written by these threads (or by an engine)."""
        self.stamp[units] = self.clock.now
        self.writer[units] = writers
        self.in_flight -= units.size
        self.last_write = self.clock.now if self.in_flight <= 0 else IN_FLIGHT

    def use(self, site: Site, units: Ints, lanes: Ints) -> None:
        """An instruction starts to read units [n, lanes]: nothing may write them until :meth:`end_use`."""
        missing = self.stamp[units] == 0
        if missing.any():
            lane, unit = _first(missing, units, lanes)
            self.report("uninitialized", site, lane, unit, "nothing wrote it")
        self._check_written(site, units, lanes)
        if self._used is None:
            self._used = np.zeros(self.stamp.size, np.int16)
        np.add.at(self._used, units, 1)

    def unfenced(self, units: Ints, lanes: Ints) -> bool:
        """Whether a thread's write of some of the units has no fence behind it that shows it to engines."""
        warp = np.minimum(self.writer[units] // WARP, self.batch.warps_per_block - 1)
        own = self.writer[units] < WARP * self.batch.warps_per_block
        late = own & (self.stamp[units] > self.clock.fences[self.batch.block[lanes][None, :], warp])
        return bool(late.any())

    def _check_fenced(self, site: Site, units: Ints, lanes: Ints) -> None:
        """The TMA engine writes by a path of its own: reads before it have a fence behind them."""
        fences, self._unfenced = self.clock.fences, [x for x in self._unfenced or () if x[0] > self.clock.fences.min()]
        if not self._unfenced:
            return
        written = np.zeros(self.stamp.size, np.bool_)
        written[units] = True
        for stamp, t in self._unfenced:
            read, by = touched(t, self.batch, self.block_units)
            late = stamp > fences[self.batch.block[by], self.batch.thread[by] // WARP]
            if (wrong := written[read] & late).any():
                lane, unit = _first(wrong, read, by)
                other = f"no fence_async puts the read of thread {int(self.batch.thread[lane])} before it"
                self.report("async", site, int(lanes[0]), unit, other)
                return

    def end_use(self, units: Ints, lanes: Ints, warps: int = 1) -> None:
        """They have been read, as by these lanes now and those of the same number in the ``warps`` from theirs on."""
        assert self._used is not None
        np.subtract.at(self._used, units, 1)
        if self._readers is None:
            self._readers = Readers(self.batch, self.clock, self.stamp.size)
        for w in range(warps):
            self._readers.enter(self.clock.now, units, lanes + WARP * w)

    def _check_read(self, t: Touch) -> None:
        units, lanes = touched(t, self.batch, self.block_units)
        missing = self.stamp[units] == 0
        if missing.any():
            lane, unit = _first(missing, units, lanes)
            self.report("uninitialized", t.site, lane, unit, "nothing wrote it")
        if self.several:
            self._check_whose(t.site, units, lanes, missing)
        self._check_written(t.site, units, lanes)

    def _check_whose(self, site: Site, units: Ints, lanes: Ints, missing: Bools) -> None:
        """What another array of the same memory left is not this one's."""
        theirs = np.array([s.buffer != site.buffer for s in self.sites], np.bool_)[self.site[units]] & ~missing
        if theirs.any():
            lane, unit = _first(theirs, units, lanes)
            left = self.sites[int(self.site[unit])].buffer
            self.report("uninitialized", site, lane, unit, f"nothing wrote it since {left} lay there")

    def _read_of_others(self, t: Touch) -> None:
        """A read of the shared memory of a cluster's blocks, in which the lanes' own block is one of them."""
        units, lanes = touched(t, self.batch, self.block_units)
        own = self.batch.blocks_of(t.rank)[lanes] == self.batch.block[lanes]
        missing = self.stamp[units] == 0
        if missing.any():
            lane, unit = _first(missing, units, lanes)
            self.report("uninitialized", t.site, lane, unit, "nothing wrote it")
        self._check_whose(t.site, units, lanes, missing)
        self._check_written(t.site, units[:, own], lanes[own])
        units, lanes = units[:, ~own], lanes[~own]
        late = (self.stamp[units] > self.clock.met[self.batch.block[lanes]]) & (self.stamp[units] > 0)
        if late.any():
            lane, unit = _first(late, units, lanes)
            other = f"thread {int(self.writer[unit])} of another block writes it{self._line(unit)}"
            self.report("race", t.site, lane, unit, f"{other}, with no barrier of the cluster between")
        if self.foreign is None:
            self.foreign = ForeignReads(self.stamp.size)
        self.foreign.enter(t.site, self.clock.now, units, lanes)

    def end(self) -> None:
        """The blocks end, and their memory with them."""
        if self._used is not None and (used := self._used > 0).any():
            unit = int(np.argmax(used))
            lane = unit // self.block_units * self.batch.threads
            other = "the block ends while an asynchronous product or store still reads it"
            self.report("async", self.sites[int(self.site[unit])], lane, unit, other)
        if self.foreign is None:
            return
        block = np.arange(self.stamp.size) // self.block_units
        late = self.foreign.stamp > self.clock.met[block]
        if late.any():
            unit = int(np.argmax(late))
            site, lane = self.sites[int(self.foreign.site[unit])], int(self.foreign.lane[unit])
            other = "the block that has it may end before, with no barrier of the cluster between"
            self.report("race", site, lane, unit, other)

    def _check_written(self, site: Site, units: Ints, lanes: Ints) -> None:
        if self.last_write <= self.clock.floor:
            return
        stamps, writers = self.stamp[units], self.writer[units]
        late = self.clock.late(stamps, lanes, writers)
        if not late.any():
            return
        flying = late & (stamps == IN_FLIGHT)
        if flying.any():
            lane, unit = _first(flying, units, lanes)
            self.report("async", site, lane, unit, f"the asynchronous copy{self._line(unit)} has not been waited for")
        late &= ~flying
        if late.any():
            lane, unit = _first(late, units, lanes)
            self.report("race", site, lane, unit, self._wrote(unit))

    def _check_readers(self, site: Site, units: Ints, lanes: Ints) -> None:
        if self._noted:
            own = units - self.batch.block[lanes] * self.block_units
            self._enter(int(own.min()), int(own.max()))
        if self.foreign is not None:
            late = self.foreign.stamp[units] > self.clock.met[self.batch.block[lanes]]
            if late.any():
                lane, unit = _first(late, units, lanes)
                other = f"thread {int(self.batch.thread[self.foreign.lane[unit]])} of another block reads it"
                self.report("race", site, lane, unit, f"{other}, with no barrier of the cluster between")
        if self._used is not None and (used := self._used[units] > 0).any():
            lane, unit = _first(used, units, lanes)
            self.report("async", site, lane, unit, "an asynchronous product that has not been waited for reads it")
        if self._readers is None:
            return
        found = self._readers.clash(units, lanes)
        if found is not None:
            lane, unit, reader = found
            who = "several threads read" if reader == SEVERAL else f"thread {reader} reads"
            self.report("race", site, lane, unit, f"{who} it, with no barrier between")

    def _enter_writer(self, t: Touch, units: Ints, lanes: Ints) -> None:
        """Enter the writing threads; two lanes of one access that write the same unit race."""
        thread = np.broadcast_to(self.batch.thread[lanes].astype(np.int32), units.shape)
        self.writer[units] = thread
        self.site[units] = t.site.number
        key = ("apart", t.site.width, t.active, self.block_units)
        if key in t.part.memo:
            return
        clash = self.writer[units] != thread
        if clash.any():
            lane, unit = _first(clash, units, lanes)
            self.report("race", t.site, lane, unit, f"thread {int(self.writer[unit])} writes it in the same access")
        elif t.active is None or t.active.lasting:
            t.part.memo[key] = True

    def _enter(self, first: int = 0, last: int | None = None) -> None:
        """Enter the noted reads that touch some of the units ``first`` .. ``last`` of a block (None: of any)."""
        apart: list[tuple[int, Touch]] = []
        for stamp, t in self._noted:
            if stamp <= self.clock.floor:
                continue
            lo, hi = (t.part.lo + t.offset) * t.scale, (t.part.hi + t.offset + t.site.width) * t.scale - 1
            if hi < first or (last is not None and lo > last):  # another stage of the buffer, as a rule
                apart.append((stamp, t))
                continue
            if self._readers is None:
                self._readers = Readers(self.batch, self.clock, self.stamp.size)
            self._readers.enter(stamp, *touched(t, self.batch, self.block_units))
        self._noted = apart

    def _wrote(self, unit: int) -> str:
        return f"thread {int(self.writer[unit])} writes it{self._line(unit)}, with no barrier between"

    def _line(self, unit: int) -> str:
        line = self.sites[int(self.site[unit])].line
        return "" if line is None else f" (spec line {line})"


class Readers:
    """The last read of every unit by every warp: its stamp, and which thread (or SEVERAL)."""

    def __init__(self, batch: Batch, clock: Clock, units: int) -> None:
        self.batch, self.clock = batch, clock
        self.stamp = np.zeros((batch.warps_per_block, units), np.int32)
        self.thread: Threads = np.zeros((batch.warps_per_block, units), np.int32)

    def enter(self, stamp: int, units: Ints, lanes: Ints) -> None:
        thread = np.broadcast_to(self.batch.thread[lanes].astype(np.int32), units.shape)
        warp = thread // WARP
        before, stamps = self.thread[warp, units], self.stamp[warp, units]
        fresh = (stamps > self.clock.limit(lanes, warp)) & (before != thread)
        entered = np.where(fresh, SEVERAL, thread)
        self.stamp[warp, units] = stamp
        self.thread[warp, units] = entered
        lost = self.thread[warp, units] != entered
        if lost.any():
            self.thread[warp[lost], units[lost]] = SEVERAL

    def clash(self, units: Ints, lanes: Ints) -> tuple[int, int, int] | None:
        """(lane, unit, reading thread) of the first write that is not ordered after a read."""
        thread = self.batch.thread[lanes]
        for warp in range(self.batch.warps_per_block):
            readers = self.thread[warp][units]
            late: Bools = (self.stamp[warp][units] > self.clock.limit(lanes, warp)) & (readers != thread)
            if late.any():
                lane, unit = _first(late, units, lanes)
                return lane, unit, int(self.thread[warp, unit])
        return None


class ForeignReads:
    """The last read of every unit by a thread of another block: its stamp, lane and access."""

    def __init__(self, units: int) -> None:
        self.stamp = np.zeros(units, np.int32)
        self.lane: Ints = np.zeros(units, np.int64)
        self.site = np.zeros(units, np.int16)

    def enter(self, site: Site, stamp: int, units: Ints, lanes: Ints) -> None:
        self.stamp[units], self.lane[units], self.site[units] = stamp, lanes, site.number


def _first(where: Bools, units: Ints, lanes: Ints) -> tuple[int, int]:
    """Lane and unit of the first true element."""
    row, column = np.unravel_index(int(np.argmax(where)), where.shape)
    return int(lanes[column]), int(units[row, column])
