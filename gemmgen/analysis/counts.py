"""Exact counts of what a launch does, at any size in constant time: what the simulator counts by running it.

Requests and wavefronts are of whole warps, sectors are of 32 bytes, multiply-adds are of single threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Literal, assert_never

from gemmgen.analysis.accesses import THREAD, Access, Arithmetic, BoxLoad, Site, launch_grid, sites
from gemmgen.analysis.classes import Classes, classify, evaluate, index_values
from gemmgen.analysis.merging import merged
from gemmgen.ir.expr import Const, Expr, value_of
from gemmgen.ir.facts import variables
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Call, Load, Store
from gemmgen.ir.types import WARP
from gemmgen.isa import memory
from gemmgen.isa.counted import FMA, Warps, rules
from gemmgen.isa.counted import Cost as Cost
from gemmgen.isa.table import Pipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

ALL_DIFFERENT = 1 << 62
"""Unit in which no two values are alike unless they are equal."""
ROWS_AT_ONCE = 1 << 15
"""Warps whose addresses are held in memory at the same time."""
MOST_OF_A_BLOCK = 1 << 28
"""No figure of one turn of one block is larger: 1024 threads that each ask for a box of 256x256 elements."""


@dataclass(frozen=True)
class AccessCost:
    """One load or store of the program, and what all its executions cost.

    Space "tma" is for boxes that the TMA engine fetches: ``requests`` counts boxes, ``bytes_used`` what of them lies in
    the matrix. They pass by the units whose counts the other spaces are.
    """

    statement: Load | Store | Call
    operand: str
    op: Literal["load", "store"]
    space: Literal["global", "shared", "tma"]
    width: int
    item: int
    """Bytes per element."""
    cost: Cost


@dataclass(frozen=True)
class Counts:
    """What one launch does. ``accesses`` are in program order; ``math`` are the flops of each pipe; ``mma`` are the
    multiplications by tensor cores, each of a warp."""

    accesses: tuple[AccessCost, ...] = ()
    math: Mapping[Pipe, int] = field(default_factory=dict, hash=False)
    mma: int = 0

    @property
    def fma(self) -> int:
        """Multiply-adds of single threads."""
        return self.math.get(FMA.pipe, 0) // FMA.flops

    @property
    def products(self) -> int:
        """Multiply-adds on any pipe."""
        return sum(self.math.values()) // FMA.flops

    @property
    def issued(self) -> float:
        """Instructions of warps that multiply."""
        return self.fma / WARP + self.mma

    def total(self, space: str, op: str) -> Cost:
        """All accesses of one kind together: space "global", "shared" or "tma", op "load" or "store"."""
        return sum((a.cost for a in self.accesses if (a.space, a.op) == (space, op)), Cost())

    def __mul__(self, times: int) -> Counts:
        """The counts of so many equal launches."""
        if times == 1:
            return self
        math = {pipe: flops * times for pipe, flops in self.math.items()}
        return Counts(tuple(replace(a, cost=a.cost * times) for a in self.accesses), math, self.mma * times)

    def __add__(self, other: Counts) -> Counts:
        """The counts of two launches, those of the same access together."""
        merged = _by_occurrence(self.accesses)
        for key, a in _by_occurrence(other.accesses).items():
            known = merged.get(key)
            merged[key] = a if known is None else replace(a, cost=known.cost + a.cost)
        math = dict(Counter(self.math) + Counter(other.math))
        return Counts(tuple(merged.values()), math, self.mma + other.mma)


def _by_occurrence(accesses: Sequence[AccessCost]) -> dict[tuple[Load | Store | Call, str, int], AccessCost]:
    """Accesses by statement; equal statements are told apart by their order."""
    seen: Counter[tuple[Load | Store | Call, str]] = Counter()
    out: dict[tuple[Load | Store | Call, str, int], AccessCost] = {}
    for a in accesses:
        key = a.statement, a.space
        out[*key, seen[key]] = a
        seen[key] += 1
    return out


def count(
    ir: KernelIR,
    scalars: Mapping[str, float],
    grid: tuple[int, int, int] | None = None,
    bases: Mapping[str, int] | None = None,
) -> Counts:
    """Counts of a launch with these scalar arguments: M, N, K, lda, ldb, ldc, and beta (1 where it is not given).

    ``grid`` (x, y, z) is the kernel's own where None. ``bases`` are addresses in bytes of A, B and C, of which only
    the place in a cache line matters; 0 where not given.
    """
    everything = {"alpha": 1.0, "beta": 1.0, **scalars}
    blocks = launch_grid(ir, everything) if grid is None else grid
    lanes = _lanes(ir.threads)
    accesses: list[AccessCost] = []
    math: Counter[Pipe] = Counter()
    mma = 0
    for site in sites(ir, everything, blocks):
        match site:
            case Arithmetic(work=work):
                times = _times(site, lanes)
                math[work.pipe] += work.flops * times
                mma += times // WARP if work.pipe == "tensor" else 0
            case BoxLoad():
                base = (bases or {}).get(site.map.operand, 0) % memory.LINE
                accesses.append(_cost_of_boxes(site, lanes, base))
            case Access():
                accesses.append(_cost_of(site, lanes, (bases or {}).get(site.array.name, 0) % memory.LINE))
            case _:
                assert_never(site)
    return Counts(tuple(accesses), dict(math), mma)


def _lanes(threads: int) -> tuple[dict[str, Ints], NDArray[np.bool_]]:
    """Thread numbers [warps, 32], and which of them exist."""
    import numpy as np

    numbers = np.arange(-(-threads // WARP) * WARP, dtype=np.int64).reshape(-1, WARP)
    return {THREAD: numbers}, numbers < threads


Lanes = tuple[dict[str, "Ints"], "NDArray[np.bool_]"]


def _times(site: Site, lanes: Lanes) -> int:
    """How many threads, in how many turns, pass here."""
    import numpy as np

    if value_of(site.active) is not None:
        return int(bool(value_of(site.active))) * int(lanes[1].sum()) * prod(a.count for a in site.axes)
    classes, rest = _relevant(site, [Const(0), site.active], lanes, 1)
    total = 0
    for values, weights in _pieces(classes, lanes):
        on = np.broadcast_to(evaluate(site.active, values) != 0, (*weights.shape, *lanes[1].shape)) & lanes[1]
        total += int((on.sum(axis=(-1, -2)) * weights).sum())
    return total * rest


def _cost_of(access: Access, lanes: Lanes, base: int) -> AccessCost:
    cost = _total(access, lanes, base)
    space: Literal["global", "shared"] = "global" if access.array.space == "global" else "shared"
    if space == "shared":
        joined = merged(access, lanes[0])
        found = cost if joined is None else _total(joined, lanes, base)
        if found.wavefronts > cost.wavefronts:
            found = cost
        cost = replace(cost, merged_requests=found.requests, merged_wavefronts=found.wavefronts)
    return AccessCost(
        access.statement, access.array.operand, access.op, space, access.width, access.array.dtype.bytes, cost
    )


def _cost_of_boxes(site: BoxLoad, lanes: Lanes, base: int) -> AccessCost:
    """Boxes are few, and equal but for the edges and for where in a sector they begin."""
    along, across = site.map.box
    in_sector = memory.SECTOR // site.map.dtype.bytes
    site = replace(site, first=site.first % in_sector)
    # One number that tells apart whatever a box's cost depends on.
    kind = site.first + (site.columns + site.rows * (along + 1)) * in_sector
    classes, rest = _relevant(site, [kind, site.active], lanes, ALL_DIFFERENT)
    total = Cost(_times(site, lanes))
    for values, weights in _pieces(classes, lanes):
        total += _piece_of_boxes(site, values, weights, lanes, base) * rest
    return AccessCost(site.statement, site.map.operand, site.op, "tma", along * across, site.map.dtype.bytes, total)


def _piece_of_boxes(site: BoxLoad, values: dict[str, Ints], weights: Ints, lanes: Lanes, base: int) -> Cost:
    """Sectors and bytes of boxes of which each stands for as many as its weight."""
    import numpy as np

    shape = (*weights.shape, *lanes[1].shape)
    on = np.broadcast_to(evaluate(site.active, values) != 0, shape) & lanes[1]
    times = np.broadcast_to(weights[..., None, None], shape)[on]
    exprs = site.first, site.columns, site.rows
    first, columns, rows = (np.broadcast_to(evaluate(e, values), shape)[on] for e in exprs)
    item = site.map.dtype.bytes
    box = item * site.map.box[0], site.map.box[1]
    sectors = memory.box_sectors_of(item * first + base, item * site.pitch, item * columns, rows, box)
    return Cost(sectors=int((sectors * times).sum()), bytes_used=item * int((columns * rows * times).sum()))


def _total(access: Access, lanes: Lanes, base: int) -> Cost:
    # Shared addresses that all move by whole words have other banks, and cost the same.
    unit = max(1, (memory.LINE if access.array.space == "global" else memory.BANK_BYTES) // access.element_bytes)
    classes, rest = _relevant(access, [access.address, access.active], lanes, unit)
    return (
        sum((_piece(access, values, weights, lanes, base) for values, weights in _pieces(classes, lanes)), Cost())
        * rest
    )


def _relevant(site: Site, exprs: Sequence[Expr], lanes: Lanes, unit: int) -> tuple[list[Classes], int]:
    """Classes of the axes that matter to the expressions, and how many turns the others take together."""
    used = {v for e in exprs for v in variables(e)}
    axes = [a for a in site.axes if a.index in used]
    rest = prod(a.count for a in site.axes if a.index not in used)
    return [classify(axis, exprs, axes, lanes[0], unit) for axis in axes], rest


def _pieces(classes: Sequence[Classes], lanes: Lanes) -> Iterator[tuple[dict[str, Ints], Ints]]:
    """Index values and weights of all combinations of classes, in pieces that fit in memory."""
    import numpy as np

    if any(not c.values for c in classes):
        return
    longest = max(range(len(classes)), key=lambda i: len(classes[i].values), default=0)
    rows = prod(len(c.values) for c in classes) * len(lanes[1])
    if rows > ROWS_AT_ONCE and len(classes[longest].values) > 1:
        c = classes[longest]
        half = len(c.values) // 2
        for part in (slice(None, half), slice(half, None)):
            smaller = Classes(c.index, c.values[part], c.weights[part])
            yield from _pieces([*classes[:longest], smaller, *classes[longest + 1 :]], lanes)
        return
    # Sums that 64 bits may not hold are those of Python's own numbers.
    fits = MOST_OF_A_BLOCK * prod(sum(c.weights) for c in classes) < 1 << 63
    weights: Ints = np.ones((), dtype=np.int64 if fits else object)
    for c in classes:
        weights = weights[..., None] * np.asarray(c.weights, dtype=weights.dtype)
    yield index_values([(c.index, c.values) for c in classes], lanes[0]), weights


def _piece(access: Access, values: dict[str, Ints], weights: Ints, lanes: Lanes, base: int) -> Cost:
    import numpy as np

    shape = (*weights.shape, *lanes[1].shape)
    address = np.broadcast_to(evaluate(access.address, values), shape).reshape(-1, WARP)
    active = np.broadcast_to((evaluate(access.active, values) != 0) & lanes[1], shape).reshape(-1, WARP)
    times = np.repeat(weights.reshape(-1), len(lanes[1]))

    some = Warps(
        address * access.element_bytes + (base if access.array.space == "global" else 0),
        active,
        access.width,
        access.lane_bytes,
        access.op == "store",
        access.past_l1,
    )
    space: Literal["global", "shared"] = "global" if access.array.space == "global" else "shared"
    return Cost(**{name: int((rule(some) * times).sum()) for name, rule in rules(space)})
