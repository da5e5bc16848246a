"""Batches: one launch for all products, every way to store C, layouts, broadcasts, strides, limits and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from epiloguehelp import operands
from hypothesis import given, settings
from hypothesis import strategies as st
from test_epilogue import WAYS, spec_of

import gemmgen
from gemmgen.launch import batches, plan
from gemmgen.spec.model import Operand, Spec


def batched(way: str, chain: str = "", **changes: Any) -> Spec:
    plain = spec_of(way, chain)
    return plain.replace(use=plain.use | {"batched"}, **changes)


def random(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def each(spec: Spec, values: dict[str, Any], count: int) -> dict[str, Any]:
    """An epilogue's operands for each product, different ones."""
    ranks = {x.name: x for x in spec.beside}
    return {
        name: np.stack([x + i if not ranks[name].written else x for i in range(count)]).astype(x.dtype)
        for name, x in values.items()
    }


@pytest.mark.parametrize("way", WAYS)
def test_every_product_is_right_however_c_is_stored(way: str) -> None:
    spec = batched(way, "bias -> aux -> gelu -> residual")
    for m, n, k in ((32, 32, 16), (21, 19, 13)):
        a, b = random(3, m, k), random(3, k, n, seed=1)
        beside = each(spec, operands(spec, m, n), 3)
        c = random(3, m, n, seed=2)
        done = gemmgen.simulate(spec, a, b, c, 0.5, -1.0, **beside)
        assert done.faults == ()
        for i in range(3):
            own = {name: x[i] for name, x in beside.items()}
            assert gemmgen.verify(done.C[i], a[i], b[i], c[i], 0.5, -1.0, spec, **own), (way, i)
        assert gemmgen.verify(done.C, a, b, c, 0.5, -1.0, spec, **beside)


