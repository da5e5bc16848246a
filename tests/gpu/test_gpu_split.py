"""Float32 part by part on the GPU: against float64 at ragged sizes in every layout, no less exact than SGEMM, and what
is not finite as in float32."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from gpu_support import torch

import gemmgen
from gemmgen.ir.split import SPLITS

SIZES = (
    (1, 1, 1),
    (128, 128, 64),
    (257, 131, 69),
    (1000, 1000, 1000),
    (64, 2048, 4096),
    (5, 4097, 33),
    (512, 64, 20000),
)
MEAN, LARGEST = 2.0, 2.5
"""By how much the errors may pass those of cuBLAS's float32 product."""


def lying(rows: int, columns: int, order: str) -> Any:
    t = torch()
    return t.randn(rows, columns, device="cuda") if order == "n" else t.randn(columns, rows, device="cuda").t()


def off(C: Any, A: Any, B: Any) -> Any:
    """Errors as a part of 2^-24 |A| |B|."""
    return (C.double() - A.double() @ B.double()).abs() / (A.double().abs() @ B.double().abs()) * 2.0**24


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("layout", [a + b for a, b in itertools.product("nt", repeat=2)])
def test_products_are_right(name: str, layout: str) -> None:
    t = torch()
    for m, n, k in SIZES:
        A, B = lying(m, k, layout[0]), lying(k, n, layout[1])
        C = lying(m, n, layout[0]).fill_(float("nan"))
        gemmgen.matmul(A, B, C, precision=name)
        assert float(off(C, A, B).max()) <= 2 * (k + 1), (m, n, k)
        again = gemmgen.matmul(A, B, precision=name)
        assert t.equal(again, gemmgen.matmul(A, B, precision=name))


DATA: dict[str, Callable[[Any, tuple[int, int]], Any]] = {
    "normal": lambda t, s: t.randn(*s, device="cuda"),
    "uniform": lambda t, s: t.rand(*s, device="cuda"),
    "wide": lambda t, s: t.randn(*s, device="cuda") * t.exp(sum(t.randn(*s, device="cuda") for _ in range(3))),
}


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("k", [64, 1024, 4096, 16384, 65536])
def test_no_less_exact_than_sgemm(name: str, data: str, k: int) -> None:
    t = torch()
    t.backends.cuda.matmul.allow_tf32 = False
    A, B = DATA[data](t, (512, k)), DATA[data](t, (k, 512))
    own, theirs = off(gemmgen.matmul(A, B, precision=name), A, B), off(t.mm(A, B), A, B)
    assert float(own.mean()) <= MEAN * float(theirs.mean())
    assert float(own.max()) <= LARGEST * float(theirs.max())


@pytest.mark.parametrize("name", SPLITS)
def test_what_is_not_finite_is_as_in_float32(name: str) -> None:
    t = torch()
    A, B = lying(256, 256, "n"), lying(256, 256, "n")
    A[3, 5], A[7, 7], A[9, 9] = float("inf"), float("nan"), t.finfo(t.float32).max
    B[9] = 0.25
    C, want = gemmgen.matmul(A, B, precision=name), (A.double() @ B.double()).float()
    special = ~want.isfinite()
    assert t.equal(C[special].nan_to_num(nan=5.0), want[special].nan_to_num(nan=5.0)) and int(special.sum()) == 512
    assert bool(C[~special].isfinite().all())


def test_a_graph_replays_it() -> None:
    t = torch()
    A, B, C = lying(300, 500, "n"), lying(500, 200, "t"), lying(300, 200, "n")
    gemmgen.matmul(A, B, C, precision="bf16x6")
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph):
        gemmgen.matmul(A, B, C, precision="bf16x6")
    A.copy_(lying(300, 500, "n"))
    C.fill_(float("nan"))
    graph.replay()
    t.cuda.synchronize()
    assert float(off(C, A, B).max()) <= 1000
