"""Elements of every type on the simulator: bytes in memory, values in registers, alignment, races below a word."""

from __future__ import annotations

from dataclasses import astuple, replace
from math import inf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from simir import R, at, kernel, ramp, run, tid, zeros
from typedir import get, given, held, put, tile, typed

from gemmgen.ir.expr import Const
from gemmgen.ir.kernel import KernelIR, TensorMap
from gemmgen.ir.nodes import (
    Alloc,
    Call,
    Compute,
    FBin,
    FConst,
    Fma,
    For,
    Load,
    MapRef,
    Read,
    Store,
    Sync,
    Var,
)
from gemmgen.ir.types import BF16, F16, F32, U64, DType
from gemmgen.isa import async_copy
from gemmgen.isa.async_meaning import swizzled
from gemmgen.sim.run import GlobalArray, RunResult, run_kernel

T = tid()
K = Var("k", 0, None, uniform=True)
SYNC = Sync(0, "tile: written above, read below")
HALVES = [F16, BF16]
Halves = pytest.mark.parametrize("dtype", HALVES, ids=str)


def through(a: NDArray[Any], register: DType, c: DType, width: int = 1) -> NDArray[Any]:
    """The elements of A, loaded into registers of one type and stored into C of another."""
    dtype = next(t for t in (*HALVES, F32) if t.numpy_dtype == a.dtype)
    some, out = held(register, width), np.zeros(len(a), c.numpy_dtype)
    body = (
        Load(at(some, 0), at(given("A", dtype), T * width), width),
        Store(at(given("C", c), T * width), at(some, 0), width),
    )
    result = run(kernel(Alloc(some), *body, threads=len(a) // width), a, out)
    assert not result.faults
    return out


# --- Values -----------------------------------------------------------------------------------------------------------


@Halves
def test_a_load_into_float32_is_exact_for_every_bit_pattern(dtype: DType) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy_dtype)
    for a in every.reshape(-1, 1024):
        np.testing.assert_array_equal(through(a, F32, F32), a.astype(np.float32))


@Halves
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_move_within_a_type_keeps_every_bit(dtype: DType, width: int) -> None:
    bits = np.random.default_rng(5).integers(0, 1 << 16, 1024, np.uint16)  # NaNs with their payload among them
    assert through(bits.view(dtype.numpy_dtype), dtype, dtype, width).tobytes() == bits.tobytes()


def test_a_store_rounds_to_nearest_even() -> None:
    half = 2.0**-11
    near = np.array([1 + half, 1 + 3 * half, 1 + half + 2**-20, -1 - half, 2.0**-25, 2.0**-25 * 1.01], np.float32)
    assert through(near, F32, F16).tolist() == [1.0, 1 + 4 * half, 1 + 2 * half, -1.0, 0.0, 2.0**-24]
    near = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 1 + 2.0**-8 + 2.0**-20], np.float32)
    assert through(near, F32, BF16).astype(float).tolist() == [1.0, 1 + 2.0**-6, -1.0, 1 + 2.0**-7]


def test_a_store_beyond_the_largest_number_is_infinite() -> None:
    large = np.array([65504, 65519, 65520, -1e6, inf], np.float32)
    assert through(large, F32, F16).tolist() == [65504, 65504, inf, -inf, inf]
    greatest = float(np.finfo(np.float32).max)
    assert through(np.array([1e38, greatest, -greatest], np.float32), F32, BF16).astype(float).tolist()[1:] == [
        inf,
        -inf,
    ]
    assert np.isnan(through(np.array([np.nan], np.float32), F32, BF16).astype(float)).all()


@Halves
def test_a_store_rounds_as_a_load_into_a_narrow_register_does(dtype: DType) -> None:
    values = np.random.default_rng(1).standard_normal(512).astype(np.float32)
    assert through(values, F32, dtype).tobytes() == through(values, dtype, dtype).tobytes()
    assert through(values, dtype, F32).tobytes() == values.astype(dtype.numpy_dtype).astype(np.float32).tobytes()


