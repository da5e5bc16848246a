"""What asynchronous instructions have in flight: elements being written, and elements still being read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmgen.sim.count import Site
from gemmgen.sim.lanes import Bools, Data, Ints
from gemmgen.sim.memory import Memory
from gemmgen.sim.shadow import SharedShadow


@dataclass(frozen=True)
class Flight:
    """What an engine is writing of a shared array for n lanes, in units of its shadow, [units, n]."""

    buffer: str
    units: Ints
    lanes: Ints

    def part(self, which: Bools) -> Flight:
        """That of some of the lanes, [n]."""
        return self if which.all() else Flight(self.buffer, self.units[:, which], self.lanes[which])


@dataclass(frozen=True)
class InUse:
    """Elements [n, lanes] of shared memory that an instruction reads until it is waited for."""

    memory: Memory
    shadow: SharedShadow
    site: Site
    places: Ints
    units: Ints
    lanes: Ints
    warps: int = 1

    def values(self) -> Data:
        """What they are now, [n, lanes]."""
        found: Data = self.memory.flat[self.places]
        return found

    def part(self, which: Bools) -> InUse:
        """Those of some of the lanes."""
        if which.all():
            return self
        return replace(self, places=self.places[:, which], units=self.units[:, which], lanes=self.lanes[which])

    def end(self) -> None:
        """They have been read."""
        self.shadow.end_use(self.units, self.lanes, self.warps)