@pytest.mark.parametrize("orders", ["row row row", "col row col", "row col row", "col col col"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_layouts_and_types(orders: str, dtype: str) -> None:
    a, b, c = (Operand(dtype, "row" if o == "row" else "col") for o in orders.split())
    spec = batched("smem", A=a, B=b, C=c)
    kind = spec.matrices[0].dtype.numpy_dtype
    left = random(2, 17, 9).astype(kind) if a.order == "row" else random(2, 9, 17).astype(kind).swapaxes(1, 2)
    right = random(2, 9, 21).astype(kind) if b.order == "row" else random(2, 21, 9).astype(kind).swapaxes(1, 2)
    found = gemmgen.compile(spec, "sim")(left, right)
    assert found.shape == (2, 17, 21) and found.strides[1 if c.order == "col" else 2] == kind.itemsize
    assert gemmgen.verify(found, left, right, spec=spec)


def test_a_missing_batch_or_one_of_one_is_shared() -> None:
    spec = batched("vectors", "bias")
    kernel = gemmgen.compile(spec, "sim")
    a, b, bias = random(4, 20, 12), random(12, 24, seed=1), random(24, seed=2)
    want = np.matmul(a, b) + bias
    for right in (b, b[None]):
        for added in (bias, bias[None], np.tile(bias, (4, 1))):
            np.testing.assert_allclose(kernel(a, right, bias=added), want, 1e-4, 1e-4)
    np.testing.assert_allclose(kernel(a[0], random(4, 12, 24), bias=bias), a[0] @ random(4, 12, 24) + bias, 1e-4, 1e-4)
    assert kernel(a[0], b, bias=bias).shape == (20, 24)
    assert kernel(a[:1], b, bias=bias).shape == (1, 20, 24)
    assert kernel(a[:0], b, bias=bias).shape == (0, 20, 24)


def test_heads_beside_one_another_are_read_and_written_where_they_lie() -> None:
    """(rows, heads, columns) seen as (heads, rows, columns): the matrices lie between one another."""
    spec = batched("vectors")
    q = random(20, 3, 16).swapaxes(0, 1)
    k = random(3, 16, 24, seed=1)
    out = np.zeros((20, 3, 24), np.float32)
    gemmgen.compile(spec, "sim")(q, k, out.swapaxes(0, 1))
    np.testing.assert_allclose(out.swapaxes(0, 1), np.matmul(q, k), 1e-4, 1e-4)


def test_alignment_is_that_of_every_matrix() -> None:
    spec = batched("vectors")
    a = random(3, 33 * 16 + 1)[:, : 32 * 16].reshape(3, 32, 16)
    a = np.lib.stride_tricks.as_strided(random(3 * 513 + 8), (3, 32, 16), (513 * 4, 64, 4))
    b = random(16, 32)
    done = gemmgen.simulate(spec, a, b)
    assert done.faults == () and gemmgen.verify(done.C, a, b, spec=spec)


def test_a_kernel_that_is_not_batched_has_a_sibling_that_is() -> None:
    for name in ("vectorized", "tma"):
        kernel = gemmgen.compile(gemmgen.load(name).replace(epilogue="relu"), "sim")
        a, b = random(2, 30, 17), random(2, 17, 40, seed=1)
        np.testing.assert_allclose(kernel(a, b), np.maximum(np.matmul(a, b), 0), 1e-4, 1e-4)
        assert kernel.for_batches() is kernel.for_batches() and not kernel.for_batches().spec.has("tma")


def test_matmul_takes_batches() -> None:
    a, b, bias = random(3, 30, 17), random(17, 40, seed=1), random(40, seed=2)
    np.testing.assert_allclose(gemmgen.matmul(a, b), np.matmul(a, b), 1e-4, 1e-4)
    want = np.maximum(np.matmul(a, b) + bias, 0)
    np.testing.assert_allclose(gemmgen.matmul(a, b, bias=bias, activation="relu"), want, 1e-4, 1e-4)
    c = np.ones((3, 30, 40), np.float32)
    assert gemmgen.matmul(a, b, c, beta=2.0) is c
    np.testing.assert_allclose(c, np.matmul(a, b) + 2, 1e-4, 1e-4)


def test_more_products_than_the_grid_holds_are_several_launches() -> None:
    spec = batched("split_k", "bias")
    count = 65535 // 3 + 5
    shapes = {"A": (count, 4, 4), "B": (4, 4), "C": (count, 4, 4), "bias": (count, 4)}
    strides = {"A": (16, 4, 1), "B": (4, 1), "C": (16, 4, 1), "bias": (4, 1)}
    addresses = {"A": 0, "B": 1 << 40, "C": 1 << 41, "bias": 1 << 42}
    made = plan(spec, shapes, strides, addresses)
    assert [x.grid[2] for x in made.steps] == [65535, 65535 // 3, 15, 5]
    assert [x.arguments.A for x in made.steps] == [0, 0, 16 * 21845, 16 * 21845]
    assert made.steps[3].arguments.beside == (("bias", 4 * 21845, 0),) and made.steps[2].arguments.B == 0
    assert max(x.grid[2] for x in made.steps) <= batches.GRID_Z


def test_counts_are_what_the_simulator_counts() -> None:
    from gemmgen.analysis.counts import count

    spec = batched("vectors", "bias -> relu")
    a, b, bias = random(3, 37, 11), random(11, 29), random(3, 29)
    done = gemmgen.simulate(spec, a, b, bias=bias)
    given = {"A": (3, 37, 11), "B": (11, 29), "C": (3, 37, 29), "bias": (3, 29)}
    strides = {"A": (37 * 11, 11, 1), "B": (29, 1), "C": (37 * 29, 29, 1), "bias": (29, 1)}
    addresses = {name: i << 40 for i, name in enumerate(given)}
    (step,) = plan(spec, given, strides, addresses).steps
    found = count(gemmgen.lower(spec, step.variant), step.scalars, step.grid)
    for op in ("load", "store"):
        assert found.total("global", op).totals("global") == done.counters["global"][op]
    assert found.fma == done.counters["fma"]
    assert gemmgen.explain(spec, 64, 64, 64, compiled=False).blocks == 16


@pytest.mark.parametrize(
    ("a", "b", "c", "said"),
    [
        ((3, 8, 8), (2, 8, 8), None, "B is a batch of 2, and A of 3; a batch of 1 is shared by all"),
        ((3, 8, 8), (8, 8), (2, 8, 8), "C is a batch of 2; the product is one of 3"),
        ((3, 8, 8), (8, 8), (8, 8), "C is a batch of 1; the product is one of 3"),
        ((3, 8, 8), (3, 7, 8), None, "A has 8 columns, and B 7 rows"),
        ((2, 3, 8, 8), (8, 8), None, "A has 4 dimensions, shape (2, 3, 8, 8); a matrix has 2, and a batch of them 3"),
    ],
)
def test_batches_that_do_not_fit_are_named(a: Any, b: Any, c: Any, said: str) -> None:
    with pytest.raises(gemmgen.ArgumentError) as caught:
        gemmgen.compile(batched("vectors"), "sim")(random(*a), random(*b), None if c is None else random(*c))
    assert said in str(caught.value)


def test_an_output_that_overlaps_itself_is_refused() -> None:
    kernel = gemmgen.compile(batched("vectors"), "sim")
    a, b = random(3, 8, 8), random(8, 8)
    c = np.lib.stride_tricks.as_strided(np.zeros(200, np.float32), (3, 8, 8), (32, 32, 4))
    with pytest.raises(gemmgen.ArgumentError, match="its matrices overlap"):
        kernel(a, b, c)
    with pytest.raises(gemmgen.ArgumentError, match="in each matrix of the batch; stride 1 along rows is wanted"):
        kernel(a.swapaxes(1, 2), b)


def test_a_wrong_product_of_a_batch_is_found() -> None:
    a, b = random(3, 8, 8), random(8, 8)
    c = np.matmul(a, b)
    assert gemmgen.verify(c, a, b)
    c[2, 3, 4] += 0.1
    found = gemmgen.verify(c, a, b)
    assert not found and "C[2, 3, 4]" in str(found) and found.where == (2, 3, 4)
    assert "a batch of 3 is wanted" in str(gemmgen.verify(c[:2], a, b))


@given(
    way=st.sampled_from(list(WAYS)),
    count=st.integers(1, 4),
    size=st.tuples(st.integers(1, 36), st.integers(1, 36), st.integers(0, 20)),
    shared=st.sampled_from(["", "A", "B"]),
    pad=st.sampled_from([0, 1, 4]),
)
@settings(max_examples=25)
def test_any_batch_is_right(way: str, count: int, size: tuple[int, int, int], shared: str, pad: int) -> None:
    m, n, k = size
    spec = batched(way, "scale_a -> bias")
    a = random(count, m, k + pad)[:, :, :k]
    b = random(count, k, n + pad, seed=1)[:, :, :n]
    a, b = (a[0] if shared == "A" else a), (b[:1] if shared == "B" else b)
    beside = each(spec, operands(spec, m, n), count) if 3 in (a.ndim, b.ndim) and (a.ndim == b.ndim) else {}
    beside = beside or operands(spec, m, n)
    if max(x.shape[0] if x.ndim == 3 else 1 for x in (a, b)) != count:
        return
    done = gemmgen.simulate(spec, a, b, **beside)
    assert done.faults == () and gemmgen.verify(done.C, a, b, spec=spec, **beside)