@Halves
def test_a_multiply_add_of_narrow_factors_sums_in_float32(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    a, b = (typed(rng.standard_normal(128), dtype) for _ in "ab")
    x, y, acc = held(dtype, 4, name="x"), held(dtype, 4, name="y"), held(F32, 4, 4, name="acc")
    i, j = Var("i", 0, 3, uniform=True), Var("j", 0, 3, uniform=True)
    nest = For(i, Const(0), Const(4), Const(1), (
        For(j, Const(0), Const(4), Const(1), (Fma(at(acc, i, j), at(x, i), at(y, j)),)),
    ))  # fmt: skip
    out = zeros(512)
    ir = kernel(
        Alloc(x), Alloc(y), Alloc(acc, 0.5),
        Load(at(x, 0), at(given("A", dtype), T * 4), 4), Load(at(y, 0), at(given("B", dtype), T * 4), 4),
        nest, nest,
        For(i, Const(0), Const(4), Const(1), (Store(at(given("C", F32), T * 16 + i * 4), at(acc, i, 0), 4),)),
    )  # fmt: skip
    arrays = {"A": GlobalArray(a, extent=128), "B": GlobalArray(b, extent=128), "C": GlobalArray(out, extent=512)}
    result = launched(ir, arrays)
    assert not result.faults and result.counters["fma"] == 2 * 16 * 32
    p = a.astype(np.float32).reshape(32, 4, 1) * b.astype(np.float32).reshape(32, 1, 4)
    assert out.reshape(32, 4, 4).tolist() == (np.float32(0.5) + p + p).tolist()


def test_a_sum_in_16_bits_is_refused() -> None:
    acc = held(F16, name="acc")
    ir = kernel(Alloc(acc, 0.0), Alloc(R, 1.0), Fma(at(acc), at(R), at(R)))
    with pytest.raises(ValueError, match="acc is f16; a multiply-add sums in float32"):
        run(ir)


@Halves
def test_an_expression_is_computed_in_float32_and_rounded_once(dtype: DType) -> None:
    ulp = dtype.unit_roundoff * 2
    old, out = held(dtype, name="old"), held(dtype, name="out")
    # In the type itself the first addition would be lost, and the second too.
    sum_of_both = FBin("+", FBin("+", Read(at(old)), FConst(ulp / 2)), FConst(ulp / 2))
    c = np.zeros(32, dtype.numpy_dtype)
    ir = kernel(Alloc(old, 1.0), Alloc(out), Compute(at(out), sum_of_both), Store(at(given("C", dtype), T), at(out)))
    assert not run(ir, c=c).faults
    assert c.astype(float).tolist() == [1 + ulp] * 32


def test_an_array_of_another_type_than_the_program_has_is_refused() -> None:
    ir = kernel(get(at(given("A", F16), T)))
    with pytest.raises(ValueError, match="A is of type float32; the program has float16 there"):
        run(ir, ramp(64))


# --- Alignment --------------------------------------------------------------------------------------------------------


def launched(ir: KernelIR, arrays: dict[str, GlobalArray]) -> RunResult:
    sizes = {"M": 1, "N": 512, "K": 128, "alpha": 1.0, "beta": 0.0, "lda": 128, "ldb": 512, "ldc": 512}
    return run_kernel(ir, (1, 1, 1), sizes, arrays)


def faults(result: RunResult) -> list[tuple[Any, ...]]:
    return [(f.kind, f.buffer, f.thread, f.index) for f in result.faults]


@pytest.mark.parametrize(("width", "start", "ok"), [
    (1, 2, True), (2, 4, True), (2, 2, False), (4, 8, True), (4, 4, False), (8, 16, True), (8, 8, False), (1, 1, False),
])  # fmt: skip
def test_an_access_must_be_aligned_to_the_bytes_that_it_moves(width: int, start: int, ok: bool) -> None:
    a = GlobalArray(typed(ramp(512), F16), alignment=start)
    result = run(kernel(get(at(given("A", F16), T * width), width)), a)
    assert faults(result) == ([] if ok else [("misaligned", "A", 0, (0,))])
    if not ok:
        need = 2 * width
        assert f"{start % need} bytes past a multiple of {need}" in result.faults[0].other


def test_a_shared_access_needs_the_alignment_of_its_array() -> None:
    for align, kinds in ((8, ["misaligned"]), (16, [])):
        tiles = tile(BF16, 256, align=align)
        assert [f.kind for f in run(kernel(put(at(tiles, T * 8), width=8), arrays=(tiles,))).faults] == kinds
    offset = tile(BF16, 512)
    result = run(kernel(put(at(offset, T * 8 + 4), width=8), arrays=(offset,)))
    assert faults(result) == [("misaligned", "tile", 0, (4,))]
    assert "8 bytes past a multiple of 16" in result.faults[0].other


def test_places_outside_are_named_in_elements() -> None:
    small = tile(F16, 8, 4)
    result = run(kernel(put(at(small, Const(0), T + 1)), arrays=(small,)))
    assert astuple(result.faults[0])[:5] == ("out-of-bounds", "tile", (0, 0, 0), 31, (8, 0))


# --- Races below a word -----------------------------------------------------------------------------------------------


@Halves
def test_two_threads_that_write_the_halves_of_a_word_do_not_race(dtype: DType) -> None:
    halves, c = tile(dtype, 32), np.zeros(32, dtype.numpy_dtype)
    own = held(dtype, name="own")
    body = Alloc(own), Load(at(own), at(given("A", dtype), T)), Store(at(halves, T), at(own)), SYNC
    back = Load(at(own), at(halves, T ^ 1)), Store(at(given("C", dtype), T), at(own))
    a = typed(ramp(32), dtype)
    result = run(kernel(*body, *back, arrays=(halves,)), a, c)
    assert not result.faults
    assert c.astype(float).tolist() == [float(i ^ 1) for i in range(32)]
    assert not run(kernel(put(at(given("C", dtype), T))), c=c).faults


@Halves
def test_two_threads_that_write_one_half_race(dtype: DType) -> None:
    halves = tile(dtype, 32)
    result = run(kernel(put(at(halves, T // 2)), arrays=(halves,)))
    assert faults(result) == [("race", "tile", 0, (0,))]
    result = run(kernel(put(at(given("C", dtype), T // 2))), c=typed(zeros(32), dtype))
    assert faults(result) == [("race", "C", 0, (0,))]


def test_a_wide_access_clashes_with_each_half_that_it_covers() -> None:
    halves, t = tile(F16, 128), tid(64)
    late = put(at(halves, t)), get(at(halves, (t ^ 32) * 2), 2)
    assert [f.kind for f in run(kernel(*late, threads=64, arrays=(halves,))).faults] == ["uninitialized", "race"]
    assert not run(kernel(put(at(halves, t * 2), width=2), SYNC, *get(at(halves, (t ^ 32) * 2), 2), threads=64,
                          arrays=(halves,))).faults  # fmt: skip


def test_a_half_that_nothing_wrote_is_seen_beside_one_that_was_written() -> None:
    halves = tile(F16, 64)
    result = run(kernel(put(at(halves, T * 2)), get(at(halves, T * 2), 2), arrays=(halves,)))
    assert faults(result) == [("uninitialized", "tile", 0, (1,))]


def shared_memory(*body: Any) -> list[tuple[Any, ...]]:
    wide, narrow = tile(F32, 32, name="wide"), tile(BF16, 64, name="narrow", over=("wide",))
    return faults(run(kernel(*body, arrays=(wide, narrow))))


def test_arrays_of_two_types_share_their_bytes() -> None:
    wide, narrow = tile(F32, 32, name="wide"), tile(BF16, 64, name="narrow", over=("wide",))
    sync = [Sync(i, "") for i in range(3)]
    right = put(at(wide, T)), sync[0], get(at(wide, T ^ 1)), sync[1], put(at(narrow, T * 2), width=2), sync[2]
    assert shared_memory(*right, get(at(narrow, 63 - T))) == []
    # Without the barrier a thread writes over a float that another has yet to read.
    assert shared_memory(put(at(wide, T)), sync[0], get(at(wide, T ^ 1)), put(at(narrow, T * 2))) == [
        ("race", "narrow", 0, (0,)),
    ]  # fmt: skip
    # What was left of the floats is no bfloat16, in the half of a word that nothing wrote either.
    left = shared_memory(put(at(wide, T)), sync[0], put(at(narrow, T * 2)), sync[1], get(at(narrow, T * 2 + 1)))
    assert left == [("uninitialized", "narrow", 0, (1,))]


def test_arrays_that_share_memory_lie_behind_one_another_in_bytes() -> None:
    arrays = (
        tile(F32, 3, name="first"),
        tile(F16, 6, name="second", align=4),
        tile(F32, 8, name="all", over=("first", "second")),
    )
    one = tid(1)
    fill = put(at(arrays[0], 2), 2.5), put(at(arrays[1], 0), 1.5), put(at(arrays[1], 5), 3.5)
    c = zeros(3)
    took = held(F32, name="took")
    parts = [(arrays[0], 2), (arrays[1], 0), (arrays[1], 5)]
    out = [s for n, (array, i) in enumerate(parts)
           for s in (Load(at(took), at(array, i)), Store(at(given("C", F32), one + n), at(took)))]  # fmt: skip
    assert not run(kernel(*fill, Alloc(took), *out, threads=1, arrays=arrays), c=c).faults
    assert c.tolist() == [2.5, 1.5, 3.5]


def test_copies_in_flight_are_watched_in_elements() -> None:
    halves, a = tile(BF16, 64), typed(ramp(64), BF16)
    copy = Call(async_copy.cp_async(4, BF16), (at(halves, T * 2), at(given("A", BF16), T * 2)))
    done = Call(async_copy.CP_ASYNC_COMMIT, ()), Call(async_copy.cp_async_wait(0), ())
    out = held(BF16, name="out")
    use = Alloc(out), Load(at(out), at(halves, 63 - T)), Store(at(given("C", BF16), T), at(out))
    c = typed(zeros(32), BF16)
    assert not run(kernel(copy, done, SYNC, use, arrays=(halves,)), a, c).faults
    assert c.astype(float).tolist() == [float(63 - i) for i in range(32)]
    assert [f.kind for f in run(kernel(copy, get(at(halves, T * 2 + 1)), done, arrays=(halves,)), a).faults] == [
        "async"
    ]


def test_a_box_of_16_bit_elements_lands_and_is_counted_in_bytes() -> None:
    box, ready = tile(F16, 4, 16, align=128), tile(U64, 1, name="ready", align=8)
    barrier, one = at(ready, 0), tid(1)
    out = held(F16, 8, name="out")
    body = (
        Call(async_copy.MBARRIER_INIT, (barrier, Const(1))),
        Call(async_copy.MBARRIER_FENCE, ()),
        Call(async_copy.MBARRIER_EXPECT, (barrier, Const(128))),
        Call(async_copy.tma_load(F16), (at(box, 0, 0), MapRef("mapA"), Const(16), Const(0), barrier)),
        Call(async_copy.MBARRIER_WAIT, (barrier, Const(0))),
        Alloc(out), Load(at(out, 0), at(box, Const(3), one + 8), 8), Store(at(given("C", F16), one), at(out, 0), 8),
    )  # fmt: skip
    ir = replace(kernel(*body, threads=1, arrays=(box, ready)), tensor_maps=(TensorMap("mapA", "A", (16, 4), 0, F16),))
    a, c = typed(np.arange(4 * 32), F16), typed(zeros(8), F16)
    sizes = {"M": 4, "N": 8, "K": 32, "alpha": 1.0, "beta": 0.0, "lda": 32, "ldb": 8, "ldc": 8}
    result = run_kernel(ir, (1, 1, 1), sizes, {"A": GlobalArray(a), "C": GlobalArray(c, extent=8)})
    assert not result.faults
    assert c.tolist() == list(range(3 * 32 + 24, 3 * 32 + 32))
    (boxes,) = [x for x in result.counters["accesses"] if x["space"] == "tma"]
    assert (boxes["requests"], boxes["sectors"], boxes["bytes"]) == (1, 4, 128)


@pytest.mark.parametrize("dtype", [F32, *HALVES], ids=str)
@pytest.mark.parametrize("span", [32, 64, 128])
def test_a_swizzled_row_is_permuted_by_pieces_of_16_bytes(dtype: DType, span: int) -> None:
    place = np.arange(8 * span // dtype.bytes)
    address = place * dtype.bytes
    bits = (address >> 7) & (span // 16 - 1)
    assert (swizzled(place, span, dtype) * dtype.bytes).tolist() == (address ^ (bits << 4)).tolist()
