"""The launch plan: which variant, grid, arguments and copies, and what is refused. Pure: no arrays, no kernels."""

from __future__ import annotations

from itertools import product
from math import inf, nan

import numpy as np
import pytest

import gemmgen
from gemmgen.diagnostics import ArgumentError
from gemmgen.launch import (
    EXACT,
    GUARDED,
    GUARDED_UNALIGNED,
    LARGEST,
    LaunchPlan,
    Limits,
    Variant,
    as_float32,
    plan,
)
from gemmgen.launch.overlap import Rows
from gemmgen.spec.ladder import ladder_path
from gemmgen.spec.model import Operand, Spec

VECTOR = Spec(
    name="vectorized", block=(64, 64, 8), thread=(8, 8), use=frozenset({"coalescing", "smem", "transposeA", "float4"})
)
SCALAR = Spec(name="tiled", block=(32, 32, 8), thread=(4, 4), use=frozenset({"coalescing", "smem"}))
NAIVE = Spec(name="naive", block=(32, 32, 1))
BASE = {"A": 1 << 20, "B": 1 << 45, "C": 1 << 50}


def planned(spec: Spec, m: int, n: int, k: int, *, alpha: float = 1.0, beta: float = 0.0, **how: object) -> LaunchPlan:
    """A plan of packed operands at aligned addresses, except where ``how`` says otherwise (a=, b=, c= strides)."""
    shapes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    strides = {name: (max(shape[1], 1), 1) for name, shape in shapes.items()}
    addresses = dict(BASE)
    for name in "ABC":
        strides[name] = how.pop(name.lower(), strides[name])  # type: ignore[assignment]
        addresses[name] += how.pop(f"{name.lower()}_at", 0)  # type: ignore[operator]
    return plan(spec, shapes, strides, addresses, alpha, beta, **how)  # type: ignore[arg-type]


def variant_of(result: LaunchPlan) -> Variant:
    (chosen,) = {step.variant for step in result.steps}
    return chosen


def test_whole_tiles_take_the_exact_kernel() -> None:
    result = planned(VECTOR, 128, 192, 24, alpha=2.0, beta=3.0)
    (step,) = result.steps
    assert step.variant == EXACT
    assert step.grid == (3, 2, 1)
    given = step.arguments
    assert (given.M, given.N, given.K, given.alpha, given.beta) == (128, 192, 24, 2.0, 3.0)
    assert (given.A, given.lda, given.B, given.ldb, given.C, given.ldc) == (0, 24, 0, 192, 0, 192)
    assert result.copies == () and result.workspace == 0


@pytest.mark.parametrize("size", [(127, 64, 8), (64, 68, 8), (64, 64, 12), (1, 64, 8)])
def test_ragged_sizes_with_aligned_rows_are_guarded(size: tuple[int, int, int]) -> None:
    assert variant_of(planned(VECTOR, *size)) == GUARDED


def test_without_shared_memory_any_k_is_exact() -> None:
    assert variant_of(planned(NAIVE, 32, 64, 7)) == EXACT
    assert variant_of(planned(SCALAR, 32, 64, 7)) == GUARDED


def test_alignment_is_chosen_operand_by_operand() -> None:
    assert dict(variant_of(planned(VECTOR, 64, 64, 6)).align) == {"A": 8, "B": 16, "C": 16}
    assert dict(variant_of(planned(VECTOR, 64, 63, 8)).align) == {"A": 16, "B": 4, "C": 4}
    assert dict(variant_of(planned(VECTOR, 64, 64, 8, a_at=4)).align) == {"A": 4, "B": 16, "C": 16}
    assert dict(variant_of(planned(VECTOR, 64, 64, 8, b_at=8)).align) == {"A": 16, "B": 8, "C": 16}
    assert dict(variant_of(planned(VECTOR, 64, 64, 8, c=(66, 1))).align) == {"A": 16, "B": 16, "C": 8}
    assert variant_of(planned(VECTOR, 63, 63, 7)) == GUARDED_UNALIGNED


def test_alignment_that_no_access_needs_makes_no_other_kernel() -> None:
    """A kernel of 4-byte accesses is the same whatever the alignment: nothing more is compiled."""
    assert variant_of(planned(SCALAR, 32, 32, 8, a_at=4, b_at=8, c=(33, 1))) == EXACT
    assert variant_of(planned(SCALAR, 31, 33, 7)) == GUARDED


