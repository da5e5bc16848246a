"""What stores by the TMA engine do, on NumPy arrays of lanes.

A store only starts: it reads its tile, and writes the matrix, as late as the program allows, when its thread waits
for it. Until then nothing may overwrite the tile, and the block may not end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gemmgen.isa.async_meaning import swizzled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gemmgen.isa.machine import IndexArgument, InUse, Lanes, MapArgument, MemoryArgument

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

WARPS = 4
"""Warps of a group."""


@dataclass
class Started:
    """Boxes on their way, one for each of ``lanes``: the places of their elements in the matrix, [elements, lanes]."""

    to: MapArgument
    along: Ints
    across: Ints
    use: InUse
    lanes: Ints

    def part(self, which: Bools) -> Started:
        return Started(self.to, self.along[:, which], self.across[:, which], self.use.part(which), self.lanes[which])


@dataclass
class Stores:
    """The stores that threads have issued, and of those the ones in groups."""

    open: list[Started] = field(default_factory=list)
    closed: list[Started] = field(default_factory=list)


def _stores(lanes: Lanes) -> Stores:
    found = lanes.state.setdefault("tma store", Stores())
    assert isinstance(found, Stores)
    return found


def store_box(lanes: Lanes, to: MapArgument, x: IndexArgument, y: IndexArgument, src: MemoryArgument) -> None:
    """``(map, x, y, src)``: start to store the box whose corner is at (x, y)."""
    import numpy as np

    on = lanes.on
    if not on.size:
        return
    if wrong := to.check():
        lanes.fault("misaligned", to.memory.name, int(on[0]), (), wrong)
    width, height = to.map.box
    column, row = np.arange(width)[None, :, None], np.arange(height)[:, None, None]
    along = (column + x()[on] + 0 * row).reshape(width * height, -1)
    across = (row + y()[on] + 0 * column).reshape(width * height, -1)
    at = swizzled(src.first()[on] + row * width + column, to.map.swizzle, to.map.dtype).reshape(width * height, -1)
    inside = to.inside(along, across)
    some = inside.any(axis=0)
    # Elements outside the matrix are never read for anything: any one inside stands for them.
    first = np.take_along_axis(at, inside.argmax(axis=0)[None, :], axis=0)
    at = np.where(inside, at, first)[:, some]
    if not some.any():
        return
    to.count(x()[on], y()[on])
    if src.unfenced(at, on[some]):
        other = "no fence_async shows what threads wrote to the engine"
        lanes.fault("async", src.array.name, int(on[some][0]), (), other)
    use = src.use(at, on[some])
    _stores(lanes).open.append(Started(to, along[:, some], across[:, some], use, on[some]))


def commit(lanes: Lanes) -> None:
    """The stores of each active thread are a group."""
    import numpy as np

    found, still = _stores(lanes), []
    for x in found.open:
        mine = np.isin(x.lanes, lanes.on)
        found.closed += [x.part(mine)] if mine.any() else []
        still += [x.part(~mine)] if not mine.all() else []
    found.open = still


def wait_read(lanes: Lanes) -> None:
    """The groups of each active thread have been read; the matrix has them."""
    import numpy as np

    found, still = _stores(lanes), []
    for x in found.closed:
        mine = np.isin(x.lanes, lanes.on)
        if mine.any():
            done = x.part(mine)
            done.to.write(done.along, done.across, done.use.values())
            done.use.end()
        still += [x.part(~mine)] if not mine.all() else []
    found.closed = still


def fence(lanes: Lanes) -> None:
    """What the active threads wrote is there for the engine."""
    lanes.clock.fence(lanes.active)


def meet(lanes: Lanes, barrier: Any) -> None:
    """``(barrier)``: the threads of each active warp group meet."""
    lanes.clock.join_warps(lanes.active, WARPS)
