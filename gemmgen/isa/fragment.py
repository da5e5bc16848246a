"""How a tile lies in the registers of the lanes that share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmgen.ir.types import WARP

Where = Callable[[Any, Any], tuple[Any, Any]]
"""Row and column of a lane's element of that number: of whole numbers, of NumPy arrays, and of index expressions."""


@dataclass(frozen=True)
class Fragment:
    """A tile of ``rows`` x ``cols``, of which each of ``lanes`` holds ``elements``; ``at(lane, i)`` says where.

    It checks itself when it is made: every place of the tile is held, all by equally many lanes (accumulators, whose
    every place is added to once, by one).
    """

    rows: int
    cols: int
    elements: int
    at: Where
    lanes: int = WARP
    accumulates: bool = False

    def __post_init__(self) -> None:
        held = Counter(self.at(lane, i) for lane in range(self.lanes) for i in range(self.elements))
        if outside := [x for x in held if not (0 <= x[0] < self.rows and 0 <= x[1] < self.cols)]:
            raise AssertionError(f"a fragment of {self.rows}x{self.cols} has an element at {outside[0]}")
        if len(held) != self.rows * self.cols or len(set(held.values())) != 1:
            raise AssertionError(f"a fragment of {self.rows}x{self.cols} does not hold every element equally often")
        if self.accumulates and max(held.values()) != 1:
            raise AssertionError(f"an accumulator of {self.rows}x{self.cols} is held by several lanes")
