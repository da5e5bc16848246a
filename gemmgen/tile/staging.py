"""C's tile on its way through shared memory: how its lines are set apart there.

Threads store their sums a piece at a time, and then load whole lines. Which banks both ask for follows from the tile
sizes and the padding behind each line, so every padding is tried, and the one with the fewest wavefronts taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gemmgen.ir.types import F32, WARP
from gemmgen.isa.memory import BANKS, ideal_wavefronts, warp_wavefronts
from gemmgen.tile.program import SHARED_LIMIT, STAGED, Buffer, Layout, TileProgram

Lanes = tuple[tuple[int, int], ...]
"""Where the lanes of one instruction of a warp are in a tile: (line, first element in it), from its first line on."""


@dataclass(frozen=True)
class Accesses:
    """All instructions of one kind that a block makes on the tile, those alike but for their lines counted together."""

    patterns: tuple[tuple[Lanes, int], ...]
    width: int
    store: bool

    def wavefronts(self, pitch: int) -> int:
        """What they take with ``pitch`` elements from one line to the next."""
        return sum(n * warp_wavefronts(_words(x, pitch), self.width, self.store) for x, n in self.patterns)

    def ideal(self, pitch: int) -> int:
        """What they would take without bank conflicts."""
        return sum(n * ideal_wavefronts(_words(x, pitch), self.width, self.store) for x, n in self.patterns)


def tile_of_c(p: TileProgram, left: int, full: int, width: int) -> Buffer:
    """C's tile in shared memory. ``left``: elements of a store of a thread's sums; ``full`` and ``width``: those of a
    load of a line, where C is aligned and in this variant. All variants of a kernel have the same padding."""
    along = p.contiguous("C")
    dims, extents = (p.strided("C"), along), (p.extent(p.strided("C")), p.extent(along))
    stores, loads = stores_of_sums(p, left), loads_of_lines(p, width)
    pad = _best_pad(extents, stores, loads_of_lines(p, full), max(left, full))
    why = _why(extents[1], pad, stores, loads, best=width == full)
    return Buffer(STAGED, "C", Layout(dims, extents, pad), why=why, over=tuple(b.name for b in p.buffers))


def _best_pad(extents: tuple[int, int], stores: Accesses, loads: Accesses, unit: int) -> int:
    """The smallest of the paddings with fewest wavefronts, of those with which the tile fits a block; accesses stay
    aligned with multiples of ``unit``."""
    lines, length = extents

    def cost(pad: int) -> tuple[bool, int, int]:
        pitch = length + pad
        return (
            pad > 0 and F32.bytes * lines * pitch > SHARED_LIMIT,
            stores.wavefronts(pitch) + loads.wavefronts(pitch),
            pad,
        )

    return min(range(0, BANKS, unit), key=cost)


def _why(length: int, pad: int, stores: Accesses, loads: Accesses, best: bool) -> str:
    """What the banks make of lines of ``length`` and the padding. ``best``: it is the best for just these accesses."""
    found = [(x.wavefronts(length + pad), x.ideal(length + pad)) for x in (stores, loads)]
    if all(taken == ideal for taken, ideal in found):
        how = "rows are padded: " if pad else ""
        return f"{how}no bank conflicts, neither where sums are stored nor where rows are loaded"
    said = [
        f"{what} {taken / ideal:.3g}"
        for what, (taken, ideal) in zip(("stores of sums take", "loads of rows take"), found, strict=True)
        if taken > ideal
    ]
    still = "with padded rows, " if pad else ""
    fewest = ", the fewest of any padding" if best else ""
    return f"{still}{' and '.join(said)} times the wavefronts of accesses without bank conflicts{fewest}"


# --- Who is where -----------------------------------------------------------------------------------------------------


def stores_of_sums(p: TileProgram, width: int) -> Accesses:
    """Each thread stores all its sums, ``width`` neighbours at a time; a thread's stores are alike but for where it
    begins."""
    piece, thread = p.product.level("piece"), p.product.level("thread")
    times = piece.m * piece.n * thread.m * thread.n // width
    return Accesses(_alike(_warps([_first_sum(p, t) for t in range(p.threads)]), times), width, True)


def loads_of_lines(p: TileProgram, width: int) -> Accesses:
    """Consecutive threads load ``width`` neighbours each, line after line."""
    pieces, lines = p.extent(p.contiguous("C")) // width, p.extent(p.strided("C"))
    found: list[Lanes] = []
    for start in range(0, pieces * lines, p.threads):
        numbers = range(start, min(start + p.threads, pieces * lines))
        found += _warps([(i // pieces, i % pieces * width) for i in numbers])
    return Accesses(_alike(found, 1), width, False)


def _first_sum(p: TileProgram, thread_number: int) -> tuple[int, int]:
    """Line and element of a thread's first sum in the tile of C."""
    warp, piece, lane, thread = (p.product.level(x) for x in ("warp", "piece", "lane", "thread"))
    w, i = divmod(thread_number, lane.m * lane.n)
    y, x = divmod(i, lane.n) if lane.walk == "n" else (i % lane.m, i // lane.m)
    row = w // warp.n * piece.m * lane.m * thread.m + y * thread.m
    col = w % warp.n * piece.n * lane.n * thread.n + x * thread.n
    return (row, col) if p.contiguous("C") == "n" else (col, row)


def _warps(places: list[tuple[int, int]]) -> Iterator[Lanes]:
    """The places of consecutive threads as warps, each from its first line on: banks repeat alike from any start."""
    for start in range(0, len(places), WARP):
        lanes = places[start : start + WARP]
        first = min(line for line, _ in lanes)
        yield tuple((line - first, at) for line, at in lanes)


def _alike(warps: Iterable[Lanes], times: int) -> tuple[tuple[Lanes, int], ...]:
    return tuple((lanes, n * times) for lanes, n in Counter(warps).items())


def _words(lanes: Lanes, pitch: int) -> list[int]:
    return [line * pitch + at for line, at in lanes]
