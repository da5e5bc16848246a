"""The addresses of the lanes of one warp in one access, from the kernel IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from gemmgen.analysis.accesses import THREAD, Access, launch_grid, sites
from gemmgen.analysis.classes import evaluate
from gemmgen.ir.types import WARP
from gemmgen.isa import memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gemmgen.ir.kernel import KernelIR

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

Lanes = tuple[int | None, ...]


@dataclass(frozen=True)
class Pattern:
    """One access of one warp, in the first iteration of its loops that executes it: ``addresses`` in bytes by lane,
    None for an inactive lane; ``nbytes`` per lane. ``block`` is (x, y); the warp is the first of the most expensive
    ones."""

    access: Access
    warp: int
    addresses: Lanes
    nbytes: int
    block: tuple[int, int] = (0, 0)

    @property
    def words(self) -> Lanes:
        """The first 4-byte word of each lane."""
        return tuple(None if a is None else a // memory.BANK_BYTES for a in self.addresses)

    @property
    def width(self) -> int:
        """Words per lane."""
        return max(1, self.nbytes // memory.BANK_BYTES)

    def lanes_by_word(self, lanes: Sequence[int] = tuple(range(WARP))) -> dict[int, list[int]]:
        """The lanes that access each word, words in order."""
        found: dict[int, list[int]] = {}
        for lane in lanes:
            first = self.words[lane]
            for word in range(first, first + self.width) if first is not None else ():
                found.setdefault(word, []).append(lane)
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Phase:
    """Lanes of a shared-memory access that are served together. ``turns[r]`` are the words of wavefront r: a word and
    its lanes by bank."""

    lanes: range
    turns: tuple[Mapping[int, tuple[int, list[int]]], ...]


def patterns(ir: KernelIR, scalars: Mapping[str, float]) -> Iterator[tuple[Access, Pattern | None]]:
    """Every access of a launch in program order, with its pattern; None where no lane executes it.

    Raises GemmgenError for an instruction whose accesses are unknown.
    """
    for site in sites(ir, scalars, launch_grid(ir, scalars)):
        if isinstance(site, Access):
            yield site, pattern(site, ir.threads)


def pattern(access: Access, threads: int) -> Pattern | None:
    import numpy as np

    numbers = np.arange(-(-threads // WARP) * WARP, dtype=np.int64).reshape(-1, WARP)
    exists = numbers < threads
    for turn in _turns(access):
        values = {THREAD: numbers, **{name: np.asarray(value, dtype=np.int64) for name, value in turn.items()}}
        active = np.broadcast_to(evaluate(access.active, values) != 0, numbers.shape) & exists
        if active.any():
            place = np.broadcast_to(evaluate(access.address, values), numbers.shape) * access.element_bytes
            worst = _worst(access, place, active)
            return replace(worst, block=(turn.get("blockIdx.x", 0), turn.get("blockIdx.y", 0)))
    return None


def _turns(access: Access) -> Iterator[dict[str, int]]:
    """Iterations of the loops around an access: the first of all loops, then the last of some."""
    if any(axis.count == 0 for axis in access.axes):
        return
    ends = [(0,) if axis.count == 1 else (0, axis.count - 1) for axis in access.axes]
    for turn in sorted(product(*ends), key=lambda turn: sum(index > 0 for index in turn)):
        yield {axis.index.name: index for axis, index in zip(access.axes, turn, strict=True)}


def _worst(access: Access, place: Ints, active: Mask) -> Pattern:
    """The most expensive of warps [warps, 32], from addresses in bytes and active lanes."""
    store = access.op == "store"
    if access.array.space == "shared":
        words, width = memory.in_words(place, access.lane_bytes)
        costs = memory.wavefronts_of(words, active, width, store)
    else:
        costs = memory.sectors_of(place, active, access.lane_bytes)
    warp = int(costs.argmax())
    lanes = tuple(int(a) if on else None for a, on in zip(place[warp], active[warp], strict=True))
    return Pattern(access, warp, lanes, access.lane_bytes)


def phases(p: Pattern) -> tuple[Phase, ...]:
    """The phases of a shared-memory access, and in each the wavefronts in which the banks serve it."""
    size = memory.lanes_together(p.words, p.width, p.access.op == "store")
    return tuple(_phase(p, range(first, first + size)) for first in range(0, WARP, size))


def _phase(p: Pattern, lanes: range) -> Phase:
    banks: dict[int, list[tuple[int, list[int]]]] = {}
    for word, touching in p.lanes_by_word(lanes).items():
        banks.setdefault(word % memory.BANKS, []).append((word, touching))
    deepest = max((len(words) for words in banks.values()), default=0)
    return Phase(lanes, tuple({b: words[r] for b, words in banks.items() if r < len(words)} for r in range(deepest)))


def sectors(p: Pattern) -> tuple[int, ...]:
    """Numbers of the 32-byte sectors of a global access, in order."""
    words = p.lanes_by_word()
    return tuple(dict.fromkeys(word * memory.BANK_BYTES // memory.SECTOR for word in words))


def runs(p: Pattern) -> list[str]:
    """The word addresses lane by lane as text: ``lanes 0 to 15: words 0, 8, ... 120``."""
    out: list[str] = []
    lane = 0
    while lane < WARP:
        last, step = _run(p.words, lane)
        out.append(_run_text(p, lane, last, step))
        lane = last + 1
    return out


def _run(words: Lanes, first: int) -> tuple[int, int | None]:
    """The last lane of the longest run from ``first`` with one step between neighbours (None: inactive lanes)."""
    start = words[first]
    if start is None:
        last = first
        while last + 1 < len(words) and words[last + 1] is None:
            last += 1
        return last, None
    if first + 1 == len(words) or (after := words[first + 1]) is None:
        return first, 0
    step, last, at = after - start, first, start
    while last + 1 < len(words) and words[last + 1] == at + step:
        last, at = last + 1, at + step
    return last, step


def _run_text(p: Pattern, first: int, last: int, step: int | None) -> str:
    lanes = f"lane {first}" if first == last else f"lanes {first} to {last}"
    start, end = p.words[first], p.words[last]
    if step is None or start is None or end is None:
        return f"{lanes}: inactive"
    wide = f", {p.width} words each" if p.width > 1 else ""
    if first == last:
        return f"{lanes}: word {start}{wide}"
    if step == 0:
        return f"{lanes}: all word {start}{wide}"
    return (
        f"{lanes}: words {start}, {start + step}, ... {end}{wide}"
        if last - first > 1
        else (f"{lanes}: words {start} and {end}{wide}")
    )
