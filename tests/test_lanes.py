"""Lanes that share the sum over K: few rows or columns in every layout, with no copy of a transposed view."""

from __future__ import annotations

import numpy as np
import pytest
from simhelp import close

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import SpecError
from gemmgen.launch import EXACT, VARIANTS, plan
from gemmgen.lower import lower
from gemmgen.spec.model import Operand, Spec
from gemmgen.tile.lane_sums import Halving, LaneSums, lane_sums
from gemmgen.tile.rewrites import build
from gemmgen.tune.families import LAYOUTS, layout_of, pool, swaps
from gemmgen.tune.pool import orders_of

DIRECT = gemmgen.parse(
    "kernel lanes\ntile block 2x8\ntile thread 2x2\noperands A f32 row, B f32 col\nuse float4\nlanes_k 32\nunroll 256\n"
)
STAGED = DIRECT.replace(block=(4, 8, 256), use="smem, float4, directB, cpasync", stages=2)
SPECS = {
    "direct": DIRECT,
    "direct, 8 lanes": DIRECT.replace(lanes_k=8, split_k=3),
    "direct, scalars": DIRECT.replace(use=frozenset(), unroll=0),
    "direct, A by columns": DIRECT.replace(A=Operand("f32", "col")),
    "direct, B by rows": DIRECT.replace(B=Operand("f32", "row"), unroll=0),
    "staged": STAGED,
    "staged, early": STAGED.replace(split_k=2, use=STAGED.use | {"dependentLaunch"}),
    "staged, atomics": STAGED.replace(split_k=2, use=STAGED.use | {"atomics"}),
    "staged, persistent": STAGED.replace(persistent=2),
    "staged, by columns": STAGED.replace(
        A=Operand("f32", "col"), C=Operand("f32", "col"), use=STAGED.use - {"cpasync"}, stages=1, unroll=128
    ),
}
SIZES = ((1, 1, 1), (2, 8, 256), (5, 19, 77), (1, 37, 300), (9, 24, 1028))


