"""What is counted of memory accesses and arithmetic: one row for each quantity, which the simulator, the counts and
their JSON all read.

A quantity of memory accesses is a field of :class:`Cost` with its rule; arithmetic is counted by :func:`work_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gemmgen.ir.nodes import Call, Fma, Stmt
from gemmgen.isa import math, memory
from gemmgen.isa.table import Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Lanes = NDArray[np.int64]
    Mask = NDArray[np.bool_]

Space: TypeAlias = Literal["global", "shared"]
FMA = math.FMA.work
"""A multiply-add of one thread."""


@dataclass(frozen=True)
class Warps:
    """One access by many warps: the byte address of each lane's first element and which lanes are active, both
    [warps, 32]. A lane moves ``width`` elements, ``nbytes`` together; ``past_l1``: the L1 keeps nothing of them."""

    addresses: Lanes
    active: Mask
    width: int
    nbytes: int
    store: bool = False
    past_l1: bool = False


Rule: TypeAlias = Callable[[Warps], "Lanes"]
"""A quantity of each warp, [warps]."""


def _requests(w: Warps) -> Lanes:
    return w.active.any(axis=1).astype("int64")


def _elements(w: Warps) -> Lanes:
    asked: Lanes = w.active.sum(axis=1, dtype="int64") * w.width
    return asked


def _sectors(w: Warps) -> Lanes:
    if w.past_l1:
        return memory.pair_sectors_of(w.addresses, w.active)
    return memory.sectors_of(w.addresses, w.active, w.nbytes)


def _wavefronts(w: Warps) -> Lanes:
    words, width = memory.in_words(w.addresses, w.nbytes)
    return memory.wavefronts_of(words, w.active, width, w.store)


def _ideal(w: Warps) -> Lanes:
    words, width = memory.in_words(w.addresses, w.nbytes)
    return memory.ideal_wavefronts_of(words, w.active, width, w.store)


def _counted(*spaces: Space, rule: Rule | None = None, total: bool = False, each: bool = False) -> Any:
    """A quantity of accesses to these spaces. ``total``: of a launch's totals, which the simulator counts too;
    ``each``: listed for every access of the program. Without a rule it follows from another (see the counts)."""
    return field(default=0, metadata={"spaces": spaces, "rule": rule, "total": total, "each": each})


@dataclass(frozen=True)
class Cost:
    """Counts of an access, or of several together. A new quantity is one more row here.

    ``bytes_used`` are the distinct bytes that each request asks for; ``elements`` are what the threads ask for, each
    for itself; ``lines`` are of 128 bytes. ``merged_requests`` and ``merged_wavefronts`` are those of shared accesses
    once the compiler has joined scalar loads, neighbours in an unrolled loop, into wider loads, where their
    addresses allow it.
    """

    requests: int = _counted("global", "shared", rule=_requests, total=True, each=True)
    elements: int = _counted("global", "shared", rule=_elements)
    sectors: int = _counted("global", rule=_sectors, total=True, each=True)
    lines: int = _counted("global", rule=lambda w: memory.lines_of(w.addresses, w.active, w.nbytes))
    bytes_used: int = _counted(
        "global", rule=lambda w: memory.bytes_used_of(w.addresses, w.active, w.nbytes), total=True
    )
    wavefronts: int = _counted("shared", rule=_wavefronts, total=True, each=True)
    ideal_wavefronts: int = _counted("shared", rule=_ideal, total=True)
    merged_requests: int = _counted("shared")
    merged_wavefronts: int = _counted("shared")

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Cost)))

    def __mul__(self, times: int) -> Cost:
        return Cost(*(getattr(self, f.name) * times for f in fields(Cost)))

    def totals(self, space: Space) -> dict[str, int]:
        """The quantities of a launch's totals, as JSON has them."""
        return {name: getattr(self, name) for name in TOTALS[space]}

    def each(self, space: str) -> dict[str, int]:
        """The quantities that are listed for every access of the program; of boxes also their bytes."""
        moved = {"bytes": self.bytes_used} if space == "tma" else {}
        return {name: getattr(self, name) for name in EACH} | moved


def rules(space: Space) -> Iterator[tuple[str, Rule]]:
    """The quantities of accesses to a space that have a rule, by name."""
    for f in fields(Cost):
        rule: Rule | None = f.metadata["rule"]
        if rule is not None and space in f.metadata["spaces"]:
            yield f.name, rule


def _totals(space: Space) -> tuple[str, ...]:
    return tuple(f.name for f in fields(Cost) if f.metadata["total"] and space in f.metadata["spaces"])


TOTALS: Mapping[Space, tuple[str, ...]] = {"global": _totals("global"), "shared": _totals("shared")}
EACH = tuple(f.name for f in fields(Cost) if f.metadata["each"])


def work_of(s: Stmt) -> Work | None:
    """The arithmetic of one thread that executes a statement; None where there is none that is counted."""
    match s:
        case Fma():
            return FMA
        case Call(row=row):
            return row.work
        case _:
            return None
