"""What the accesses cost: requests, sectors and wavefronts, per access of the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from gemmgen.isa.memory import (
    LINE,
    SECTOR,
    bytes_used_of,
    ideal_wavefronts_of,
    pair_sectors_of,
    sectors_of,
    wavefronts_of,
)
from gemmgen.sim.lanes import Active, Batch
from gemmgen.sim.values import Part

WORD = 4
Op = Literal["load", "store"]


class Cost(NamedTuple):
    """Cost of one access by all warps of a batch; the fields of the other kind of memory are 0."""

    requests: int = 0
    sectors: int = 0
    bytes_used: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0


@dataclass
class Site:
    """One access of the program, and what it has cost so far.

    ``space`` is "global" or "shared"; "tma" for boxes that the TMA engine fetches, whose requests and bytes the
    hardware's counters of global loads do not see; "engine" for what is not counted. ``past_l1``: of a copy that the
    L1 cache keeps nothing of.
    """

    number: int
    op: Op
    space: str
    operand: str
    buffer: str
    width: int
    line: int | None
    past_l1: bool = False
    requests: int = 0
    sectors: int = 0
    bytes_used: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0

    @property
    def period(self) -> int:
        """Words by which all its addresses may move without changing its cost: a sector of global memory, or a line
        where it passes by the L1; of shared memory its width, since moving all lanes alike only renames the banks."""
        if self.space != "global":
            return self.width
        return (LINE if self.past_l1 else SECTOR) // WORD

    def add(self, c: Cost) -> None:
        self.requests += c.requests
        self.sectors += c.sectors
        self.bytes_used += c.bytes_used
        self.wavefronts += c.wavefronts
        self.ideal_wavefronts += c.ideal_wavefronts


def count(site: Site, batch: Batch, part: Part, offset: int, active: Active) -> None:
    """Add an access at word addresses ``part + offset``.

    The cost repeats where the offset does, modulo the site's period, so each case is worked out once.
    """
    key = (site.space, site.op, site.width, site.past_l1, active, offset % site.period)
    cost: Cost | None = part.memo.get(key)
    if cost is None:
        cost = (
            _global(site, batch, part, offset, active)
            if site.space == "global"
            else _shared(site, batch, part, offset, active)
        )
        if active is None or active.lasting:
            part.memo[key] = cost
    site.add(cost)


def _global(site: Site, batch: Batch, part: Part, offset: int, active: Active) -> Cost:
    lanes = batch.warp_mask(active)
    addresses = batch.by_warp((part.array + offset) * WORD)
    sectors = pair_sectors_of(addresses, lanes) if site.past_l1 else sectors_of(addresses, lanes, WORD * site.width)
    return Cost(
        requests=int(lanes.any(axis=1).sum()),
        sectors=int(sectors.sum()),
        bytes_used=int(bytes_used_of(addresses, lanes, WORD * site.width).sum()),
    )


def _shared(site: Site, batch: Batch, part: Part, offset: int, active: Active) -> Cost:
    lanes = batch.warp_mask(active)
    words, store = batch.by_warp(part.array + offset), site.op == "store"
    return Cost(
        requests=int(lanes.any(axis=1).sum()),
        wavefronts=int(wavefronts_of(words, lanes, site.width, store).sum()),
        ideal_wavefronts=int(ideal_wavefronts_of(words, lanes, site.width, store).sum()),
    )


def counters(sites: Iterable[Site], fma: int) -> dict[str, Any]:
    """The counters as ``Simulation.counters`` has them."""
    sites = [s for s in sites if s.space != "engine"]

    def total(space: str, op: str, *names: str) -> dict[str, int]:
        of = [s for s in sites if s.space == space and s.op == op]
        return {name: sum(getattr(s, name) for s in of) for name in names}

    global_names = ("requests", "sectors", "bytes_used")
    shared_names = ("requests", "wavefronts", "ideal_wavefronts")
    return {
        "global": {op: total("global", op, *global_names) for op in ("load", "store")},
        "shared": {op: total("shared", op, *shared_names) for op in ("load", "store")},
        "fma": fma,
        "accesses": [_access(s) for s in sites],
    }


def _access(s: Site) -> dict[str, Any]:
    moved = {"bytes": s.bytes_used} if s.space == "tma" else {}
    return {
        "operand": s.operand,
        "op": s.op,
        "space": s.space,
        "width": s.width,
        "spec_line": s.line,
        "cuda_line": None,
        "requests": s.requests,
        "sectors": s.sectors,
        "wavefronts": s.wavefronts,
        **moved,
    }


def merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The counters of several launches, added up."""
    total: dict[str, Any] | None = None
    for part in parts:
        total = part if total is None else _added(total, part)
    return counters([], 0) if total is None else total


def _added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    accesses = list(a["accesses"])
    if len(accesses) == len(b["accesses"]):
        keys = ("requests", "sectors", "wavefronts", "bytes")
        accesses = [x | {k: x[k] + y[k] for k in keys if k in x} for x, y in zip(accesses, b["accesses"], strict=True)]
    else:  # launches of different variants: list both
        accesses += b["accesses"]
    return {
        space: {op: {k: v + b[space][op][k] for k, v in a[space][op].items()} for op in a[space]}
        for space in ("global", "shared")
    } | {"fma": a["fma"] + b["fma"], "accesses": accesses}
