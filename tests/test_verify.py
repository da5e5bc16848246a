"""The check of a result: what it must let through and what it must not."""

from __future__ import annotations

import sys
from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gemmgen
from gemmgen import ArgumentError, verify

F32 = np.float32


def ones(*shape: int) -> Any:
    return np.ones(shape, F32)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_g06_one_value_that_is_not_finite_fails(bad: float) -> None:
    C = 8 * ones(8, 8)
    assert verify(C, ones(8, 8), ones(8, 8)).ok
    C[3, 5] = bad
    result = verify(C, ones(8, 8), ones(8, 8))
    assert not result.ok
    assert result.where == (3, 5)
    assert result.got == pytest.approx(bad, nan_ok=True)
    assert result.want == 8.0
    assert result.max_error == inf
    for part in ("C[3, 5]", str(bad), "8.0"):
        assert part in str(result)


def test_g06_zeros_fail_however_small_the_product() -> None:
    A = np.full((64, 64), 1e-4, F32)
    result = verify(np.zeros((64, 64), F32), A, A)
    assert not result.ok and result.wrong == 64 * 64
    assert result.got == 0.0 and result.want == pytest.approx(6.4e-7)
    assert result.max_error == pytest.approx(6.4e-7) and result.bound is not None and result.bound < 1e-10


def test_g06_nan_that_is_wanted_passes() -> None:
    A = ones(8, 8)
    A[2, 3] = nan
    C = 8 * ones(8, 8)
    C[2, :] = nan
    assert verify(C, A, ones(8, 8)).ok
    C[2, 1] = 8.0
    result = verify(C, A, ones(8, 8))
    assert not result.ok and result.where == (2, 1) and result.got == 8.0


def test_g06_float32_sum_after_cancellation_passes() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((8, 4096)).astype(F32), rng.standard_normal((4096, 8)).astype(F32)
    C = np.zeros((8, 8), F32)
    for k in range(4096):
        C += A[:, k : k + 1] * B[k : k + 1, :]
    result = verify(C, A, B)
    assert result.ok and 1e-5 < result.max_error < 1e-3


def test_g06_shape_and_type_never_broadcast() -> None:
    for wrong in (8 * ones(1, 8), 8 * ones(8), np.float32(8), 8 * ones(8, 8, 1)):
        result = verify(wrong, ones(8, 8), ones(8, 8))
        assert not result.ok and "shape" in str(result)
    for wrong in (np.full((8, 8), 8.0), np.full((8, 8), 8), np.full((8, 8), 8, np.float16)):
        result = verify(wrong, ones(8, 8), ones(8, 8))
        assert not result.ok and "type" in str(result)
    spec = gemmgen.parse("kernel plain\ntile block 8x8\n")
    assert not verify(np.full((8, 8), 8.0), np.ones((8, 8)), np.ones((8, 8)), spec=spec).ok


def test_g06_bound_is_that_of_the_arithmetic() -> None:
    """One float32 rounding too many at each term is let through, a hundred are not."""
    K = 64
    A, B, C0 = ones(1, K), ones(K, 1), np.full((1, 1), 1000.0, F32)
    u = 2.0**-24
    want = 2.0 * K + 3.0 * 1000.0
    bound = 2 * (K + 1) * u * 2.0 * K + 2 * u * 3000.0 + u * want + (K + 2) * 2.0**-149
    exact = np.full((1, 1), want, F32)
    assert verify(exact, A, B, C0, 2.0, 3.0).bound == pytest.approx(bound, rel=1e-12)
    step = float(np.spacing(F32(want)))
    for steps in range(1, 40):
        moved = (exact + F32(steps * step)).astype(F32)
        assert verify(moved, A, B, C0, 2.0, 3.0).ok == (steps * step <= bound)


def test_s2_fused_and_separate_rounding_both_pass() -> None:
    A = np.array([[1, 1 + 2.0**-12]], F32)
    B = np.array([[-(1 + 2.0**-11)], [1 + 2.0**-12]], F32)
    for value in (2.0**-24, 0.0):
        assert verify(np.array([[value]], F32), A, B).ok
    assert not verify(np.array([[2.0**-18]], F32), A, B).ok


def test_s2_denormals_are_numbers() -> None:
    A, B = np.full((1, 1), 1e-40, F32), ones(1, 1)
    assert verify(A.copy(), A, B).ok
    assert not verify(np.zeros((1, 1), F32), A, B).ok


def test_infinities_must_agree_in_sign() -> None:
    A, B = np.array([[inf, 1]], F32), ones(2, 1)
    assert verify(np.array([[inf]], F32), A, B).ok
    for wrong in (-inf, nan, 3e38):
        assert not verify(np.array([[wrong]], F32), A, B).ok


