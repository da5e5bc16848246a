"""The threads of a batch of blocks as the lanes of arrays, and which of them are active."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.types import WARP

Ints = NDArray[np.int64]
Data = NDArray[Any]
"""Values of elements, each as its own type has it: those of bfloat16 are ``ml_dtypes.bfloat16``."""
Bools = NDArray[np.bool_]


class Mask:
    """Some, but not all, lanes of a batch. None stands for all of them wherever a mask may stand.

    ``lasting`` masks are made once a batch, so that what was found out about them is worth remembering.
    """

    __slots__ = ("_and", "array", "count", "lasting")

    def __init__(self, array: Bools, lasting: bool = False) -> None:
        self.array = array
        self.count = int(np.count_nonzero(array))
        self.lasting = lasting
        self._and: dict[Mask, Mask] = {}

    def both(self, other: Mask) -> Mask:
        """The lanes active in both."""
        if other is self:
            return self
        found = self._and.get(other)
        if found is None:
            found = Mask(self.array & other.array, self.lasting and other.lasting)
            if found.count == self.count:
                found = self
            elif found.count == other.count:
                found = other
            if other.lasting and self.lasting:
                self._and[other] = found
        return found

    def without(self, other: Mask) -> Mask:
        """The lanes active here and not there."""
        return Mask(self.array & ~other.array)


NOBODY = Mask(np.zeros(0, np.bool_))
Active = Mask | None
Truth = bool | Mask
"""The value of a condition: the same for all lanes, or the lanes where it holds."""


def narrow(outer: Active, truth: Truth) -> Active:
    """The active lanes where a condition holds; NOBODY (count 0) where none is left."""
    if truth is True:
        return outer
    if truth is False:
        return NOBODY
    assert isinstance(truth, Mask)
    return truth if outer is None else outer.both(truth)


def narrow_not(outer: Active, truth: Truth) -> Active:
    """The active lanes where a condition does not hold."""
    if isinstance(truth, Mask):
        return Mask(~truth.array) if outer is None else outer.without(truth)
    return NOBODY if truth else outer


def as_truth(array: Bools, lasting: bool = False) -> Truth:
    """The truth value of an array of lanes."""
    mask = Mask(array, lasting)
    if mask.count == array.size:
        return True
    return mask if mask.count else False


def grid_values(grid: tuple[int, int, int]) -> dict[str, int]:
    """What a kernel knows of the grid that it is launched on, by name."""
    return dict(zip(("gridDim.x", "gridDim.y", "gridDim.z"), grid, strict=True))


class Batch:
    """Consecutive blocks of a grid, run together.

    Lane ``i`` is thread ``i % threads`` of block ``first + i // threads``. Blocks are counted along x, then y, then z;
    but first come the ``cluster`` neighbours along z that run at the same time, so that a batch has them together.
    """

    def __init__(self, first: int, blocks: int, threads: int, grid: tuple[int, int, int], cluster: int = 1) -> None:
        assert first % cluster == blocks % cluster == 0
        self.first = first
        self.blocks = blocks
        self.threads = threads
        self.grid = grid
        self.cluster = cluster
        self.lanes = blocks * threads
        self.warps_per_block = -(-threads // WARP)
        self.block: Ints = np.repeat(np.arange(blocks, dtype=np.int64), threads)
        self.thread: Ints = np.tile(np.arange(threads, dtype=np.int64), blocks)
        number = self.block + first
        self.gid: Ints = number * threads + self.thread
        x, y, z = self.place(number)
        self.builtin: dict[str, Ints] = {"threadIdx.x": self.thread, "blockIdx.x": x, "blockIdx.y": y, "blockIdx.z": z}
        self._peers: dict[int, Ints] = {}

    def place(self, number: Ints) -> tuple[Ints, Ints, Ints]:
        """(x, y, z) of blocks by their numbers in the grid."""
        x, y, _ = self.grid
        rest = number // self.cluster
        return rest % x, rest // x % y, rest // (x * y) * self.cluster + number % self.cluster

    def blocks_of(self, rank: int | None) -> Ints:
        """For every lane its own block in the batch, or its cluster's block of that rank."""
        if rank is None:
            return self.block
        found = self._peers.get(rank)
        if found is None:
            found = self._peers[rank] = self.block // self.cluster * self.cluster + rank
        return found

    def block_index(self, lane: int) -> tuple[int, int, int]:
        """(x, y, z) of a lane's block."""
        b = self.builtin
        return int(b["blockIdx.x"][lane]), int(b["blockIdx.y"][lane]), int(b["blockIdx.z"][lane])

    def by_warp(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of the lanes as [warps, 32]; a block's last warp is filled up with zeros (inactive)."""
        if self.threads % WARP == 0:
            return values.reshape(-1, WARP)
        padded = np.zeros((self.blocks, self.warps_per_block * WARP), values.dtype)
        padded[:, : self.threads] = values.reshape(self.blocks, self.threads)
        return padded.reshape(-1, WARP)

    def warp_mask(self, active: Active) -> Bools:
        """Which lanes of each warp are active, [warps, 32]."""
        lanes = np.ones(self.lanes, np.bool_) if active is None else active.array
        found: Bools = self.by_warp(lanes)
        return found

    def whole_blocks(self, active: Mask) -> Bools:
        """For every block, whether all its threads are active."""
        return np.asarray(active.array.reshape(self.blocks, self.threads).all(axis=1))

    def any_block(self, active: Mask) -> Bools:
        """For every block, whether some thread is active."""
        return np.asarray(active.array.reshape(self.blocks, self.threads).any(axis=1))
