"""Global and shared memory: checked, counted reads and writes by all lanes at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemmgen.sim.count import Site, count
from gemmgen.sim.lanes import NOBODY, Active, Batch, Bools, Floats, Mask
from gemmgen.sim.shadow import Reporter, Shadow, Touch
from gemmgen.sim.values import Part

WORD = 4
PERIOD = 64
"""Elements after which neither alignment nor sectors tell two addresses apart."""


@dataclass(frozen=True)
class GlobalArray:
    """A matrix in global memory.

    ``data`` is a flat float32 buffer, written in place where the kernel writes; the matrix begins at element ``offset``
    of it. ``alignment`` is the address of ``data[0]`` in bytes, modulo 256 (256: as allocated on a GPU; 4: one element
    past that). ``extent`` is how many elements from ``offset`` the kernel may touch; None: as many as its sizes and
    leading dimension say.
    """

    data: Floats
    offset: int = 0
    alignment: int = 256
    extent: int | None = None

    @property
    def phase(self) -> int:
        """The first element's address, in elements, modulo PERIOD."""
        return (self.alignment // WORD + self.offset) % PERIOD


class Memory:
    """One array in global or shared memory.

    ``size`` words are allowed (in each block, for shared memory: ``block_words`` is then the distance between blocks,
    else 0, and ``base`` the place of its first word in the block's, where several arrays share memory). ``row`` is the
    distance of rows in words, of which the first ``used`` may be written. ``index_of`` gives the index of a word as a
    person writes it.
    """

    row = used = 0
    phase = 0
    align = PERIOD * WORD
    block_words = 0
    base = 0

    def __init__(self, name: str, size: int, report: Reporter, index_of: Callable[[int], tuple[int, ...]]) -> None:
        self.name = name
        self.size = size
        self.report = report
        self.index_of = index_of
        self.flat: Floats = np.zeros(0, np.float32)
        self.batch: Batch | None = None
        self.shadow: Shadow | None = None

    def read(
        self,
        site: Site,
        part: Part,
        offset: int,
        active: Active,
        wanted: Active,
        out: Floats,
        rank: int | None = None,
    ) -> None:
        """Read ``site.width`` words a lane into ``out`` [width, lanes]. Lanes of ``wanted`` that are not ``active``, or
        whose address is not allowed, get zeros; other lanes' values are arbitrary. ``rank``: from the shared memory of
        the cluster's block of that number."""
        assert self.batch is not None
        good = self.allowed(site, part, offset, active)
        if good is NOBODY or (good is not None and good.count == 0):
            out[...] = 0.0
            return
        first = offset + part.lo + self.base
        index = part.index(site.width, self.batch.blocks_of(rank), self.block_words, rank)
        if 0 <= first < self.flat.size:
            np.take(self.flat[first:], index, out=out, mode="clip")
        else:
            np.take(self.flat, index + first, out=out, mode="clip")
        if good is not None and good is not wanted:
            np.copyto(out, np.float32(0.0), where=~good.array)
        if self.shadow is not None:
            self.shadow.read(Touch(site, part, offset + self.base, good, rank))
        count(site, self.batch, part, offset + self._phase_of(site), good)

    def write(self, site: Site, part: Part, offset: int, active: Active, values: Floats) -> None:
        """Write ``values`` [width, lanes] of the active lanes; a lane whose address is not allowed writes nothing."""
        assert self.batch is not None
        good = self.allowed(site, part, offset, active)
        if good is NOBODY or (good is not None and good.count == 0):
            return
        index = part.index(site.width, self.batch.block, self.block_words)
        first = offset + part.lo + self.base
        if good is not None:
            self.flat[index[:, good.array] + first] = values[:, good.array]
        elif first >= 0:
            self.flat[first:][index] = values
        else:
            self.flat[index + first] = values
        if self.shadow is not None:
            self.shadow.write(Touch(site, part, offset + self.base, good))
        count(site, self.batch, part, offset + self._phase_of(site), good)

    def add(self, site: Site, part: Part, offset: int, active: Active, values: Floats) -> None:
        """Add ``values`` [width, lanes] of the active lanes to what is there, each once; counted as a write. Subnormal
        numbers count as zeros, before and after (PTX ISA, "red"; the machine code says FTZ)."""
        assert self.batch is not None
        good = self.allowed(site, part, offset, active)
        if good is NOBODY or (good is not None and good.count == 0):
            return
        index = part.index(site.width, self.batch.block, self.block_words) + offset + part.lo + self.base
        some = slice(None) if good is None else good.array
        words = index[:, some]
        self.flat[words] = _flushed(self.flat[words])
        np.add.at(self.flat, words, _flushed(values[:, some]))  # lanes that add to the same word all count
        self.flat[words] = _flushed(self.flat[words])
        if self.shadow is not None:
            self.shadow.write(Touch(site, part, offset + self.base, good, atomic=True))
        count(site, self.batch, part, offset + self._phase_of(site), good)

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
                word = int(first[lane]) // self.row * self.row + self.used
                self.report("out-of-bounds", site, lane, word, f"a row ends at {self.used}")
                bad |= gap
        return Mask(lanes & ~bad) if bad.any() else active

    def _aligned(self, part: Part, offset: int, width: int) -> bool:
        if width == 1:
            return True
        residue = part.residue(width)
        return residue >= 0 and (residue + offset + self.phase) % width == 0 and self.align >= WORD * width

    def _report_misaligned(self, site: Site, lanes: Bools, part: Part, offset: int) -> None:
        need = WORD * site.width
        if self.align < need:
            self.report(
                "misaligned",
                site,
                int(np.argmax(lanes)),
                0,
                f"{self.name} is aligned to {self.align} bytes, and the access needs {need}",
            )
            return
        away = (part.array + offset + self.phase) % site.width
        bad = lanes & (away != 0)
        if bad.any():
            lane = int(np.argmax(bad))
            past = f"{WORD * int(away[lane])} bytes past a multiple of {need}, which an access of {need} bytes needs"
            self.report("misaligned", site, lane, int(part.array[lane]) + offset, past)

    def _report_outside(self, site: Site, bad: Bools, part: Part, offset: int) -> None:
        lane = int(np.argmax(bad))
        first = int(part.array[lane]) + offset
        word = first if first < 0 or first >= self.size else self.size
        verb = "reads" if site.op == "load" else "writes"
        self.report("out-of-bounds", site, lane, word, f"{verb} element {word} of {self.size}")


def _flushed(values: Floats) -> Floats:
    """Zeros of the same sign for subnormal numbers."""
    tiny = np.abs(values) < np.finfo(np.float32).smallest_normal
    found: Floats = np.where(tiny, np.copysign(np.float32(0.0), values), values)
    return found


def shared_memory(name: str, shape: tuple[int, ...], align: int, report: Reporter) -> Memory:
    """A shared array of a block."""
    size = int(np.prod(shape, dtype=np.int64))
    memory = Memory(name, size, report, lambda word: unravel(word, shape))
    memory.align = align
    memory.block_words = size
    return memory


def global_memory(
    name: str, array: GlobalArray, shape: tuple[int, int], leading: int, order: str, report: Reporter
) -> Memory:
    """A matrix in row or column order, its rows (columns) ``leading`` elements apart."""
    runs, length = shape if order == "row" else shape[::-1]
    reach = array.extent
    if reach is None:
        reach = (runs - 1) * leading + length if runs > 0 and length > 0 else 0
    size = max(0, min(reach, array.data.size - array.offset))

    def index_of(word: int) -> tuple[int, ...]:
        if array.extent is not None or leading <= 0:
            return (word,)
        run, i = divmod(word, leading)
        return (run, i) if order == "row" else (i, run)

    memory = Memory(name, size, report, index_of)
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
