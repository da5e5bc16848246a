"""Hardware instructions: how a row of the instruction table runs on the simulator.

``row.meaning(lanes, *arguments)`` is called once for all active lanes of a batch. ``lanes`` is a :class:`Lanes`; each
argument of the Call arrives as a :class:`RegisterArgument` (a reference to registers), :class:`MemoryArgument` (to
global or shared memory), :class:`MapArgument` (a tensor map), or :class:`IndexArgument` (an index expression's value in
every lane). A meaning that blocks is a generator: it yields :class:`Wait` objects and goes on when they are ready. What
an instruction keeps (a barrier's phase, groups of copies in flight) lives in ``lanes.state``, which is empty at the
start of every batch.

Asynchronous writes: ``MemoryArgument.store_async`` puts elements in flight, where any access to them is a fault of kind
"async", until ``lanes.land`` says that they have arrived, by the thread that waited for them (cp.async) or by an engine
(TMA, whose waiters then ``lanes.clock.acquire`` what the engine released).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field
from inspect import isgeneratorfunction

import numpy as np

from gemmgen.ir.expr import Expr
from gemmgen.ir.kernel import TensorMap
from gemmgen.ir.nodes import Array, Call, MapRef, Ref
from gemmgen.ir.types import WARP
from gemmgen.isa.memory import box_sectors_of
from gemmgen.isa.table import Moved
from gemmgen.sim.access import Element, Place, element, place
from gemmgen.sim.clock import Clock
from gemmgen.sim.count import Op, Site, figures
from gemmgen.sim.faults import FaultKind
from gemmgen.sim.flight import Flight, InUse
from gemmgen.sim.index import Scope, form_of
from gemmgen.sim.lanes import NOBODY, Active, Batch, Bools, Data, Ints, Truth, as_truth, narrow
from gemmgen.sim.machine import Machine
from gemmgen.sim.memory import Memory
from gemmgen.sim.shadow import Touch, touched, units_of

ENGINE_ALIGN = 16
"""Bytes to which a matrix and its rows must be aligned for the TMA engine (CUDA driver API, cuTensorMapEncodeTiled)."""


@dataclass(frozen=True)
class Wait:
    """What a blocked role waits for."""

    ready: Callable[[], bool]
    what: str


Step = Callable[[Active], Generator[Wait, None, None] | None]


@dataclass(frozen=True)
class Lanes:
    """The lanes that execute an instruction, and the state it may use."""

    machine: Machine
    active: Active

    @property
    def batch(self) -> Batch:
        return self.machine.batch

    @property
    def clock(self) -> Clock:
        return self.machine.clock

    @property
    def state(self) -> dict[Hashable, object]:
        return self.machine.state

    @property
    def on(self) -> Ints:
        """The numbers of the active lanes."""
        return np.arange(self.batch.lanes) if self.active is None else np.flatnonzero(self.active.array)

    def first(self, count: int) -> Truth:
        """The first lanes of each warp."""
        return True if count >= WARP else as_truth(self.batch.thread % WARP < count)

    def wait(self, ready: Callable[[], bool], what: str) -> Wait:
        """What a meaning yields until ``ready()``."""
        return Wait(ready, what)

    def fault(self, kind: FaultKind, buffer: str, lane: int, index: tuple[int, ...], other: str) -> None:
        """Record a fault, once for each kind and buffer."""
        self.machine.fault(kind, ("call", buffer), buffer, lane, index, None, other)

    def await_previous(self) -> None:
        """The lanes see all that the kernel before wrote."""
        self.machine.await_previous(self.active)

    def land(self, flight: Flight, engine: int | None = None) -> None:
        """It has arrived: as if their own threads had written them now, or ``engine``."""
        shadow = self.machine.shared_shadow(flight.buffer)
        if engine is not None:
            shadow.land(flight.units, self.clock.engine(engine))
            return
        threads = self.batch.thread[flight.lanes].astype(np.int32)
        shadow.land(flight.units, np.broadcast_to(threads, flight.units.shape))


@dataclass(frozen=True)
class RegisterArgument:
    """Registers that an instruction reads or writes, ``width`` elements from the one that is named."""

    element: Element
    active: Active

    def read(self, width: int = 1) -> Data:
        """Values [width, lanes]; a value that nothing wrote is a fault."""
        first = self.element.at()
        if not self.element.check(first, width, self.active, reads=True):
            return np.zeros((width, self.element.machine.batch.lanes), self.element.register.dtype)
        return self.element.register.window(first, width)

    def write(self, values: Data) -> None:
        """Set as many elements as ``values`` [width, lanes] has rows."""
        first = self.element.at()
        if self.element.check(first, len(values), self.active, reads=False):
            self.element.register.put(first, len(values), self.active, values)

    def accumulate(self, values: Data, lanes: Ints, anew: bool = False) -> None:
        """Add ``values`` [width, n] in these lanes to the elements from the named one on; or to 0 (``anew``)."""
        first = self.element.at()
        if anew and self.element.check(first, len(values), self.active, reads=False):
            self.element.register.put(first, len(values), self.active, self._in_lanes(values, lanes))
        elif not anew and self.element.check(first, len(values), self.active, reads=True):
            self.element.register.window(first, len(values))[:, lanes] += values

    def _in_lanes(self, values: Data, lanes: Ints) -> Data:
        spread = np.zeros((len(values), self.element.machine.batch.lanes), values.dtype)
        spread[:, lanes] = values
        return spread


@dataclass(frozen=True)
class IndexArgument:
    """An index expression: ``argument()`` is its value in every lane, ``truth()`` where it is not 0."""

    value: Callable[[], Ints]
    truth: Callable[[], Truth]

    def __call__(self) -> Ints:
        return self.value()


@dataclass
class Sites:
    """The accesses that an instruction makes through one argument; ``origin`` is the setting that shaped them."""

    origin: str = ""
    known: dict[tuple[str, Op, int], Site] = field(default_factory=dict)

    def site(
        self, m: Machine, op: Op, array: Array, width: int, space: str | None = None, past_l1: bool = False
    ) -> Site:
        """The access of this kind, made when it is first asked for."""
        key = space or array.space, op, width
        if key not in self.known:
            self.known[key] = m.site(op, array, width, self.origin, space, past_l1)
        return self.known[key]


@dataclass(frozen=True)
class MemoryArgument:
    """A place in global or shared memory; every access through it is checked and counted."""

    machine: Machine
    array: Array
    place: Place
    active: Active
    sites: Sites

    @property
    def memory(self) -> Memory:
        return self.place.memory

    def first(self) -> Ints:
        """The element that is named, counted through the array, in every lane."""
        return self.place.part().array + self.place.offset()

    def load(self, width: int = 1, where: Truth = True) -> Data:
        """Values [width, lanes]; zeros in active lanes outside ``where``; other lanes hold anything."""
        out = np.zeros((width, self.machine.batch.lanes), self.memory.flat.dtype)
        p, reading = self.place, narrow(self.active, where)
        if reading is not NOBODY:
            p.memory.read(self._site("load", width), p.part(), p.offset(), reading, self.active, out)
        return out

    def store(self, values: Data) -> None:
        """Write ``values`` [width, lanes] now, as an ordinary store."""
        p = self.place
        p.memory.write(self._site("store", len(values)), p.part(), p.offset(), self.active, values)

    def add(self, values: Data) -> None:
        """Add ``values`` [width, lanes] to global memory, in one go for each element."""
        p = self.place
        p.memory.add(self._site("store", len(values)), p.part(), p.offset(), self.active, values)

    def store_async(self, values: Data, engine: int = 0) -> Flight:
        """Begin to write ``values`` [width, lanes] to shared memory; they are in flight until they land."""
        p, site = self.place, self._site("store", len(values))
        shadow = self.machine.shared_shadow(self.array.name)
        good = p.memory.allowed(site, p.part(), p.offset(), self.active)
        if good is not None and good.count == 0:
            return Flight(self.array.name, np.zeros((len(values), 0), np.int64), np.zeros(0, np.int64))
        # The values are put in place at once, past the shadow, and the shadow is told that they are in flight.
        p.memory.shadow = None
        try:
            p.memory.write(site, p.part(), p.offset(), good, values)
        finally:
            p.memory.shadow = shadow
        units, lanes = touched(self._touched(site, good), self.machine.batch, shadow.block_units)
        shadow.launch(site, units, lanes, engine)
        return Flight(self.array.name, units, lanes)

    def store_box(self, values: Data, at: Ints, lanes: Ints, engine: int, align: int) -> Flight | None:
        """Begin to write ``values`` [elements, n] at elements ``at`` of this array, for n lanes; they are in flight
        until they land. The element that is named must be at a multiple of ``align`` bytes. None where it cannot be."""
        m, memory, site = self.machine, self.memory, self._site("store", 1, "engine")
        first = self.first()[lanes]
        apart = first * memory.item % align != 0 if memory.align >= align else np.ones(len(lanes), np.bool_)
        if apart.any():
            lane, element = int(lanes[apart][0]), int(first[apart][0])
            m.report("misaligned", site, lane, element, f"a box needs a multiple of {align} bytes")
        outside = ((at < 0) | (at >= memory.size)).any(axis=0)
        if outside.any():
            last = int(at[:, outside].max())
            m.report("out-of-bounds", site, int(lanes[outside][0]), last, f"a box ends past the {memory.size} elements")
        if apart.any() or outside.any():
            return None
        places = at + memory.base + m.batch.block[lanes] * memory.block_size
        memory.flat[places] = values
        units = units_of(places, memory.scale)
        m.shared_shadow(self.array.name).launch(site, units, lanes, engine)
        return Flight(self.array.name, units, lanes)

    def use(self, at: Ints, lanes: Ints, warps: int = 1) -> InUse:
        """Begin to read elements ``at`` [n, lanes] of this array, for one lane of each group of ``warps``; they may
        not be overwritten until that ends, for all of its warps."""
        m, memory, site = self.machine, self.memory, self._site("load", 1, "engine")
        outside = (at < 0) | (at >= memory.size)
        if outside.any():
            column = int(np.argmax(outside.any(axis=0)))
            m.report(
                "out-of-bounds", site, int(lanes[column]), int(at[:, column].max()), "a product reads past the end"
            )
            at = np.clip(at, 0, memory.size - 1)
        places = at + memory.base + m.batch.block[lanes] * memory.block_size
        units = units_of(places, memory.scale)
        shadow = m.shared_shadow(self.array.name)
        shadow.use(site, units, lanes)
        return InUse(memory, shadow, site, places, units, lanes, warps)

    def unfenced(self, at: Ints, lanes: Ints) -> bool:
        """Whether a thread wrote some of these elements and put no fence between that and an engine's read."""
        m, memory = self.machine, self.memory
        places = at + memory.base + m.batch.block[lanes] * memory.block_size
        return m.shared_shadow(self.array.name).unfenced(units_of(places, memory.scale), lanes)

    def enter(self) -> tuple[Ints, Ints]:
        """Write a barrier itself, uncounted: the lanes that do, and the number of the barrier in each."""
        t, lanes = self._touch()
        if lanes.size:
            self.machine.shared_shadow(self.array.name).write(t)
        return lanes, self.first()[lanes]

    def touch(self) -> tuple[Ints, Ints]:
        """Use a barrier, which must be set up before: the lanes that do, and the number of the barrier in each."""
        t, lanes = self._touch()
        if lanes.size:
            self.machine.shared_shadow(self.array.name).check(t)
        return lanes, self.first()[lanes]

    def _touch(self) -> tuple[Touch, Ints]:
        p, site = self.place, self._site("store", 1, "engine")
        good = p.memory.allowed(site, p.part(), p.offset(), self.active)
        return self._touched(site, good), Lanes(self.machine, good).on

    def _touched(self, site: Site, good: Active) -> Touch:
        p = self.place
        return Touch(site, p.part(), p.offset() + p.memory.base, good, None, False, p.memory.scale)

    def _site(self, op: Op, width: int, space: str | None = None) -> Site:
        return self.sites.site(self.machine, op, self.array, width, space)