def test_overflow_may_give_an_infinity() -> None:
    big = np.full((1, 2), 3e38, F32)
    assert verify(np.array([[inf]], F32), big, ones(2, 1)).ok
    # The sum of products passes the range although the result does not.
    A = np.array([[3e38, 3e38, -3e38]], F32)
    assert verify(np.array([[inf]], F32), A, ones(3, 1)).ok
    assert not verify(np.array([[inf]], F32), np.array([[1e38, 1e38]], F32), ones(2, 1)).ok


@pytest.mark.parametrize(("alpha", "beta", "want"), [(0.0, 3.0, 6.0), (0.0, 0.0, 0.0)])
def test_g16_what_a_zero_hides_is_not_looked_at(alpha: float, beta: float, want: float) -> None:
    A, B = np.full((4, 4), nan, F32), np.full((4, 4), inf, F32)
    C0 = np.full((4, 4), 2.0 if beta else nan, F32)
    result = verify(np.full((4, 4), want, F32), A, B, C0, alpha, beta)
    assert result.ok and result.want == want


def test_g16_infinity_times_zero_is_nan() -> None:
    A, B = np.array([[inf, 1]], F32), np.array([[0], [5]], F32)
    assert verify(np.array([[nan]], F32), A, B).ok
    assert not verify(np.array([[5.0]], F32), A, B).ok


@pytest.mark.parametrize("alpha", [1.0, inf, nan])
def test_g07_an_empty_sum_is_beta_c(alpha: float) -> None:
    A, B, C0 = ones(3, 0), ones(0, 3), np.arange(1, 10, dtype=F32).reshape(3, 3)
    assert verify(2 * C0, A, B, C0, alpha, 2.0).ok
    assert not verify(C0, A, B, C0, alpha, 2.0).ok
    assert verify(np.zeros((3, 3), F32), A, B, np.full((3, 3), nan, F32), alpha, 0.0).ok


def test_g07_an_empty_result_is_right() -> None:
    result = verify(np.empty((0, 3), F32), ones(0, 5), ones(5, 3))
    assert result.ok and result.where is None and "no elements" in str(result)


def test_scalars_are_float32_as_in_a_kernel() -> None:
    C = np.array([[F32(0.1) * F32(3)]], F32)
    assert verify(C, ones(1, 1), np.full((1, 1), 3, F32), alpha=0.1).ok
    assert verify(np.zeros((1, 1), F32), ones(1, 1), ones(1, 1), alpha=1e-60).ok


def test_operands_that_make_no_product_are_refused() -> None:
    with pytest.raises(ArgumentError, match="do not multiply"):
        verify(ones(2, 2), ones(2, 3), ones(2, 2))
    with pytest.raises(ArgumentError, match="needs C0"):
        verify(ones(2, 2), ones(2, 2), ones(2, 2), beta=1.0)
    with pytest.raises(ArgumentError, match="C0 has shape"):
        verify(ones(2, 2), ones(2, 2), ones(2, 2), ones(1, 2), beta=1.0)
    with pytest.raises(ArgumentError, match="dimensions"):
        verify(ones(2, 2), ones(2), ones(2, 2))
    with pytest.raises(ArgumentError, match="must be an array"):
        verify(ones(2, 2), [[1.0]], ones(2, 2))


def test_panels_of_rows_are_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["gemmgen.verify.reference"]
    rng = np.random.default_rng(3)
    A, B, C0 = (rng.standard_normal(s).astype(F32) for s in ((37, 5), (5, 11), (37, 11)))
    good = A @ B + C0
    bad = good.copy()
    bad[20, 3] += F32(1)
    bad[36, 10] = nan
    whole = [verify(C, A, B, C0, 1.0, 1.0) for C in (good, bad)]
    monkeypatch.setattr(module, "PANEL", 40)
    assert verify(good, A, B, C0, 1.0, 1.0) == whole[0] and whole[0].ok
    parts = verify(bad, A, B, C0, 1.0, 1.0)
    assert (parts.ok, parts.wrong, parts.where, parts.max_error) == (False, 2, (36, 10), inf)
    assert (whole[1].wrong, whole[1].where) == (2, (36, 10))


def test_the_worst_element_is_reported_when_all_are_right() -> None:
    A, B = ones(2, 1), ones(1, 2)
    C = ones(2, 2)
    C[1, 0] = np.nextafter(F32(1), F32(2))
    result = verify(C, A, B)
    assert result.ok and bool(result) and result.where == (1, 0)
    assert result.max_error == 2.0**-23
    assert str(result).startswith("PASS: ")


# --- bfloat16 and float16 ---------------------------------------------------------------------------------------------

