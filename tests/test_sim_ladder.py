"""The ladder on the simulator: right at ragged sizes, free of faults, and every barrier needed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from simhelp import SPECS, Floats, close, fitting, grid_of, operands, run_ir

import gemmgen
from gemmgen.ir.kernel import KernelIR
from gemmgen.launch import EXACT, GUARDED, GUARDED_UNALIGNED, Variant
from gemmgen.lower import lower
from gemmgen.sim import fma
from gemmgen.sim.cost import blocks_at_once, estimate_seconds
from gemmgen.sim.run import GlobalArray, run_kernel
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import load, parse

LADDER = ("naive", "coalesced", "smem", "regblock1d", "regblock2d", "regblock2d_64", "vectorized", "warptile")
PIPELINED = ("doublebuffer", "cpasync", "registerbanks", "tma", "pipelined")
SPLIT = ("splitk", "skinny")  # two kernels each: a plan runs them
RUNGS = (*LADDER, *PIPELINED)
SIZES = [(1, 1, 1), (3, 5, 2), (17, 129, 31), (127, 64, 65), (130, 132, 36), (128, 128, 48)]


@cache
def spec_of(name: str) -> Spec:
    return load(SPECS / f"{name}.gemm")


def kernel(name: str, variant: Variant) -> KernelIR:
    return lower(spec_of(name), variant)


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
def test_results_are_right_at_ragged_sizes(name: str, size: tuple[int, int, int]) -> None:
    a, b, c = operands(*size)
    before = c.copy()
    result = run_ir(kernel(name, fitting(spec_of(name), *size)), a, b, c, 1.5, -0.5)
    assert not result.faults, result.faults
    assert close(c, a, b, before, 1.5, -0.5)


@pytest.mark.parametrize("name", RUNGS)
def test_exact_guarded_and_unaligned_agree_bit_by_bit(name: str) -> None:
    a, b, c = operands(128, 128, 32)
    found = []
    for variant in (EXACT, GUARDED, GUARDED_UNALIGNED):
        out = c.copy()
        assert not run_ir(kernel(name, variant), a, b, out, 1.25, 2.0).faults
        found.append(out)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def in_order(a: Floats, b: Floats) -> Floats:
    """float32 sums over k, in order, every product and sum rounded."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total


@pytest.mark.parametrize("name", [name for name in RUNGS if not spec_of(name).has("separators")])  # those fuse
def test_every_bit_is_that_of_float32_sums_in_order_of_k(name: str) -> None:
    a, b, c = operands(65, 67, 41)
    before = c.copy()
    assert not run_ir(kernel(name, GUARDED_UNALIGNED), a, b, c, 1.1, 0.3).faults
    scaled = np.float32(1.1) * in_order(a, b)
    assert np.array_equal(c, scaled + np.float32(0.3) * before)


@pytest.mark.parametrize("name", RUNGS)
def test_beta_zero_never_reads_c(name: str) -> None:
    a, b, c = operands(33, 30, 20)
    before = np.full_like(c, np.nan)
    out = before.copy()
    result = run_ir(kernel(name, GUARDED_UNALIGNED), a, b, out)
    assert not result.faults
    assert not [x for x in result.counters["accesses"] if x["operand"] == "C" and x["op"] == "load" and x["requests"]]
    assert close(out, a, b, np.zeros_like(c))


@pytest.mark.parametrize("name", RUNGS)
def test_g07_k_zero_is_beta_c(name: str) -> None:
    a, b, c = np.zeros((3, 0), np.float32), np.zeros((0, 3), np.float32), np.arange(9, dtype=np.float32).reshape(3, 3)
    want = 2 * c
    assert not run_ir(kernel(name, GUARDED_UNALIGNED), a, b, c, 0.0, 2.0).faults
    assert np.array_equal(c, want)


