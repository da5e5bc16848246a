"""What asynchronous copies and their barriers do, on NumPy arrays of lanes.

``lanes`` and the arguments are those of :mod:`gemmgen.isa.machine`; what an instruction keeps between calls is in
``lanes.state``. Copies land as late as the program allows: those of cp.async when their own thread waits for their
group, those of the TMA engine one after another while someone waits for the barrier that counts their bytes. So data
that is used too early is always seen to be.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gemmgen.ir.types import F32, VECTOR_BYTES, WARP, DType
from gemmgen.isa.memory import LINE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gemmgen.isa.machine import Flight, IndexArgument, Lanes, MapArgument, MemoryArgument, Wait

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Stamps = NDArray[np.int32]

COPIES, TENSORS = 0, 1
"""The asynchronous engines of a block, as the clock numbers them: cp.async, and TMA."""
BOX_ALIGN = 128
"""Bytes to which a box in shared memory must be aligned (PTX ISA, "cp.async.bulk.tensor")."""


# --- cp.async: copies in groups of each thread ------------------------------------------------------------------------


@dataclass
class Groups:
    """Copies on their way, each with the number of its group in every lane, and how many groups a lane has closed."""

    closed: Ints
    flying: list[tuple[Flight, Ints]] = field(default_factory=list)


def _groups(lanes: Lanes) -> Groups:
    import numpy as np

    found = lanes.state.get("cp.async")
    if found is None:
        found = lanes.state["cp.async"] = Groups(np.zeros(lanes.batch.lanes, np.int64))
    assert isinstance(found, Groups)
    return found


def copy(width: int) -> Callable[..., None]:
    """``(dst, src)``, or ``(dst, src, condition)``: where the condition is false nothing is read and zeros land."""

    def meaning(lanes: Lanes, dst: MemoryArgument, src: MemoryArgument, condition: IndexArgument | None = None) -> None:
        values = src.load(width) if condition is None else src.load(width, condition.truth())
        flight = dst.store_async(values, COPIES)
        groups = _groups(lanes)
        groups.flying.append((flight, groups.closed[flight.lanes]))

    return meaning


def commit(lanes: Lanes) -> None:
    """The copies that each lane has started since its last commit are its next group."""
    _groups(lanes).closed[lanes.on] += 1


def wait_group(pending: int) -> Callable[..., None]:
    """All groups of a lane but its last ``pending`` land."""

    def meaning(lanes: Lanes) -> None:
        import numpy as np

        groups = _groups(lanes)
        due = np.full(lanes.batch.lanes, -1, np.int64)
        due[lanes.on] = groups.closed[lanes.on] - pending
        left = []
        for flight, group in groups.flying:
            landing = group < due[flight.lanes]
            if landing.any():
                lanes.land(flight.part(landing))
            if not landing.all():
                left.append((flight.part(~landing), group[~landing]))
        groups.flying = left

    return meaning


# --- mbarriers --------------------------------------------------------------------------------------------------------


@dataclass
class Arriving:
    """Boxes on their way, one for each column of ``flight``: which block's barrier counts them, and their bytes."""

    flight: Flight
    block: Ints
    barrier: Ints
    bytes: int

    def part(self, columns: Bools) -> Arriving:
        return Arriving(self.flight.part(columns), self.block[columns], self.barrier[columns], self.bytes)


class Barriers:
    """The mbarriers of one shared array, [blocks, barriers]: each counts arrivals, as many as ``expected``, and bytes.

    ``phase`` is how many phases have ended. What arrivals released is ``coming`` until the phase ends, then ``shown``
    to those who wait.
    """

    def __init__(self, lanes: Lanes, count: int) -> None:
        import numpy as np

        shape = (lanes.batch.blocks, count)
        self.phase: Ints = np.zeros(shape, np.int64)
        self.pending: Ints = np.zeros(shape, np.int64)
        self.expected: Ints = np.zeros(shape, np.int64)
        self.bytes: Ints = np.zeros(shape, np.int64)
        self.owner: Ints = np.full(shape, -1, np.int64)
        self.fenced: Bools = np.zeros(shape, np.bool_)
        self.coming: Stamps = np.zeros((*shape, lanes.clock.actors), np.int32)
        self.shown: Stamps = self.coming.copy()
        self.arriving: list[Arriving] = []

    def turn(self) -> None:
        """Phases end in which all has arrived."""
        import numpy as np

        over = (self.pending == 0) & (self.bytes == 0) & (self.owner >= 0)
        if over.any():
            self.phase[over] += 1
            self.pending[over] = self.expected[over]
            self.shown[over] = np.maximum(self.shown[over], self.coming[over])
            self.coming[over] = 0

    def stuck(self, waiting: Bools) -> Bools:
        """Barriers of which someone waits for a phase that has not ended; ``waiting`` is [parity, blocks, barriers]."""
        even = self.phase % 2 == 0
        found: Bools = (waiting[0] & even) | (waiting[1] & ~even)
        return found

    def deliver(self, lanes: Lanes, waiting: Bools) -> bool:
        """The engine brings boxes, in order, until nobody is stuck. Whether it could."""
        import numpy as np

        left: list[Arriving] = []
        for boxes in self.arriving:
            now = self.stuck(waiting)[boxes.block, boxes.barrier]
            if now.any():
                landed = boxes.part(now)
                lanes.land(landed.flight, TENSORS)
                at = landed.block, landed.barrier
                np.subtract.at(self.bytes, at, landed.bytes)
                token = lanes.clock.release_engine(TENSORS)
                self.coming[at] = np.maximum(self.coming[at], token[landed.block])
                self.turn()
            if not now.all():
                left.append(boxes.part(~now))
        self.arriving = left
        return not self.stuck(waiting).any()


