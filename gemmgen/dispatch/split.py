"""Float32 products by tensor cores in ``gemmgen.matmul``, where the caller asks for it by name: elements are split into
parts of fewer bits, whose products Hopper's warp groups add up.

As for bfloat16, the tile is taken that is done first: rounds of blocks over the multiprocessors, times the steps along
K of a round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.split import SPLITS
from gemmgen.ir.types import F32
from gemmgen.isa.math import MATHS
from gemmgen.spec.model import Operand, Spec

if TYPE_CHECKING:
    from gemmgen.api.kernel import Kernel
    from gemmgen.ir.types import Order

ARCH = "sm_90"
START_S, SUM_S, SUM_RATE = 4.0e-6, 4.0e-6, 3.0e12
"""Seconds of a launch and of filling the stages; of the kernel that adds up parts of K, and the bytes that it moves."""
SPLIT_K = (1, 2, 4, 8)
LEAST_STEPS = 4
"""Tiles along K that a part of a sum has at least."""


@dataclass(frozen=True)
class Tile:
    """Rows and columns of C that a block computes. ``product_s``: seconds of a product of 64 along K of one pair of
    parts of 16 bits with all multiprocessors at work."""

    block: tuple[int, int]
    product_s: float


TILES = (Tile((128, 128), 0.35e-6), Tile((64, 128), 0.19e-6), Tile((64, 64), 0.13e-6))
SHARED = 220 * 1024
"""Bytes of a block's stages at most."""


def split_kernel(precision: str, A: tuple[Any, ...], B: tuple[Any, ...], C: tuple[Any, ...] | None) -> Kernel:
    """The kernel for operands of these descriptions (shape, strides, address, device). Raises ArgumentError for those
    that it does not multiply."""
    from gemmgen.dispatch.tensor import order_of

    if any(len(x[0]) != 2 for x in (A, B)):
        raise ArgumentError(
            f"precision {precision!r} multiplies two matrices; A has {len(A[0])} dimensions and B {len(B[0])}"
        )
    (m, k), n = A[0], B[0][1]
    orders = order_of(A), order_of(B), "row" if C is None else order_of(C)
    return _kernel(precision, (int(m), int(n), int(k)), orders, A[3])


@lru_cache(maxsize=4096)
def _kernel(precision: str, size: tuple[int, int, int], orders: tuple[Order, Order, Order], device: int) -> Kernel:
    from gemmgen.api.kernel import PATIENCE
    from gemmgen.dispatch.device import HOST
    from gemmgen.dispatch.matmul import shared_kernel
    from gemmgen.runtime import device as devices

    gpu = devices.current() if device == HOST else devices.get(device)
    if gpu is None:
        return shared_kernel(split_spec(precision, size, orders, 132), "sim", None, PATIENCE)
    if gpu.arch != ARCH:
        raise ArgumentError(f"precision {precision!r} needs wgmma, which {ARCH} alone has; this GPU is {gpu.arch}")
    return shared_kernel(split_spec(precision, size, orders, gpu.sms), "cuda", gpu.arch, None)


def split_spec(
    precision: str, size: tuple[int, int, int], orders: tuple[Order, Order, Order], sms: int, name: str = "matmul"
) -> Spec:
    """The spec for a shape: of tiles and parts of K that which is done first."""
    tile, parts = min(_candidates(precision, size), key=lambda c: seconds(precision, c[0], c[1], size, sms))
    bm, bn = tile.block
    math, step, stages = _way(precision, tile)
    a, b, c = orders
    runs_on = parts == 1
    return Spec(
        name=name,
        block=(bm, bn, step),
        warp=(16, bn),
        use=frozenset({"coalescing", "smem", "float4", "warptile", "tma", "smemSwizzle", "release"}),
        A=Operand(F32.name, a),
        B=Operand(F32.name, b),
        C=Operand(F32.name, c),
        math=math,
        stages=stages,
        roles=f"producer 1, consumers {bm // 64}",
        split_k=parts,
        persistent=sms if runs_on else 0,
        cta_swizzle=16 if runs_on else 0,
    ).replace()


def _way(precision: str, tile: Tile) -> tuple[str, int, int]:
    """The ``math`` of a tile, its step along K, and how many stages fit."""
    split, (bm, bn) = SPLITS[precision], tile.block
    step = 128 // split.part.bytes  # rows of 128 bytes
    name = next(
        name for (name, dtype), way in MATHS.items() if dtype == F32 and way.split is split and way.shape[1] == bn
    )
    return name, step, min(6, SHARED // (split.parts * (bm + bn) * 128))


def seconds(precision: str, tile: Tile, parts: int, size: tuple[int, int, int], sms: int) -> float:
    """About how long a kernel takes, without the pass that splits."""
    split, (m, n, k), (bm, bn) = SPLITS[precision], size, tile.block
    rounds = ceil(ceil(m / bm) * ceil(n / bn) * parts / sms)
    each = tile.product_s * len(split.terms) * split.part.bytes / 2
    added = SUM_S + m * n * F32.bytes * (parts + 1) / SUM_RATE if parts > 1 else 0.0
    return START_S + rounds * ceil(k / parts / 64) * each + added


def _candidates(precision: str, size: tuple[int, int, int]) -> Iterator[tuple[Tile, int]]:
    for tile in TILES:
        for parts in SPLIT_K:
            if parts == 1 or size[2] >= LEAST_STEPS * parts * 64:
                yield tile, parts


def forget_split() -> None:
    """Choose anew at the next calls."""
    _kernel.cache_clear()
