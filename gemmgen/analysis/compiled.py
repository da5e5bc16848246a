"""Shared loads as written and as compiled.

The compiler joins loads of single words into wider ones, and then the hardware counts other requests and wavefronts
than the program says. Which loads were joined is read from the widths of the LDS instructions in the main loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from gemmgen.analysis.counts import AccessCost, Counts
from gemmgen.analysis.sass import MainLoop
from gemmgen.ir.nodes import Call, Load

NEAR = 0.03
"""Loads a multiply-add that count as the same: a loop's first or last turn may stand outside it."""


@dataclass(frozen=True)
class SharedLoads:
    """Requests and wavefronts of all shared loads. ``seen``: the machine code has loads of just these widths."""

    requests: int
    wavefronts: int
    seen: bool


def as_written(counts: Counts) -> SharedLoads:
    """What the program says."""
    cost = counts.total("shared", "load")
    return SharedLoads(cost.requests, cost.wavefronts, False)


def as_compiled(counts: Counts, loop: MainLoop | None) -> SharedLoads:
    """What the compiler made of it: the choice of joined loads that agrees with the machine code. Where the code is not
    known, or none agrees, every load is taken to be joined that can be.

    Loads of other blocks' shared memory are left out: to the hardware they are not loads of shared memory (LDS) but
    generic ones, behind the loop.
    """
    loads = [a for a in counts.accesses if (a.space, a.op) == ("shared", "load") and a.cost.requests and not _remote(a)]
    for joined in choices(loads):
        if loop is not None and _agree(loads, joined, counts.issued, loop):
            return _total(loads, joined, True)
    return _total(loads, (True,) * len(loads), False)


def _remote(a: AccessCost) -> bool:
    return isinstance(a.statement, Load) and a.statement.rank is not None


def choices(loads: Sequence[AccessCost]) -> Iterator[tuple[bool, ...]]:
    """Which loads may have been joined, the most first."""
    can = [(True, False) if a.cost.merged_requests < a.cost.requests else (True,) for a in loads]
    yield from sorted(product(*can), key=sum, reverse=True)


def _total(loads: Sequence[AccessCost], joined: tuple[bool, ...], seen: bool) -> SharedLoads:
    parts = [_cost(a, j) for a, j in zip(loads, joined, strict=True)]
    return SharedLoads(sum(r for r, _ in parts), sum(w for _, w in parts), seen)


def _cost(a: AccessCost, joined: bool) -> tuple[int, int]:
    c = a.cost
    return (c.merged_requests, c.merged_wavefronts) if joined else (c.requests, c.wavefronts)


def _agree(loads: Sequence[AccessCost], joined: tuple[bool, ...], products: float, loop: MainLoop) -> bool:
    """Whether the loop has as many loads of each width for a multiplication. Those by ldmatrix are never joined."""
    expected: dict[int, float] = {}
    for a, j in zip(loads, joined, strict=True):
        if isinstance(a.statement, Call):
            continue
        requests, _ = _cost(a, j)
        bits = 8 * a.item * a.width * a.cost.requests // requests
        expected[bits] = expected.get(bits, 0.0) + requests / products
    found = loop.per_ffma("LDS")
    most = max([*expected.values(), *found.values(), 0.0])
    return all(abs(expected.get(b, 0.0) - found.get(b, 0.0)) <= NEAR * most for b in {*expected, *found})
