"""The rows of tensor cores: fragments that check themselves, and meanings against NumPy with small integers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gemmgen.ir.types import BF16, E4M3, E5M2, F16, TF32, WARP, DType
from gemmgen.isa.fragment import Fragment
from gemmgen.isa.math import FMA, MATHS, NAMES, types_of, ways_for
from gemmgen.isa.mma import SUMS, a_fragment, b_fragment, ldmatrix, mma, per_register

TYPES = (F16, BF16, TF32, E4M3, E5M2)


class Registers:
    """Registers of some warps, as a meaning sees them."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def read(self, width: int = 1) -> Any:
        return self.values[:width]

    def write(self, values: Any) -> None:
        self.values = np.asarray(values, self.values.dtype)


def lanes(warps: int) -> Any:
    thread = np.arange(warps * WARP)
    return SimpleNamespace(
        active=None, batch=SimpleNamespace(thread=thread), first=lambda n: True if n == WARP else thread % WARP < n
    )


def spread(tiles: Any, f: Fragment) -> Any:
    """Tiles [warps, rows, cols] as registers [elements, lanes], place by place."""
    out = np.zeros((f.elements, len(tiles) * WARP), tiles.dtype)
    for w in range(len(tiles)):
        for lane in range(WARP):
            for i in range(f.elements):
                out[i, w * WARP + lane] = tiles[w][f.at(lane, i)]
    return out


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_mma_multiplies_what_its_fragments_say(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    a, b = a_fragment(dtype), b_fragment(dtype)
    left = rng.integers(-3, 4, (2, a.rows, a.cols)).astype(dtype.numpy_dtype)
    right = rng.integers(-3, 4, (2, b.rows, b.cols)).astype(dtype.numpy_dtype)
    before = rng.integers(-99, 99, (2, SUMS.rows, SUMS.cols)).astype(np.float32)
    sums = spread(before, SUMS)
    upper, lower = Registers(sums[:2]), Registers(sums[2:])
    row = mma(dtype)
    assert row.meaning is not None
    row.meaning(lanes(2), upper, lower, Registers(spread(left, a)), Registers(spread(right, b)))
    want = before + left.astype(np.float32) @ right.astype(np.float32)
    assert np.array_equal(np.concatenate([upper.values, lower.values]), spread(want, SUMS))


def test_tf32_counts_the_upper_19_bits() -> None:
    a, b = a_fragment(TF32), b_fragment(TF32)
    ones = np.ones((b.elements, WARP), np.float32)
    fine = np.full((a.elements, WARP), 1 + 2.0**-10 + 2.0**-11, np.float32)
    upper, lower = Registers(np.zeros((2, WARP), np.float32)), Registers(np.zeros((2, WARP), np.float32))
    row = mma(TF32)
    assert row.meaning is not None
    row.meaning(lanes(1), upper, lower, Registers(fine), Registers(ones))
    assert (upper.values == 8 * (1 + 2.0**-10)).all()


@pytest.mark.parametrize("trans", [False, True], ids=["plain", "trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gives_each_lane_its_words(count: int, trans: bool) -> None:
    """A lane's register i has elements 2 (l % 4) and the next of row l / 4 of matrix i, with trans of that column."""
    tiles = np.arange(count * 64).reshape(count, 8, 8)
    rows = np.zeros((8, WARP), np.int64)
    for lane in range(8 * count):
        rows[:, lane] = tiles[lane // 8, lane % 8]
    place = SimpleNamespace(load=lambda width, where: rows)
    to = Registers(np.zeros((2 * count, WARP), np.int64))
    row = ldmatrix(count, BF16, trans)
    assert row.meaning is not None
    row.meaning(lanes(1), to, place)
    for lane in range(WARP):
        for i in range(2 * count):
            at = (lane // 4, lane % 4 * 2 + i % 2)
            assert to.values[i, lane] == tiles[i // 2][at[::-1] if trans else at]


def test_ldmatrix_gives_the_fragments_of_mma() -> None:
    """Rows of A in the order of its registers' matrices."""
    for dtype in TYPES:
        per, f = per_register(dtype), a_fragment(dtype)
        tile = np.arange(f.rows * f.cols).reshape(f.rows, f.cols)
        width = 4 * per
        rows = np.stack([tile[x % 16, x // 16 * width : x // 16 * width + width] for x in range(WARP)], axis=1)
        to = Registers(np.zeros((f.elements, WARP), np.int64))
        row = ldmatrix(4, dtype)
        assert row.meaning is not None
        row.meaning(lanes(1), to, SimpleNamespace(load=lambda _w, _o, r=rows: r))
        assert np.array_equal(to.values, spread(tile[None], f))


def test_a_fragment_that_leaves_a_place_out_is_refused() -> None:
    with pytest.raises(AssertionError, match="does not hold every element equally often"):
        Fragment(8, 8, 2, lambda lane, i: (lane // 4, lane % 4))
    with pytest.raises(AssertionError, match="has an element at"):
        Fragment(8, 4, 2, lambda lane, i: (lane // 4, lane % 4 * 2 + i))
    with pytest.raises(AssertionError, match="held by several lanes"):
        Fragment(8, 4, 2, lambda lane, i: (lane // 4, lane % 4), accumulates=True)


def test_each_way_names_its_types() -> None:
    assert NAMES[:4] == ("fma", "mma 16x8x16", "mma 16x8x8", "mma 16x8x32")
    assert all(name.startswith("wgmma 64x") for name in NAMES[4:])
    assert types_of("mma 16x8x16") == ("f16", "bf16") and types_of("mma 16x8x32") == ("e4m3", "e5m2")
    assert ways_for(BF16) == ("fma", "mma 16x8x16", "wgmma 64x256x16")
    assert ways_for(TF32) == ("mma 16x8x8", "wgmma 64x256x8")
    for (_, dtype), way in MATHS.items():
        least = 90 if way.by_group else 89 if dtype in (E4M3, E5M2) else 80 if way is not FMA else 50
        assert way.needs.min == least
        m, n, k = way.shape
        assert way.work.flops * way.threads == 2 * m * n * k
