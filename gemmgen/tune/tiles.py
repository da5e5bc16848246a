"""Tiles and ways to bring them that are known to be fast, for the families of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmgen.ir.types import WARP

TILE = frozenset({"coalescing", "smem", "float4", "warptile"})
TRANSPOSED = TILE | {"transposeA"}
ENGINE = TILE | {"tma", "release", "alongK", "prefetch", "snake", "separators"}
ENGINES = (ENGINE, ENGINE - {"release"}, ENGINE | {"smemSwizzle"}, ENGINE - {"separators"})


@dataclass(frozen=True)
class Tile:
    """Block, warp and thread tiles, and the pieces of a thread."""

    block: tuple[int, int, int]
    warp: tuple[int, int]
    thread: tuple[int, int]
    m_iter: int
    n_iter: int

    @property
    def threads(self) -> int:
        return WARP * (self.block[0] // self.warp[0]) * (self.block[1] // self.warp[1])

    @property
    def sums(self) -> int:
        """Running sums of a thread."""
        return self.m_iter * self.n_iter * self.thread[0] * self.thread[1]

    @property
    def changes(self) -> dict[str, Any]:
        return vars(self).copy()


LANE_ROWS = 4
"""Lanes along M: 8 along N then have 4 columns each, a row of all banks."""

# Lanes 4 along M by 8 along N; a thread's rows 4 apart, its columns 4 together: what the tensor memory accelerator's
# tiles are read best by. 128 sums per thread first, then 64 and 32 for shapes with few tiles.
ENGINE_TILES = tuple(
    Tile((bm, bn, 32), warp, (1, 4), warp[0] // LANE_ROWS, warp[1] // WARP)
    for bm, bn, warp in (
        (128, 128, (32, 128)), (64, 128, (32, 128)), (128, 256, (32, 128)), (256, 128, (32, 128)),
        (32, 128, (32, 128)), (128, 128, (64, 64)), (64, 64, (32, 64)), (128, 64, (32, 64)), (64, 128, (32, 64)),
        (128, 128, (32, 64)), (32, 64, (32, 64)), (64, 32, (32, 32)), (32, 32, (16, 32)), (64, 64, (32, 32)),
        (32, 64, (16, 64)), (96, 128, (32, 128)), (128, 96, (32, 96)), (160, 128, (32, 128)), (64, 256, (32, 128)),
        (128, 160, (32, 160)),
    )
)  # fmt: skip

COPIED_TILES = (
    Tile((128, 256, 8), (64, 64), (4, 4), 4, 2),
    Tile((256, 128, 8), (64, 64), (4, 4), 4, 2),
    Tile((128, 128, 16), (64, 64), (4, 4), 4, 2),
    Tile((128, 128, 8), (64, 64), (4, 4), 4, 2),
    Tile((128, 128, 8), (32, 64), (4, 4), 2, 2),
    Tile((64, 128, 16), (32, 64), (4, 4), 2, 2),
    Tile((128, 64, 16), (32, 64), (4, 4), 2, 2),
    Tile((64, 64, 16), (32, 32), (4, 4), 2, 1),
    Tile((64, 64, 32), (32, 32), (4, 4), 2, 1),
    Tile((32, 64, 16), (16, 32), (4, 4), 1, 1),
    Tile((32, 32, 32), (16, 32), (4, 4), 1, 1),
)

SKINNY_TILES = (
    Tile((1, 256, 32), (1, 128), (1, 4), 1, 1),
    Tile((4, 128, 32), (4, 64), (2, 4), 1, 1),
    Tile((8, 64, 32), (8, 32), (1, 4), 2, 1),
    Tile((8, 128, 32), (8, 32), (1, 4), 2, 1),
    Tile((8, 256, 16), (8, 64), (2, 4), 2, 1),
    Tile((16, 128, 32), (16, 32), (2, 4), 2, 1),
    Tile((16, 64, 32), (16, 32), (4, 4), 1, 1),
    Tile((32, 64, 32), (32, 32), (4, 4), 2, 1),
    Tile((64, 16, 32), (32, 16), (4, 4), 1, 1),
    Tile((128, 16, 32), (32, 16), (4, 4), 1, 1),
)

# A's tile by columns: its rows lie side by side, so that one access fetches two or four of a thread's.
COLUMN_TILES = tuple(
    Tile((bm, bn, bk), warp, (tm, 4), warp[0] // LANE_ROWS // tm, warp[1] // WARP)
    for bm, bn, warp, tm, bks in (
        (128, 128, (32, 128), 2, (32, 16)), (128, 128, (32, 128), 4, (32, 16)), (128, 256, (32, 128), 2, (32,)),
        (256, 128, (32, 128), 2, (32,)), (64, 128, (32, 128), 4, (32, 16)), (128, 64, (32, 64), 4, (32, 16)),
        (64, 64, (32, 64), 4, (32, 16)), (32, 64, (16, 64), 4, (32,)), (32, 128, (32, 128), 4, (16,)),
        (64, 128, (32, 64), 4, (16,)), (96, 128, (32, 128), 2, (32,)), (128, 96, (32, 96), 2, (32,)),
        (160, 128, (32, 128), 2, (32,)), (128, 160, (32, 160), 2, (32,)),
    )
    for bk in bks
)  # fmt: skip
