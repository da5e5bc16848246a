"""Happens-before: which accesses of which threads are ordered before now.

Time is one counter a batch, which moves at every synchronisation. Every access is stamped with it. What an actor (a
warp, or an asynchronous engine) knows is, for every actor, the latest stamp whose accesses are ordered before its
next one. ``__syncthreads`` makes all warps of a block know all: while that is the only synchronisation, one number
(``floor``) says everything, and the table ``known`` does not exist. Threads of different blocks are ordered by the
barriers of their cluster alone: what lies before the last of them (``met``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.types import WARP
from gemmgen.sim.lanes import Active, Batch, Bools, Ints

Stamps = NDArray[np.int32]
IN_FLIGHT = 1 << 30
"""The stamp of a word that an asynchronous engine is still writing: ordered before nothing."""
ENGINES = 2
"""Actors of a block beyond its warps: asynchronous copy and tensor engines."""


class Clock:
    """The clocks of a batch of blocks."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.now = 1
        self.floor = 0
        self.known: Stamps | None = None
        self.met: Stamps = np.zeros(batch.blocks, np.int32)
        self.actors = batch.warps_per_block + ENGINES
        self.fences: Stamps = np.zeros((batch.blocks, batch.warps_per_block), np.int32)

    def engine(self, number: int) -> int:
        """The thread number under which an asynchronous engine (0, 1) of a block writes."""
        return WARP * (self.batch.warps_per_block + number)

    def join(self, blocks: Bools | None = None) -> None:
        """All warps of the blocks (None: of all) meet: what any did before is ordered before what all do next."""
        if blocks is None:
            self.floor, self.known = self.now, None
        else:
            self._table()[blocks] = self.now
        self.now += 1

    def join_clusters(self, blocks: Bools | None = None) -> None:
        """All warps of the blocks (None: of all), which are whole clusters, meet."""
        self.met[slice(None) if blocks is None else blocks] = self.now
        self.join(blocks)

    def join_warps(self, active: Active, together: int = 1) -> None:
        """``__syncwarp``: the lanes of each active warp meet; or those of each group of so many warps."""
        known, warps = self._table(), self._warps(active)
        for first in range(0, self.batch.warps_per_block, together):
            group = slice(first, first + together)
            here = warps[:, group].all(axis=1)
            learnt = known[here, group].max(axis=1, keepdims=True)
            learnt[:, 0, group] = self.now
            known[here, group] = np.maximum(known[here, group], learnt)
        self.now += 1

    def fence(self, active: Active) -> None:
        """What the active warps wrote until now can be seen by asynchronous engines."""
        self.fences[self._warps(active)] = self.now
        self.now += 1

    def release(self, active: Active, met: bool = False) -> Stamps:
        """What the active warps of each block have done and know, [blocks, actors]; for a later :meth:`acquire`.

        ``met``: one lane of each speaks for its warp, and knows of the others only what they had done when the warp
        last met.
        """
        known, warps = self._table(), self._warps(active)
        token = np.zeros((self.batch.blocks, self.actors), np.int32)
        for w in range(self.batch.warps_per_block):
            row = known[:, w, :].copy()
            row[:, w] = row[:, w] if met else self.now
            np.maximum(token, np.where(warps[:, w, None], row, 0), out=token)
        self.now += 1
        return token

    def release_engine(self, number: int) -> Stamps:
        """What an asynchronous engine of each block has done until now, [blocks, actors]; for :meth:`acquire`."""
        token = np.zeros((self.batch.blocks, self.actors), np.int32)
        token[:, self.batch.warps_per_block + number] = self.now
        self.now += 1
        return token

    def acquire(self, active: Active, token: Stamps) -> None:
        """The active warps learn what was released."""
        known, warps = self._table(), self._warps(active)
        for w in range(self.batch.warps_per_block):
            learnt = np.where(warps[:, w, None], token, 0)
            np.maximum(known[:, w, :], learnt, out=known[:, w, :])

    def late(self, stamps: Stamps, lanes: Ints, writers: NDArray[np.int32]) -> Bools:
        """Which accesses (their stamps and threads) are not ordered before what ``lanes`` do now.

        ``stamps`` and ``writers`` are [width, lanes]. A thread is always ordered after itself.
        """
        own = writers == self.batch.thread[lanes]
        found: Bools = (stamps > self.limit(lanes, writers // WARP)) & ~own
        return found

    def limit(self, lanes: Ints, actors: NDArray[np.int32] | int) -> NDArray[np.int32] | int:
        """The latest stamp of each actor that is ordered before what ``lanes`` do now."""
        if self.known is None:
            return self.floor
        b = self.batch
        found: NDArray[np.int32] = self.known[b.block[lanes], b.thread[lanes] // WARP, actors]
        return found

    def _table(self) -> Stamps:
        if self.known is None:
            self.known = np.full((self.batch.blocks, self.actors, self.actors), self.floor, np.int32)
        return self.known

    def _warps(self, active: Active) -> Bools:
        """[blocks, warps]: which warps have an active lane."""
        found: Bools = self.batch.warp_mask(active).any(axis=1).reshape(self.batch.blocks, -1)
        return found
