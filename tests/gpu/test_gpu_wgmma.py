"""Warp groups on the GPU: every tile that matmul uses, in every layout, at ragged sizes, with an epilogue too."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import gemmgen
from gemmgen.dispatch.groups import TILES, Tile, spec_of
from gemmgen.ir.types import BF16, F16, F32, DType
from gemmgen.spec.model import Spec

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
SIZES = ((128, 256, 64), (512, 768, 512), (300, 700, 200), (129, 257, 65), (64, 8, 8), (1, 1, 1), (1000, 1000, 1000))
ORDERS = tuple(product(("row", "col"), repeat=3))

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="wgmma is of sm_90 alone"
)


def _matrix(rows: int, columns: int, order: str, dtype: torch.dtype) -> torch.Tensor:
    shape = (rows, columns) if order == "row" else (columns, rows)
    x = torch.randn(shape, device="cuda").to(dtype)
    return x if order == "row" else x.T


def _check(spec: Spec, m: int, n: int, k: int, beta: float, bias: torch.Tensor | None = None) -> None:
    a = _matrix(m, k, spec.A.order, TORCH[spec.A.dtype])
    b = _matrix(k, n, spec.B.order, TORCH[spec.B.dtype])
    c = _matrix(m, n, spec.C.order, TORCH[spec.C.dtype])
    if beta == 0:
        c.fill_(float("nan"))
    want = 0.5 * (a.double() @ b.double()) + (beta * c.double() if beta else 0)
    size = 0.5 * (a.double().abs() @ b.double().abs())
    named = {}
    if bias is not None:
        want, named = (want + bias.double()).relu(), {"bias": bias}
    gemmgen.compile(spec, "cuda")(a, b, c, 0.5, beta, **named)
    torch.cuda.synchronize()
    unit = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24}[spec.C.dtype]
    # The tensor cores truncate as they add: a few units of float32 per step of 16.
    bound = unit * want.abs() + 2.0**-21 * (k // 16 + 2) * size + 1e-6
    assert bool(((c.double() - want).abs() <= bound).all()), (spec.to_text(False), m, n, k, beta)


@pytest.mark.parametrize("orders", ORDERS, ids=["".join(x[0] for x in o) for o in ORDERS])
@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.block[0]}x{t.block[1]}{'p' if t.runs_on else ''}")
def test_right_in_every_layout_at_ragged_sizes(tile: Tile, orders: tuple[str, str, str]) -> None:
    pairs: tuple[tuple[DType, DType], ...] = ((BF16, BF16), (F16, F32))
    for dtype, out in pairs:
        spec = spec_of(tile, dtype, out, orders, 132, "tested")  # type: ignore[arg-type]
        for m, n, k in SIZES:
            _check(spec, m, n, k, 0.0)
            _check(spec, m, n, k, 0.25)


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.block[0]}x{t.block[1]}{'p' if t.runs_on else ''}")
def test_an_epilogue_is_fused(tile: Tile) -> None:
    spec = spec_of(tile, BF16, BF16, ("row", "col", "row"), 132, "tested").replace(epilogue=("bias", "relu"))
    for m, n, k in SIZES:
        _check(spec, m, n, k, 0.0, torch.randn(n, device="cuda").bfloat16())


def test_the_same_bits_every_time() -> None:
    a, b = _matrix(1000, 1000, "row", torch.bfloat16), _matrix(1000, 1000, "col", torch.bfloat16)
    first = gemmgen.matmul(a, b)
    assert all(torch.equal(first, gemmgen.matmul(a, b)) for _ in range(20))
