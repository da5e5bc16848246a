"""bfloat16 and float16 by plain FMA on the GPU: every rung, odd sizes, views, both types of C."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from gpu_support import LADDER, Place, placed, torch

import gemmgen
from gemmgen.diagnostics import SpecError
from gemmgen.spec.assign import assigned
from gemmgen.spec.ladder import ladder_path
from gemmgen.spec.parse import load

TYPES = [("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f16", "f32")]
SIZES = [(128, 256, 64), (129, 127, 65), (1, 1000, 33), (257, 1, 1025), (1000, 1000, 1000), (130, 254, 62)]


@functools.cache
def kernel(name: str, inputs: str, output: str) -> gemmgen.Kernel:
    try:
        spec = assigned(load(ladder_path(name)), [f"A={inputs}", f"B={inputs}", f"C={output}"])
    except SpecError:  # a tile that suits elements of 4 bytes, and not those of 2
        spec = assigned(load(ladder_path(name)), [f"A={inputs}", f"B={inputs}", f"C={output}", "unroll=0"])
    return gemmgen.compile(spec, device="cuda")


def dtype(name: str) -> Any:
    t = torch()
    return {"bf16": t.bfloat16, "f16": t.float16, "f32": t.float32}[name]


def run(name: str, types: tuple[str, str], size: tuple[int, int, int], alpha: float, beta: float, place: Place) -> None:
    t = torch()
    m, n, k = size
    t.manual_seed(m * 31 + n * 17 + k)
    a, _ = placed(t.randn(m, k, device="cuda").to(dtype(types[0])), place)
    b, _ = placed(t.randn(k, n, device="cuda").to(dtype(types[0])), place)
    c0 = t.randn(m, n, device="cuda").to(dtype(types[1]))
    c, _ = placed(c0 if beta else t.full_like(c0, float("nan")), place)
    made = kernel(name, *types)
    assert made(a, b, c, alpha=alpha, beta=beta) is c
    found = gemmgen.verify(c, a, b, c0, alpha, beta, made.spec)
    assert found.ok, f"{name} {types} {size} {place}: {found}"


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("name", LADDER)
def test_right_at_every_size(name: str, types: tuple[str, str]) -> None:
    for i, size in enumerate(SIZES):
        run(name, types, size, (1.0, -0.5)[i % 2], (0.0, 2.0)[i % 2], Place())


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("name", LADDER)
def test_right_for_views_and_misaligned_bases(name: str, types: tuple[str, str]) -> None:
    for place in (Place(1, 0), Place(0, 3), Place(2, 1), Place(4, 4), Place(8, 8)):
        run(name, types, (130, 127, 66), 1.0, 0.5, place)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_host_arrays_go_there_and_back(types: tuple[str, str]) -> None:
    import numpy as np

    made = kernel("vectorized", *types)
    kinds = [x.dtype.numpy_dtype for x in made.spec.matrices]
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(d) for s, d in zip(((65, 33), (33, 70)), kinds, strict=False))
    c = made(a, b)
    assert c.dtype == kinds[2] and gemmgen.verify(c, a, b, spec=made.spec).ok


def test_g25_sums_are_float32() -> None:
    """Field case G25: a float16 accumulator would stop at 2048."""
    t = torch()
    made = kernel("smem", "f16", "f16")
    ones = t.ones(32, 4096, device="cuda", dtype=t.float16)
    assert (made(ones, ones.t().contiguous()) == 4096).all()
    a = t.zeros(32, 3, device="cuda", dtype=t.float16)
    b = t.zeros(3, 32, device="cuda", dtype=t.float16)
    a[:], b[:] = t.tensor([300.0, 300.0, 7.0]), t.tensor([300.0, -300.0, 1.0])[:, None]
    assert (made(a, b) == 7).all()
    long = t.ones(32, 65536, device="cuda", dtype=t.float16)
    assert (made(long, long.t().contiguous(), alpha=0.5) == 32768).all()
    longer = t.ones(32, 70000, device="cuda", dtype=t.float16)
    assert t.isinf(made(longer, longer.t().contiguous())).all()
    assert (kernel("smem", "f16", "f32")(longer, longer.t().contiguous()) == 70000).all()


@pytest.mark.parametrize("name", ["warptile", "pipelined"])
def test_the_result_repeats_bit_by_bit(name: str) -> None:
    t = torch()
    a, b = (t.randn(s, device="cuda").to(t.bfloat16) for s in ((257, 300), (300, 129)))
    made = kernel(name, "bf16", "bf16")
    first = made(a, b)
    assert all(t.equal(first.view(t.int16), made(a, b).view(t.int16)) for _ in range(5))
