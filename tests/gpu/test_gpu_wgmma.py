"""Warp groups on the GPU: every tile that matmul uses, in every layout, at ragged sizes, with an epilogue too."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import gemmgen
from gemmgen.dispatch.groups import Way, spec_of, ways
from gemmgen.ir.types import BF16, F16, F32
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


def _kinds() -> list[Way]:
    """Of each tile one way that stores by threads, one by the engine and one that splits K, where there is one."""
    found: dict[tuple[object, ...], Way] = {}
    for w in ways(2, True):
        found.setdefault((w.tile, w.by_engine, w.parts > 1), w)
    return list(found.values())


def _name(w: Way) -> str:
    return f"{w.tile.block[0]}x{w.tile.block[1]}{'e' * w.by_engine}{'p' * w.runs_on}{w.parts}"


@pytest.mark.parametrize(("number", "way"), list(enumerate(_kinds())), ids=[_name(w) for w in _kinds()])
def test_right_at_ragged_sizes(number: int, way: Way) -> None:
    orders = ORDERS[number % len(ORDERS)]
    orders = (*orders[:2], "row") if way.by_engine else orders
    for dtype, out in ((BF16, BF16), (F16, F16 if way.by_engine else F32)):
        spec = spec_of(way, dtype, out, orders, 132, "tested")  # type: ignore[arg-type]
        for m, n, k in SIZES:
            _check(spec, m, n, k, 0.0)
            _check(spec, m, n, k, 0.25)


@pytest.mark.parametrize("way", _kinds()[::4], ids=_name)
def test_an_epilogue_is_fused(way: Way) -> None:
    spec = spec_of(way, BF16, BF16, ("row", "col", "row"), 132, "tested").replace(epilogue=("bias", "relu"))
    for m, n, k in SIZES:
        _check(spec, m, n, k, 0.0, torch.randn(n, device="cuda").bfloat16())


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matmul_is_right_whatever_it_chooses(layout: str) -> None:
    for m, n, k in ((384, 384, 8192), (200, 1000, 4000), (1536, 1536, 1536), (64, 4096, 4096), (333, 4097, 777)):
        a, b = (
            _matrix(*s, "row" if x == "n" else "col", torch.bfloat16)
            for s, x in (((m, k), layout[0]), ((k, n), layout[1]))
        )
        got, want = gemmgen.matmul(a, b).double(), a.double() @ b.double()
        bound = 2.0**-8 * want.abs() + 2.0**-21 * (k // 16 + 2) * (a.double().abs() @ b.double().abs()) + 1e-6
        assert bool(((got - want).abs() <= bound).all()), (m, n, k)


def test_the_same_bits_every_time() -> None:
    a, b = _matrix(1000, 1000, "row", torch.bfloat16), _matrix(1000, 1000, "col", torch.bfloat16)
    first = gemmgen.matmul(a, b)
    assert all(torch.equal(first, gemmgen.matmul(a, b)) for _ in range(20))