@pytest.mark.parametrize("name", RUNGS)
def test_g16_nan_and_infinity_stay_in_their_rows(name: str) -> None:
    a, b, c = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32), np.zeros((4, 4), np.float32)
    a[1, 2], a[3, 0] = np.nan, np.inf
    assert not run_ir(kernel(name, GUARDED_UNALIGNED), a, b, c).faults
    assert np.isnan(c[1]).all() and np.isposinf(c[3]).all() and (c[[0, 2]] == 4).all()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (name, s.id)
        for name in (*LADDER, "doublebuffer", "cpasync", "registerbanks")
        for s in kernel(name, EXACT).syncs()
    ],
    ids=lambda x: str(x),
)
@pytest.mark.parametrize("variant", [EXACT, GUARDED_UNALIGNED], ids=lambda v: v.label)
def test_a_kernel_without_one_of_its_barriers_races(name: str, number: int, variant: Variant) -> None:
    ir = kernel(name, variant)
    sync = next(s for s in ir.syncs() if s.id == number)
    a, b, c = operands(128, 128, 3 * ir.tile[2])
    assert not run_ir(ir, a, b, c.copy()).faults
    faults = run_ir(ir.without(sync), a, b, c).faults
    assert "race" in {f.kind for f in faults}, sync.hazard
    named = {f.buffer for f in faults if f.kind == "race"}
    assert named and named <= {"As", "Bs"}
    assert all(f.line is not None for f in faults)


def test_every_tiled_rung_has_barriers_to_take_away() -> None:
    assert {name: len(kernel(name, EXACT).syncs()) for name in LADDER} == {
        name: 0 if name in ("naive", "coalesced") else 2 for name in LADDER
    }
    assert len(kernel("doublebuffer", EXACT).syncs()) == 1 < len(kernel("warptile", EXACT).syncs())
    assert all(kernel(name, EXACT).syncs() for name in PIPELINED)


def test_one_warp_also_needs_its_barriers() -> None:
    text = "kernel w\ntile block 32x32x8\ntile warp 32x32\ntile thread 4x8\nuse coalescing, smem, transposeA, warptile"
    ir = lower(parse(text), EXACT)
    assert ir.threads == 32
    a, b, c = operands(32, 32, 24)
    for sync in ir.syncs():
        assert "race" in {f.kind for f in run_ir(ir.without(sync), a, b, c.copy()).faults}


def test_the_exact_kernel_at_a_ragged_size_goes_out_of_bounds() -> None:
    a, b, c = operands(100, 64, 16)
    faults = run_ir(kernel("smem", EXACT), a, b, c).faults
    assert {"A", "C"} <= {f.buffer for f in faults if f.kind == "out-of-bounds"}


@pytest.mark.parametrize("operand", ["A", "B", "C"])
def test_g04_the_vector_kernel_on_a_view_that_begins_one_float_in(operand: str) -> None:
    a, b, c = operands(128, 128, 16)
    flat = {"A": a.reshape(-1), "B": b.reshape(-1), "C": c.reshape(-1)}
    arrays = {
        name: GlobalArray(np.concatenate([[np.float32(0)], x]), 1) if name == operand else GlobalArray(x)
        for name, x in flat.items()
    }
    scalars = {"M": 128, "N": 128, "K": 16, "alpha": 1.0, "lda": 16, "ldb": 128, "beta": 1.0, "ldc": 128}
    bad = run_kernel(kernel("vectorized", EXACT), (1, 1, 1), scalars, arrays)
    assert {(f.kind, f.buffer) for f in bad.faults} == {("misaligned", operand)}
    good = run_kernel(kernel("vectorized", GUARDED_UNALIGNED), (1, 1, 1), scalars, arrays)
    assert not good.faults


def test_a_view_with_a_leading_dimension_is_computed_in_place_and_its_gaps_are_left() -> None:
    a, b, _ = operands(33, 40, 21)
    memory = np.full((33, 64), 7.0, np.float32)
    wide_a = np.zeros((33, 24), np.float32)
    wide_a[:, :21] = a
    flat = {"A": wide_a, "B": b, "C": memory}
    arrays = {name: GlobalArray(x.reshape(-1)) for name, x in flat.items()}
    scalars = {"M": 33, "N": 40, "K": 21, "alpha": 1.0, "lda": 24, "ldb": 40, "beta": 0.0, "ldc": 64}
    ir = kernel("warptile", GUARDED_UNALIGNED)
    result = run_kernel(ir, grid_of(ir, {"M": 33, "N": 40, "K": 21}), scalars, arrays)
    assert not result.faults
    assert close(memory[:, :40], a, b, np.zeros((33, 40), np.float32))
    assert (memory[:, 40:] == 7).all()


