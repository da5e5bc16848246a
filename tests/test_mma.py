"""Kernels of tensor cores in the simulator, against float64: types, layouts, ways to feed and to copy, ragged sizes."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import gemmgen
from gemmgen.diagnostics import SpecError
from gemmgen.ir.types import ELEMENT_TYPES
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import parse

ORDERS = ("row", "col")
LAYOUTS = tuple(itertools.product(ORDERS, ORDERS, ORDERS))
MATH = {"bf16": "16x8x16", "f16": "16x8x16", "tf32": "16x8x8", "e4m3": "16x8x32", "e5m2": "16x8x32"}
WAYS = {
    "plain": ("", ""),
    "ldmatrix": (", ldmatrix", ""),
    "swizzled": (", ldmatrix, smemSwizzle", ""),
    "pipelined": (", ldmatrix, smemSwizzle, cpasync, prefetch", "stages 3"),
    "spread_staged": (", ldmatrix, cpasync, spread, prefetch, stageC", "stages 2\npad_a 16\npad_b 16"),
    "split": (", prefetch, cpasync", "stages 4\nsplit_k 2"),
    "engine": (", ldmatrix, smemSwizzle, tma, release, prefetch", "stages 3"),
    "persistent": (", ldmatrix, smemSwizzle, cpasync, raggedFirst", "stages 2\npersistent 2"),
}
SIZES = ((64, 64, 128), (65, 67, 69), (1, 3, 5), (72, 80, 96), (33, 66, 130))


def spec(dtype: str, layout: tuple[str, str, str], output: str, way: str, warp: str = "32x32") -> Spec:
    use, more = WAYS[way]
    a, b, c = layout
    return parse(
        f"kernel m\noperands A {dtype} {a}, B {dtype} {b}, C {output} {c}\nmath mma {MATH[dtype]}\n"
        f"tile block 64x64x64\ntile warp {warp}\nuse coalescing, smem, warptile, float4{use}\n{more}\n"
    )


def check(s: Spec, size: tuple[int, int, int], alpha: float = 1.0, beta: float = 0.0, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = size
    shapes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    found = {}
    for x in s.matrices:
        values = rng.standard_normal(shapes[x.name]).astype(x.dtype.numpy_dtype)
        found[x.name] = np.asarray(values, order="C" if x.order == "row" else "F")
    result = gemmgen.simulate(s, found["A"], found["B"], found["C"], alpha, beta)
    assert not result.faults, result.faults[0]
    verified = gemmgen.verify(result.C, found["A"], found["B"], found["C"], alpha, beta, spec=s)
    assert verified, verified


# Every way with every layout, each with one type, one type of C and one size: what differs is cycled through.
CASES = [
    (way, layout, ("bf16", "f16", "tf32")[(i + j) % 3], SIZES[(i + 2 * j) % len(SIZES)])
    for i, way in enumerate(WAYS)
    for j, layout in enumerate(LAYOUTS)
]


FEW = CASES[::5]


@pytest.mark.parametrize(("way", "layout", "dtype", "size"), FEW)
def test_a_product_is_right_in_the_simulator(
    way: str, layout: tuple[str, str, str], dtype: str, size: tuple[int, int, int]
) -> None:
    test_a_product_is_right(way, layout, dtype, size)


@pytest.mark.full
@pytest.mark.parametrize(("way", "layout", "dtype", "size"), [x for x in CASES if x not in FEW])
def test_a_product_is_right(way: str, layout: tuple[str, str, str], dtype: str, size: tuple[int, int, int]) -> None:
    output = dtype if dtype != "tf32" and len(layout[1]) == len(layout[2]) else "f32"
    alpha, beta = (-0.5, 2.0) if size[0] % 2 else (1.0, 0.0)
    check(spec(dtype, layout, output, way), size, alpha, beta)


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@pytest.mark.parametrize("layout", [("row", "col", "row"), ("col", "row", "col")])
def test_float8_products_are_right(dtype: str, layout: tuple[str, str, str]) -> None:
    for output, way, size in (("f32", "plain", (65, 67, 69)), ("bf16", "swizzled", (64, 64, 128))):
        check(spec(dtype, layout, output, way), size)


@pytest.mark.parametrize("warp", ["16x8", "64x8", "16x64", "32x24"])
def test_warp_tiles_of_any_whole_tiles_of_mma_are_right(warp: str) -> None:
    block = {"32x24": "64x48x32"}.get(warp, "64x64x32")
    for layout in (("row", "row", "row"), ("row", "col", "row")):
        s = spec("bf16", layout, "f32", "pipelined")
        wide = tuple(int(x) for x in warp.split("x"))
        size = tuple(int(x) for x in block.split("x"))
        check(s.replace(warp=wide, block=size, use=s.use - {"smemSwizzle"}), (65, 67, 69))


def test_g25_sums_pass_what_float16_holds() -> None:
    """Field case G25 by tensor cores: sums are float32 whatever C's type is."""
    s = spec("f16", ("row", "row", "row"), "f16", "pipelined")
    ones = np.ones((64, 4096), np.float16), np.ones((4096, 64), np.float16)
    assert (gemmgen.simulate(s, *ones).C == 4096).all()
    a = np.tile(np.array([300, 300, 7, 0, 0, 0, 0, 0], np.float16), (64, 1))
    b = np.tile(np.array([300, -300, 1, 0, 0, 0, 0, 0], np.float16)[:, None], (1, 64))
    assert (gemmgen.simulate(s, a, b).C == 7).all()