def _barriers(lanes: Lanes, at: MemoryArgument) -> Barriers:
    key = ("mbarrier", at.array.name)
    found = lanes.state.get(key)
    if found is None:
        found = lanes.state[key] = Barriers(lanes, at.memory.size)
    assert isinstance(found, Barriers)
    return found


def initialise(lanes: Lanes, barrier: MemoryArgument, arrivals: IndexArgument) -> None:
    """``(barrier, arrivals)``: so many arrivals end its phases."""
    lane, number = barrier.enter()
    block, b = lanes.batch.block[lane], _barriers(lanes, barrier)
    b.pending[block, number] = b.expected[block, number] = arrivals()[lane]
    b.owner[block, number] = lanes.batch.thread[lane]


def fence(lanes: Lanes) -> None:
    """What the lanes set up is there for the engine too."""
    for found in list(lanes.state.values()):
        if isinstance(found, Barriers):
            block, thread = lanes.batch.block[lanes.on], lanes.batch.thread[lanes.on]
            found.fenced[block] |= found.owner[block] == thread[:, None]


def expect(lanes: Lanes, barrier: MemoryArgument, nbytes: IndexArgument) -> None:
    """``(barrier, bytes)``: arrive, and have the phase wait for so many bytes more."""
    import numpy as np

    lane, number = barrier.touch()
    block, b = lanes.batch.block[lane], _barriers(lanes, barrier)
    token = lanes.clock.release(lanes.active)
    np.subtract.at(b.pending, (block, number), 1)
    np.add.at(b.bytes, (block, number), nbytes()[lane])
    b.coming[block, number] = np.maximum(b.coming[block, number], token[block])
    b.turn()


def meet_in_warps(lanes: Lanes) -> None:
    """``()``: the lanes of each active warp meet."""
    lanes.clock.join_warps(lanes.active)


def release(lanes: Lanes, barrier: MemoryArgument) -> None:
    """``(barrier)``: the first lane of each active warp arrives, for what its warp had done when its lanes last met."""
    import numpy as np

    lane, number = barrier.touch()
    first = lanes.batch.thread[lane] % WARP == 0
    block, number = lanes.batch.block[lane[first]], number[first]
    token, b = lanes.clock.release(lanes.active, met=True), _barriers(lanes, barrier)
    np.subtract.at(b.pending, (block, number), 1)
    b.coming[block, number] = np.maximum(b.coming[block, number], token[block])
    b.turn()


def wait(lanes: Lanes, barrier: MemoryArgument, parity: IndexArgument) -> Generator[Wait, None, None]:
    """``(barrier, parity)``: until the barrier's phase of that parity has ended."""
    import numpy as np

    lane, number = barrier.touch()
    block, b = lanes.batch.block[lane], _barriers(lanes, barrier)
    waiting: Any = np.zeros((2, *b.phase.shape), np.bool_)
    waiting[parity()[lane], block, number] = True
    if not b.deliver(lanes, waiting):
        yield lanes.wait(lambda: b.deliver(lanes, waiting), f"{barrier.array.name}[{int(number[0])}]")
    token = np.zeros((lanes.batch.blocks, lanes.clock.actors), np.int32)
    np.maximum.at(token, block, b.shown[block, number])
    lanes.clock.acquire(lanes.active, token)


# --- The TMA engine ---------------------------------------------------------------------------------------------------


def load_box(
    lanes: Lanes,
    dst: MemoryArgument,
    box: MapArgument,
    x: IndexArgument,
    y: IndexArgument,
    barrier: MemoryArgument,
) -> None:
    """``(dst, map, x, y, barrier)``: start to copy the box whose corner is at (x, y); zeros lie outside the matrix."""
    import numpy as np

    lane, number = barrier.touch()
    block, b = lanes.batch.block[lane], _barriers(lanes, barrier)
    early = ~b.fenced[block, number]
    if early.any():
        other = "no fence shows the barrier to the engine"
        lanes.fault("async", barrier.array.name, int(lane[early][0]), (int(number[early][0]),), other)
    if lane.size and (wrong := box.check()):
        lanes.fault("misaligned", box.memory.name, int(lane[0]), (), wrong)
    along, across = box.map.box
    column, row = np.arange(along)[None, :, None], np.arange(across)[:, None, None]
    values = box.read(column + x()[lane], row + y()[lane]).reshape(along * across, -1)
    dtype = box.map.dtype
    at = swizzled(dst.first()[lane] + row * along + column, box.map.swizzle, dtype).reshape(along * across, -1)
    flight = dst.store_box(values, at, lane, TENSORS, max(BOX_ALIGN, 8 * box.map.swizzle))
    if flight is None:
        return
    box.count(x()[lane], y()[lane])
    b.arriving.append(Arriving(flight, block, number, dtype.bytes * along * across))


def swizzled(elements: Ints, span: int, dtype: DType = F32) -> Ints:
    """Where the engine puts elements whose rows are ``span`` bytes (32, 64 or 128; 0: it permutes nothing).

    The lowest bits of the number of a piece of 16 bytes are combined, by exclusive or, with as many of the bits from
    128 bytes on.
    """
    if not span:
        return elements
    piece, pieces = dtype.elements(VECTOR_BYTES), span // VECTOR_BYTES
    return elements ^ (elements // dtype.elements(LINE) & pieces - 1) * piece
