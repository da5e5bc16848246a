"""Counts of pipelines: read off the program as running it counts, asynchronous copies and boxes included."""

from __future__ import annotations

from typing import Any

import pytest
from effort import at_most
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelinehelp import PIPELINES, depths, kernel, launches, line_of, operands_of, run_ordered, spec_of
from strategies import specs
from tiers import examples

from gemmgen.analysis.counts import Counts, count
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.variant import EXACT, GUARDED, GUARDED_UNALIGNED, VARIANTS
from gemmgen.lower import lower
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import parse

Size = tuple[int, int, int]
FIELDS = ("operand", "op", "space", "width", "requests", "sectors", "wavefronts")


def given_for(ir: KernelIR, size: Size) -> dict[str, float]:
    m, n, k = size
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    orders = {"a": ir.matrix("A").order, "b": ir.matrix("B").order, "c": ir.matrix("C").order}
    leading = {f"ld{x}": shapes[x][1 if orders[x] == "row" else 0] for x in shapes}
    return {"M": m, "N": n, "K": k, "alpha": 1.0, "beta": 1.0, **leading}


def ran(ir: KernelIR, size: Size) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    a, b, c = operands_of(ir, *size)
    result = run_ordered(ir, a, b, c, 1.0, 1.0)
    assert not result.faults
    rows = [(*(x[f] for f in FIELDS), x.get("bytes")) for x in result.counters["accesses"]]
    return result.counters, rows


def read(counts: Counts) -> list[tuple[Any, ...]]:
    rows = []
    for a in counts.accesses:
        cost = a.cost
        boxes = cost.bytes_used if a.space == "tma" else None
        rows.append((a.operand, a.op, a.space, a.width, cost.requests, cost.sectors, cost.wavefronts, boxes))
    return rows


def same(ir: KernelIR, size: Size) -> None:
    counters, rows = ran(ir, size)
    counts = sum((count(k, given) for k, given in launches(ir, given_for(ir, size))), Counts())
    # A line that was never reached may be missing from either list.
    assert [x for x in read(counts) if x[4]] == [x for x in rows if x[4]]
    assert counts.fma == counters["fma"]
    for op in ("load", "store"):
        assert counts.total("global", op).sectors == counters["global"][op]["sectors"]
        assert counts.total("global", op).bytes_used == counters["global"][op]["bytes_used"]
        assert counts.total("shared", op).wavefronts == counters["shared"][op]["wavefronts"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PIPELINES)
def test_equal_to_running(name: str, variant: str) -> None:
    spec = spec_of(name)
    bm, bn, bk = spec.block
    line = line_of(spec)
    unit = {"exact": bk, "guarded": line, "guarded_unaligned": 1}[variant]
    m, n = {"exact": (2 * bm, bn), "guarded": (bm + line, bn + 8), "guarded_unaligned": (bm + 3, bn + 1)}[variant]
    for k in depths(spec, unit)[1::3]:
        same(kernel(name, variant), (m, n, k))


@settings(max_examples=examples(40), deadline=None)
@given(
    spec=st.sampled_from(["plain", "cpasync", "tma"]).flatmap(
        lambda way: specs(max_threads=128, max_sums=16, max_size=32, orders=("row", "col"), way=way, cluster=True)
    ),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 12)),
)
def test_any_pipeline_equals_running(spec: Spec, size: Size) -> None:
    same(lower(spec, GUARDED), (4 * size[0], 4 * size[1], 4 * size[2]))


@pytest.mark.parametrize("name", PIPELINES)
def test_any_size_in_constant_time(name: str) -> None:
    ir = kernel(name, GUARDED_UNALIGNED if "groups" in name else GUARDED)
    for size in ((1024, 1024, 1032), (65544, 32776, 10008), (1 << 20, 1 << 20, 1 << 20)):
        with at_most(calls=500_000):
            counts = count(ir, given_for(ir, size))
        m, n, k = size
        assert m * n * k <= counts.fma < 1.1 * m * n * k


def test_an_asynchronous_copy_is_a_load_and_a_store() -> None:
    """One tile of 32x8 and one of 8x32, 16 bytes a copy: 2 + 2 warp requests of 512 bytes."""
    text = "kernel one\ntile block 32x32x8\ntile thread 4x4\nuse coalescing, smem, float4, cpasync\n"
    ir = lower(parse(text), EXACT)
    counters, rows = ran(ir, (32, 32, 8))
    moved = [x for x in rows if x[0] in "AB" and (x[1], x[2]) in (("load", "global"), ("store", "shared"))]
    assert [x[:4] for x in moved] == [
        ("A", "load", "global", 4), ("A", "store", "shared", 4), ("B", "load", "global", 4), ("B", "store", "shared", 4)
    ]  # fmt: skip
    assert counters["global"]["load"]["bytes_used"] == 4 * (32 * 8 + 8 * 32) + 4 * 32 * 32  # A, B, and C for beta
    assert all(x[4] == 2 for x in moved)


def test_nothing_is_read_where_a_copy_gives_zeros() -> None:
    """K of 4 in a tile of 8: half of A's copies read nothing, and all of them store."""
    text = "kernel half\ntile block 32x32x8\ntile thread 4x4\nuse coalescing, smem, float4, cpasync\n"
    ir = lower(parse(text), GUARDED)
    counters, rows = ran(ir, (32, 32, 4))
    assert counters["global"]["load"]["bytes_used"] == 4 * (32 * 4 + 4 * 32) + 4 * 32 * 32
    assert [x[4] for x in rows if (x[1], x[2]) == ("store", "shared")] == [2, 2]


def test_boxes_are_counted_apart_and_only_what_lies_in_the_matrix() -> None:
    """Blocks of 32x64, K of 20 in tiles of 8: three boxes a block, the last of half the depth."""
    ir = kernel("pipeline_tma_1", GUARDED)
    counters, rows = ran(ir, (40, 72, 20))
    boxes = {x: [row for row in rows if row[2] == "tma" and row[0] == x] for x in "AB"}
    assert {row[3] for row in boxes["A"]} == {32 * 8} and {row[3] for row in boxes["B"]} == {8 * 64}
    # The first box of each block is asked for ahead of the loop.
    assert [row[4] for row in boxes["A"]] == [row[4] for row in boxes["B"]] == [4, 4 * 2]
    assert sum(row[-1] for row in boxes["A"]) == 4 * 2 * 40 * 20  # each of 2 columns of blocks fetches A once
    assert sum(row[-1] for row in boxes["B"]) == 4 * 2 * 20 * 72
    assert counters["global"]["load"]["bytes_used"] == 4 * 40 * 72  # C alone
    assert not [x for x in rows if x[0] in "AB" and x[2] == "global"]
