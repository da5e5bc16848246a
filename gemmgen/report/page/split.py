"""Which thread computes which part of a block tile, from the levels of the tile program."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from gemmgen.ir.types import WARP

if TYPE_CHECKING:
    from gemmgen.tile.program import Level, TileProgram


@dataclass(frozen=True)
class Piece:
    """``rows`` x ``cols`` elements of C at (row, col) of the block tile."""

    row: int
    col: int
    rows: int
    cols: int


def pieces(p: TileProgram, thread: int) -> list[Piece]:
    """The contiguous pieces that a thread computes, in the order of its registers."""
    levels = p.product.levels
    chosen = [_choices(level, _index(p, level, thread)) for level in levels]
    thread_level = p.product.level("thread")
    found = []
    for choice in product(*chosen):
        row, col = 0, 0
        for level, (i, j) in zip(levels, choice, strict=True):
            row, col = row * level.m + i, col * level.n + j
        found.append(Piece(row, col, thread_level.m, thread_level.n))
    return found


def _index(p: TileProgram, level: Level, thread: int) -> int | None:
    """The index of the thread's piece at this level; None where it computes all of them."""
    match level.name:
        case "warp":
            return thread // WARP
        case "lane":
            return thread % WARP if any(x.name == "warp" for x in p.product.levels) else thread
        case _:
            return None


def _choices(level: Level, index: int | None) -> list[tuple[int, int]]:
    if level.name == "thread":
        return [(0, 0)]
    if index is None:
        return [(i, j) for i in range(level.m) for j in range(level.n)]
    if level.walk == "n":
        return [(index // level.n, index % level.n)]
    return [(index % level.m, index // level.m)]


def owners(p: TileProgram) -> dict[tuple[int, int], int]:
    """The thread of each contiguous piece, by the piece's (row, col) counted in pieces."""
    level = p.product.level("thread")
    return {
        (piece.row // level.m, piece.col // level.n): thread
        for thread in range(p.threads)
        for piece in pieces(p, thread)
    }


@dataclass(frozen=True)
class Area:
    """Pieces of one warp that form a rectangle, counted in pieces."""

    warp: int
    row: int
    col: int
    rows: int
    cols: int


def areas(p: TileProgram) -> list[Area]:
    """The block tile as rectangles of one warp each: runs along a row, merged with equal runs below."""
    warps = {at: thread // WARP for at, thread in owners(p).items()}
    height, width = (1 + max(at[i] for at in warps) for i in (0, 1))
    done: list[Area] = []
    growing: dict[tuple[int, int, int], Area] = {}
    for row in range(height):
        runs = {}
        for col, cols, warp in _runs([warps[row, col] for col in range(width)]):
            above = growing.pop((col, cols, warp), None)
            start = above.row if above else row
            runs[col, cols, warp] = Area(warp, start, col, row - start + 1, cols)
        done += growing.values()
        growing = runs
    return sorted([*done, *growing.values()], key=lambda a: (a.warp, a.row, a.col))


def _runs(values: list[int]) -> list[tuple[int, int, int]]:
    """(start, length, value) of each run of equal values."""
    out: list[tuple[int, int, int]] = []
    for at, value in enumerate(values):
        if out and out[-1][2] == value:
            start, length, _ = out[-1]
            out[-1] = (start, length + 1, value)
        else:
            out.append((at, 1, value))
    return out
