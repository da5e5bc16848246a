"""Products by Hopper's warp groups in ``gemmgen.matmul``: bfloat16, float16 and tf32 on an sm_90.

The spec is taken that a model of time puts first: rounds of blocks over the multiprocessors, steps along K of a round,
and what a round, a launch and a split of K cost. Its constants were fitted to 1,400 times on an H200, of 96 specs at 16
shapes; the first choice was 1.0% slower than the best of all in the mean, 6.4% at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING

from gemmgen.ir.types import F32, DType
from gemmgen.isa.wgmma import DEPTH_BYTES
from gemmgen.spec.model import Operand, Spec

if TYPE_CHECKING:
    from gemmgen.ir.types import Order

ARCH = "sm_90"
SMALL = 1 << 28
"""Multiply-adds below which mma is faster, since a block starts sooner; and so is a product of few rows or columns."""
FEW = 32
MANY = 512
"""Rows and columns of C from which on a copy of A or B along k pays."""
STEP_K = 64
"""Elements along K of a step."""
ROOM, LINE, THREADS_AT_MOST = 226 * 1024, 128, 1024
"""Bytes of a multiprocessor for stages; of a row of a tile; and threads whose registers fit on one."""


@dataclass(frozen=True)
class Tile:
    """Rows and columns of C that a block computes. ``step_s``: the seconds of a step along K with a block at work on
    every multiprocessor."""

    block: tuple[int, int]
    step_s: float


TILES: tuple[Tile, ...] = (
    Tile((64, 64), 0.205e-6),
    Tile((64, 128), 0.292e-6),
    Tile((64, 192), 0.411e-6),
    Tile((64, 256), 0.477e-6),
    Tile((128, 64), 0.300e-6),
    Tile((128, 128), 0.372e-6),
    Tile((128, 192), 0.534e-6),
    Tile((128, 256), 0.690e-6),
    Tile((192, 64), 0.412e-6),
    Tile((192, 128), 0.525e-6),
)
SPLITS = (2, 3, 4, 6, 8)
LEAST_STEPS = 4
"""Steps along K that a part of a sum has at least."""
MOST_BLOCKS = 400
"""Blocks that parts of K make at most: more only add more sums."""

START_S = 2.3e-6
"""A launch, and filling the stages."""
STORE_S, BY_ENGINE = 2.16e-6, 0.33
"""A round's way to C of a tile of 128x128, by threads; and the part of it that is left where the TMA engine stores."""
REFILL_S = 0.1e-6
"""Filling the stages anew in each round, where blocks do not go on to further tiles."""
ADD_S, ADD_BYTE_S = 0.54e-6, 0.194e-12
"""The kernel that adds up parts of K, and its time for a byte."""
ALONE, SHARED = 0.79, 0.38
"""A step's time where few blocks run, as a part of that where all do; and what each further block on a multiprocessor
adds to it."""


