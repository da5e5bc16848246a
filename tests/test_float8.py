"""Float8 by Hopper's warp groups: right with and without promotion, and every synchronisation needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pipelinehelp import operands_of
from simhelp import run_ir
from test_wgmma import broken

import gemmgen
from gemmgen.diagnostics import SpecError
from gemmgen.ir.nodes import Call
from gemmgen.ir.types import E4M3, ELEMENT_TYPES
from gemmgen.lower import lower
from gemmgen.spec.model import Spec

TEXT = """kernel small
operands A {dtype} row, B {dtype} col, C {out} {c}, accumulate {sums}
tile block {bm}x64x128
tile warp 16x64
math wgmma 64x64x32
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
SIZES = ((64, 64, 128), (129, 70, 400), (1, 1, 1), (65, 72, 33))
CASES = [
    (way, ("e4m3", "e5m2")[i % 2], ("bf16", "f32", "f16")[i % 3], ("row", "col")[i // 2 % 2], sums)
    for i, way in enumerate(WAYS)
    for sums in ("f32", "fast")
]


def spec(way: str, dtype: str = "e4m3", out: str = "bf16", c: str = "row", sums: str = "f32") -> Spec:
    bm, use, more = WAYS[way]
    order = "row" if way == "stored" else c
    return gemmgen.parse(TEXT.format(bm=bm, use=use, more=more, dtype=dtype, out=out, c=order, sums=sums))


def drawn(m: int, n: int, k: int, dtype: str, seed: int) -> tuple[Any, Any]:
    kind, rng = ELEMENT_TYPES[dtype].numpy_dtype, np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(kind) for shape in ((m, k), (k, n)))
    return a, np.asfortranarray(b)


@pytest.mark.parametrize(("way", "dtype", "out", "c", "sums"), CASES)
def test_right_at_ragged_sizes(way: str, dtype: str, out: str, c: str, sums: str) -> None:
    made = spec(way, dtype, out, c, sums)
    for number, (m, n, k) in enumerate(SIZES):
        a, b = drawn(m, n, k, dtype, number)
        alpha, beta = ((1.0, 0.0), (0.5, 2.0))[number % 2]
        old = np.ones((m, n), made.matrices[2].dtype.numpy_dtype, order="C" if made.C.order == "row" else "F")
        found = gemmgen.simulate(made, a, b, old, alpha, beta)
        assert not found.faults, (m, n, k, found.faults[0])
        assert gemmgen.verify(found.C, a, b, old, alpha, beta, spec=made).ok, (m, n, k)


def test_each_tiles_sum_is_added_in_float32() -> None:
    """Bit by bit: the tensor cores begin anew with each tile of 128 along K."""
    m, n, k = 64, 64, 3 * 128
    kind, rng = ELEMENT_TYPES["e5m2"].numpy_dtype, np.random.default_rng(5)
    wide = [rng.standard_normal(s) * np.exp2(rng.integers(-12, 12, s)) for s in ((m, k), (k, n))]  # sums are inexact
    a, b = wide[0].astype(kind), np.asfortranarray(wide[1].astype(kind))
    left, right = a.astype(np.float32), b.astype(np.float32)

    def sums(at: int, until: int) -> Any:
        total = np.zeros((m, n), np.float32)
        for step in range(at, until, 32):
            total += np.matmul(left[:, step : step + 32], right[step : step + 32])
        return total

    promoted = np.zeros((m, n), np.float32)
    for at in range(0, k, 128):
        promoted += sums(at, at + 128)
    found = {x: gemmgen.simulate(spec("plain", "e5m2", "f32", sums=x), a, b).C for x in ("f32", "fast")}
    assert np.array_equal(found["f32"], promoted) and np.array_equal(found["fast"], sums(0, k))
    assert not np.array_equal(found["f32"], found["fast"])


@pytest.mark.parametrize("way", [x for x in WAYS if x != "split"])
def test_every_synchronisation_is_needed(way: str) -> None:
    made = spec(way)
    made = made.replace(persistent=1) if made.persistent else made
    ir = lower(made)
    m, n, k = made.block[0], 3 * made.block[1], made.block[2] * (2 * made.stages + 1)
    a, b, c = operands_of(ir, m, n, k, 1)
    want = c.copy()
    assert not run_ir(ir, a, b, want).faults
    for sync in [*ir.syncs(), *ir.waits()]:
        name = sync.row.name if isinstance(sync, Call) else "barrier"
        assert broken(ir, sync, (a, b, c), want), (name, getattr(sync, "why", ""))


def test_scales_of_rows_and_columns_are_an_epilogue() -> None:
    made = spec("roles").replace(epilogue=("scale_a", "scale_b"))
    a, b = drawn(70, 66, 200, "e4m3", 1)
    rng = np.random.default_rng(2)
    scales = {"scale_a": rng.random(70, dtype=np.float32), "scale_b": rng.random(66, dtype=np.float32)}
    found = gemmgen.simulate(made, a, b, **scales)
    assert not found.faults and gemmgen.verify(found.C, a, b, spec=made, **scales).ok


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@pytest.mark.parametrize("sums", ["f32", "fast"])
def test_the_text_says_how_sums_are_kept(dtype: str, sums: str) -> None:
    text = gemmgen.emit(spec("roles", dtype, sums=sums))
    assert f"wgmma.mma_async.sync.aligned.m64n64k32.f32.{dtype}.{dtype}" in text
    assert ("// promotion:" in text) is (sums == "f32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"B": "e4m3 row"}, "reads e4m3 along k alone, and B lies by rows"),
        ({"A": "e4m3 col"}, "reads e4m3 along k alone, and A lies by columns"),
        ({"block": (64, 64, 64)}, "BK 64 makes 64 bytes along k"),
    ],
)
def test_what_float8_does_not_allow(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec("plain").replace(**change)


@pytest.mark.parametrize("name", ["warptile", "mma", "wgmma"])
def test_fast_sums_are_float8s_alone(name: str) -> None:
    with pytest.raises(SpecError, match="accumulate fast leaves the sums of float8"):
        gemmgen.load(name).replace(accumulate="fast")


def test_sums_that_cannot_stay_in_registers_are_noted() -> None:
    wide = gemmgen.load("fp8").replace(block=(128, 256, 128), warp=(16, 256), math="wgmma 64x256x32", stages=2)
    assert "256 sums" in " ".join(wide.notes) and not gemmgen.load("fp8").notes
    assert not wide.replace(accumulate="fast").notes
    assert E4M3.name == wide.A.dtype


def test_a_candidate_whose_products_are_serialised_is_rejected() -> None:
    from gemmgen.runtime.build import Built
    from gemmgen.runtime.cubin import Resources
    from gemmgen.tune.backend import Failed
    from gemmgen.tune.compiling import _judge

    warning = "ptxas info : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    resources = Resources(168, 0, 0, 0)
    found = _judge(gemmgen.load("fp8"), Built(b"", "cubin", "sm_90a", resources, warning))
    assert isinstance(found, Failed) and "C7512" in found.why
