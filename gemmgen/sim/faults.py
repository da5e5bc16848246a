"""What a simulated kernel can do wrong, and the list that collects it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["out-of-bounds", "misaligned", "uninitialized", "race", "barrier", "async", "deadlock"]


@dataclass(frozen=True)
class Fault:
    """One illegal act of one thread.

    ``block`` is (x, y, z), ``index`` the element of ``buffer`` (row, column for a matrix; may lie outside), ``line``
    the spec line that shaped the access (None where none did), ``other`` what it clashes with, in words.
    """

    kind: FaultKind
    buffer: str
    block: tuple[int, int, int]
    thread: int
    index: tuple[int, ...] = ()
    line: int | None = None
    other: str = ""

    def __str__(self) -> str:
        where = self.buffer + "".join(f"[{i}]" for i in self.index)
        text = f"{self.kind}: thread {self.thread} of block {self.block}, {where}"
        if self.other:
            text += f": {self.other}"
        return f"{text} (spec line {self.line})" if self.line is not None else text


class FaultLog:
    """Faults in the order they were found, one for each kind and access of the program, up to a limit."""

    def __init__(self, limit: int = 32) -> None:
        self.limit = limit
        self.faults: list[Fault] = []
        self._seen: set[Hashable] = set()

    def add(self, kind: FaultKind, site: Hashable, make: Callable[[], Fault]) -> None:
        """Record a fault unless this access has one of its kind already; ``make`` is called only if it is new."""
        if (kind, site) in self._seen or len(self.faults) >= self.limit:
            return
        self._seen.add((kind, site))
        self.faults.append(make())
