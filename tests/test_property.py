"""Random legal specs on random operands: always within the bound of the arithmetic, with no fault."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import specs
from tiers import examples

import gemmgen
from gemmgen import Spec, verify

F32 = np.float32
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@dataclass(frozen=True)
class Case:
    spec: Spec
    size: tuple[int, int, int]
    pads: tuple[int, int, int]
    shifts: tuple[int, int, int]
    alpha: float
    beta: float
    seed: int
    nans: tuple[str, ...]


def extents(tile: int) -> st.SearchStrategy[int]:
    """Sizes where kernels break: 0, 1, primes, around the tile and around two of them."""
    around = [tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1, 3 * tile, 5 * tile - 1]
    return st.sampled_from([0, 1, *(p for p in PRIMES if p <= 2 * tile + 8), *(a for a in around if a > 0)])


@st.composite
def cases(draw: st.DrawFn, ways: tuple[str | None, ...] = (None,)) -> Case:
    way = draw(st.sampled_from(ways))
    small: dict[str, Any] = {"max_threads": 128, "max_sums": 16, "max_bk": 9, "max_size": 32}
    spec = draw(specs(**small, orders=("row", "col"), way=way, split=True, cluster=True, dependent=True, atomics=True))
    scalars = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.25])
    triple = st.tuples(*[st.sampled_from([0, 0, 1, 2, 3, 4])] * 3)
    size = (draw(extents(spec.block[0])), draw(extents(spec.block[1])), draw(extents(spec.block[2])))
    return Case(
        spec, size, draw(triple), draw(triple), draw(scalars), draw(scalars), draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from([(), (), (), ("A",), ("B",), ("C",), ("A", "C")])),
    )  # fmt: skip


def operand(
    rng: np.random.Generator, shape: tuple[int, int], order: str, pad: int, shift: int, spoiled: bool
) -> tuple[Any, Any]:
    """A matrix in a buffer of NaN, and the buffer: rows ``pad`` apart, ``shift`` elements into it."""
    rows, extent = shape if order == "row" else shape[::-1]
    buffer = np.full(shift + rows * (extent + pad), nan, F32)
    view = buffer[shift:].reshape(rows, extent + pad)[:, :extent]
    view[...] = rng.standard_normal((rows, extent))
    if spoiled and view.size:
        view[rng.integers(rows), rng.integers(extent)] = nan
    return (view if order == "row" else view.T), buffer


def outside(buffer: Any, view: Any) -> Any:
    """Where a buffer is not covered by the view of it."""
    inside = np.zeros(buffer.shape, bool)
    start = (view.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]) // 4
    i, j = np.indices(view.shape)
    inside[start + i * (view.strides[0] // 4) + j * (view.strides[1] // 4)] = True
    return ~inside


def check(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    m, n, k = case.size
    shapes, spec = {"A": (m, k), "B": (k, n), "C": (m, n)}, case.spec
    orders = {"A": spec.A.order, "B": spec.B.order, "C": spec.C.order}
    made = {
        name: operand(rng, shapes[name], orders[name], case.pads[i], case.shifts[i], name in case.nans)
        for i, name in enumerate(shapes)
    }
    (A, _), (B, _), (C, buffer) = made["A"], made["B"], made["C"]
    before = C.copy()
    simulated = gemmgen.simulate(spec, A, B, C, case.alpha, case.beta)
    assert simulated.faults == ()
    assert np.array_equal(C, before, equal_nan=True)
    result = verify(simulated.C, A, B, before, case.alpha, case.beta, spec)
    assert result.ok, str(result)
    if case.seed % 4 == 0:
        # In place, and nothing but C is written; bit for bit the same.
        untouched = outside(buffer, C)
        out = gemmgen.compile(spec, device="sim")(A, B, C, case.alpha, case.beta)
        assert out is C
        assert np.array_equal(C.view(np.uint32), np.asarray(simulated.C).view(np.uint32)) if C.size else True
        assert np.isnan(buffer[untouched]).all()


QUIET = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=QUIET)
@given(cases())
def test_random_specs_compute_random_products(case: Case) -> None:
    check(case)


WAYS = ("plain", "cpasync", "cpasync", "tma", "tma")


@settings(max_examples=examples(300), deadline=None, suppress_health_check=QUIET)
@given(cases(WAYS))
def test_random_pipelines_compute_random_products(case: Case) -> None:
    check(case)


@pytest.mark.thorough
@pytest.mark.timeout(7200)
@settings(max_examples=10_000, deadline=None, suppress_health_check=QUIET)
@given(st.one_of(cases(), cases(WAYS)))
def test_random_specs_compute_random_products_thoroughly(case: Case) -> None:
    check(case)
