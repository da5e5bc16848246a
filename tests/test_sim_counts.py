"""Counters of the simulator: small accesses with counts that can be worked out by hand, and whole kernels."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from simhelp import SPECS, operands, run_ir
from simir import A, C, R, X, at, get, kernel, put, ramp, register, run, shared, tid, zeros

import gemmgen
from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.nodes import Alloc, Fma, For, If, Load, Store, Sync
from gemmgen.launch import GUARDED_UNALIGNED
from gemmgen.lower import lower
from gemmgen.sim.fma import fused
from gemmgen.sim.run import GlobalArray, Options, merged
from gemmgen.spec.parse import load

T = tid()
K = Var("k", 0, None, uniform=True)


def global_load(index: Expr, width: int = 1, n: int = 4096, **given: Any) -> tuple[int, int, int]:
    a = given.pop("a", None)
    counted = run(kernel(get(at(A, index), width), **given), ramp(n) if a is None else a).counters["global"]["load"]
    return counted["requests"], counted["sectors"], counted["bytes_used"]


@pytest.mark.parametrize(
    ("index", "width", "sectors", "used"),
    [(T, 1, 4, 128), (T * 8, 1, 32, 128), (T * 2, 1, 8, 128), (T // 32, 1, 1, 4), (T // 2, 1, 2, 64),
     (T * 4, 4, 16, 512), (T + 1, 1, 5, 128), (T * 2, 2, 8, 256)],
)  # fmt: skip
def test_sectors_and_bytes_of_one_warp(index: Expr, width: int, sectors: int, used: int) -> None:
    assert global_load(index, width) == (1, sectors, used)


def test_s4_coalescing_counts() -> None:
    """The case's three mappings, M = N = K = 1024, and the row that starts off a sector at N = 1023."""
    row, column = T * 1024, T
    assert [global_load(i, n=32 * 1024)[1] for i in (row, Const(7), column)] == [32, 1, 4]
    assert global_load(T + 1023)[1] == 5


def test_sectors_are_of_addresses_base_included() -> None:
    assert global_load(T, a=GlobalArray(ramp(64), 0, 4))[1] == 5
    assert global_load(T, a=GlobalArray(ramp(64), 7, 4))[1] == 4
    assert global_load(T, a=GlobalArray(ramp(64), 3))[1] == 5


def test_a_request_is_a_warp_with_an_active_lane() -> None:
    t = tid(96)
    assert global_load(t, threads=96)[0] == 3
    body = kernel(If(t.lt(40), get(at(A, t))), threads=96)
    counted = run(body, ramp(96)).counters["global"]["load"]
    assert counted == {"requests": 2, "sectors": 5, "bytes_used": 160}
    none = kernel(If(t.lt(0), get(at(A, t))), threads=96)
    assert run(none, ramp(96)).counters["global"]["load"] == {"requests": 0, "sectors": 0, "bytes_used": 0}


def test_the_last_warp_may_be_partial() -> None:
    assert global_load(tid(48), threads=48) == (2, 6, 192)


def test_a_guard_leaves_lanes_out() -> None:
    ir = kernel(Alloc(R), Load(at(R), at(A, T), guard=T.lt(5)))
    assert run(ir, ramp(5)).counters["global"]["load"] == {"requests": 1, "sectors": 1, "bytes_used": 20}


def test_counts_move_with_the_start_of_a_row() -> None:
    """Rows of 1023: each begins in another place of its sector."""
    loop = For(K, Const(0), Const(8), Const(1), get(at(A, K * 1023 + T)))
    assert run(kernel(loop), ramp(8192)).counters["global"]["load"] == {
        "requests": 8, "sectors": 4 + 7 * 5, "bytes_used": 8 * 128,
    }  # fmt: skip


def shared_access(index: Expr, width: int = 1, op: str = "load", threads: int = 32) -> tuple[int, int, int]:
    t = tid(threads)
    tile = shared("As", 4096)
    everything = For(K, Const(0), Const(4096), Const(threads), put(at(tile, K + t)))
    out = register("quad", 4)
    use = get(at(tile, index), width) if op == "load" else (Alloc(out, 1.0), Store(at(tile, index), at(out, 0), width))
    prologue = run(kernel(everything, Sync(0, ""), threads=threads, arrays=(tile,))).counters["shared"]
    whole = run(kernel(everything, Sync(0, ""), use, threads=threads, arrays=(tile,))).counters["shared"]
    names = ("requests", "wavefronts", "ideal_wavefronts")
    found = tuple(whole[op][x] - prologue[op][x] for x in names)
    return found[0], found[1], found[2]