def view(values: np.ndarray, order: str) -> np.ndarray:
    """The same values as a view of an array that is stored by rows or by columns."""
    return values if order == "row" else np.ascontiguousarray(values.T).T


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sums_of_lanes_are_right_at_odd_sizes(name: str, size: tuple[int, int, int]) -> None:
    spec, (m, n, k) = SPECS[name], size
    rng = np.random.default_rng(m + n + k)
    a, b, c = (rng.standard_normal(x, dtype=np.float32) for x in ((m, k), (k, n), (m, n)))
    kernel = gemmgen.compile(spec, device="sim")
    given = [view(x, o.order) for x, o in ((a, spec.A), (b, spec.B))]
    assert close(kernel(*given), a, b, c)
    got = view(c.copy(), spec.C.order)
    assert kernel(*given, got, 1.5, 0.5) is got
    assert close(got, a, b, c, 1.5, 0.5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_lane_reads_as_many_neighbours_along_k_as_rows_are_aligned_to(variant: str) -> None:
    width = {"exact": 4, "guarded": 4, "guarded_unaligned": 1}[variant]
    text = emit_cuda(lower(DIRECT, VARIANTS[variant]))
    assert f"VECTOR = {width};" in text
    assert f"#pragma unroll {256 // 32 // width}\n    for (int k = 0; k < K; k += STEP_K)" in text


def test_lanes_halve_the_sums_that_they_exchange_and_need_no_barrier() -> None:
    """Four sums over 32 lanes: two halvings, then groups of 8 lanes have one sum each, of which one lane stores it."""
    text = emit_cuda(lower(DIRECT, EXACT))
    assert "__syncthreads" not in text
    assert "share_lanes16(threadResults[0][n], threadResults[1][n])" in text
    assert "share_lanes8(threadResults[0][0], threadResults[0][1])" in text
    assert "add_lanes8(threadResults[0][0])" in text and "if (laneK % 8 == 0)" in text
    assert lane_sums(build(DIRECT, EXACT)) == LaneSums((Halving("m", 16, 1), Halving("n", 8, 1)), 8, 1, 1)


@pytest.mark.parametrize(("order", "left"), [("row", (1, 4)), ("col", (2, 2))])
def test_a_lane_keeps_neighbours_along_a_line_of_c(order: str, left: tuple[int, int]) -> None:
    spec = DIRECT.replace(block=(8, 32, 1), thread=(2, 4), lanes_k=2, unroll=0, C=f"f32 {order}")
    found = lane_sums(build(spec, EXACT))
    assert (found.rows, found.cols, found.rest) == (*left, 1)
    assert build(spec, EXACT).output.width == (4 if order == "row" else 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_spec_of_the_pool_copies_the_operands_of_its_layout(layout: str) -> None:
    """Also of one row and of one column. Where B is by columns, those of large tiles have it copied into rows."""
    for spec in pool(layout)[::9]:
        if (layout, spec.B.order) == ("nt", "row"):
            assert spec.has("tma") and spec.block[0] >= 64
            continue
        for m, n, k in ((64, 32, 128), (1, 64, 128), (64, 1, 128)):
            orders = orders_of(layout)
            given = {"A": ((m, k), orders.a), "B": ((k, n), orders.b), "C": ((m, n), "row")}
            shapes = {x: shape for x, (shape, _) in given.items()}
            strides = {x: (s[1], 1) if order == "row" else (1, s[0]) for x, (s, order) in given.items()}
            if swaps(spec):
                shapes = {x: shapes[y][::-1] for x, y in zip("ABC", "BAC", strict=True)}
                strides = {x: strides[y][::-1] for x, y in zip("ABC", "BAC", strict=True)}
            addresses = {"A": 0, "B": 1 << 20, "C": 1 << 21}
            assert plan(spec, shapes, strides, addresses).copies == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use": "float4, snake"}, "lanes_k 32 does not go with snake"),
        ({"thread": (1, 2), "lanes_k": 2, "block": (2, 2), "unroll": 0}, "a block has 4 threads"),
        ({"block": (4, 8, 256), "use": "smem, float4"}, "lanes_k 32 reads B along K"),
        ({"block": (4, 8, 24), "use": "smem, float4, directB", "unroll": 0}, "deals out BK 24 steps"),
        ({"unroll": 200}, "takes 128 steps along K at once, and unroll 200"),
        ({"lanes_k": 3}, "lanes_k '3' is not supported"),
    ],
)
def test_what_lanes_do_not_go_with_is_said(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        DIRECT.replace(**changes)


@pytest.mark.parametrize(
    ("shape", "a", "b", "layout"),
    [
        ((8, 16, 32), (32, 1), (16, 1), "nn"),
        ((8, 16, 32), (32, 1), (1, 32), "nt"),
        ((8, 16, 32), (1, 8), (1, 40), "tt"),
        ((1, 16, 32), (1, 1), (16, 1), "nn"),  # one row of a transposed view
        ((8, 1, 32), (32, 1), (1, 1), "nt"),  # one column lies along K
        ((8, 1, 32), (32, 1), (7, 1), "nn"),  # a column of a wider matrix does not
        ((8, 16, 1), (1, 1), (16, 1), "tn"),
        ((8, 16, 32), (64, 2), (3, 48), "nn"),
    ],
)
def test_a_layout_is_told_by_strides(
    shape: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], layout: str
) -> None:
    assert layout_of(shape, a, b) == layout


def test_float4_needs_no_shared_memory_where_lanes_read_along_k() -> None:
    with pytest.raises(SpecError, match="float4 needs smem"):
        Spec(name="x", block=(8, 8, 1)).replace(use="float4")
    assert DIRECT.has("float4") and not DIRECT.has("smem")


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("walk", [None, "m", "n"])
def test_lanes_go_along_the_dimension_that_the_spec_says(order: str, walk: str | None) -> None:
    spec = Spec(name="walk", block=(32, 32, 1)).replace(use="coalescing", C=f"f32 {order}", lane_walk=walk)
    along = walk or {"row": "n", "col": "m"}[order]
    text = emit_cuda(lower(spec))
    assert ("threadRow = threadIdx.x / BN" in text) == (along == "n")
    assert ("threadRow = threadIdx.x % BM" in text) == (along == "m")


def test_what_tma_cannot_transpose_comes_by_cp_async_beside_it() -> None:
    spec = gemmgen.parse(
        "kernel beside\ntile block 32x32x32\ntile thread 4x4\noperands A f32 row, B f32 col\n"
        "use smem, float4, tma, cpasync\nstages 2\npad_b 4\n"
    )
    text = emit_cuda(lower(spec, EXACT))
    assert "mapA" in text and "mapB" not in text and "cp_async4(&Bs" in text
    with pytest.raises(SpecError, match="two ways to bring the same tiles"):
        spec.replace(B="f32 row", pad_b=0)
    with pytest.raises(SpecError, match="add cpasync, which brings B beside tma"):
        spec.replace(use="smem, float4, tma", pad_b=0)
