"""Neighbours of an illegal choice, for the hints of the checks to try."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gemmgen.ir.types import WARP
from gemmgen.spec.model import TOGGLES

K_STEPS = (8, 16, 4, 32, 2, 1, 12, 24, 6, 3, 5, 7, 64, 128)
"""BK to propose, the most usual first."""
MAX_THREADS = 1024  # threads in a block, by CUDA's programming guide, on every architecture so far
MAX_SIZE = 1024  # of any tile dimension
MAX_ACCUMULATORS = 1024  # running sums in a thread


def requirements(toggle: str, use: frozenset[str] | None = None, *, fma: bool = True) -> list[str]:
    """A toggle with all that it needs, what needs nothing first; or with what of that is in ``use``. ``fma`` says
    whether the spec multiplies by plain multiply-adds."""
    needs = {t.name: (*t.needs, *(t.fma_needs if fma else ())) for t in TOGGLES}
    wanted = [need for need in needs.get(toggle, ()) if use is None or need in use]
    found = [name for need in wanted for name in requirements(need, use, fma=fma)]
    return list(dict.fromkeys([*found, toggle]))


def dependents(use: frozenset[str], toggle: str) -> list[str]:
    """A toggle with all in ``use`` that make no sense without it."""
    every = use | {toggle}
    return [toggle, *(t.name for t in TOGGLES if t.name in use - {toggle} and toggle in requirements(t.name, every))]


def either(*ways: str) -> str:
    """A hint of several ways out, of which some may be empty."""
    return ", or ".join(way for way in ways if way)


def lane_grids(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """The ways to lay 32 lanes over rows x columns of thread tiles, as (m_iter, n_iter), smallest m_iter first."""
    for lanes_m in (32, 16, 8, 4, 2, 1):
        lanes_n = WARP // lanes_m
        if rows % lanes_m == 0 and columns % lanes_n == 0:
            yield rows // lanes_m, columns // lanes_n


def multiples_near(value: int, step: int) -> list[int]:
    """The multiples of ``step`` next to ``value``, which is not one, between 1 and the largest size."""
    below = value // step * step
    return [v for v in (below, below + step) if 0 < v <= MAX_SIZE]


def multiples_around(value: int, step: int) -> tuple[range, range]:
    """The multiples of ``step`` below ``value`` and above it, from 1 to the largest size, the nearest first."""
    below = (value - 1) // step * step
    above = (value // step + 1) * step
    return range(min(below, MAX_SIZE), 0, -step), range(above, MAX_SIZE + 1, step)


def divisors(value: int) -> list[int]:
    return [d for d in range(1, value + 1) if value % d == 0]


def warps_for(block: tuple[int, int], thread: tuple[int, int], near: tuple[int, int]) -> list[tuple[int, int]]:
    """Warp tiles that divide the block, that 32 lanes cover, and that fit in 1024 threads; nearest first."""
    found = [
        (wm, wn)
        for wm in divisors(block[0])
        if wm % thread[0] == 0
        for wn in divisors(block[1])
        if wn % thread[1] == 0
        and any(True for _ in lane_grids(wm // thread[0], wn // thread[1]))
        and WARP * (block[0] // wm) * (block[1] // wn) <= MAX_THREADS
        and wm * wn // WARP <= MAX_ACCUMULATORS
    ]
    return _nearest(found, near)


def threads_for(block: tuple[int, int], near: tuple[int, int]) -> list[tuple[int, int]]:
    """Thread tiles that divide the block and make at most 1024 threads; nearest first."""
    found = [
        (tm, tn)
        for tm in divisors(block[0])
        for tn in divisors(block[1])
        if (block[0] // tm) * (block[1] // tn) <= MAX_THREADS and tm * tn <= MAX_ACCUMULATORS
    ]
    return _nearest(found, near)


def _nearest(found: Iterable[tuple[int, int]], near: tuple[int, int]) -> list[tuple[int, int]]:
    def distance(tile: tuple[int, int]) -> tuple[float, tuple[int, int]]:
        ratios = [max(a, b) / min(a, b) for a, b in zip(tile, near, strict=True)]
        return ratios[0] * ratios[1], tile

    return sorted(found, key=distance)
