"""Products of warp groups: right in every layout at ragged sizes, and every synchronisation needed."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from pipelinehelp import operands_of
from simhelp import run_ir

import gemmgen
from gemmgen.dispatch.groups import TILES, Way, best, group_spec, seconds, spec_of, ways
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Call, Sync
from gemmgen.ir.types import BF16, F16, F32, TF32
from gemmgen.lower import lower
from gemmgen.spec.architecture import architecture_problem
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import parse

TEXT = """kernel small
operands A {dtype} {a}, B {dtype} {b}, C {out} {c}
tile block {bm}x64x64
tile warp 16x64
math wgmma 64x64x16
use coalescing, smem, float4, warptile, tma, smemSwizzle{use}
stages {stages}
{more}
"""
WAYS = {
    "plain": (64, "", 2, ""),
    "released": (128, ", release", 3, ""),
    "roles": (128, ", release", 3, "roles producer 1, consumers 2"),
    "persistent": (64, ", release", 2, "roles producer 1, consumers 1\npersistent 2\ncta_swizzle 2"),
    "stored": (64, ", release, tmaStore", 2, "roles producer 1, consumers 1\npersistent 2"),
    "stored once": (128, ", release, tmaStore", 2, ""),
    "staged": (64, ", release, stageC", 2, ""),
    "split": (64, ", release", 2, "split_k 2"),
}
ORDERS = tuple(product(("row", "col"), repeat=3))
SIZES = ((64, 64, 64), (200, 136, 200), (129, 70, 33), (1, 1, 1), (65, 72, 320))


def spec(way: str, orders: tuple[str, ...] = ("row", "row", "row"), dtype: str = "bf16", out: str = "bf16") -> Spec:
    bm, use, stages, more = WAYS[way]
    a, b, c = orders
    return parse(TEXT.format(bm=bm, use=use, stages=stages, more=more, dtype=dtype, out=out, a=a, b=b, c=c))


def lying(values: Any, order: str) -> Any:
    return np.asarray(values, order="C" if order == "row" else "F")


CASES = [
    (way, orders, ("bf16", "f16")[(i + j) % 2], ("same", "f32")[(i + j // 2) % 2])
    for i, way in enumerate(WAYS)
    for j, orders in enumerate(ORDERS)
    if not (way.startswith("stored") and orders[2] == "col")
]


@pytest.mark.parametrize(("way", "orders", "dtype", "out"), CASES)
def test_right_in_every_layout_at_ragged_sizes(way: str, orders: tuple[str, ...], dtype: str, out: str) -> None:
    made = spec(way, orders, dtype, dtype if out == "same" else out)
    rng = np.random.default_rng(len(way))
    types = [x.dtype.numpy_dtype for x in made.matrices]
    kernel = gemmgen.compile(made, "sim")
    for number, (m, n, k) in enumerate(SIZES):
        a = lying(rng.standard_normal((m, k)).astype(types[0]), orders[0])
        b = lying(rng.standard_normal((k, n)).astype(types[1]), orders[1])
        c = lying(rng.standard_normal((m, n)).astype(types[2]), orders[2])
        alpha, beta = ((1.0, 0.0), (0.5, 2.0))[number % 2]
        found = gemmgen.simulate(made, a, b, c, alpha, beta)
        assert not found.faults, (m, n, k, found.faults[0])
        assert gemmgen.verify(found.C, a, b, c, alpha, beta, spec=made).ok, (m, n, k)
    assert kernel.device == "sim"


def broken(ir: KernelIR, without: Sync | Call, inputs: tuple[Any, ...], want: Any) -> bool:
    """Whether a kernel without one of its synchronisations is reported, or computes something else."""
    a, b, c = inputs
    got = c.copy()
    result = run_ir(ir.without(without), a, b, got)
    return bool(result.faults) or not np.array_equal(got, want)


@pytest.mark.parametrize("way", [x for x in WAYS if x != "split"])
def test_every_synchronisation_is_needed(way: str) -> None:
    made = spec(way)
    made = made.replace(persistent=1) if made.persistent else made  # so that a block computes several tiles of C
    ir = lower(made)
    m, n, k = made.block[0], 3 * made.block[1], made.block[2] * (2 * made.stages + 1)
    a, b, c = operands_of(ir, m, n, k, 1)
    want = c.copy()
    assert not run_ir(ir, a, b, want).faults
    found = [*ir.syncs(), *ir.waits()]
    assert len(found) >= 8
    for sync in found:
        name = sync.row.name if isinstance(sync, Call) else "barrier"
        assert broken(ir, sync, (a, b, c), want), (name, getattr(sync, "why", ""))


def some_ways() -> list[Way]:
    """Of each tile one way that stores by threads, one by the engine and one that splits K, where there is one."""
    kinds: dict[tuple[Any, ...], Way] = {}
    for w in ways(2, True):
        kinds.setdefault((w.tile, w.by_engine, w.parts > 1), w)
    return list(kinds.values())


@pytest.mark.parametrize("number", range(0, 30, 7))
def test_what_matmul_calls_takes_an_epilogue(number: int) -> None:
    way = some_ways()[number % len(some_ways())]
    made = spec_of(way, BF16, BF16, ("row", "col", "row"), 132, "matmul").replace(epilogue=("bias", "gelu"))
    rng = np.random.default_rng(3)
    a = rng.standard_normal((70, 72)).astype(BF16.numpy_dtype)
    b = np.asfortranarray(rng.standard_normal((72, 130)).astype(BF16.numpy_dtype))
    bias = rng.standard_normal(130).astype(BF16.numpy_dtype)
    found = gemmgen.simulate(made, a, b, bias=bias)
    assert not found.faults and gemmgen.verify(found.C, a, b, spec=made, bias=bias).ok


def test_a_shape_with_few_tiles_is_left_to_mma() -> None:
    rows = ("row", "row", "row")
    assert group_spec(F16, F16, (16, 4096, 4096), rows, 132, "matmul") is None
    large = group_spec(BF16, BF16, (8192, 8192, 8192), rows, 132, "matmul")
    assert large is not None and large.block == (128, 256, 64) and large.has("tmaStore") and large.persistent == 132
    deep = group_spec(BF16, BF16, (384, 384, 8192), rows, 132, "matmul")
    assert deep is not None and deep.split_k > 1 and not deep.persistent


@pytest.mark.parametrize("out", [BF16, F32])
@pytest.mark.parametrize("rows", [True, False])
def test_every_way_of_matmul_is_a_spec_that_fits(out: Any, rows: bool) -> None:
    found = ways(out.bytes, rows)
    assert {w.tile for w in found} == set(TILES) and len(found) >= 60
    orders = ("row", "row", "row" if rows else "col")
    for w in found:
        made = spec_of(w, BF16, out, orders, 132, "matmul")  # type: ignore[arg-type]
        assert gemmgen.parse(made.to_text()) == made, w
        assert rows or not made.has("tmaStore")


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_tf32_is_read_along_k_and_copied_where_it_lies_otherwise(layout: str) -> None:
    orders = tuple("row" if x == "n" else "col" for x in layout)
    made = group_spec(TF32, F32, (1024, 1024, 1024), (*orders, "row"), 132, "matmul")  # type: ignore[arg-type]
    assert made is not None and (made.A.order, made.B.order) == ("row", "col") and made.block[2] == 32
    small = made.replace(block=(64, 64, 32), warp=(16, 64), math="wgmma 64x64x8", roles="producer 1, consumers 1")
    rng = np.random.default_rng(4)
    one, other = (rng.standard_normal(s).astype(np.float32) for s in ((70, 40), (40, 66)))
    a, b = (np.asarray(x, order="C" if o == "row" else "F") for x, o in zip((one, other), orders, strict=True))
    found = gemmgen.simulate(small, a, b)
    assert not found.faults and gemmgen.verify(found.C, a, b, spec=small).ok


def test_more_work_never_takes_less_time() -> None:
    for m, n, k in ((512, 512, 512), (2048, 512, 4096), (384, 384, 8192), (4096, 4096, 4096)):
        now = seconds(best((m, n, k), 132), (m, n, k), 132)
        for more in ((2 * m, n, k), (m, 2 * n, k), (m, n, 2 * k)):
            assert seconds(best(more, 132), more, 132) >= now


def test_an_architecture_without_it_says_what_is_needed() -> None:
    made = spec("plain")
    assert architecture_problem(made, "sm_90") is None and architecture_problem(made, "sm_90a") is None
    for arch in ("sm_80", "sm_100", "sm_120"):
        assert architecture_problem(made, arch) is not None, arch
    assert "wgmma" in str(architecture_problem(made, "sm_100"))
    assert lower(made).target("sm_90") == "sm_90a"


@pytest.mark.parametrize("way", [w for w in WAYS if w not in ("plain", "split")])
def test_tiles_that_do_not_fit_are_all_named_with_their_bytes(way: str) -> None:
    """C's own tile too, where the TMA engine stores it: the parts add up to a number over the limit."""
    bm, use, _, more = WAYS[way]
    text = TEXT.format(bm=bm, use=use, stages=8, more=more, dtype="bf16", out="f32", a="row", b="row", c="row")
    text = text.replace("block 64x64", "block 64x256").replace("block 128x64", "block 128x256")
    with pytest.raises(gemmgen.SpecError, match="bytes of shared memory") as caught:
        gemmgen.parse(text.replace("16x64", "16x256").replace("wgmma 64x64", "wgmma 64x256"))
    message = caught.value.message
    [total], [parts] = re.findall(r"need (\d+) bytes", message), re.findall(r"shared memory \((.*?)\)", message)
    assert sum(int(part.split()[1]) for part in parts.split(" + ")) == int(total) > 232448
    assert ("Cs" in parts) == ("tmaStore" in use)
