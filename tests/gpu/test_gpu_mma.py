"""Kernels of tensor cores on the GPU against float64: types, layouts, ways to feed and to copy, ragged sizes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from gpu_support import kernel_of, torch

import gemmgen

LAYOUTS = tuple(itertools.product(("row", "col"), repeat=3))
MATH = {"bf16": "16x8x16", "f16": "16x8x16", "tf32": "16x8x8"}
NAMES = {"bf16": "bfloat16", "f16": "float16", "tf32": "float32", "f32": "float32"}
WAYS = {
    "plain": ("", ""),
    "ldmatrix": (", ldmatrix", ""),
    "pipelined": (", ldmatrix, smemSwizzle, cpasync, prefetch", "stages 3\ncta_swizzle 4"),
    "staged": (", ldmatrix, cpasync, spread, prefetch, stageC", "stages 2\npad_a 8\npad_b 8"),
    "engine": (", ldmatrix, smemSwizzle, tma, release, prefetch", "stages 3"),
    "split": (", smemSwizzle, prefetch, cpasync, raggedFirst", "stages 4\nsplit_k 3"),
    "cluster": (", ldmatrix, smemSwizzle, cpasync, clusterReduce", "stages 2\nsplit_k 2"),
    "persistent": (", ldmatrix, smemSwizzle, cpasync", "stages 2\npersistent 7"),
}
SIZES = ((256, 192, 256), (257, 131, 69), (1, 3, 5), (72, 200, 1000), (130, 66, 34))


def text_of(dtype: str, layout: tuple[str, str, str], output: str, way: str) -> str:
    use, more = WAYS[way]
    a, b, c = layout
    return (
        f"kernel m\noperands A {dtype} {a}, B {dtype} {b}, C {output} {c}\nmath mma {MATH[dtype]}\n"
        f"tile block 128x64x64\ntile warp 64x32\nuse coalescing, smem, warptile, float4{use}\n{more}\n"
    )


def random(rows: int, columns: int, order: str, dtype: str) -> Any:
    t = torch()
    shape = (rows, columns) if order == "row" else (columns, rows)
    made = t.randn(*shape, device="cuda").to(getattr(t, NAMES[dtype]))
    return made if order == "row" else made.t()


def error_of(C: Any, A: Any, B: Any, C0: Any, alpha: float, beta: float, dtype: str) -> float:
    """The largest error as a part of its bound."""
    t = torch()
    a, b = A.double(), B.double()
    want = alpha * (a @ b) + (beta * C0.double() if beta else 0.0)
    u_out = {t.float32: 2.0**-24, t.float16: 2.0**-11, t.bfloat16: 2.0**-8}[C.dtype]
    coarse = 2.0**-9 if dtype == "tf32" else 0.0
    bound = (2 * (A.shape[1] + 1) * 2.0**-24 + coarse) * abs(alpha) * (a.abs() @ b.abs())
    bound += 2 * 2.0**-24 * abs(beta) * C0.double().abs() + u_out * want.abs() + 1e-7
    return float(((C.double() - want).abs() / bound).max())


CASES = [(w, x, ("bf16", "f16", "tf32")[(i + j) % 3]) for i, w in enumerate(WAYS) for j, x in enumerate(LAYOUTS)]


@pytest.mark.parametrize(("way", "layout", "dtype"), CASES)
def test_products_are_right(way: str, layout: tuple[str, str, str], dtype: str) -> None:
    t = torch()
    output = dtype if dtype != "tf32" and layout[0] == "row" else "f32"
    run = kernel_of(text_of(dtype, layout, output, way))
    for number, (m, n, k) in enumerate(SIZES):
        alpha, beta = ((1.0, 0.0), (-0.5, 2.0))[number % 2]
        A, B = random(m, k, layout[0], dtype), random(k, n, layout[1], dtype)
        C = random(m, n, layout[2], output)
        C0 = C.clone()
        if beta == 0.0:
            C.fill_(float("nan"))
        run(A, B, C, alpha, beta)
        t.cuda.synchronize()
        assert error_of(C, A, B, C0, alpha, beta, dtype) <= 1.0, (m, n, k)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "tf32"])
def test_matmul_multiplies_by_tensor_cores(dtype: str) -> None:
    t = torch()
    precision = "tf32" if dtype == "tf32" else "exact"
    for m, n, k in ((512, 512, 512), (1, 4096, 4096), (300, 77, 2049), (2048, 256, 8192)):
        for a, b in itertools.product(("row", "col"), repeat=2):
            A, B = random(m, k, a, dtype), random(k, n, b, dtype)
            C = gemmgen.matmul(A, B, precision=precision)
            assert C.dtype == A.dtype and error_of(C, A, B, C, 1.0, 0.0, dtype) <= 1.0
            wide = gemmgen.matmul(A, B, out_dtype=t.float32, precision=precision)
            assert wide.dtype == t.float32 and error_of(wide, A, B, wide, 1.0, 0.0, dtype) <= 1.0