@dataclass(frozen=True)
class Way:
    """A kernel: its tile and stages, whether C leaves by the TMA engine, whether blocks go on to further tiles, and
    into how many parts the sum over K is split."""

    tile: Tile
    stages: int
    by_engine: bool = False
    runs_on: bool = False
    parts: int = 1

    @property
    def here(self) -> int:
        """Blocks that one multiprocessor holds."""
        bm, bn = self.tile.block
        used = self.stages * (bm + bn) * LINE + (2 * bm * bn if self.by_engine else 0)
        return max(1, min(ROOM // used, THREADS_AT_MOST // (128 * (bm // 64 + 1) * 3)))


def group_spec(
    dtype: DType, out: DType, size: tuple[int, int, int], orders: tuple[Order, Order, Order], sms: int, name: str
) -> Spec | None:
    """The spec for a shape; None where mma is faster. ``orders`` are those of A, B and C."""
    m, n, k = size
    if m * n * k < SMALL or min(m, n) <= FEW:
        return None
    if dtype.bytes > 2:  # read along k alone: what lies otherwise is copied before, where enough blocks read it
        if orders[:2] != ("row", "col") and min(m, n) < MANY:
            return None
        orders = ("row", "col", orders[2])
    return spec_of(best(steps_of(dtype, size), sms, out.bytes, orders[2] == "row"), dtype, out, orders, sms, name)


def steps_of(dtype: DType, size: tuple[int, int, int]) -> tuple[int, int, int]:
    """The size of a product of 16-bit elements with as many steps along K: a step is 128 bytes."""
    return size[0], size[1], size[2] * dtype.bytes // 2


def expected_s(dtype: DType, out: DType, size: tuple[int, int, int], sms: int) -> float:
    """About how long the spec for a shape takes, without copies."""
    steps = steps_of(dtype, size)
    return seconds(best(steps, sms, out.bytes), steps, sms)


@lru_cache(maxsize=4096)
def best(size: tuple[int, int, int], sms: int, item: int = 2, rows: bool = True) -> Way:
    """The way that is done first; ``item`` are the bytes of an element of C, ``rows`` whether C lies by rows."""
    return min(ways(item, rows), key=lambda w: seconds(w, size, sms))


@lru_cache(maxsize=16)
def ways(item: int, rows: bool) -> tuple[Way, ...]:
    """All ways to compute a C of such elements."""
    return tuple(x for tile in TILES for x in _ways_of(tile, item, rows))


def _ways_of(tile: Tile, item: int, rows: bool) -> Iterator[Way]:
    bm, bn = tile.block
    for box in (0, item * bm * bn) if rows and item * bn % LINE == 0 else (0,):
        most = min(7, (ROOM - box) // ((bm + bn) * LINE))
        half = (ROOM // 2 - box) // ((bm + bn) * LINE)
        for stages in {most, half if bm == 64 and bn <= 128 else most}:
            if stages >= 3:
                # Of one round both take as long by the model; measured, small tiles do better where blocks could go on.
                order = (True, False) if bm * bn <= 128 * 128 else (False, True)
                yield from (Way(tile, stages, box > 0, runs_on) for runs_on in order)
                yield from (Way(tile, stages, parts=parts) for parts in SPLITS if not box)


def seconds(w: Way, size: tuple[int, int, int], sms: int) -> float:
    """About how long a kernel takes."""
    (m, n, k), (bm, bn) = size, w.tile.block
    tiles, steps = ceil(m / bm) * ceil(n / bn), ceil(k / STEP_K)
    if w.parts > 1 and (tiles * w.parts > MOST_BLOCKS or steps < LEAST_STEPS * w.parts):
        return float("inf")
    blocks = tiles * w.parts
    here = 1 if w.runs_on else min(w.here, ceil(blocks / sms))
    rounds = ceil(blocks / (sms * here))
    step = w.tile.step_s * (ALONE + (1 - ALONE) * blocks / (rounds * sms * here)) * (1 + SHARED * (here - 1))
    store = STORE_S * bm * bn / (128 * 128) * (BY_ENGINE if w.by_engine else 1.0)
    refills = 0.0 if w.runs_on else REFILL_S * (rounds - 1)
    added = ADD_S + ADD_BYTE_S * m * n * F32.bytes * (w.parts + 1) if w.parts > 1 else 0.0
    return START_S + rounds * (ceil(steps / w.parts) * step + store) + refills + added


def spec_of(w: Way, dtype: DType, out: DType, orders: tuple[Order, Order, Order], sms: int, name: str) -> Spec:
    """The spec of a way."""
    (bm, bn), (a, b, c) = w.tile.block, orders
    use = {"coalescing", "smem", "float4", "warptile", "tma", "smemSwizzle", "release"}
    return Spec(
        name=name,
        block=(bm, bn, LINE // dtype.bytes),
        warp=(16, bn),
        use=frozenset(use | ({"tmaStore"} if w.by_engine else set())),
        A=Operand(dtype.name, a),
        B=Operand(dtype.name, b),
        C=Operand(out.name, c),
        math=f"wgmma 64x{bn}x{DEPTH_BYTES // dtype.bytes}",
        stages=w.stages,
        roles=f"producer 1, consumers {bm // 64}",
        persistent=sms if w.runs_on else 0,
        cta_swizzle=16 if w.runs_on else 0,
        split_k=w.parts,
    ).replace()
