"""What the accesses cost: requests, sectors and wavefronts, per access of the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gemmgen.isa.counted import EACH, FMA, TOTALS, Cost, Warps, rules
from gemmgen.isa.memory import BANK_BYTES, LINE, SECTOR
from gemmgen.isa.table import Pipe
from gemmgen.sim.lanes import Active, Batch, Ints
from gemmgen.sim.values import Part

Op = Literal["load", "store"]
FIGURES = tuple(dict.fromkeys(name for names in TOTALS.values() for name in names))
"""The quantities that are counted here, in the order of a site's figures."""


@dataclass
class Site:
    """One access of the program, ``width`` elements of ``item`` bytes per lane, and what it has cost so far.

    ``space`` is "global" or "shared"; "tma" for boxes that the TMA engine fetches, whose requests and bytes the
    hardware's counters of global loads do not see; "engine" for what is not counted. ``past_l1``: of a copy that the
    L1 cache keeps nothing of. ``counted``: whether its cost is asked for.

    ``period`` are the bytes by which all its addresses may move without changing its cost: a sector of global memory,
    or a line where it passes by the L1; of shared memory what a lane moves, and no less than a word, since moving all
    lanes alike only renames the banks. ``kind`` tells apart what costs differently at the same addresses.
    """

    number: int
    op: Op
    space: str
    operand: str
    buffer: str
    width: int
    item: int
    line: int | None
    past_l1: bool = False
    counted: bool = True
    figures: Ints = field(default_factory=lambda: np.zeros(len(FIGURES), np.int64))

    def __post_init__(self) -> None:
        self.kind = (self.space, self.op, self.width, self.item, self.past_l1)
        if self.space == "global":
            self.period = LINE if self.past_l1 else SECTOR
        else:
            self.period = max(self.nbytes, BANK_BYTES)

    @property
    def nbytes(self) -> int:
        """Bytes a lane."""
        return self.width * self.item

    @property
    def cost(self) -> Cost:
        """What it has cost so far."""
        return Cost(**dict(zip(FIGURES, self.figures.tolist(), strict=True)))


def figures(**known: int) -> Ints:
    """The figures of a site in which only these differ from 0."""
    return np.array([known.get(name, 0) for name in FIGURES], np.int64)


def count(site: Site, batch: Batch, part: Part, offset: int, active: Active) -> None:
    """Add an access whose lanes begin at elements ``part``, ``offset`` bytes on.

    The cost repeats where the offset does, modulo the site's period, so each case is worked out once.
    """
    if not site.counted:
        return
    key = (site.kind, active, offset % site.period)
    cost: Ints | None = part.memo.get(key)
    if cost is None:
        cost = _figures(site, batch, part, offset, active)
        if active is None or active.lasting:
            part.memo[key] = cost
    site.figures += cost


def _figures(site: Site, batch: Batch, part: Part, offset: int, active: Active) -> Ints:
    space: Literal["global", "shared"] = "global" if site.space == "global" else "shared"
    addresses = batch.by_warp(part.array * site.item + offset)
    warps = Warps(addresses, batch.warp_mask(active), site.width, site.nbytes, site.op == "store", site.past_l1)
    return figures(**{name: int(rule(warps).sum()) for name, rule in rules(space) if name in TOTALS[space]})


def counters(sites: Iterable[Site], math: Mapping[Pipe, int]) -> dict[str, Any]:
    """The counters as ``Simulation.counters`` has them."""
    counted = [(s, s.cost) for s in sites if s.space != "engine"]

    def total(space: Literal["global", "shared"], op: Op) -> dict[str, int]:
        return sum((c for s, c in counted if (s.space, s.op) == (space, op)), Cost()).totals(space)

    return {
        **{space: {op: total(space, op) for op in ("load", "store")} for space in TOTALS},
        "fma": math.get(FMA.pipe, 0) // FMA.flops,
        **({"tensor": math["tensor"]} if math.get("tensor") else {}),
        "accesses": [_access(s, c) for s, c in counted],
    }


def _access(s: Site, cost: Cost) -> dict[str, Any]:
    return {
        "operand": s.operand,
        "op": s.op,
        "space": s.space,
        "width": s.width,
        "spec_line": s.line,
        "cuda_line": None,
        **cost.each(s.space),
    }


def merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The counters of several launches, added up."""
    total: dict[str, Any] | None = None
    for part in parts:
        total = part if total is None else _added(total, part)
    return counters([], {}) if total is None else total


def _whose(access: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(access[x] for x in ("operand", "op", "space", "width", "spec_line"))


def _added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    accesses = list(a["accesses"])
    if [_whose(x) for x in accesses] == [_whose(x) for x in b["accesses"]]:
        keys = (*EACH, "bytes")
        accesses = [x | {k: x[k] + y[k] for k in keys if k in x} for x, y in zip(accesses, b["accesses"], strict=True)]
    else:  # launches of different kernels or variants: list both
        accesses += b["accesses"]
    return (
        {space: {op: {k: v + b[space][op][k] for k, v in a[space][op].items()} for op in a[space]} for space in TOTALS}
        | {name: a.get(name, 0) + b.get(name, 0) for name in ("fma", "tensor") if name in a or name in b}
        | {"accesses": accesses}
    )
