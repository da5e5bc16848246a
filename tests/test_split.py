"""Float32 multiplied part by part on tensor cores: right, whatever the layout; every synchronisation needed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gemmgen
from gemmgen.diagnostics import ArgumentError, SpecError
from gemmgen.dispatch.split import seconds, split_spec
from gemmgen.ir.nodes import Call
from gemmgen.ir.split import SPLITS
from gemmgen.launch import plan
from gemmgen.lower import lower
from gemmgen.spec.model import Spec

STEP = {"bf16x6": 64, "tf32x3": 32}
DEPTH = {"bf16x6": 16, "tf32x3": 8}
TEXT = """kernel small
operands A f32 {a}, B f32 {b}, C f32 {c}
tile block {bm}x64x{bk}
tile warp 16x64
math wgmma 64x64x{depth} as {split}
use coalescing, smem, float4, warptile, tma, smemSwizzle{use}
stages 2
{more}
"""
WAYS = {
    "plain": (64, "", ""),
    "roles": (128, ", release", "roles producer 1, consumers 2"),
    "persistent": (64, ", release", "roles producer 1, consumers 1\npersistent 2\ncta_swizzle 2"),
    "stored": (64, ", release, tmaStore", "roles producer 1, consumers 1\npersistent 2"),
    "split": (64, ", release", "split_k 2"),
}
SIZES = ((64, 64, 64), (129, 70, 200), (1, 1, 1), (65, 72, 33))
LAYOUTS = [(a, b) for a in ("row", "col") for b in ("row", "col")]
CASES = [(way, *LAYOUTS[i % 4], split) for i, way in enumerate(WAYS) for split in SPLITS]


def spec(way: str, a: str = "row", b: str = "row", split: str = "bf16x6") -> Spec:
    bm, use, more = WAYS[way]
    c = "row" if way in ("stored", "plain") else "col"
    named = {"bk": STEP[split], "depth": DEPTH[split], "split": split}
    return gemmgen.parse(TEXT.format(a=a, b=b, c=c, bm=bm, use=use, more=more, **named))


def drawn(m: int, n: int, k: int, a: str, b: str, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    one, other = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    return np.asarray(one, order="C" if a == "row" else "F"), np.asarray(other, order="C" if b == "row" else "F")


@pytest.mark.parametrize(("way", "a", "b", "split"), CASES)
def test_right_at_ragged_sizes_in_every_layout(way: str, a: str, b: str, split: str) -> None:
    made = spec(way, a, b, split)
    for number, (m, n, k) in enumerate(SIZES):
        one, other = drawn(m, n, k, a, b, number)
        alpha, beta = ((1.0, 0.0), (0.5, 2.0))[number % 2]
        old = np.ones((m, n), np.float32, order="C" if made.C.order == "row" else "F")
        found = gemmgen.simulate(made, one, other, old, alpha, beta)
        assert not found.faults, (m, n, k, found.faults[0])
        assert gemmgen.verify(found.C, one, other, old, alpha, beta, spec=made).ok, (m, n, k)


@pytest.mark.parametrize("way", [x for x in WAYS if x != "split"])
def test_every_synchronisation_is_needed(way: str) -> None:
    made = spec(way)
    made = made.replace(persistent=1) if made.persistent else made
    ir = lower(made)
    m, n, k = made.block[0], 3 * made.block[1], made.block[2] * (2 * made.stages + 1)
    a, b = drawn(m, n, k, "row", "row", 1)
    want = gemmgen.simulate(ir, a, b)
    assert not want.faults
    for sync in [*ir.syncs(), *ir.waits()]:
        got = gemmgen.simulate(ir.without(sync), a, b)
        name = sync.row.name if isinstance(sync, Call) else "barrier"
        assert got.faults or not np.array_equal(got.C, want.C), (name, getattr(sync, "why", ""))


@pytest.mark.parametrize("name", SPLITS)
def test_parts_add_up_to_the_number(name: str) -> None:
    split = SPLITS[name]
    x = np.random.default_rng(3).standard_normal(5000).astype(np.float32) * np.exp2(np.arange(5000) % 200 - 100)
    parts = split.of(x)
    assert [p.dtype for p in parts] == [split.part.numpy_dtype] * split.parts
    whole = sum(p.astype(np.float64) for p in parts)
    assert np.array_equal(whole, x) if name == "bf16x6" else np.allclose(whole, x, rtol=2.0**-22, atol=0)
    for one, other in pairwise(parts):
        unit = 2.0 ** -(8 if name == "bf16x6" else 11)
        assert (np.abs(other.astype(np.float64)) <= unit * np.abs(one.astype(np.float64))).all()


def test_the_terms_are_the_largest_and_the_smallest_come_first() -> None:
    for split in SPLITS.values():
        order = [a + b for a, b in split.terms]
        assert order == sorted(order, reverse=True) and max(order) == split.parts - 1
        assert sorted(split.terms) == [(a, b) for a in range(split.parts) for b in range(split.parts - a)]


@pytest.mark.parametrize("name", SPLITS)
def test_what_is_not_finite_is_as_in_float32(name: str) -> None:
    a, b = drawn(64, 64, 64, "row", "row", 5)
    a[3, 5], a[9, 1], a[20, 2] = np.inf, np.nan, -np.inf
    a[30, 7] = np.finfo(np.float32).max
    b[:, 4] = 0.0
    b[7, 5] = 4.0
    with np.errstate(all="ignore"):
        want = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    found = gemmgen.simulate(spec("plain", split=name), a, b)
    assert not found.faults
    special = ~np.isfinite(want)
    assert special.sum() > 150
    assert np.array_equal(found.C[special], want[special], equal_nan=True)
    assert np.isfinite(found.C[~special]).all()


def test_the_plan_shows_the_pass() -> None:
    shapes = {"A": (100, 70), "B": (70, 50), "C": (100, 50)}
    strides = {"A": (70, 1), "B": (1, 70), "C": (1, 100)}  # C by columns
    made = plan(spec("roles", "row", "col"), shapes, strides, {"A": 0, "B": 1 << 20, "C": 1 << 21})
    copies = {x.operand: x for x in made.copies}
    assert {x: c.leading for x, c in copies.items()} == {"A": 3 * 128, "B": 3 * 128}  # K in whole tiles, three parts
    assert copies["A"].bytes == 100 * 3 * 128 * 2 and copies["B"].bytes == 50 * 3 * 128 * 2
    assert all(c.split is SPLITS["bf16x6"] for c in copies.values())
    assert made.workspace == sum(c.bytes for c in copies.values())


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_matmul_does_it_where_it_is_asked_to(name: str, layout: tuple[str, str]) -> None:
    a, b = drawn(70, 45, 130, *layout, 7)
    got = gemmgen.matmul(a, b, precision=name)
    want = a.astype(np.float64) @ b.astype(np.float64)
    bound = 2.0**-21 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    assert got.dtype == np.float32 and (np.abs(got - want) <= bound).all()
    bias = np.arange(45, dtype=np.float32)
    fused = gemmgen.matmul(a, b, precision=name, bias=bias, activation="relu")
    assert (np.abs(fused - np.maximum(want + bias, 0)) <= bound + 1e-5).all()


def test_matmul_refuses_what_it_has_no_kernel_for() -> None:
    a = np.zeros((2, 4, 4), np.float32)
    with pytest.raises(ArgumentError, match="'bf16x6' multiplies two matrices; A has 3 dimensions and B 3"):
        gemmgen.matmul(a, a, precision="bf16x6")
    with pytest.raises(ArgumentError, match="it is one of exact, tf32, bf16x6, tf32x3"):
        gemmgen.matmul(a[0], a[0], precision="bf16x9")


def test_the_choice_keeps_the_multiprocessors_at_work() -> None:
    orders = ("row", "row", "row")
    large = split_spec("bf16x6", (4096, 4096, 4096), orders, 132)
    assert large.block == (128, 128, 64) and large.split_k == 1 and large.persistent == 132
    few = split_spec("bf16x6", (128, 256, 65536), orders, 132)
    assert few.split_k > 1 and not few.persistent
    for m, n, k in ((1, 1, 1), (513, 77, 300), (3000, 777, 2049), (128, 4096, 4096)):
        for name in SPLITS:
            made = split_spec(name, (m, n, k), orders, 132)
            assert gemmgen.parse(made.to_text()) == made  # a spec that passes all checks
    assert seconds("tf32x3", *_first(), (64, 64, 64), 132) > 0


def _first() -> tuple[Any, int]:
    from gemmgen.dispatch.split import TILES

    return TILES[0], 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("math wgmma 64x64x16 as bf16x9", "math 'wgmma 64x64x16 as bf16x9' is not supported"),
        ("math wgmma 64x64x16 as", "is not supported"),
        ("math fma as bf16x6", "'bf16x6' is too much"),
        ("math wgmma 64x64x16 as bf16x6 twice", "is too much"),
    ],
)
def test_what_is_no_way_to_split(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        gemmgen.parse(spec("plain").to_text().replace("math   wgmma 64x64x16 as bf16x6", text))


def test_bfloat16_is_not_split() -> None:
    with pytest.raises(SpecError, match="A and B are bf16, which wgmma 64x64x16 as bf16x6 does not multiply"):
        spec("plain").replace(A="bf16 row", B="bf16 row")


@pytest.mark.parametrize("name", SPLITS)
def test_the_text_tells_how_it_is_done(name: str) -> None:
    text = gemmgen.emit(spec("roles", split=name))
    split = SPLITS[name]
    assert text.count("for (int k = 0; k < BK") == len(split.terms)
    assert f"has split each element into {split.parts} {split.part}" in " ".join(text.replace("//", " ").split())
    assert "small ones first" in text and f"constexpr int PARTS = {split.parts};" in " ".join(text.split())