ASYNC = VECTOR.replace(name="asynchronous", use=VECTOR.use | {"cpasync"}, stages=2)
ENGINE = Spec(
    name="engine", block=(64, 64, 32), warp=(32, 64), thread=(1, 4), m_iter=8, n_iter=2, stages=2,
    use=frozenset({"coalescing", "smem", "float4", "warptile", "tma", "alongK", "smemSwizzle"}),
)  # fmt: skip


@pytest.mark.parametrize(("spec", "letters"), [(ASYNC, "bc"), (ENGINE, "abc")])
def test_g04_alignment_counts_for_copies_that_the_hardware_makes(spec: Spec, letters: str) -> None:
    """A cp.async of 16 bytes, and a box that the TMA engine fetches, are accesses as a float4 is."""
    size = (128, 128, 64)
    assert variant_of(planned(spec, *size)) == EXACT
    for letter in letters:
        found = variant_of(planned(spec, *size, **{f"{letter}_at": 4}))
        assert found.label == "guarded_unaligned" and found.bytes(letter.upper()) == 4


def test_one_row_needs_no_leading_dimension() -> None:
    """The stride of a dimension of size 1 says nothing, so it neither costs a copy nor an alignment."""
    result = planned(VECTOR, 1, 64, 8, a=(5, 1), c=(-3, 1))
    assert variant_of(result) == GUARDED and result.copies == ()
    column = planned(SCALAR, 32, 1, 8, b=(1, 77), c=(1, 9))
    assert column.copies == () and column.steps[0].arguments.ldb == 1


@pytest.mark.parametrize(
    ("name", "strides"), [("a", (1, 64)), ("a", (-8, 1)), ("a", (0, 1)), ("a", (16, 2)), ("b", (1, 8)), ("b", (63, 1))]
)
def test_g14_inputs_with_other_strides_are_copied(name: str, strides: tuple[int, int]) -> None:
    result = planned(VECTOR, 64, 64, 8, **{name: strides})
    (copy,) = result.copies
    assert copy.operand == name.upper()
    assert copy.leading == {"a": 8, "b": 64}[name]
    assert result.workspace == copy.bytes == 64 * 8 * 4
    assert variant_of(result) == EXACT


@pytest.mark.parametrize("strides", [(1, 64), (-64, 1), (0, 1), (128, 2), (63, 1)])
def test_g14_outputs_with_other_strides_are_refused(strides: tuple[int, int]) -> None:
    with pytest.raises(ArgumentError, match=rf"C has strides \({strides[0]}, {strides[1]}\)"):
        planned(VECTOR, 64, 64, 8, c=strides)


def test_addresses_off_an_element_are_copied_or_refused() -> None:
    assert [c.operand for c in planned(SCALAR, 32, 32, 8, b_at=2).copies] == ["B"]
    with pytest.raises(ArgumentError, match="C has strides"):
        planned(SCALAR, 32, 32, 8, c_at=1)


@pytest.mark.parametrize(("order", "whole"), [("row", "a contiguous array"), ("col", "one stored by columns")])
def test_what_to_pass_in_place_of_a_refused_output(order: str, whole: str) -> None:
    wrong = (1, 64) if order == "row" else (64, 1)
    with pytest.raises(ArgumentError, match=f"; pass C=None or {whole}$"):
        planned(VECTOR.replace(C=Operand(order=order)), 64, 64, 8, c=wrong)


def test_column_order_swaps_the_roles_of_the_strides() -> None:
    spec = Spec(
        name="columns", block=(32, 32, 8), thread=(4, 4), use=SCALAR.use, A=Operand(order="col"), C=Operand(order="col")
    )
    result = planned(spec, 32, 64, 8, a=(1, 40), c=(1, 32))
    given = result.steps[0].arguments
    assert (given.lda, given.ldb, given.ldc) == (40, 64, 32)
    assert result.copies == ()
    assert [c.operand for c in planned(spec, 32, 64, 8, a=(8, 1), c=(1, 32)).copies] == ["A"]
    with pytest.raises(ArgumentError, match="stride 1 along its columns"):
        planned(spec, 32, 64, 8, a=(1, 32), c=(64, 1))


@pytest.mark.parametrize("alpha", [0.0, -0.0, 1e-60])
def test_g16_alpha_zero_reads_neither_input(alpha: float) -> None:
    """What underflows to 0 in float32 is 0 for the kernel. Strides of inputs that are not read cost no copy."""
    result = planned(VECTOR, 64, 64, 8, alpha=alpha, beta=3.0, a=(1, 999))
    given = result.steps[0].arguments
    assert (given.K, given.alpha, given.beta) == (0, 0.0, 3.0)
    assert result.copies == ()


