"""Float8 by Hopper's warp groups on the GPU against float64: with and without promotion, at ragged sizes."""

from __future__ import annotations

import pytest
from gpu_support import kernel_of, torch
from test_float8 import CASES, SIZES, spec

import gemmgen
from gemmgen.ir.types import ELEMENT_TYPES

NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
LARGE = (1024, 768, 4096)


@pytest.mark.parametrize(("way", "dtype", "out", "c", "sums"), CASES)
def test_products_are_right(way: str, dtype: str, out: str, c: str, sums: str) -> None:
    t = torch()
    made = spec(way, dtype, out, c, sums)
    run, kind = kernel_of(made.to_text()), ELEMENT_TYPES[dtype]
    for number, (m, n, k) in enumerate((*SIZES, LARGE)):
        alpha, beta = ((1.0, 0.0), (0.5, 2.0))[number % 2]
        A = t.randn(m, k, device="cuda").to(getattr(t, kind.numpy))
        B = t.randn(n, k, device="cuda").to(A.dtype).t()
        C = t.full((m, n), float("nan") if beta == 0.0 else 1.0, device="cuda", dtype=getattr(t, NAMES[out]))
        C = C if made.C.order == "row" else C.t().contiguous().t()
        a, b = A.float().double(), B.float().double()
        want = alpha * (a @ b) + beta
        run(A, B, C, alpha, beta)
        wanted = made.matrices[2].dtype
        bound = (2 * (k + 1) * 2.0**-24 + kind.coarse) * alpha * (a.abs() @ b.abs())
        bound += 2 * 2.0**-24 * beta + wanted.unit_roundoff * want.abs() + 1e-7
        worst = float(((C.double() - want).abs() / bound).max())
        assert worst <= 1.0, (m, n, k, worst)


def test_promotion_is_nearer_than_fast_sums() -> None:
    """Of sums of many products of one sign, which the tensor cores cut off."""
    t = torch()
    m = n = 256
    k = 16384
    A = t.rand(m, k, device="cuda").to(t.float8_e4m3fn)
    B = t.rand(n, k, device="cuda").to(t.float8_e4m3fn).t()
    want = A.float().double() @ B.float().double()
    errors = {}
    for sums in ("f32", "fast"):
        C = t.empty(m, n, device="cuda")
        kernel_of(gemmgen.load("fp8").replace(C="f32 row", accumulate=sums).to_text())(A, B, C)
        errors[sums] = float(((C.double() - want).abs() / want).mean())
    assert errors["f32"] < errors["fast"] / 2, errors
