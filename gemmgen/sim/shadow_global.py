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
    """Who touched each word last, and when: threads numbered through the grid."""

    def __init__(self, words: int) -> None:
        self.who: Ints = np.full(words, NONE, np.int64)
        self.stamp = np.zeros(words, np.int32)

    def late(self, words: Ints, me: Ints, threads: int, floor: int) -> Bools:
        """Where another thread touched a word with nothing that orders it before now."""
        who = self.who[words]
        ordered = (who // threads == me // threads) & (self.stamp[words] <= floor)
        found: Bools = (who != NONE) & (who != me) & ~ordered
        return found

    def enter(self, words: Ints, me: Ints, now: int) -> Bools:
        """Enter the threads; where two touch one word at once, true for those that were lost."""
        self.who[words] = me
        self.stamp[words] = now
        lost: Bools = self.who[words] != me
        return lost


class GlobalShadow:
    """Blocks are never ordered; threads of one block are by ``__syncthreads``. It outlives the batches.

    Accesses that may clash with others but not with one another, reads and atomic additions, are kept as two marks:
    two different threads are enough to find a clash with any other one.
    """

    def __init__(self, words: int, report: Reporter) -> None:
        self.words = words
        self.report = report
        self.writer = _Mark(words)
        self.readers: tuple[_Mark, _Mark] | None = None
        self.adders: tuple[_Mark, _Mark] | None = None
        self.batch: Batch | None = None
        self.clock: Clock | None = None

    def start(self, batch: Batch, clock: Clock) -> None:
        self.batch, self.clock = batch, clock

    def read(self, t: Touch) -> None:
        words, lanes, me = self._where(t)
        self._check(t.site, words, lanes, me, (self.writer,), "writes")
        self._check(t.site, words, lanes, me, self.adders, "adds to")
        self.readers = self._noted(self.readers, words, me)

    def write(self, t: Touch) -> None:
        words, lanes, me = self._where(t)
        self._check(t.site, words, lanes, me, (self.writer,), "writes")
        self._check(t.site, words, lanes, me, self.readers, "reads")
        if t.atomic:
            self.adders = self._noted(self.adders, words, me)
            return
        self._check(t.site, words, lanes, me, self.adders, "adds to")
        assert self.clock is not None
        lost = self.writer.enter(words, me, self.clock.now)
        self._blame(t.site, lost, self.writer, words, lanes, "writes")

    def settle(self) -> None:
        """Nothing is kept that a barrier would end."""

    def _where(self, t: Touch) -> tuple[Ints, Ints, Ints]:
        assert self.batch is not None
        words, lanes = touched(t, self.batch, 0)
        return words, lanes, np.broadcast_to(self.batch.gid[lanes], words.shape)

    def _noted(self, marks: tuple[_Mark, _Mark] | None, words: Ints, me: Ints) -> tuple[_Mark, _Mark]:
        """The marks with these threads in them, as far as two marks go."""
        first, second = marks = marks or (_Mark(self.words), _Mark(self.words))
        assert self.clock is not None
        other = self._late(first, words, me)
        if other.any():
            second.enter(words[other], me[other], self.clock.now)
        lost = first.enter(words[~other], me[~other], self.clock.now)
        if lost.any():
            second.enter(words[~other][lost], me[~other][lost], self.clock.now)
        return marks

    def _check(
        self, site: Site, words: Ints, lanes: Ints, me: Ints, marks: tuple[_Mark, ...] | None, verb: str
    ) -> None:
        """Blame this access for a clash with those of the marks."""
        for mark in marks or ():
            self._blame(site, self._late(mark, words, me), mark, words, lanes, verb)

    def _late(self, mark: _Mark, words: Ints, me: Ints) -> Bools:
        assert self.batch is not None and self.clock is not None
        return mark.late(words, me, self.batch.threads, self.clock.floor)

    def _blame(self, site: Site, late: Bools, mark: _Mark, words: Ints, lanes: Ints, verb: str) -> None:
        if not late.any():
            return
        assert self.batch is not None
        row, column = np.unravel_index(int(np.argmax(late)), late.shape)
        word = int(words[row, column])
        number, thread = divmod(int(mark.who[word]), self.batch.threads)
        block = tuple(int(i) for i in self.batch.place(np.asarray(number)))
        self.report("race", site, int(lanes[column]), word, f"thread {thread} of block {block} {verb} it too")
