"""Every kind of fault, by a small kernel that commits it, and next to it the kernel that does not."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from simir import (
    BETA,
    QUAD,
    A,
    C,
    R,
    X,
    at,
    get,
    kernel,
    put,
    ramp,
    register,
    run,
    shared,
    tid,
    zeros,
)  # fmt: skip

from gemmgen.ir.expr import Const, Var
from gemmgen.ir.nodes import Alloc, Compute, FConst, Fma, For, If, Load, Read, Role, Roles, Store, Sync
from gemmgen.sim.faults import Fault
from gemmgen.sim.run import GlobalArray, Options, RunResult, run_kernel

S = shared("As", 4, 8)
T = tid()
SYNC = Sync(0, "As: written above, read below")
K = Var("k", 0, None, uniform=True)


def only(result: RunResult) -> Fault:
    assert len(result.faults) == 1, result.faults
    return result.faults[0]


def fill(array: object = S) -> tuple[object, ...]:
    """Every word of As, by its own thread."""
    return put(at(S, T // 8, T % 8))


# --- Out of bounds --------------------------------------------------------------------------------------------------


def test_a_global_read_past_the_matrix_gives_zero_and_names_the_element() -> None:
    c = zeros(32)
    ir = kernel(get(at(A, T + 40)), Store(at(C, T), at(R)))
    fault = only(run(ir, ramp(64) + 1, c))
    assert astuple(fault)[:6] == ("out-of-bounds", "A", (0, 0, 0), 24, (64,), 5)
    assert c.tolist() == [*range(41, 65), *[0] * 8]


def test_a_global_write_past_the_matrix_is_dropped() -> None:
    memory = zeros(64)
    fault = only(run(kernel(put(at(C, T + 40), 7.0)), c=GlobalArray(memory, extent=50)))
    assert (fault.kind, fault.thread, fault.index, fault.line) == ("out-of-bounds", 10, (50,), 2)
    assert memory.tolist() == [0] * 40 + [7] * 10 + [0] * 14


def test_a_negative_index_is_out_of_bounds() -> None:
    c = zeros(32)
    fault = only(run(kernel(get(at(A, T - 3)), Store(at(C, T), at(R))), ramp(64) + 1, c))
    assert (fault.kind, fault.thread, fault.index) == ("out-of-bounds", 0, (-3,))
    assert c.tolist() == [0, 0, 0, *range(1, 30)]


def test_a_vector_that_crosses_the_end_is_out_of_bounds_at_its_first_word_outside() -> None:
    fault = only(run(kernel(get(at(A, T * 4), 4)), GlobalArray(ramp(64), extent=62)))
    assert (fault.kind, fault.thread, fault.index) == ("out-of-bounds", 15, (62,))


def test_a_write_into_the_gap_between_rows_is_out_of_bounds() -> None:
    memory = zeros(128)
    ir = kernel(put(at(C, T)))
    given = {"A": GlobalArray(zeros(1)), "B": GlobalArray(zeros(1)), "C": GlobalArray(memory)}
    sizes = {"M": 2, "N": 30, "K": 1, "alpha": 1.0, "beta": 0.0, "lda": 1, "ldb": 30, "ldc": 64}
    fault = only(run_kernel(ir, (1, 1, 1), sizes, given))
    assert (fault.kind, fault.buffer, fault.thread, fault.index) == ("out-of-bounds", "C", 30, (0, 30))
    assert memory.sum() == 30


def test_g01_shared_overrun_names_the_row_that_does_not_exist() -> None:
    """The case's last pass touches a row past the tile; here row 4 of As[4][8]."""
    ir = kernel(put(at(S, T // 8 + 1, T % 8)), arrays=(S,))
    fault = only(run(ir))
    assert (fault.kind, fault.buffer, fault.thread, fault.index) == ("out-of-bounds", "As", 24, (4, 0))
    assert "32" in str(fault) and "As[4][0]" in str(fault)


def test_a_shared_overrun_does_not_reach_the_next_block() -> None:
    c = zeros(64)
    ir = kernel(fill(), put(at(S, T // 8 + 1, T % 8), 9.0), SYNC, get(at(S, T // 8, T % 8)),
                Store(at(C, X * 32 + T), at(R)), arrays=(S,))  # fmt: skip
    result = run(ir, c=c, blocks=2)
    assert {f.kind for f in result.faults} == {"out-of-bounds", "race"}
    assert c[:8].tolist() == c[32:40].tolist() == [1.0] * 8


def test_an_index_past_a_row_but_inside_the_array_is_allowed() -> None:
    assert not run(kernel(put(at(S, 0, T)), arrays=(S,))).faults


def test_a_register_index_outside_is_reported_and_reads_zero() -> None:
    c = zeros(32)
    out = register("out", 2)
    ir = kernel(Alloc(out, 5.0), Alloc(R, 1.0), Compute(at(R), Read(at(out, 2))), Store(at(C, T), at(R)))
    fault = only(run(ir, c=c))
    assert (fault.kind, fault.buffer, fault.index) == ("out-of-bounds", "out", (2,))
    assert not c.any()


# --- Misaligned -----------------------------------------------------------------------------------------------------


def test_g04_a_vector_access_off_its_alignment_is_reported_and_goes_on() -> None:
    c = zeros(32)
    ir = kernel(If(T.lt(8), (*get(at(A, T * 4 + 1), 4), Store(at(C, T), at(QUAD, 0)))))
    fault = only(run(ir, ramp(64), c))
    assert (fault.kind, fault.buffer, fault.thread, fault.index, fault.line) == ("misaligned", "A", 0, (1,), 5)
    assert c[:8].tolist() == [1, 5, 9, 13, 17, 21, 25, 29]


@pytest.mark.parametrize(
    ("offset", "alignment", "right"),
    [(0, 256, True), (1, 256, False), (0, 4, False), (3, 4, True), (4, 256, True), (0, 16, True), (0, 8, False)],
)
def test_g04_alignment_is_of_the_address_base_included(offset: int, alignment: int, right: bool) -> None:
    ir = kernel(If(T.lt(4), get(at(A, T * 4), 4)))
    result = run(ir, GlobalArray(ramp(64), offset, alignment))
    assert [f.kind for f in result.faults] == ([] if right else ["misaligned"])


def test_g04_only_the_rows_that_drift_are_misaligned() -> None:
    fault = only(run(kernel(If(T.lt(8), get(at(A, T * 6), 4))), ramp(64)))
    assert (fault.kind, fault.thread) == ("misaligned", 1)


def test_a_shared_array_must_be_declared_as_aligned_as_its_accesses() -> None:
    small = shared("As", 64, align=4)
    ir = kernel(put(at(small, T)), put(at(small, T + 32)), SYNC, If(T.lt(8), get(at(small, T * 4), 4)), arrays=(small,))
    assert only(run(ir)).kind == "misaligned"


# --- Uninitialized --------------------------------------------------------------------------------------------------


def test_a_shared_word_that_nothing_wrote() -> None:
    ir = kernel(put(at(S, T // 8, T % 8)), arrays=(S,))
    half = kernel(If(T.lt(16), put(at(S, T // 8, T % 8))), SYNC, get(at(S, T // 8, T % 8)), arrays=(S,))
    assert not run(ir).faults
    fault = only(run(half))
    assert (fault.kind, fault.buffer, fault.thread, fault.index, fault.line) == ("uninitialized", "As", 16, (2, 0), 5)


def test_a_register_that_nothing_wrote() -> None:
    ir = kernel(Alloc(QUAD), Alloc(R, 1.0), Fma(at(R), at(QUAD, 2), at(QUAD, 2)))
    fault = run(ir).faults[0]
    assert (fault.kind, fault.buffer, fault.index) == ("uninitialized", "quad", (2,))


def test_a_register_set_in_one_branch_only() -> None:
    value = Compute(at(R), FConst(1.0))
    use = Store(at(C, T), at(R))
    fault = only(run(kernel(Alloc(R), If(T.lt(10), (value,)), use)))
    assert (fault.kind, fault.thread) == ("uninitialized", 10)
    assert not run(kernel(Alloc(R), If(T.lt(10), (value,), (value,)), use)).faults
    assert not run(kernel(Alloc(R), If(T.lt(10), (value, use)))).faults


def test_a_load_with_a_false_guard_sets_zero() -> None:
    c = zeros(32) - 1
    ir = kernel(Alloc(R), Load(at(R), at(A, T), guard=T.lt(3)), Store(at(C, T), at(R)))
    assert not run(ir, ramp(3) + 1, c).faults
    assert c.tolist() == [1, 2, 3, *[0] * 29]


# --- Races ----------------------------------------------------------------------------------------------------------

READ_OTHER = get(at(S, (T + 1) % 32 // 8, (T + 1) % 32 % 8))


def test_reading_what_another_thread_wrote_without_a_barrier() -> None:
    fault = only(run(kernel(fill(), READ_OTHER, arrays=(S,))))
    assert (fault.kind, fault.buffer, fault.thread, fault.index, fault.line) == ("race", "As", 0, (0, 1), 5)
    assert fault.other == "thread 1 writes it (spec line 2), with no barrier between"
    assert not run(kernel(fill(), SYNC, READ_OTHER, arrays=(S,))).faults


def test_a_thread_is_ordered_with_itself() -> None:
    assert not run(kernel(fill(), get(at(S, T // 8, T % 8)), fill(), arrays=(S,))).faults


def test_writing_what_another_thread_reads_without_a_barrier() -> None:
    fault = only(run(kernel(fill(), SYNC, READ_OTHER, fill(), arrays=(S,))))
    assert (fault.kind, fault.line) == ("race", 2)
    assert "reads it" in fault.other
    assert not run(kernel(fill(), SYNC, READ_OTHER, SYNC, fill(), arrays=(S,))).faults


def test_a_word_that_several_threads_read_may_not_be_written() -> None:
    fault = only(run(kernel(fill(), SYNC, get(at(S, 0, 0)), If(T.eq(0), put(at(S, 0, 0))), arrays=(S,))))
    assert (fault.kind, fault.thread) == ("race", 0)


def test_a_race_across_warps_and_around_the_back_of_a_loop() -> None:
    big = shared("As", 64)
    t = tid(64)
    body = (*put(at(big, t)), SYNC, *get(at(big, (t + 32) % 64)))
    loop = For(K, Const(0), Const(3), Const(1), body)
    fault = only(run(kernel(loop, threads=64, arrays=(big,))))
    assert (fault.kind, fault.buffer) == ("race", "As")
    good = For(K, Const(0), Const(3), Const(1), (*body, Sync(1, "")))
    assert not run(kernel(good, threads=64, arrays=(big,))).faults


def test_two_lanes_of_one_store_that_hit_one_word() -> None:
    fault = only(run(kernel(put(at(S, 0, T // 4)), arrays=(S,))))
    assert fault.kind == "race"
    assert "same access" in fault.other


def test_blocks_have_shared_memory_of_their_own() -> None:
    ir = kernel(If(X.eq(0), fill()), SYNC, If(X.eq(1), READ_OTHER), arrays=(S,))
    fault = only(run(ir, blocks=2))
    assert (fault.kind, fault.block) == ("uninitialized", (1, 0, 0))


def test_two_blocks_may_not_write_one_element_of_c() -> None:
    fault = only(run(kernel(put(at(C, T)), SYNC, arrays=()), blocks=2))
    assert (fault.kind, fault.buffer) == ("race", "C")
    assert "block" in fault.other
    assert not run(kernel(put(at(C, X * 32 + T))), blocks=2).faults


def test_blocks_race_on_c_also_when_they_run_in_different_batches() -> None:
    ir = kernel(put(at(C, T)))
    result = run(ir, blocks=3, options=Options(memory_bytes=1))
    assert [(f.kind, f.block, f.thread) for f in result.faults] == [("race", (1, 0, 0), 0)]


def test_threads_of_a_block_race_on_c_unless_a_barrier_orders_them() -> None:
    neighbour = get(at(C, (T + 1) % 32))
    assert only(run(kernel(put(at(C, T)), neighbour))).kind == "race"
    assert only(run(kernel(neighbour, put(at(C, T))))).kind == "race"
    assert not run(kernel(put(at(C, T)), SYNC, neighbour)).faults
    assert not run(kernel(neighbour, SYNC, put(at(C, T)))).faults
    assert not run(kernel(get(at(C, T)), put(at(C, T)))).faults


# --- Barriers -------------------------------------------------------------------------------------------------------


def test_a_barrier_that_part_of_a_block_reaches() -> None:
    fault = only(run(kernel(If(T.lt(20), (SYNC,)))))
    assert (fault.kind, fault.thread) == ("barrier", 20)
    assert "20 of 32 threads" in fault.other


def test_a_barrier_that_whole_blocks_skip_is_allowed() -> None:
    assert not run(kernel(If(X.eq(1), (SYNC,))), blocks=3).faults


def test_a_barrier_in_a_branch_that_the_block_agrees_on_is_allowed() -> None:
    assert not run(kernel(If(BETA.ne(0), (SYNC,), (SYNC,))), beta=2.0).faults


def test_a_barrier_of_some_blocks_orders_those_only() -> None:
    ir = kernel(fill(), If(X.eq(0), (SYNC,)), READ_OTHER, arrays=(S,))
    fault = only(run(ir, blocks=2))
    assert (fault.kind, fault.block) == ("race", (1, 0, 0))


def test_loops_that_differ_between_blocks() -> None:
    c = zeros(64)
    acc = register("acc")
    loop = For(K, X * 2, X * 5, Const(1), (SYNC, Fma(at(acc), at(R), at(R))))
    ir = kernel(Alloc(acc, 0.0), Alloc(R, 1.0), loop, Store(at(C, X * 32 + T), at(acc)))
    result = run(ir, c=c, blocks=2)
    assert not result.faults
    assert c.tolist() == [0] * 32 + [3] * 32
    assert result.counters["fma"] == 3 * 32


# --- Roles ----------------------------------------------------------------------------------------------------------

BIG = shared("As", 64)
W = tid(64)


def roles(first: tuple[object, ...], second: tuple[object, ...]) -> Roles:
    return Roles((Role("producer", 0, 0, first), Role("consumer", 1, 1, second)))  # type: ignore[arg-type]


def test_roles_meet_at_the_blocks_barrier() -> None:
    c = zeros(64)
    body = roles((*put(at(BIG, W), 3.0), SYNC), (Sync(1, ""), *get(at(BIG, W - 32)), Store(at(C, W), at(R))))
    assert not run(kernel(body, threads=64, arrays=(BIG,)), c=c).faults
    assert c.tolist() == [0] * 32 + [3] * 32


def test_roles_without_a_barrier_race() -> None:
    body = roles(put(at(BIG, W)), get(at(BIG, W - 32)))
    assert only(run(kernel(body, threads=64, arrays=(BIG,)))).kind == "race"


def test_a_barrier_that_one_role_never_reaches() -> None:
    fault = only(run(kernel(roles((SYNC, Sync(1, "")), (Sync(2, ""),)), threads=64)))
    assert (fault.kind, fault.thread) == ("barrier", 32)
    assert "producer" in fault.other


# --- The list of faults -----------------------------------------------------------------------------------------------


def test_one_fault_for_each_access_up_to_the_limit() -> None:
    bad = For(K, Const(0), Const(5), Const(1), get(at(A, T + 100)))
    assert len(run(kernel(bad)).faults) == 1
    many = kernel(*(get(at(A, T + 100)) for _ in range(9)))
    assert len(run(many).faults) == 9
    assert len(run(many, options=Options(max_faults=4)).faults) == 4


def test_a_fault_is_one_clear_line() -> None:
    fault = Fault("race", "As", (1, 2, 0), 37, (3, 17), 4, "thread 5 writes it, with no barrier between")
    assert str(fault) == (
        "race: thread 37 of block (1, 2, 0), As[3][17]: thread 5 writes it, with no barrier between (spec line 4)"
    )
    assert fault == Fault("race", "As", (1, 2, 0), 37, (3, 17), 4, "thread 5 writes it, with no barrier between")


def test_nan_and_infinity_travel_without_a_warning() -> None:
    c = zeros(32)
    a = zeros(64)
    a[:3] = np.inf, np.nan, 3e38
    ir = kernel(get(at(A, T)), Fma(at(R), at(R), at(R)), Store(at(C, T), at(R)))
    with np.errstate(all="raise"):
        assert not run(ir, a, c).faults
    assert np.isposinf(c[0]) and np.isnan(c[1]) and np.isposinf(c[2]) and not c[3:].any()
