"""Global and shared memory: checked, counted reads and writes by all lanes at once.

Memory is bytes. An array is a typed view of some of them; several arrays of a block may share the same bytes, each with
a type of its own. Places in an array are counted in its elements, addresses in bytes, and what the shadows watch in
units of the smallest element that lies in the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gemmgen.ir.memory import Array, shape_of
from gemmgen.ir.types import F32
from gemmgen.sim.count import Site, count
from gemmgen.sim.faults import FaultKind
from gemmgen.sim.lanes import NOBODY, Active, Batch, Bools, Data, Mask
from gemmgen.sim.shadow import Shadow, Touch
from gemmgen.sim.values import Part

PERIOD = 256
"""Bytes after which neither alignment nor sectors tell two addresses apart."""


SMALLEST_NORMAL = F32.tiny / (2 * F32.unit_roundoff)
"""The smallest float32 that is not subnormal."""


class ReportElement(Protocol):
    """Takes a fault at an element of an array; ``lane`` is the lane of the batch that it is blamed on."""

    def __call__(self, kind: FaultKind, site: Site, lane: int, element: int, other: str = "") -> None: ...


@dataclass(frozen=True)
class GlobalArray:
    """A matrix in global memory.

    ``data`` is a flat buffer of the matrix's type, written in place where the kernel writes; the matrix begins at
    element ``offset`` of it. ``alignment`` is the address of ``data[0]`` in bytes, modulo 256 (256: as allocated on a
    GPU; 4: one float past that). ``extent`` is how many elements from ``offset`` the kernel may touch; None: as many as
    its sizes and leading dimension say.
    """

    data: Data
    offset: int = 0
    alignment: int = 256
    extent: int | None = None

    @property
    def phase(self) -> int:
        """The first element's address, modulo PERIOD."""
        return (self.alignment + self.offset * self.data.itemsize) % PERIOD


