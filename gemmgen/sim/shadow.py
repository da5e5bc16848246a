"""Shadow memory: who wrote and read each word of shared memory last, and when.

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
    """An access by the active lanes: ``width`` words from ``part + offset``, of their own block's shared memory or of
    that of their cluster's block number ``rank``. ``atomic``: a write that adds to what is there, in one go."""

    site: Site
    part: Part
    offset: int
    active: Active
    rank: int | None = None
    atomic: bool = False


class Reporter(Protocol):
    """Takes a fault at a word; ``lane`` is the lane of the batch that it is blamed on."""

    def __call__(self, kind: FaultKind, site: Site, lane: int, word: int, other: str = "") -> None: ...


class Shadow(Protocol):
    """What checks the accesses to a memory for races."""

    def read(self, t: Touch) -> None: ...

    def write(self, t: Touch) -> None: ...

    def settle(self) -> None: ...


def touched(t: Touch, batch: Batch, block_words: int) -> tuple[Ints, Ints]:
    """Words [width, n] of an access and the n lanes that make it."""
    first = t.part.array + t.offset
    if block_words:
        first = first + batch.blocks_of(t.rank) * block_words
    lanes = np.arange(batch.lanes) if t.active is None else np.flatnonzero(t.active.array)
    return first[lanes][None, :] + np.arange(t.site.width, dtype=np.int64)[:, None], lanes


class SharedShadow:
    """Shadow of one shared array over all blocks of a batch; or of several whose memory is the same (``several``): then
    what one of them left is nothing that another may read."""

    def __init__(
        self, batch: Batch, clock: Clock, block_words: int, sites: list[Site], report: Reporter, several: bool = False
    ) -> None:
        total = batch.blocks * block_words
        self.batch, self.clock, self.block_words = batch, clock, block_words
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

    def write(self, t: Touch) -> None:
        """Check a write against what was written and read, and enter it."""
        words, lanes = touched(t, self.batch, self.block_words)
        self._check_written(t.site, words, lanes)
        self._check_readers(t.site, words, lanes)
        self.stamp[words] = self.clock.now
        self._enter_writer(t, words, lanes)
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

    def launch(self, site: Site, words: Ints, lanes: Ints, engine: int) -> None:
        """An asynchronous engine starts writing words [width, n] for n lanes; they are no one's to touch until
        :meth:`land`."""
        self._check_written(site, words, lanes)
        self._check_readers(site, words, lanes)
        self.stamp[words] = IN_FLIGHT
        self.writer[words] = self.clock.engine(engine)
        self.site[words] = site.number
        self.last_write = IN_FLIGHT
        self.in_flight += words.size

    def land(self, words: Ints, writers: Threads | int) -> None:
        """Words in flight have arrived; from now they count as written by these threads (or by an engine)."""
        self.stamp[words] = self.clock.now
        self.writer[words] = writers
        self.in_flight -= words.size
        self.last_write = self.clock.now if self.in_flight <= 0 else IN_FLIGHT

    def _check_read(self, t: Touch) -> None:
        words, lanes = touched(t, self.batch, self.block_words)
        missing = self.stamp[words] == 0
        if missing.any():
            lane, word = _first(missing, words, lanes)
            self.report("uninitialized", t.site, lane, word, "nothing wrote it")
        if self.several:
            self._check_whose(t.site, words, lanes, missing)
        self._check_written(t.site, words, lanes)

    def _check_whose(self, site: Site, words: Ints, lanes: Ints, missing: Bools) -> None:
        """What another array of the same memory left is not this one's."""
        theirs = np.array([s.buffer != site.buffer for s in self.sites], np.bool_)[self.site[words]] & ~missing
        if theirs.any():
            lane, word = _first(theirs, words, lanes)
            left = self.sites[int(self.site[word])].buffer
            self.report("uninitialized", site, lane, word, f"nothing wrote it since {left} lay there")

    def _read_of_others(self, t: Touch) -> None:
        """A read of the shared memory of a cluster's blocks, in which the lanes' own block is one of them."""
        words, lanes = touched(t, self.batch, self.block_words)
        own = self.batch.blocks_of(t.rank)[lanes] == self.batch.block[lanes]
        missing = self.stamp[words] == 0
        if missing.any():
            lane, word = _first(missing, words, lanes)
            self.report("uninitialized", t.site, lane, word, "nothing wrote it")
        self._check_whose(t.site, words, lanes, missing)
        self._check_written(t.site, words[:, own], lanes[own])
        words, lanes = words[:, ~own], lanes[~own]
        late = (self.stamp[words] > self.clock.met[self.batch.block[lanes]]) & (self.stamp[words] > 0)
        if late.any():
            lane, word = _first(late, words, lanes)
            other = f"thread {int(self.writer[word])} of another block writes it{self._line(word)}"
            self.report("race", t.site, lane, word, f"{other}, with no barrier of the cluster between")
        if self.foreign is None:
            self.foreign = ForeignReads(self.stamp.size)
        self.foreign.enter(t.site, self.clock.now, words, lanes)

    def end(self) -> None:
        """The blocks end, and their memory with them."""
        if self.foreign is None:
            return
        block = np.arange(self.stamp.size) // self.block_words
        late = self.foreign.stamp > self.clock.met[block]
        if late.any():
            word = int(np.argmax(late))
            site, lane = self.sites[int(self.foreign.site[word])], int(self.foreign.lane[word])
            other = "the block that has it may end before, with no barrier of the cluster between"
            self.report("race", site, lane, word, other)

    def _check_written(self, site: Site, words: Ints, lanes: Ints) -> None:
        if self.last_write <= self.clock.floor:
            return
        stamps, writers = self.stamp[words], self.writer[words]
        late = self.clock.late(stamps, lanes, writers)
        if not late.any():
            return
        flying = late & (stamps == IN_FLIGHT)
        if flying.any():
            lane, word = _first(flying, words, lanes)
            self.report("async", site, lane, word, f"the asynchronous copy{self._line(word)} has not been waited for")
        late &= ~flying
        if late.any():
            lane, word = _first(late, words, lanes)
            self.report("race", site, lane, word, self._wrote(word))

    def _check_readers(self, site: Site, words: Ints, lanes: Ints) -> None:
        if self._noted:
            own = words - self.batch.block[lanes] * self.block_words
            self._enter(int(own.min()), int(own.max()))
        if self.foreign is not None:
            late = self.foreign.stamp[words] > self.clock.met[self.batch.block[lanes]]
            if late.any():
                lane, word = _first(late, words, lanes)
                other = f"thread {int(self.batch.thread[self.foreign.lane[word]])} of another block reads it"
                self.report("race", site, lane, word, f"{other}, with no barrier of the cluster between")
        if self._readers is None:
            return
        found = self._readers.clash(words, lanes)
        if found is not None:
            lane, word, reader = found
            who = "several threads read" if reader == SEVERAL else f"thread {reader} reads"
            self.report("race", site, lane, word, f"{who} it, with no barrier between")

    def _enter_writer(self, t: Touch, words: Ints, lanes: Ints) -> None:
        """Enter the writing threads; two lanes of one access that write the same word race."""
        thread = np.broadcast_to(self.batch.thread[lanes].astype(np.int32), words.shape)
        self.writer[words] = thread
        self.site[words] = t.site.number
        key = ("apart", t.site.width, t.active, self.block_words)
        if key in t.part.memo:
            return
        clash = self.writer[words] != thread
        if clash.any():
            lane, word = _first(clash, words, lanes)
            self.report("race", t.site, lane, word, f"thread {int(self.writer[word])} writes it in the same access")
        elif t.active is None or t.active.lasting:
            t.part.memo[key] = True

    def _enter(self, first: int = 0, last: int | None = None) -> None:
        """Enter the noted reads that touch some of the words ``first`` .. ``last`` of a block (None: of any)."""
        apart: list[tuple[int, Touch]] = []
        for stamp, t in self._noted:
            if stamp <= self.clock.floor:
                continue
            lo, hi = t.part.lo + t.offset, t.part.hi + t.offset + t.site.width - 1
            if hi < first or (last is not None and lo > last):  # another stage of the buffer, as a rule
                apart.append((stamp, t))
                continue
            if self._readers is None:
                self._readers = Readers(self.batch, self.clock, self.stamp.size)
            self._readers.enter(stamp, *touched(t, self.batch, self.block_words))
        self._noted = apart

    def _wrote(self, word: int) -> str:
        return f"thread {int(self.writer[word])} writes it{self._line(word)}, with no barrier between"

    def _line(self, word: int) -> str:
        line = self.sites[int(self.site[word])].line
        return "" if line is None else f" (spec line {line})"