NARROW = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def rounded(dtype: Any, k: int = 33) -> tuple[Any, Any, Any]:
    """A, B of a type, and their product rounded once to it."""
    rng = np.random.default_rng(3)
    A, B = (rng.standard_normal(shape).astype(dtype) for shape in ((9, k), (k, 7)))
    return A, B, (A.astype(np.float64) @ B.astype(np.float64)).astype(dtype)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_sum_rounded_once_to_16_bits_passes_and_its_neighbour_fails(dtype: Any) -> None:
    A, B, C = rounded(dtype)
    result = verify(C, A, B)
    assert result.ok and 0 < result.max_error < 0.1
    bits = C.view(np.uint16)
    for bit in (2, 4):
        bits[4, 5] ^= bit
        wrong = verify(C, A, B)
        assert not wrong.ok and wrong.wrong == 1 and wrong.where == (4, 5)
        bits[4, 5] ^= bit


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_float32_results_of_16_bit_operands_are_held_to_float32(dtype: Any) -> None:
    A, B, C = rounded(dtype)
    exact = A.astype(np.float64) @ B.astype(np.float64)
    assert verify(exact.astype(F32), A, B).ok
    assert not verify(C.astype(F32), A, B).ok  # rounded to 16 bits on the way


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_c0_and_scales_of_16_bits(dtype: Any) -> None:
    A, B, C0 = rounded(dtype)
    want = -0.5 * (A.astype(np.float64) @ B.astype(np.float64)) + 2.0 * C0.astype(np.float64)
    assert verify(want.astype(dtype), A, B, C0, -0.5, 2.0).ok
    assert not verify(want.astype(dtype), A, B, C0, -0.5, 1.0).ok


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_types_other_than_those_of_the_product_fail(dtype: Any) -> None:
    A, B, C = rounded(dtype)
    other = NARROW[1 - NARROW.index(dtype)]
    told = f"C has type {other}; {dtype} or float32 is wanted"
    assert told in str(verify(C.astype(other), A, B))
    name = {"float16": "f16", "bfloat16": "bf16"}[str(dtype)]
    spec = gemmgen.parse(f"kernel plain\noperands A {name}, B {name}, C {name}\ntile block 8x8\n")
    assert verify(C, A, B, spec=spec).ok
    assert f"C has type float32; {dtype} is wanted" in str(verify(C.astype(F32), A, B, spec=spec))


def test_g25_a_float16_accumulator_fails() -> None:
    A, B = np.ones((4, 4096), np.float16), np.ones((4096, 4), np.float16)
    assert verify(np.full((4, 4), 4096, np.float16), A, B).ok
    assert not verify(np.full((4, 4), 2048, np.float16), A, B).ok
    A, B = np.array([[300, 300, 7]], np.float16), np.array([[300], [-300], [1]], np.float16)
    assert verify(np.full((1, 1), 7, np.float16), A, B).ok
    for half in (nan, inf, -inf):  # what a sum of float16 may come to
        assert not verify(np.full((1, 1), half, np.float16), A, B).ok


@pytest.mark.parametrize("sign", [1, -1])
def test_a_result_at_the_edge_of_float16_may_round_to_either_side(sign: int) -> None:
    """65520, halfway to what would be the next number, is the least that rounds to an infinity. Few sums do not come
    there from 65519, and many may."""
    few_a, few_b = np.array([[255.875, 15]], np.float16), np.array([[256], [1]], np.float16)
    many_a, many_b = np.ones((1, 65519), np.float16), np.ones((65519, 1), np.float16)
    for a, b, reaches in ((few_a, few_b, False), (many_a, many_b, True)):
        for got, right in ((65504, True), (inf, reaches), (-inf, False)):
            assert verify(np.full((1, 1), sign * got, np.float16), a, sign * b).ok == right


def test_g25_overflow_of_float16_is_an_infinity() -> None:
    A, B = np.ones((1, 70000), np.float16), np.ones((70000, 1), np.float16)
    assert verify(np.full((1, 1), inf, np.float16), A, B).ok
    assert not verify(np.full((1, 1), -inf, np.float16), A, B).ok
    assert not verify(np.full((1, 1), 65504, np.float16), A, B).ok
    assert verify(np.full((1, 1), 70000, F32), A, B).ok
    assert not verify(np.full((1, 1), inf, F32), A, B).ok
    assert verify(np.full((1, 1), 35008, np.float16), A, B, alpha=0.5).ok  # 35000, rounded once
    assert not verify(np.full((1, 1), inf, np.float16), A, B, alpha=0.5).ok  # rounded before alpha


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_subnormal_results_of_16_bits(dtype: Any) -> None:
    tiny = ml_dtypes.finfo(dtype).smallest_subnormal
    A, B = np.array([[tiny, tiny]], dtype), np.array([[1], [2]], dtype)
    assert verify(np.array([[3 * float(tiny)]]).astype(dtype), A, B).ok
    assert not verify(np.array([[9 * float(tiny)]]).astype(dtype), A, B).ok