def test_column_order_matrices() -> None:
    orders = "operands A f32 col, B f32 col, C f32 col"
    text = f"kernel cols\n{orders}\ntile block 32x32x8\ntile thread 4x4\nuse coalescing, smem\n"
    ir = lower(parse(text), GUARDED_UNALIGNED)
    a, b, c = operands(37, 45, 19)
    flat = np.zeros(37 * 45, np.float32)
    arrays = {
        "A": GlobalArray(a.reshape(-1, order="F")), "B": GlobalArray(b.reshape(-1, order="F")), "C": GlobalArray(flat),
    }  # fmt: skip
    scalars = {"M": 37, "N": 45, "K": 19, "alpha": 1.0, "lda": 37, "ldb": 19, "beta": 0.0, "ldc": 37}
    assert not run_kernel(ir, grid_of(ir, {"M": 37, "N": 45, "K": 19}), scalars, arrays).faults
    assert close(flat.reshape(45, 37).T, a, b, c)


@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("size", [*SIZES, (9, 515, 1029), (64, 512, 1024)], ids=lambda s: "x".join(map(str, s)))
def test_sums_shared_by_blocks_are_right_at_ragged_sizes(name: str, size: tuple[int, int, int]) -> None:
    a, b, before = operands(*size)
    for alpha, beta in ((1.0, 0.0), (1.5, -0.5)):
        start = before if beta else np.full_like(before, np.nan)
        done = gemmgen.simulate(spec_of(name), a, b, start, alpha, beta)
        assert done.faults == ()
        assert gemmgen.verify(done.C, a, b, start, alpha, beta).ok


def test_skinny_reads_b_once() -> None:
    a, b, _ = operands(16, 512, 1024)
    done = gemmgen.simulate(spec_of("skinny"), a, b)
    read = sum(x["sectors"] for x in done.counters["accesses"] if (x["operand"], x["op"]) == ("B", "load"))
    assert 32 * read == b.nbytes


# --- The estimate -----------------------------------------------------------------------------------------------------


def test_the_estimate_grows_with_the_work_and_is_zero_for_none() -> None:
    def estimate(name: str, n: int) -> float:
        ir = kernel(name, EXACT)
        sizes = {"M": n, "N": n, "K": n, "lda": n, "ldb": n, "ldc": n}
        return estimate_seconds(ir, grid_of(ir, {"M": n, "N": n, "K": n}), sizes)

    for name in LADDER:
        assert 0.01 < estimate(name, 256) < 1.0
        assert estimate(name, 256) * 4 < estimate(name, 1024) < estimate(name, 4096)
        assert estimate(name, 4096) > 10.0
    assert estimate_seconds(kernel("naive", EXACT), (0, 4, 1), {"K": 10}) == 0.0


def test_a_batch_fits_the_memory_it_is_given() -> None:
    ir = kernel("warptile", EXACT)
    assert blocks_at_once(ir, 10**6, 1) == 1
    assert 1 < blocks_at_once(ir, 10**6, 8 << 20) < blocks_at_once(ir, 10**6, 100 << 20)
    assert blocks_at_once(ir, 3, 1 << 40) == 3


def test_a_grid_of_many_small_blocks() -> None:
    """Enough blocks for several batches: every element once."""
    text = "kernel tiny\ntile block 4x8x4\nuse smem\n"
    ir = lower(parse(text), GUARDED_UNALIGNED)
    a, b, c = operands(701, 803, 3)
    assert blocks_at_once(ir, 176 * 101) < 176 * 101
    result = run_ir(ir, a, b, c)
    assert not result.faults
    assert close(c, a, b, np.zeros_like(c))


def test_snake_order_is_run_as_outer_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each nest of multiply-adds at once, whatever order it takes its sums in, and not product by product."""
    plans = list[tuple[int, int]]()
    planned = fma._plan

    def noted(*arguments: Any) -> Any:
        plan = planned(*arguments)
        plans.append((len(plan.elements[0]), len(plan.pieces)))
        return plan

    monkeypatch.setattr(fma, "_plan", noted)
    a, b, c = operands(129, 65, 70)
    assert not run_ir(kernel("registerbanks", GUARDED_UNALIGNED), a, b, c).faults
    assert close(c, a, b, c)
    assert plans and all(points > 1 and pieces for points, pieces in plans)
