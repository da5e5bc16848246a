"""The state of a simulated launch: memories, registers, clocks, counts and faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import numpy as np

from gemmgen.ir.expr import value_of
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.memory import in_memory_order
from gemmgen.ir.nodes import Array, shape_of, size_bytes
from gemmgen.ir.types import DIMS, VECTOR_BYTES, DType
from gemmgen.isa.table import Pipe, Work
from gemmgen.sim.arrival import ArrivingShadow
from gemmgen.sim.clock import Clock
from gemmgen.sim.count import Op, Site
from gemmgen.sim.faults import Fault, FaultKind, FaultLog
from gemmgen.sim.lanes import Active, Batch, Bools
from gemmgen.sim.memory import GlobalArray, Memory, global_memory, shared_memory
from gemmgen.sim.registers import Register
from gemmgen.sim.shadow import SharedShadow
from gemmgen.sim.shadow_global import GlobalShadow
from gemmgen.sim.values import Values


class Machine:
    """Everything that the translated program works on. ``state`` is for the meanings of hardware instructions: what
    they keep for a batch (barriers, groups of copies), by a name of their own."""

    def __init__(
        self,
        ir: KernelIR,
        scalars: dict[str, int | float],
        arrays: dict[str, GlobalArray],
        limit: int,
        counted: bool = True,
    ) -> None:
        self.ir = ir
        self.counted = counted
        self.scalars = scalars
        self.log = FaultLog(limit)
        self.values = Values()
        self.sites: list[Site] = []
        self.registers: dict[Array, Register] = {}
        self.memories: dict[str, Memory] = {}
        self.math: defaultdict[Pipe, int] = defaultdict(int)
        self.state: dict[Hashable, object] = {}
        self.batch = self.values.batch
        self.clock = Clock(self.batch)
        for name, array in arrays.items():
            self.memories[name] = self._global(name, array)
        self.arriving = {name: ArrivingShadow(self.report_unit) for name in ir.arriving}
        for name, arriving in self.arriving.items():
            self.memories[name].shadow = arriving
        for a in ir.shared:
            self.memories[a.name] = shared_memory(a, self.report)
        self.together = self._place_together()
        self.storage = np.zeros(0, np.uint8)
        self._shadows: dict[str, SharedShadow] = {}

    def start(self, batch: Batch) -> None:
        """Begin a batch: fresh shared memory and registers, all clocks at zero."""
        self.batch = self.values.batch = batch
        self.clock = Clock(batch)
        self.state.clear()
        for arriving in self.arriving.values():
            arriving.start(batch, self.clock)
        for memory in self.memories.values():
            memory.batch = batch
            if memory.block_size:
                self._start_shared(memory, several=memory.name in self.together)
            elif isinstance(memory.shadow, GlobalShadow):
                memory.shadow.start(batch, self.clock)
        for name in self.together[1:]:
            first = self.memories[self.together[0]]
            memory = self.memories[name]
            memory.flat, memory.shadow = self.storage.view(memory.flat.dtype), first.shadow
            self._shadows[name] = self._shadows[first.name]
        for register in self.registers.values():
            register.start(batch.lanes)

    def _place_together(self) -> tuple[str, ...]:
        """Arrays that take the place of others, and those others: one memory, in which each has its first element."""
        replaced = {name for a in self.ir.shared for name in a.over}
        arrays = [a for a in in_memory_order(self.ir.shared) if a.name in replaced]
        over = [a for a in self.ir.shared if a.over]
        at = 0
        for a in arrays:
            self.memories[a.name].base = at // a.dtype.bytes
            at += size_bytes(a)
        nbytes = max([at, *(size_bytes(a) for a in over)])
        whole = -(-nbytes // VECTOR_BYTES) * VECTOR_BYTES
        unit = min((a.dtype.bytes for a in (*arrays, *over)), default=1)
        for a in (*arrays, *over):
            memory = self.memories[a.name]
            memory.block_size, memory.scale = whole // memory.item, memory.item // unit
        return tuple(a.name for a in (*arrays, *over)) if over else ()

    def _start_shared(self, memory: Memory, several: bool) -> None:
        """Fresh shared memory and a shadow of it, which several arrays may have in common."""
        storage = np.zeros(self.batch.blocks * memory.block_size * memory.item, np.uint8)
        if several:
            self.storage = storage
        memory.flat, units = storage.view(memory.flat.dtype), memory.block_size * memory.scale
        shadow = SharedShadow(self.batch, self.clock, units, self.sites, self.report_unit, several)
        memory.shadow = self._shadows[memory.name] = shadow

    def end(self) -> None:
        """The blocks of the batch end."""
        for shadow in self._shadows.values():
            shadow.end()

    def shared_shadow(self, name: str) -> SharedShadow:
        """The shadow of a shared array."""
        return self._shadows[name]

    def written(self, name: str) -> None:
        """The program writes this global array: its accesses are checked for races."""
        memory, arriving = self.memories[name], self.arriving.get(name)
        if arriving is not None:
            arriving.within = arriving.within or GlobalShadow(memory.size, self.report_unit)
        elif not memory.block_size and memory.shadow is None:
            memory.shadow = GlobalShadow(memory.size, self.report_unit)

    def join(self, blocks: Bools | None = None, clusters: bool = False) -> None:
        """All threads of the blocks (None: of all), or of all their ``clusters``, have met at a barrier."""
        if clusters:
            self.clock.join_clusters(blocks)
        else:
            self.clock.join(blocks)
        for memory in self.memories.values():
            if memory.shadow is not None:
                memory.shadow.settle()

    def await_previous(self, active: Active) -> None:
        """The active lanes have waited for the kernel before: what it wrote has arrived."""
        for arriving in self.arriving.values():
            arriving.wait(active)

    def memory(self, name: str, dtype: DType) -> Memory:
        """An array in memory. Raises ValueError where what was given for it is not of the program's type."""
        found = self.memories[name]
        if found.flat.dtype != dtype.numpy_dtype:
            raise ValueError(f"{name} is of type {found.flat.dtype}; the program has {dtype.numpy} there")
        return found

    def register(self, array: Array) -> Register:
        """The register array that a declaration or an access names."""
        found = self.registers.get(array)
        if found is None:
            found = self.registers[array] = Register(array.name, shape_of(array), array.dtype)
        return found

    def site(
        self, op: Op, array: Array, width: int, origin: str, space: str | None = None, past_l1: bool = False
    ) -> Site:
        """A new access of the program. ``space`` is the array's unless given: "tma" counts apart, "engine" not."""
        space = array.space if space is None else space
        item, line = array.dtype.bytes, self.line(origin)
        made = Site(len(self.sites), op, space, array.operand, array.name, width, item, line, past_l1, self.counted)
        self.sites.append(made)
        return made

    def line(self, origin: str) -> int | None:
        """The spec line of an access's origin; of the block's tile where the setting was left at its default."""
        return self.ir.source.line(origin)

    def active_lanes(self, active: Active) -> int:
        return self.batch.lanes if active is None else active.count

    def compute(self, work: Work, active: Active) -> None:
        """The active lanes do this work."""
        self.math[work.pipe] += work.flops * self.active_lanes(active)

    def report(self, kind: FaultKind, site: Site, lane: int, element: int, other: str = "") -> None:
        """Record a fault at an element of a site's array."""
        index = self.memories[site.buffer].index_of(element)
        self.fault(kind, (site.buffer, site.number), site.buffer, lane, index, site.line, other)

    def report_unit(self, kind: FaultKind, site: Site, lane: int, unit: int, other: str = "") -> None:
        """Record a fault at a unit of a shadow, counted through all blocks."""
        self.report(kind, site, lane, self.memories[site.buffer].element_of(unit), other)

    def fault(
        self,
        kind: FaultKind,
        key: Hashable,
        buffer: str,
        lane: int,
        index: tuple[int, ...] = (),
        line: int | None = None,
        other: str = "",
    ) -> None:
        """Record a fault of a lane, once for each kind and ``key``."""
        b = self.batch
        self.log.add(
            kind, key, lambda: Fault(kind, buffer, b.block_index(lane), int(b.thread[lane]), index, line, other)
        )

    def _global(self, name: str, array: GlobalArray) -> Memory:
        leading = int(self.scalars.get(f"ld{name.lower()}", 0))
        if name not in DIMS or self.ir.matrix(name).batch:  # of a batch, from the first matrix to the last
            whole = array.data.size - array.offset if array.extent is None else array.extent
            array = GlobalArray(array.data, array.offset, array.alignment, whole)
            return global_memory(name, array, (1, whole), 0, "row", self.report)
        rows, columns = (int(self.scalars[d.upper()]) for d in DIMS[name])
        if name == "C" and self.ir.then is not None:
            rows, columns = _with_slices(rows, columns, self.ir)
        if name in self.ir.variant.padded or self.ir.matrix(name).parts > 1:  # to the end of every line
            rows, columns = (rows, leading) if self.ir.matrix(name).order == "row" else (leading, columns)
        return global_memory(name, array, (rows, columns), leading, self.ir.matrix(name).order, self.report)


def _with_slices(rows: int, columns: int, ir: KernelIR) -> tuple[int, int]:
    """Extents of what stands for C where each slice of the grid writes a matrix of its own, one after another."""
    slices = value_of(ir.grid[2]) or 1
    return (rows * slices, columns) if ir.matrix("C").order == "row" else (rows, columns * slices)