@pytest.mark.parametrize(
    ("index", "width", "op", "wavefronts", "ideal"),
    [
        (T, 1, "load", 1, 1),
        (T * 8, 1, "load", 8, 1),
        (T * 32, 1, "load", 32, 1),
        (Const(5), 1, "load", 1, 1),
        (T * 4, 4, "load", 4, 4),
        (T * 2, 2, "load", 2, 2),
        (T // 2 * 4, 4, "load", 2, 2),  # neighbours alike: half as many phases
        (T // 8 * 4, 4, "load", 2, 2),
        (T * 8, 4, "load", 8, 4),
        (T * 8, 4, "store", 8, 4),
        (T * 4, 4, "store", 4, 4),
    ],
)
def test_wavefronts_of_one_warp(index: Expr, width: int, op: str, wavefronts: int, ideal: int) -> None:
    assert shared_access(index, width, op) == (1, wavefronts, ideal)


def test_fewer_active_lanes_need_fewer_phases() -> None:
    tile = shared("As", 128)
    fill = For(K, Const(0), Const(4), Const(1), put(at(tile, K * 32 + T)))
    ir = kernel(fill, Sync(0, ""), If(T.lt(9), get(at(tile, T * 4), 4)), arrays=(tile,))
    assert run(ir).counters["shared"]["load"] == {"requests": 1, "wavefronts": 2, "ideal_wavefronts": 2}


@pytest.mark.parametrize(("pitch", "wavefronts"), [(128, 2), (132, 1), (130, 2)])
def test_transposed_stores_conflict_as_measured(pitch: int, wavefronts: int) -> None:
    """Lanes load 16 bytes of a row of A (BK = 8: two lanes a row), then store four scalars at As[k][row]."""
    index = T % 2 * 4 * pitch + T // 2
    tile = shared("As", 8, pitch)
    counted = run(kernel(put(at(tile, 0, index)), arrays=(tile,))).counters["shared"]["store"]
    assert counted == {"requests": 1, "wavefronts": wavefronts, "ideal_wavefronts": 1}


def test_fma_counts_threads_and_nests() -> None:
    acc, a, b = register("acc", 3, 2), register("a", 3), register("b", 2)
    m, n = Var("m", 0, 2, uniform=True), Var("n", 0, 1, uniform=True)
    row = For(n, Const(0), Const(2), Const(1), (Fma(at(acc, m, n), at(a, m), at(b, n)),))
    nest = For(m, Const(0), Const(3), Const(1), (row,))
    declare = (Alloc(acc, 1.0), Alloc(a, 2.0), Alloc(b, 3.0))
    out = Store(at(C, T), at(acc, 2, 1))
    c = zeros(32)
    result = run(kernel(*declare, nest, If(T.lt(10), (nest,)), out), c=c)
    assert not result.faults
    assert result.counters["fma"] == 6 * 32 + 6 * 10
    assert c.tolist() == [13.0] * 10 + [7.0] * 22


def test_a_fused_multiply_add_is_rounded_once() -> None:
    """Against exact rational arithmetic, in places where two roundings differ from one."""
    random = np.random.default_rng(3)
    a, b, c = (random.standard_normal(4000, dtype=np.float32) for _ in "abc")
    c[::2] = -(a * b)[::2]  # what is left is the rounding error of the product
    c[1::8] *= np.float32(2.0**-60)
    a[:500] *= np.float32(2.0**-70)
    b[:250] *= np.float32(2.0**-70)
    c[:250] = random.standard_normal(250, dtype=np.float32) * np.float32(2.0**-130)
    # The product lies half way between two float32, and c is far too small to be seen in float64.
    a[-4:], b[-4:] = np.float32(1 + 2.0**-12), np.float32(1 + 2.0**-12)
    c[-4:] = np.float32([2.0**-80, -(2.0**-80), 0.0, 2.0**-149])
    got = fused(c, a, b)
    want = [
        nearest(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))) for x, y, z in zip(a, b, c, strict=True)
    ]
    assert np.array_equal(got, np.array(want, np.float32))


def nearest(exact: Fraction) -> np.float32:
    """The float32 nearest to a number, ties to even: found among the neighbours of a guess."""
    guess = np.float32(float(exact))
    near = (np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf)))
    return min(near, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.int32)) & 1))


def test_infinity_and_nan_in_a_fused_multiply_add() -> None:
    big, inf = np.float32([3e38]), np.float32([np.inf])
    with np.errstate(all="ignore"):
        assert np.isposinf(fused(big, big, big)).all()
        assert np.isnan(fused(-inf, inf, inf)).all()
        assert fused(-inf, big, big) == -np.inf