def test_counts_are_the_simulators() -> None:
    """Flops of the tensor cores, requests and wavefronts of ldmatrix: counted in closed form and by running."""
    from gemmgen.analysis.counts import count
    from gemmgen.lower import lower

    for way in ("plain", "ldmatrix", "swizzled", "pipelined"):
        s = spec("bf16", ("row", "row", "row"), "f32", way)
        a = np.zeros((128, 192), s.matrices[0].dtype.numpy_dtype)
        b = np.zeros((192, 64), a.dtype)
        ran = gemmgen.simulate(s, a, b).counters
        found = count(lower(s), {"M": 128, "N": 64, "K": 192, "lda": 192, "ldb": 64, "ldc": 64, "beta": 0.0})
        for op in ("load", "store"):
            for space in ("global", "shared"):
                assert ran[space][op] == found.total(space, op).totals(space), (way, space, op)
        steps = 192 // 16 + (1 if "prefetch" in s.use else 0)
        assert found.math == {"tensor": 2 * 128 * 64 * 16 * steps}


@pytest.mark.parametrize("way", ["swizzled", "pipelined", "engine"])
def test_every_sync_that_is_left_out_is_caught(way: str) -> None:
    s = spec("bf16", ("row", "col", "row"), "f32", way)
    ir = gemmgen.lower(s)
    a = np.ones((64, 512), s.matrices[0].dtype.numpy_dtype)
    b = np.asfortranarray(np.ones((512, 64), a.dtype))
    assert not gemmgen.simulate(ir, a, b).faults
    for sync in (*ir.syncs(), *ir.waits()):
        assert gemmgen.simulate(ir.without(sync), a, b).faults, sync


def test_swizzled_tiles_have_no_bank_conflicts() -> None:
    from gemmgen.analysis.counts import count
    from gemmgen.lower import lower

    sizes = {"M": 64, "N": 64, "K": 64, "lda": 64, "ldb": 64, "ldc": 64, "beta": 0.0}
    for layout in (("row", "row", "row"), ("col", "col", "row")):
        found = count(lower(spec("bf16", layout, "f32", "swizzled")), sizes).total("shared", "load")
        plain = count(lower(spec("bf16", layout, "f32", "ldmatrix")), sizes).total("shared", "load")
        assert found.wavefronts == found.ideal_wavefronts
        assert plain.wavefronts == 8 * plain.ideal_wavefronts


def test_every_element_type_is_multiplied_by_some_way() -> None:
    from gemmgen.isa.math import ways_for

    assert all(ways_for(t) for t in ELEMENT_TYPES.values())


@pytest.mark.full
def test_the_second_ladder_names_the_bottleneck_that_the_model_finds() -> None:
    from gemmgen.analysis.bottleneck import bottleneck
    from gemmgen.report.ladder import RUNGS_BF16
    from gemmgen.spec.ladder import LADDER_BF16

    assert [rung.spec for rung in RUNGS_BF16] == list(LADDER_BF16)
    for rung in RUNGS_BF16:
        e = gemmgen.explain(gemmgen.load(rung.spec), 4096, 4096, 4096, gpu="h200")
        assert rung.leaves.startswith(bottleneck(e).short), (rung.spec, bottleneck(e).short)


def any_spec(rng: random.Random) -> Spec | None:
    """A random spec of tensor cores; None where the draw is not legal."""
    dtype = rng.choice(["bf16", "f16", "tf32", "e4m3", "e5m2"])
    k = {"bf16": 16, "f16": 16, "tf32": 8}.get(dtype, 32)
    wm, wn = 16 * rng.randint(1, 3), 8 * rng.randint(1, 5)
    bm, bn, bk = wm * rng.randint(1, 2), wn * rng.randint(1, 2), k * rng.randint(1, 4)
    output = rng.choice(["f32", {"e4m3": "bf16", "e5m2": "f16", "tf32": "f32"}.get(dtype, dtype)])
    toggles = ["ldmatrix", "smemSwizzle", "prefetch", "stageC", "raggedFirst", "spread", "clusterReduce", "release"]
    use = {t for t in toggles if rng.random() < 0.35} | {rng.choice(["cpasync", "tma", "coalescing"])}
    use |= {"coalescing", "smem", "warptile"} | ({"float4"} if rng.random() < 0.8 else set())
    split = rng.choice([1, 1, 1, 2, 3])
    more = {
        "stages": rng.choice([1, 2, 3, 4]),
        "split_k": split,
        "persistent": rng.choice([0, 0, 0, 3]),
        "cta_swizzle": rng.choice([0, 0, 2]),
        "pad_a": rng.choice([0, 0, 8, 3]),
        "pad_b": rng.choice([0, 0, 8, 5]),
    }
    start = spec(dtype, ("row", "row", "row"), "f32", "plain")
    orders = [rng.choice(ORDERS) for _ in range(3)]
    try:
        return start.replace(
            block=(bm, bn, bk), warp=(wm, wn), use=use, A=f"{dtype} {orders[0]}", B=f"{dtype} {orders[1]}",
            C=f"{output} {orders[2]}", **more,
        )  # fmt: skip
    except SpecError:
        return None


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(s, marks=pytest.mark.full) for s in range(20, 300))])
def test_any_legal_spec_is_right_at_any_size(seed: int) -> None:
    rng = random.Random(seed)
    made = next(s for s in iter(lambda: any_spec(rng), 0) if isinstance(s, Spec))
    size = (rng.randint(1, 140), rng.randint(1, 140), rng.randint(0, 200))
    check(made, size, rng.choice([1.0, -0.5]), rng.choice([0.0, 2.0]), seed)