class Readers:
    """The last read of every word by every warp: its stamp, and which thread (or SEVERAL)."""

    def __init__(self, batch: Batch, clock: Clock, words: int) -> None:
        self.batch, self.clock = batch, clock
        self.stamp = np.zeros((batch.warps_per_block, words), np.int32)
        self.thread: Threads = np.zeros((batch.warps_per_block, words), np.int32)

    def enter(self, stamp: int, words: Ints, lanes: Ints) -> None:
        thread = np.broadcast_to(self.batch.thread[lanes].astype(np.int32), words.shape)
        warp = thread // WARP
        before, stamps = self.thread[warp, words], self.stamp[warp, words]
        fresh = (stamps > self.clock.limit(lanes, warp)) & (before != thread)
        entered = np.where(fresh, SEVERAL, thread)
        self.stamp[warp, words] = stamp
        self.thread[warp, words] = entered
        lost = self.thread[warp, words] != entered
        if lost.any():
            self.thread[warp[lost], words[lost]] = SEVERAL

    def clash(self, words: Ints, lanes: Ints) -> tuple[int, int, int] | None:
        """(lane, word, reading thread) of the first write that is not ordered after a read."""
        thread = self.batch.thread[lanes]
        for warp in range(self.batch.warps_per_block):
            readers = self.thread[warp][words]
            late: Bools = (self.stamp[warp][words] > self.clock.limit(lanes, warp)) & (readers != thread)
            if late.any():
                lane, word = _first(late, words, lanes)
                return lane, word, int(self.thread[warp, word])
        return None


class ForeignReads:
    """The last read of every word by a thread of another block: its stamp, lane and access."""

    def __init__(self, words: int) -> None:
        self.stamp = np.zeros(words, np.int32)
        self.lane: Ints = np.zeros(words, np.int64)
        self.site = np.zeros(words, np.int16)

    def enter(self, site: Site, stamp: int, words: Ints, lanes: Ints) -> None:
        self.stamp[words], self.lane[words], self.site[words] = stamp, lanes, site.number


def _first(where: Bools, words: Ints, lanes: Ints) -> tuple[int, int]:
    """Lane and word of the first true element."""
    row, column = np.unravel_index(int(np.argmax(where)), where.shape)
    return int(lanes[column]), int(words[row, column])
