"""How lanes that share sums add them up: each step leaves a lane half of the sums, with twice the parts in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.ir.types import Dim

if TYPE_CHECKING:
    from gemmgen.tile.program import TileProgram


@dataclass(frozen=True)
class Halving:
    """Lanes ``apart`` exchange half of their sums along ``dim``: ``half`` are left to each."""

    dim: Dim
    apart: int
    half: int


@dataclass(frozen=True)
class LaneSums:
    """The ``halvings`` in their order, and the lanes (``rest``) that then add up the same ``rows`` x ``cols`` sums."""

    halvings: tuple[Halving, ...]
    rest: int
    rows: int
    cols: int


def lane_sums(p: TileProgram) -> LaneSums:
    """Sums across the lines of C are halved first, so that a lane keeps neighbours of a line to store."""
    thread, apart = p.product.level("thread"), p.product.lanes_k // 2
    left: dict[Dim, int] = {"m": thread.m, "n": thread.n}
    found: list[Halving] = []
    while apart:
        dim = next((d for d in (p.strided("C"), p.contiguous("C")) if left[d] % 2 == 0), None)
        if dim is None:
            break
        left[dim] //= 2
        found.append(Halving(dim, apart, left[dim]))
        apart //= 2
    return LaneSums(tuple(found), max(1, 2 * apart), left["m"], left["n"])
