"""Products by Hopper's warp groups in ``gemmgen.matmul``: bfloat16 and float16 on an sm_90, where C has enough tiles.

Four specs, of which the one is taken that is done first: rounds of blocks over the multiprocessors, times the steps
along K of a round. The seconds are measured on an H200 (generated/h200/ladder_bf16.json and the sweep behind it).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from gemmgen.ir.types import DType
from gemmgen.spec.model import Operand, Spec

if TYPE_CHECKING:
    from gemmgen.ir.types import Order

ARCH = "sm_90"
LEAST_TILES = 120
"""Tiles of 64x64 below which mma with a split sum over K is faster, since it keeps more multiprocessors at work."""
START_S = 3.0e-6
"""Seconds of a launch, of filling the stages and of the last tile's way to C; blocks that do not run on fill theirs
anew in each round."""


@dataclass(frozen=True)
class Tile:
    """A kernel's tile and stages. ``step_s`` are the seconds of a step of 64 along K with all multiprocessors at
    work; ``here`` how many blocks one holds. ``runs_on``: blocks go on to further tiles, and C leaves by the TMA
    engine."""

    block: tuple[int, int]
    stages: int
    step_s: float
    here: int = 1
    runs_on: bool = False


TILES: tuple[Tile, ...] = (
    Tile((128, 256), 3, 0.72e-6, runs_on=True),
    Tile((128, 128), 5, 0.38e-6, runs_on=True),
    Tile((128, 128), 5, 0.35e-6),
    Tile((64, 128), 5, 0.27e-6),
    Tile((64, 64), 6, 0.24e-6, here=2),
)


def group_spec(
    dtype: DType, out: DType, size: tuple[int, int, int], orders: tuple[Order, Order, Order], sms: int, name: str
) -> Spec | None:
    """The spec for a shape; None where C has too few tiles. ``orders`` are those of A, B and C."""
    m, n, _ = size
    if ceil(m / 64) * ceil(n / 64) < LEAST_TILES:
        return None
    return spec_of(min(TILES, key=lambda t: seconds(t, size, sms)), dtype, out, orders, sms, name)


def seconds(t: Tile, size: tuple[int, int, int], sms: int) -> float:
    """About how long a kernel with these tiles takes."""
    m, n, k = size
    tiles = ceil(m / t.block[0]) * ceil(n / t.block[1])
    rounds = ceil(tiles / (sms * t.here))
    restarts = 0 if t.runs_on else rounds - 1
    return START_S * (1 + restarts) + rounds * ceil(k / 64) * t.step_s


def spec_of(t: Tile, dtype: DType, out: DType, orders: tuple[Order, Order, Order], sms: int, name: str) -> Spec:
    """The spec with these tiles. The engine stores rows of C; one that lies by columns is stored by threads."""
    (bm, bn), (a, b, c) = t.block, orders
    use = {"coalescing", "smem", "float4", "warptile", "tma", "smemSwizzle", "release"}
    by_engine = t.runs_on and c == "row"
    wide = out.bytes > dtype.bytes and bn > 128  # C's tile in float32 leaves room for no more than two stages
    return Spec(
        name=name,
        block=(bm, bn, 64),
        warp=(16, bn),
        use=frozenset(use | ({"tmaStore"} if by_engine and not wide else set())),
        A=Operand(dtype.name, a),
        B=Operand(dtype.name, b),
        C=Operand(out.name, c),
        math=f"wgmma 64x{bn}x16",
        stages=t.stages,
        roles=f"producer 1, consumers {bm // 64}",
        persistent=sms if t.runs_on else 0,
        cta_swizzle=16 if t.runs_on else 0,
    ).replace()