@pytest.mark.parametrize("alpha", [1.0, inf, nan])
def test_g07_empty_sum_has_no_alpha(alpha: float) -> None:
    given = planned(VECTOR, 64, 64, 0, alpha=alpha, beta=0.5).steps[0].arguments
    assert (given.K, given.alpha, given.beta) == (0, 0.0, 0.5)


@pytest.mark.parametrize("size", [(0, 3, 5), (3, 0, 5), (0, 0, 0)])
def test_g07_empty_outputs_launch_nothing(size: tuple[int, int, int]) -> None:
    assert planned(VECTOR, *size).steps == ()


def test_g28_rows_past_the_grid_limit_become_panels() -> None:
    spec = Spec(name="small", block=(16, 16, 8), thread=(1, 1), use=frozenset({"smem"}))
    m = 1_048_561
    result = planned(spec, m, 16, 8)
    covered = 0
    for step in result.steps:
        assert step.grid[1] <= 65535
        assert step.grid == (1, -(-step.arguments.M // 16), 1)
        assert covered * 8 == step.arguments.A
        assert covered * 16 == step.arguments.C
        covered += step.arguments.M
    assert covered == m and len(result.steps) == 2


def test_g28_offsets_are_python_integers_of_any_size() -> None:
    result = planned(Spec(name="tiny", block=(4, 4, 4), use=frozenset({"smem"})), 1 << 20, 1 << 14, 1, c=(1 << 14, 1))
    assert max(step.arguments.C for step in result.steps) == (65532 * 4 * 3 + 65532 * 4) * (1 << 14) > 1 << 31


def test_panels_keep_alignment_and_columns() -> None:
    limits = Limits(grid_y=5, span=24)
    for order in ("row", "col"):
        spec = Spec(name="odd", block=(3, 1, 1), C=Operand(order=order))
        strides = {"c": (50, 1) if order == "row" else (1, 64)}
        steps = planned(spec, 50, 49, 2, limits=limits, **strides).steps
        cells = [(i, j) for s in steps for i in range(s.arguments.M) for j in [s.arguments.C]]
        assert len(cells) == 50 * len({s.arguments.B for s in steps})
        starts = {(s.arguments.A // 2, s.arguments.B): (s.arguments.M, s.arguments.N) for s in steps}
        covered = {(i + x, j + y) for (i, j), (h, w) in starts.items() for x in range(h) for y in range(w)}
        assert covered == set(product(range(50), range(49)))
        for s in steps:
            row, column = s.arguments.A // 2, s.arguments.B
            assert (row * 50 + column if order == "row" else column * 64 + row) == s.arguments.C
            assert row % 4 == 0 and column % 4 == 0


@pytest.mark.parametrize("size", [(LARGEST + 1, 1, 1), (1, LARGEST + 1, 1), (1, 1, LARGEST + 1), (1, 1, LARGEST)])
def test_g28_sizes_past_an_int_are_refused(size: tuple[int, int, int]) -> None:
    with pytest.raises(ArgumentError, match=r"214748364\d"):
        planned(VECTOR, *size)


def test_shapes_that_do_not_fit_are_refused_with_their_numbers() -> None:
    shapes = {"A": (3, 4), "B": (5, 6), "C": (3, 6)}
    strides = {"A": (4, 1), "B": (6, 1), "C": (6, 1)}
    with pytest.raises(ArgumentError, match=r"A is 3x4 and B is 5x6"):
        plan(SCALAR, shapes, strides, BASE)
    with pytest.raises(ArgumentError, match=r"C is 3x7; A @ B is 3x6"):
        plan(SCALAR, {"A": (3, 4), "B": (4, 6), "C": (3, 7)}, strides, BASE)


def test_read_only_output_is_refused() -> None:
    with pytest.raises(ArgumentError, match="C is read-only"):
        planned(SCALAR, 32, 32, 8, writable=False)


def test_overlap_of_output_and_input_is_refused() -> None:
    with pytest.raises(ArgumentError, match="C overlaps A"):
        planned(SCALAR, 32, 32, 32, a_at=BASE["C"] - BASE["A"])
    with pytest.raises(ArgumentError, match="C overlaps B"):
        planned(SCALAR, 32, 32, 32, b_at=BASE["C"] - BASE["B"] + 4 * 1023)
    # The left and the right half of the same rows do not overlap.
    side = planned(SCALAR, 32, 32, 32, a=(64, 1), c=(64, 1), a_at=BASE["C"] - BASE["A"], c_at=128)
    assert variant_of(side) == EXACT


def test_overlap_agrees_with_sets_of_elements() -> None:
    """Against every element of small matrices, all ways of lying."""
    views = [
        ((r, c), (ld, 1), 4 * at) for r in (1, 2, 3) for c in (1, 2, 3) for ld in (c, c + 2) for at in (0, 3, 5, 9)
    ]
    seen = set()
    for x, y in product(views, views):
        cells = [{a // 4 + i * st[0] + j * st[1] for i in range(s[0]) for j in range(s[1])} for s, st, a in (x, y)]
        meets = bool(cells[0] & cells[1])
        assert Rows.of(*x, 4).overlaps(Rows.of(*y, 4)) == meets, (x, y)
        seen.add(meets)
    assert seen == {True, False}


def test_overlap_of_reversed_rows() -> None:
    """A negative stride reaches below its address."""
    assert Rows.of((4, 4), (-4, 1), 48 + 64, 4).overlaps(Rows.of((1, 4), (4, 1), 64, 4))
    assert not Rows.of((4, 4), (-4, 1), 48 + 64, 4).overlaps(Rows.of((1, 4), (4, 1), 128, 4))


@pytest.mark.parametrize(("variant", "size", "how", "message"), [
    (EXACT, (65, 64, 8), {}, "M = 65 is not a multiple of the tile's 64"),
    (EXACT, (64, 64, 9), {}, "K = 9 is not a multiple of the tile's 8"),
    (EXACT, (64, 64, 8), {"a_at": 4}, "A is aligned to 4 bytes"),
    (GUARDED, (64, 62, 8), {}, "B is aligned to 8 bytes"),
])  # fmt: skip
def test_a_given_variant_refuses_what_it_cannot_do(
    variant: Variant, size: tuple[int, int, int], how: dict[str, int], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        planned(VECTOR, *size, variant=variant, **how)


def test_a_given_variant_is_kept() -> None:
    assert variant_of(planned(VECTOR, 64, 64, 8, variant=GUARDED_UNALIGNED)) == GUARDED_UNALIGNED


def test_scalars_are_what_a_float_parameter_receives() -> None:
    assert as_float32(0.1) == 0.10000000149011612
    assert as_float32(1e300) == inf and as_float32(-1e300) == -inf
    assert as_float32(1e-300) == 0.0
    assert planned(SCALAR, 32, 32, 8, alpha=0.1).steps[0].arguments.alpha == as_float32(0.1)


# --- Copies for alignment -----------------------------------------------------------------------------------------


def test_operands_with_unaligned_rows_are_copied_where_many_blocks_fetch_them() -> None:
    spec = gemmgen.load(ladder_path("warptile"))
    m, n, k = 641, 643, 657
    made = plan(
        spec,
        {"A": (m, k), "B": (k, n), "C": (m, n)},
        {"A": (k, 1), "B": (n, 1), "C": (n, 1)},
        {"A": 1 << 20, "B": 1 << 24, "C": 1 << 28},
    )
    assert [(c.operand, c.leading) for c in made.copies] == [("A", 660), ("B", 644)]
    variant = made.steps[0].variant
    assert variant.padded == {"A", "B"} and (variant.bytes("A"), variant.bytes("B"), variant.bytes("C")) == (16, 16, 4)


@pytest.mark.parametrize("size", [(641, 643, 41), (129, 131, 657)])
def test_small_products_and_few_fetches_are_not_worth_a_copy(size: tuple[int, int, int]) -> None:
    m, n, k = size
    made = plan(
        gemmgen.load(ladder_path("warptile")),
        {"A": (m, k), "B": (k, n), "C": (m, n)},
        {"A": (k, 1), "B": (n, 1), "C": (n, 1)},
        {"A": 1 << 20, "B": 1 << 24, "C": 1 << 28},
    )
    assert made.copies == ()


@pytest.mark.parametrize("name", ["vectorized", "warptile"])
def test_copied_operands_give_the_same_product(name: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((641, 657), dtype=np.float32)
    b = rng.standard_normal((657, 643), dtype=np.float32)
    c = rng.standard_normal((641, 643), dtype=np.float32)
    done = gemmgen.simulate(gemmgen.load(ladder_path(name)), a, b, c, 2.0, 0.5)
    assert done.faults == ()
    assert gemmgen.verify(done.C, a, b, c, 2.0, 0.5).ok
