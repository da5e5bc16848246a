"""Hardware instructions: how a row of the instruction table runs on the simulator.

``row.meaning(lanes, *arguments)`` is called once for all active lanes of a batch. ``lanes`` is a :class:`Lanes`; each
argument of the Call arrives as a :class:`RegisterArgument` (a reference to registers), :class:`MemoryArgument` (to
global or shared memory), :class:`MapArgument` (a tensor map), or a function that gives an index expression's value in
every lane. A meaning that blocks is a generator: it yields :class:`Wait` objects and goes on when they are ready. What
an instruction keeps (a barrier's phase, groups of copies in flight) lives in ``lanes.state``, which is empty at the
start of every batch.

Asynchronous writes: ``MemoryArgument.store_async`` puts words in flight, where any access to them is a fault of kind
"async", until ``lanes.land`` says that they have arrived, by the thread that waited for them (cp.async) or by an engine
(TMA, whose waiters then ``lanes.clock.acquire`` what the engine released).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from inspect import isgeneratorfunction

import numpy as np

from gemmgen.ir.expr import Expr
from gemmgen.ir.nodes import Array, Call, MapRef, Pointer, Ref, TensorMap
from gemmgen.sim.access import Element, Place, element, place
from gemmgen.sim.clock import Clock
from gemmgen.sim.count import Op, Site
from gemmgen.sim.index import Scope, form_of
from gemmgen.sim.lanes import Active, Batch, Floats, Ints
from gemmgen.sim.machine import Machine
from gemmgen.sim.memory import Memory
from gemmgen.sim.shadow import Touch


@dataclass(frozen=True)
class Wait:
    """What a blocked role waits for."""

    ready: Callable[[], bool]
    what: str


Step = Callable[[Active], Generator[Wait, None, None] | None]


@dataclass(frozen=True)
class Flight:
    """Words [width, n] of a shared array that an engine is writing, for n lanes."""

    buffer: str
    words: Ints
    lanes: Ints


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

    def land(self, flight: Flight, engine: int | None = None) -> None:
        """The words have arrived: as if their own threads had written them now, or ``engine``."""
        shadow = self.machine.shared_shadow(flight.buffer)
        if engine is not None:
            shadow.land(flight.words, self.clock.engine(engine))
            return
        threads = self.batch.thread[flight.lanes].astype(np.int32)
        shadow.land(flight.words, np.broadcast_to(threads, flight.words.shape))


@dataclass(frozen=True)
class RegisterArgument:
    """Registers that an instruction reads or writes, ``width`` elements from the one that is named."""

    element: Element
    active: Active

    def read(self, width: int = 1) -> Floats:
        """Values [width, lanes]; a value that nothing wrote is a fault."""
        first = self.element.at()
        if not self.element.check(first, width, self.active, reads=True):
            return np.zeros((width, self.element.machine.batch.lanes), np.float32)
        return self.element.register.window(first, width)

    def write(self, values: Floats) -> None:
        """Set as many elements as ``values`` [width, lanes] has rows."""
        first = self.element.at()
        if self.element.check(first, len(values), self.active, reads=False):
            self.element.register.put(first, len(values), self.active, values)


@dataclass(frozen=True)
class MemoryArgument:
    """A place in global or shared memory; every access through it is checked and counted."""

    machine: Machine
    array: Array
    place: Place
    active: Active
    sites: dict[tuple[Op, int], Site]

    def load(self, width: int = 1) -> Floats:
        """Values [width, lanes]; lanes that are not active hold anything."""
        out = np.zeros((width, self.machine.batch.lanes), np.float32)
        p = self.place
        p.memory.read(self._site("load", width), p.part(), p.offset(), self.active, self.active, out)
        return out

    def store(self, values: Floats) -> None:
        """Write ``values`` [width, lanes] now, as an ordinary store."""
        p = self.place
        p.memory.write(self._site("store", len(values)), p.part(), p.offset(), self.active, values)

    def store_async(self, values: Floats, engine: int = 0) -> Flight:
        """Begin to write ``values`` [width, lanes] to shared memory; the words are in flight until they land."""
        p, site = self.place, self._site("store", len(values))
        shadow = self.machine.shared_shadow(self.array.name)
        # The values are put in place at once, past the shadow, and the shadow is told that they are in flight.
        p.memory.shadow = None
        try:
            p.memory.write(site, p.part(), p.offset(), self.active, values)
        finally:
            p.memory.shadow = shadow
        touch = Touch(site, p.part(), p.offset(), self.active)
        lanes = np.arange(self.machine.batch.lanes) if self.active is None else np.flatnonzero(self.active.array)
        return Flight(self.array.name, shadow.launch(touch, engine), lanes)

    def _site(self, op: Op, width: int) -> Site:
        found = self.sites.get((op, width))
        if found is None:
            found = self.sites[op, width] = self.machine.site(op, self.array, width, "")
        return found


@dataclass(frozen=True)
class MapArgument:
    """A tensor map: the box it moves, and the operand it moves it from."""

    map: TensorMap
    memory: Memory

    def read(self, along: Ints, across: Ints) -> Floats:
        """The operand's elements at these places, whatever the shape of the two; zero outside, as the engine gives."""
        m = self.memory
        inside = (along >= 0) & (along < m.used) & (across >= 0) & (across * m.row + along < m.size)
        if m.size == 0:
            return np.zeros(inside.shape, np.float32)
        found: Floats = np.where(inside, m.flat[np.where(inside, across * m.row + along, 0)], np.float32(0.0))
        return found


Argument = RegisterArgument | MemoryArgument | MapArgument | Callable[[], Ints]


def call(m: Machine, s: Call, scope: Scope) -> Step:
    """A hardware instruction. Raises ValueError where its row has no meaning."""
    meaning = s.row.meaning
    if meaning is None:
        raise ValueError(f"{s.row.name} has no meaning that the simulator could run")
    makers = [_argument(m, a, scope, (s, i)) for i, a in enumerate(s.args)]

    def run(active: Active) -> Generator[Wait, None, None] | None:
        found = meaning(Lanes(m, active), *(make(active) for make in makers))
        return found if blocks(s) else None

    return run


def blocks(s: Call) -> bool:
    """Whether an instruction may wait."""
    return isgeneratorfunction(s.row.meaning)


def _argument(m: Machine, a: Ref | Expr | MapRef, scope: Scope, key: object) -> Callable[[Active], Argument]:
    if isinstance(a, MapRef):
        tensor_map = next(t for t in m.ir.tensor_maps if t.name == a.name)
        through = MapArgument(tensor_map, m.memories[tensor_map.operand])
        return lambda active: through
    if isinstance(a, Expr):
        value = m.values.array(form_of(a, scope))
        return lambda active: value
    if a.array.space == "register":
        where = element(m, a, scope, key)
        return lambda active: RegisterArgument(where, active)
    array, at = a.array, place(m, a, scope)
    if not isinstance(a.memory, Pointer) and array.space == "global" and not array.const:
        m.written(array.name)
    sites: dict[tuple[Op, int], Site] = {}
    return lambda active: MemoryArgument(m, array, at, active, sites)