class Memory:
    """One array in global or shared memory.

    ``size`` elements of ``dtype`` are allowed (in each block, for shared memory: ``block_size`` is then the distance
    between blocks, else 0, and ``base`` the place of its first element in the block's, where several arrays share
    memory; both in elements). Each element is ``scale`` units of the shadow. ``row`` is the distance of rows in
    elements, of which the first ``used`` may be written. ``phase`` is the address of the first element in bytes, modulo
    PERIOD. ``index_of`` gives the index of an element as a person writes it.
    """

    row = used = 0
    phase = 0
    align = PERIOD
    block_size = 0
    base = 0
    scale = 1

    def __init__(
        self,
        name: str,
        dtype: np.dtype[Any],
        size: int,
        report: ReportElement,
        index_of: Callable[[int], tuple[int, ...]],
    ) -> None:
        self.name = name
        self.size = size
        self.item = dtype.itemsize
        self.report = report
        self.index_of = index_of
        self.flat: Data = np.zeros(0, dtype)
        self.batch: Batch | None = None
        self.shadow: Shadow | None = None

    def read(
        self,
        site: Site,
        part: Part,
        offset: int,
        active: Active,
        wanted: Active,
        out: Data,
        rank: int | None = None,
    ) -> None:
        """Read ``site.width`` elements per lane into ``out`` [width, lanes], converted to its type. Lanes of ``wanted``
        that are not ``active``, or whose address is not allowed, get zeros; other lanes' values are arbitrary.
        ``rank``: from the shared memory of the cluster's block of that number."""
        assert self.batch is not None
        good = self.allowed(site, part, offset, active)
        if good is NOBODY or (good is not None and good.count == 0):
            out[...] = 0
            return
        first = offset + part.lo + self.base
        index, source = part.index(site.width, self.batch.blocks_of(rank), self.block_size, rank), self.flat
        if 0 <= first < source.size:
            source = source[first:]
        else:
            index = index + first
        if out.dtype == source.dtype:
            np.take(source, index, out=out, mode="clip")
        else:
            out[...] = np.take(source, index, mode="clip")
        if good is not None and good is not wanted:
            np.copyto(out, 0, casting="unsafe", where=~good.array)
        if self.shadow is not None:
            self.shadow.read(Touch(site, part, offset + self.base, good, rank, False, self.scale))
        count(site, self.batch, part, offset * self.item + self._phase_of(site), good)

    def write(self, site: Site, part: Part, offset: int, active: Active, values: Data) -> None:
        """Write ``values`` [width, lanes] of the active lanes, rounded to this memory's type; a lane whose address is
        not allowed writes nothing."""
        assert self.batch is not None
        good = self.allowed(site, part, offset, active)
        if good is NOBODY or (good is not None and good.count == 0):
            return
        index = part.index(site.width, self.batch.block, self.block_size)
        first = offset + part.lo + self.base
        if good is not None:
            self.flat[index[:, good.array] + first] = values[:, good.array]
        elif first >= 0:
            self.flat[first:][index] = values
        else:
            self.flat[index + first] = values
        if self.shadow is not None:
            self.shadow.write(Touch(site, part, offset + self.base, good, None, False, self.scale))
        count(site, self.batch, part, offset * self.item + self._phase_of(site), good)

    def add(self, site: Site, part: Part, offset: int, active: Active, values: Data) -> None:
        """Add ``values`` [width, lanes] of the active lanes to what is there, each once; counted as a write. Subnormal
        float32 count as zeros, before and after (PTX ISA, "red"; the machine code says FTZ); other types keep them."""
        assert self.batch is not None
        good = self.allowed(site, part, offset, active)
        if good is NOBODY or (good is not None and good.count == 0):
            return
        index = part.index(site.width, self.batch.block, self.block_size) + offset + part.lo + self.base
        some = slice(None) if good is None else good.array
        places = index[:, some]
        self.flat[places] = _flushed(self.flat[places])
        added = _flushed(values[:, some].astype(self.flat.dtype, copy=False))
        np.add.at(self.flat, places, added)  # lanes that add to the same element all count
        self.flat[places] = _flushed(self.flat[places])
        if self.shadow is not None:
            self.shadow.write(Touch(site, part, offset + self.base, good, None, True, self.scale))
        count(site, self.batch, part, offset * self.item + self._phase_of(site), good)

    def _phase_of(self, site: Site) -> int:
        return self.phase if site.space == "global" else 0

    def allowed(self, site: Site, part: Part, offset: int, active: Active) -> Active:
        """The lanes whose access stays inside and is aligned; the others are reported. A misaligned access goes on."""
        if active is not None and active.count == 0:
            return NOBODY
        lo, hi = part.range(active)
        width = site.width
        inside = lo + offset >= 0 and hi + offset + width <= self.size
        if inside and self._aligned(part, offset, width) and (site.op == "load" or self.used == self.row):
            return active
        assert self.batch is not None
        lanes = np.ones(self.batch.lanes, np.bool_) if active is None else active.array
        first = part.array + offset
        self._report_misaligned(site, lanes, part, offset)
        bad = lanes & ((first < 0) | (first + width > self.size))
        if bad.any():
            self._report_outside(site, bad, part, offset)
        if site.op == "store" and self.used < self.row:
            gap = lanes & ~bad & (first % self.row + width > self.used)
            if gap.any():
                lane = int(np.argmax(gap))
                end = int(first[lane]) // self.row * self.row + self.used
                self.report("out-of-bounds", site, lane, end, f"a row ends at {self.used}")
                bad |= gap
        return Mask(lanes & ~bad) if bad.any() else active

    def element_of(self, unit: int) -> int:
        """The element in which a unit of the shadow lies, in its own block."""
        element = unit // self.scale
        return element % self.block_size - self.base if self.block_size else element

    def _aligned(self, part: Part, offset: int, width: int) -> bool:
        residue, need = part.residue(width) if width > 1 else 0, width * self.item
        return residue >= 0 and ((residue + offset) * self.item + self.phase) % need == 0 and self.align >= need

    def _report_misaligned(self, site: Site, lanes: Bools, part: Part, offset: int) -> None:
        need = site.nbytes
        if self.align < need:
            self.report(
                "misaligned",
                site,
                int(np.argmax(lanes)),
                0,
                f"{self.name} is aligned to {self.align} bytes, and the access needs {need}",
            )
            return
        away = ((part.array + offset) * self.item + self.phase) % need
        bad = lanes & (away != 0)
        if bad.any():
            lane = int(np.argmax(bad))
            past = f"{int(away[lane])} bytes past a multiple of {need}, which an access of {need} bytes needs"
            self.report("misaligned", site, lane, int(part.array[lane]) + offset, past)

    def _report_outside(self, site: Site, bad: Bools, part: Part, offset: int) -> None:
        lane = int(np.argmax(bad))
        first = int(part.array[lane]) + offset
        element = first if first < 0 or first >= self.size else self.size
        verb = "reads" if site.op == "load" else "writes"
        self.report("out-of-bounds", site, lane, element, f"{verb} element {element} of {self.size}")


def _flushed(values: Data) -> Data:
    """Zeros of the same sign for subnormal float32."""
    if values.dtype != F32.numpy_dtype:
        return values
    found: Data = np.where(np.abs(values) < SMALLEST_NORMAL, np.copysign(values.dtype.type(0), values), values)
    return found


def shared_memory(array: Array, report: ReportElement) -> Memory:
    """A shared array of a block, in bytes of its own."""
    shape = shape_of(array)
    size = int(np.prod(shape, dtype=np.int64))
    memory = Memory(array.name, array.dtype.numpy_dtype, size, report, lambda element: unravel(element, shape))
    memory.align = array.align
    memory.block_size = size
    return memory


def global_memory(
    name: str, array: GlobalArray, shape: tuple[int, int], leading: int, order: str, report: ReportElement
) -> Memory:
    """A matrix in row or column order, its rows (columns) ``leading`` elements apart."""
    runs, length = shape if order == "row" else shape[::-1]
    reach = array.extent
    if reach is None:
        reach = (runs - 1) * leading + length if runs > 0 and length > 0 else 0
    size = max(0, min(reach, array.data.size - array.offset))

    def index_of(element: int) -> tuple[int, ...]:
        if array.extent is not None or leading <= 0:
            return (element,)
        run, i = divmod(element, leading)
        return (run, i) if order == "row" else (i, run)

    memory = Memory(name, array.data.dtype, size, report, index_of)
    memory.phase = array.phase
    if array.extent is None and leading > 0:
        memory.row, memory.used = leading, length
    memory.flat = array.data[array.offset : array.offset + size]
    return memory


def unravel(element: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element in each dimension; what lies outside shows in the first."""
    index: list[int] = []
    for extent in reversed(shape[1:]):
        element, i = divmod(element, extent)
        index.append(i)
    return (element, *reversed(index)) if shape else ()
