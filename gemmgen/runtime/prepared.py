"""A launch plan whose kernels are loaded, and what a call of it checks and enqueues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmgen.runtime.copies import Copies
    from gemmgen.runtime.launch import Bound


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with its kernels loaded. ``spans`` are the bytes that A, B and C reach before and after their address.

    ``alone`` is the launch where it is all there is to do, with no memory of its own. ``beside`` are, for each operand
    of the epilogue, whether it is written and the bytes that it reaches.
    """

    launches: tuple[Bound, ...]
    copies: Copies | None
    workspace: int
    spans: tuple[int, int, int, int, int, int]
    alone: Bound | None
    beside: tuple[tuple[bool, int, int], ...] = ()


def run_with(prepared: Prepared, a: int, b: int, c: int, base: int, stream: int, beside: tuple[int, ...]) -> None:
    """The copies to memory from ``base`` on, then the launches, whose own memory comes after the copies'."""
    if prepared.copies is not None:
        a, b = prepared.copies(a, b, base, stream)
        base += prepared.copies.bytes
    for launch in prepared.launches:
        launch(a, b, c, base, stream, *beside)


def any_meet(prepared: Prepared, matrices: tuple[int, int, int], beside: tuple[int, ...]) -> bool:
    """Whether what is written meets an operand of the epilogue, or one that it stores to meets A, B or C."""
    s = prepared.spans
    extents = [(i == 2, at + s[2 * i], at + s[2 * i + 1]) for i, at in enumerate(matrices)]
    extents += [(out, at + low, at + high) for at, (out, low, high) in zip(beside, prepared.beside, strict=True)]
    for i, (out, low, high) in enumerate(extents):
        for other, low2, high2 in extents[max(i + 1, len(matrices)) :]:
            if (out or other) and low < high2 and low2 < high:
                return True
    return False
