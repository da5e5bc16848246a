"""Whether an output shares memory with an input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmgen.diagnostics import ArgumentError


def refuse_overlap(
    shapes: Mapping[str, tuple[int, int]],
    strides: Mapping[str, tuple[int, int]],
    addresses: Mapping[str, int],
    items: Mapping[str, int],
) -> None:
    """Raise ArgumentError where C shares memory with A or B; ``items`` are bytes per element."""
    spans = {name: Rows.of(shapes[name], strides[name], addresses[name], items[name]) for name in ("A", "B", "C")}
    for name in ("A", "B"):
        if spans[name].overlaps(spans["C"]):
            raise ArgumentError(f"C overlaps {name} in memory; it is written while {name} is read: pass a copy of one")


@dataclass(frozen=True)
class Rows:
    """The bytes of a strided matrix, as ``count`` intervals ``[first + i * step, ... + length)``, each dense."""

    first: int
    count: int
    step: int
    length: int

    @classmethod
    def of(cls, shape: tuple[int, int], strides: tuple[int, int], address: int, item: int) -> Rows:
        if shape[0] == 0 or shape[1] == 0:
            return cls(address, 0, 1, 0)
        reach = [(n if s else 1, s * item) for n, s in zip(shape, strides, strict=True)]
        first = address + sum((n - 1) * s for n, s in reach if s < 0)
        (inner, small), (outer, large) = sorted(((n, abs(s)) for n, s in reach), key=lambda r: (r[0] > 1, r[1]))
        return cls(first, outer, max(large, 1), (inner - 1) * small + item)

    @property
    def end(self) -> int:
        return self.first + (self.count - 1) * self.step + self.length

    def overlaps(self, other: Rows) -> bool:
        if not self.count or not other.count or self.end <= other.first or other.end <= self.first:
            return False
        if self.count > other.count:
            return other.overlaps(self)
        return any(other._meets(self.first + i * self.step, self.length) for i in range(self.count))

    def _meets(self, start: int, length: int) -> bool:
        """Whether one of the intervals meets ``[start, start + length)``."""
        lowest = max(0, -((self.first + self.length - 1 - start) // self.step))
        highest = min(self.count - 1, (start + length - 1 - self.first) // self.step)
        return lowest <= highest
