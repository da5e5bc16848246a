"""What each asynchronous instruction means, on kernels of a few statements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simir import A, C, R, at, get, kernel, put, ramp, run, shared, tid, zeros

from gemmgen.ir.expr import Const, Expr, lift, value_of
from gemmgen.ir.kernel import KernelIR, TensorMap
from gemmgen.ir.nodes import Array, Call, If, MapRef, Ref, Stmt, Store, Sync
from gemmgen.ir.types import F32, U64
from gemmgen.isa import bulk_store
from gemmgen.isa.async_copy import (
    CP_ASYNC_COMMIT,
    MBARRIER_EXPECT,
    MBARRIER_FENCE,
    MBARRIER_INIT,
    MBARRIER_WAIT,
    cp_async,
    cp_async_or_zero,
    cp_async_wait,
    tma_load,
)
from gemmgen.isa.async_meaning import swizzled
from gemmgen.lower.layout import element_of
from gemmgen.sim.run import GlobalArray, RunResult, run_kernel
from gemmgen.tile.program import Layout

T = tid()
S = shared("As", 128)
SYNC = Sync(0, "")
COMMIT = Call(CP_ASYNC_COMMIT, ())


def wait(pending: int) -> Call:
    return Call(cp_async_wait(pending), ())


def copy(to: Expr | int, source: Expr | int, nbytes: int = 4) -> Call:
    return Call(cp_async(nbytes), (at(S, to), at(A, source)))


def keep(source: Expr | int = T) -> tuple[Stmt, ...]:
    return (*get(at(S, source)), Store(at(C, T), at(R)))


def kinds(*body: Stmt | tuple[Stmt, ...]) -> set[str]:
    return {f.kind for f in run(kernel(*body, arrays=(S,)), ramp(128)).faults}


# --- cp.async ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [4, 8, 16])
def test_a_copy_of_each_width(nbytes: int) -> None:
    c, width = zeros(32), nbytes // 4
    body = (copy(T * width, T * width, nbytes), COMMIT, wait(0), SYNC, *keep(T * width))
    assert not run(kernel(*body, arrays=(S,)), ramp(128), c).faults
    assert c.tolist() == [width * i for i in range(32)]


def test_a_false_condition_reads_nothing_and_writes_zeros() -> None:
    """The condition keeps lanes from 8 on inside an A of 8 elements."""
    c = zeros(32)
    start = Call(cp_async_or_zero(4), (at(S, T), at(A, T), T.lt(8)))
    result = run(kernel(start, COMMIT, wait(0), SYNC, *keep(), arrays=(S,)), ramp(8) + 1, c)
    assert not result.faults
    assert c.tolist() == [*range(1, 9), *[0] * 24]
    assert result.counters["global"]["load"] == {"requests": 1, "sectors": 1, "bytes_used": 32}
    assert result.counters["shared"]["store"]["wavefronts"] == 1


def test_a_copy_outside_and_a_misaligned_one_are_faults() -> None:
    assert kinds(copy(T, T + 100), COMMIT, wait(0)) == {"out-of-bounds"}
    assert kinds(copy(T + 100, T), COMMIT, wait(0)) == {"out-of-bounds"}
    assert kinds(copy(T * 2 + 1, T * 2, 8), COMMIT, wait(0)) == {"misaligned"}
    assert kinds(copy(T * 2, T * 2 + 1, 8), COMMIT, wait(0)) == {"misaligned"}


def test_the_last_groups_may_stay_in_flight() -> None:
    start = (copy(T, T), COMMIT, copy(T + 32, T), COMMIT, copy(T + 64, T), COMMIT)
    assert kinds(*start, wait(2), keep(T)) == set()
    assert kinds(*start, wait(2), keep(T + 32)) == {"async"}
    assert kinds(*start, wait(1), keep(T + 32)) == set()
    assert kinds(*start, wait(1), keep(T + 64)) == {"async"}
    assert kinds(*start, wait(0), keep(T + 64)) == set()


def test_a_copy_of_no_group_is_not_waited_for() -> None:
    assert kinds(copy(T, T), wait(0), keep()) == {"async"}
    assert kinds(copy(T, T), COMMIT, copy(T + 32, T), wait(0), keep(T + 32)) == {"async"}


def test_an_empty_group_counts() -> None:
    assert kinds(copy(T, T), COMMIT, COMMIT, wait(1), keep()) == set()


def test_groups_are_each_threads_own() -> None:
    half = T.lt(16)
    assert kinds(If(half, (copy(T, T), COMMIT)), wait(0), If(half, keep())) == set()
    assert kinds(copy(T, T), COMMIT, If(half, (COMMIT,)), wait(1), If(half, keep())) == set()
    assert kinds(copy(T, T), COMMIT, If(half, (COMMIT,)), wait(1), keep()) == {"async"}
    assert kinds(copy(T, T), COMMIT, If(half, (wait(0),)), keep()) == {"async"}


def test_a_landed_copy_is_seen_by_others_after_a_barrier_only() -> None:
    assert kinds(copy(T, T), COMMIT, wait(0), keep(31 - T)) == {"race"}
    assert kinds(copy(T, T), COMMIT, wait(0), SYNC, keep(31 - T)) == set()
    assert kinds(put(at(S, T)), SYNC, keep(31 - T), copy(T, T), COMMIT, wait(0)) == {"race"}


# --- mbarriers and TMA ------------------------------------------------------------------------------------------------

FULL = Array("full", "shared", U64, (Const(2),), align=8)
TILE = Array("As", "shared", F32, (Const(8), Const(32)), align=1024)
BYTES = 8 * 32 * 4
BAR = Ref(FULL, (Const(0),))
FIRST = tid().eq(0)
INIT, FENCE = Call(MBARRIER_INIT, (BAR, Const(1))), Call(MBARRIER_FENCE, ())
SET_UP = (If(FIRST, (INIT, FENCE)), SYNC)


START = at(TILE, 0, 0)


def load(x: int = 0, y: int = 0, tile: Ref = START) -> Call:
    return Call(tma_load(), (tile, MapRef("mapA"), lift(x), lift(y), BAR))


def expect(nbytes: int = BYTES) -> Call:
    return Call(MBARRIER_EXPECT, (BAR, lift(nbytes)))


def ended(parity: int = 0) -> Call:
    return Call(MBARRIER_WAIT, (BAR, lift(parity)))


def boxed(*body: Stmt | tuple[Stmt, ...], box: tuple[int, int] = (32, 8), swizzle: int = 0) -> KernelIR:
    made = kernel(*body, arrays=(TILE, FULL))
    return replace(made, tensor_maps=(TensorMap("mapA", "A", box, swizzle),))


def launch(
    ir: KernelIR, rows: int = 8, columns: int = 32, leading: int = 32, offset: int = 0
) -> tuple[RunResult, object]:
    a, c = ramp(rows * leading + offset + 64) + 1, zeros(32)
    sizes = {"M": rows, "N": 32, "K": columns, "alpha": 1.0, "beta": 0.0, "lda": leading, "ldb": 32, "ldc": 32}
    arrays = {"A": GlobalArray(a, offset), "B": GlobalArray(zeros(columns * 32)), "C": GlobalArray(c, extent=32)}
    return run_kernel(ir, (1, 1, 1), sizes, arrays), c


def faults(*body: Stmt | tuple[Stmt, ...], offset: int = 0, leading: int = 32) -> set[str]:
    return {f.kind for f in launch(boxed(*body), offset=offset, leading=leading)[0].faults}


ASK = If(FIRST, (expect(), load()))


def kept(row: int, column: Expr = T) -> tuple[Stmt, ...]:
    return (*get(at(TILE, row, column)), Store(at(C, T), at(R)))


@pytest.mark.parametrize("row", [0, 3, 7])
def test_a_box_arrives(row: int) -> None:
    result, c = launch(boxed(*SET_UP, ASK, ended(), *kept(row)))
    assert not result.faults
    assert np.array_equal(np.asarray(c), ramp(32) + 1 + 32 * row)
    (moved,) = (x for x in result.counters["accesses"] if x["space"] == "tma")
    assert (moved["operand"], moved["requests"], moved["bytes"], moved["sectors"]) == ("A", 1, BYTES, BYTES // 32)
    assert result.counters["global"]["load"]["requests"] == result.counters["shared"]["store"]["requests"] == 0


def test_what_lies_outside_the_matrix_arrives_as_zeros() -> None:
    """A matrix of 5 x 20 whose rows are 24 apart; the box begins at row 2, column 4."""
    for row in range(8):
        ir = boxed(*SET_UP, If(FIRST, (expect(), load(4, 2))), ended(), *kept(row))
        result, c = launch(ir, rows=5, columns=20, leading=24)
        want = [24 * (row + 2) + 5 + i if row + 2 < 5 and i + 4 < 20 else 0 for i in range(32)]
        assert not result.faults
        assert np.asarray(c).tolist() == want
        (moved,) = (x for x in result.counters["accesses"] if x["space"] == "tma")
        assert moved["bytes"] == 4 * 3 * 16


@pytest.mark.parametrize("length", [8, 16, 32])
def test_the_engine_swizzles_as_the_tiles_layout_says(length: int) -> None:
    """Every place of a row is found again where ``lower.layout`` puts it."""
    tile = Layout(("m", "k"), (256 // length, length), swizzle=True)
    array = Array("As", "shared", shape=(Const(256 // length), Const(length)))
    for place in range(256):
        row, column = divmod(place, length)
        ref = element_of(array, tile, {"m": Const(row), "k": Const(column)}, None)
        found = [value_of(i) for i in ref.index]
        assert [int(x) for x in divmod(swizzled(np.array([place]), 4 * length)[0], length)] == found


def test_each_part_of_the_set_up_is_needed() -> None:
    whole = (*SET_UP, ASK, ended(), *kept(1))
    assert faults(*whole) == set()
    assert faults(If(FIRST, (INIT,)), SYNC, ASK, ended(), *kept(1)) == {"async"}
    assert "uninitialized" in faults(If(FIRST, (FENCE,)), SYNC, ASK, ended(), *kept(1))
    assert faults(If(FIRST, (INIT, FENCE)), ASK, ended(), *kept(1)) == {"race"}


def test_data_used_before_its_wait_or_at_the_wrong_phase() -> None:
    assert faults(*SET_UP, ASK, *kept(1)) == {"async"}
    # Before anything has arrived, the phase before the first counts as ended.
    assert faults(*SET_UP, ASK, ended(1), *kept(1)) == {"async"}
    assert faults(*SET_UP, ASK, ended(0), ended(1), *kept(1)) == {"deadlock"}


def test_bytes_must_be_those_that_were_announced() -> None:
    assert faults(*SET_UP, If(FIRST, (load(),)), ended(), *kept(1)) == {"deadlock"}
    assert faults(*SET_UP, If(FIRST, (expect(BYTES + 4), load())), ended(), *kept(1)) == {"deadlock"}
    assert faults(*SET_UP, If(FIRST, (expect(BYTES // 2), load())), ended(), *kept(1)) == {"deadlock"}


def test_a_phase_that_counts_one_of_two_boxes_ends_too_early() -> None:
    """Boxes of 4 rows: with the bytes of one announced, the second is still on its way."""
    first, second = load(), load(0, 4, at(TILE, 4, 0))
    for announced, found in ((BYTES, set()), (BYTES // 2, {"async"})):
        ask = If(FIRST, (expect(announced), first, second))
        ir = boxed(*SET_UP, ask, ended(), *kept(5), box=(32, 4))
        assert {f.kind for f in launch(ir)[0].faults} == found


def test_only_those_who_waited_see_the_box() -> None:
    half = tid(64).lt(32)
    body = (*SET_UP, ASK, If(half, (ended(),)), *get(at(TILE, 1, tid(64) % 32)))
    made = replace(boxed(*body), threads=64)
    assert {f.kind for f in launch(made)[0].faults} == {"race"}


def test_a_box_over_data_that_is_still_read() -> None:
    again = (*SET_UP, ASK, ended(), *kept(1), ASK, ended(1))
    assert faults(*again) == {"race", "async"}  # neither a barrier nor a fence stands between
    assert faults(*SET_UP, ASK, ended(), *kept(1), Sync(1, ""), ASK, ended(1), *kept(1)) == {"async"}
    fence = Call(bulk_store.FENCE, ())
    assert faults(*SET_UP, ASK, ended(), *kept(1), fence, Sync(1, ""), ASK, ended(1), *kept(1)) == set()


def test_boxes_must_be_aligned_and_inside() -> None:
    aside = If(FIRST, (expect(), load(tile=at(TILE, 0, 4))))
    assert "misaligned" in faults(*SET_UP, aside)
    assert "out-of-bounds" in faults(*SET_UP, If(FIRST, (expect(), load(tile=at(TILE, 1, 0)))))
    assert faults(*SET_UP, ASK, ended(), *kept(1), offset=1) == {"misaligned"}
    assert "misaligned" in faults(*SET_UP, ASK, ended(), *kept(1), leading=33)