@dataclass(frozen=True)
class MapArgument:
    """A tensor map: the box it moves, and the operand it moves it from."""

    map: TensorMap
    memory: Memory
    site: Site

    def read(self, along: Ints, across: Ints) -> Data:
        """The operand's elements at these places, whatever the shape of the two; zero outside, as the engine gives."""
        m = self.memory
        inside = self.inside(along, across)
        if m.size == 0:
            return np.zeros(inside.shape, m.flat.dtype)
        found: Data = m.flat[np.where(inside, across * m.row + along, 0)]
        found[~inside] = 0
        return found

    def inside(self, along: Ints, across: Ints) -> Bools:
        """Which of these places lie in the matrix."""
        m = self.memory
        found: Bools = (along >= 0) & (along < m.used) & (across >= 0) & (across * m.row + along < m.size)
        return found

    def write(self, along: Ints, across: Ints, values: Data) -> None:
        """Store values at these places; those outside the matrix are left out."""
        inside = self.inside(along, across)
        self.memory.flat[(across * self.memory.row + along)[inside]] = values[inside]

    def check(self) -> str:
        """What keeps the engine from addressing the operand's rows; empty where nothing does."""
        m = self.memory
        if m.phase % ENGINE_ALIGN or m.align < ENGINE_ALIGN:
            return f"{m.name} must be aligned to {ENGINE_ALIGN} bytes"
        return f"{m.name}'s rows must be whole {ENGINE_ALIGN} bytes apart" if m.row * m.item % ENGINE_ALIGN else ""

    def count(self, x: Ints, y: Ints) -> None:
        """Boxes with these corners, [n]: the bytes of what lies in the matrix, and the sectors that are fetched."""
        m, (along, across) = self.memory, self.map.box
        rows = -(-m.size // m.row) if m.row else 0
        columns, lines = np.clip(m.used - x, 0, along), np.clip(rows - y, 0, across)
        first, item = m.phase + m.item * (y * m.row + x), m.item
        sectors = box_sectors_of(first, item * m.row, item * columns, lines, (item * along, across))
        moved = item * int((columns * lines).sum())
        self.site.figures += figures(requests=len(x), sectors=int(sectors.sum()), bytes_used=moved)


Argument = RegisterArgument | MemoryArgument | MapArgument | IndexArgument


def call(m: Machine, s: Call, scope: Scope) -> Step:
    """A hardware instruction. Raises ValueError where its row has no meaning."""
    meaning = s.row.meaning
    if meaning is None:
        raise ValueError(f"{s.row.name} has no meaning that the simulator could run")
    sites = [Sites(s.origin) for _ in s.args]
    for move in s.row.moves:
        _enter_move(m, s.args[move.argument], move, sites[move.argument])
    makers = [_argument(m, a, scope, (s, i), sites[i]) for i, a in enumerate(s.args)]

    def run(active: Active) -> Generator[Wait, None, None] | None:
        found = meaning(Lanes(m, active), *(make(active) for make in makers))
        return found if blocks(s) else None

    return run


def blocks(s: Call) -> bool:
    """Whether an instruction may wait."""
    return isgeneratorfunction(s.row.meaning)


def _enter_move(m: Machine, argument: Ref | Expr | MapRef, move: Moved, sites: Sites) -> None:
    """The accesses of an instruction, in the order in which its row lists them."""
    match argument:
        case Ref():
            sites.site(m, move.op, argument.array, move.width, past_l1=move.past_l1)
        case MapRef(name):
            tensor_map = next(t for t in m.ir.tensor_maps if t.name == name)
            operand = Array(tensor_map.operand, "global", tensor_map.dtype, shape=None)
            sites.site(m, move.op, operand, tensor_map.box[0] * tensor_map.box[1], "tma")
        case _:
            raise ValueError("an index expression moves nothing")


def _argument(
    m: Machine, a: Ref | Expr | MapRef, scope: Scope, key: object, sites: Sites
) -> Callable[[Active], Argument]:
    if isinstance(a, MapRef):
        tensor_map = next(t for t in m.ir.tensor_maps if t.name == a.name)
        if not sites.known:
            _enter_move(m, a, Moved(0, "load"), sites)
        (site,) = sites.known.values()
        through = MapArgument(tensor_map, m.memory(tensor_map.operand, tensor_map.dtype), site)
        return lambda active: through
    if isinstance(a, Expr):
        value = IndexArgument(m.values.array(form_of(a, scope)), m.values.truth(a, scope))
        return lambda active: value
    if a.array.space == "register":
        where = element(m, a, scope, key)
        return lambda active: RegisterArgument(where, active)
    array, at = a.array, place(m, a, scope)
    if array.space == "global" and not array.const:
        m.written(array.name)
    return lambda active: MemoryArgument(m, array, at, active, sites)