def test_a_kernel_says_which_of_its_multiply_adds_are_fused() -> None:
    x = np.float32(1 + 2.0**-12)
    for once, want in ((False, 0.0), (True, 2.0**-24)):
        c = zeros(32)
        acc, a = register("acc"), register("a", 2)
        start = (Alloc(acc, -float(x * x)), Alloc(a, float(x)), Fma(at(acc), at(a, 0), at(a, 1), fused=once))
        run(kernel(*start, Store(at(C, T), at(acc))), c=c)
        assert (c == np.float32(want)).all()


def test_a_nest_that_adds_to_one_element_again_and_again_keeps_its_order() -> None:
    acc, a = register("acc"), register("a", 4)
    k = Var("k", 0, 3, uniform=True)
    values = [For(k, Const(0), Const(4), Const(1), (Load(at(a, k), at(A, k)),))]
    dot = For(k, Const(0), Const(4), Const(1), (Fma(at(acc), at(a, k), at(a, k)),))
    c = zeros(32)
    data = np.array([1e4, 1.0, 1e-4, 3e3], np.float32)
    assert not run(kernel(Alloc(acc, 0.0), Alloc(a), *values, dot, Store(at(C, T), at(acc))), data, c).faults
    want = np.float32(0)
    for x in data:
        want = np.float32(want + np.float32(x * x))
    assert (c == want).all()


def test_every_access_is_listed_with_its_place() -> None:
    tile = shared("As", 32)
    ir = kernel(get(at(A, T)), Store(at(tile, T), at(R), origin="use float4"), Sync(0, ""), get(at(tile, T)),
                put(at(C, T)), arrays=(tile,))  # fmt: skip
    listed = run(ir).counters["accesses"]
    assert [(x["operand"], x["op"], x["space"], x["width"], x["spec_line"]) for x in listed] == [
        ("A", "load", "global", 1, 5), ("A", "store", "shared", 1, 5), ("A", "load", "shared", 1, 5),
        ("C", "store", "global", 1, 2),
    ]  # fmt: skip
    costs = [(x["requests"], x["sectors"], x["wavefronts"]) for x in listed]
    assert costs == [(1, 4, 0), (1, 0, 1), (1, 0, 1), (1, 4, 0)]


def test_several_launches_add_up() -> None:
    one = run(kernel(get(at(A, T)), put(at(C, X * 32 + T))), blocks=1)
    two = merged([one, one])
    assert two.counters["global"]["load"] == {"requests": 2, "sectors": 8, "bytes_used": 256}
    assert [x["requests"] for x in two.counters["accesses"]] == [2, 2]
    assert merged([]).counters["accesses"] == []


@pytest.mark.parametrize("name", ["smem", "warptile", "naive"])
def test_counts_and_results_do_not_depend_on_how_blocks_are_batched(name: str) -> None:
    ir = lower(load(SPECS / f"{name}.gemm"), GUARDED_UNALIGNED)
    a, b, c = operands(150, 141, 37)
    alone = c.copy()
    together = run_ir(ir, a, b, c, 1.5, 0.5)
    apart = run_ir(ir, a, b, alone, 1.5, 0.5, Options(memory_bytes=1))
    assert together.counters == apart.counters
    assert np.array_equal(c, alone)


@pytest.mark.parametrize(("size", "waste"), [((64, 64, 64), 1), ((65, 64, 64), 1.5)])
def test_multiply_adds_of_a_kernel(size: tuple[int, int, int], waste: float) -> None:
    """Tiles of 32 rows: one row more is half as many tiles again."""
    ir = lower(load(SPECS / "smem.gemm"), GUARDED_UNALIGNED)
    a, b, c = operands(*size)
    assert run_ir(ir, a, b, c).counters["fma"] == waste * 64**3


def test_a_run_that_counts_nothing_has_the_same_result_and_faults() -> None:
    a, b, _ = operands(70, 33, 41)
    counted, quick = (gemmgen.simulate(load(SPECS / "warptile.gemm"), a, b, counted=c) for c in (True, False))
    assert np.array_equal(counted.C, quick.C) and counted.faults == quick.faults == ()
    assert counted.counters["global"]["load"]["requests"] > 0 == quick.counters["global"]["load"]["requests"]
    with pytest.raises(ArgumentError, match="counted"):
        gemmgen.simulate(load(SPECS / "warptile.gemm"), a, b, counted="no")  # type: ignore[arg-type]
