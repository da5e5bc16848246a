"""Numeric field cases, by number: on the simulator, and on a GPU where there is one (marker gpu)."""

from __future__ import annotations

import re
from itertools import product
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from places import DeviceView, Place, place

import gemmgen
from gemmgen import ArgumentError, Spec, verify
from gemmgen.launch import Limits

__all__ = ["place"]

F32 = np.float32
VECTOR_USE = frozenset({"coalescing", "smem", "transposeA", "float4"})


def spec_of(
    block: tuple[int, int, int], thread: tuple[int, int] = (1, 1), use: str = "coalescing smem", name: str = "product"
) -> Spec:
    text = "kernel {}\ntile block {}x{}x{}\ntile thread {}x{}\n".format(name, *block, *thread)
    return gemmgen.parse(text + (f"use {', '.join(use.split())}\n" if use else ""))


VECTOR = spec_of((64, 64, 8), (8, 8), "coalescing smem transposeA float4")
SMALL = spec_of((32, 32, 8), (4, 4))


def ones(*shape: int) -> Any:
    return np.ones(shape, F32)


def counting(rows: int, columns: int, along: int) -> Any:
    """i + 1 in row i (along 0), or j + 1 in column j (along 1)."""
    return (np.indices((rows, columns))[along] + 1).astype(F32)


def shifted(values: Any, elements: int = 1) -> Any:
    """The same matrix, ``elements`` into a buffer of its own."""
    buffer = np.zeros(values.size + elements, F32)
    view = buffer[elements:].reshape(values.shape)
    view[...] = values
    return view


# --- G01: copies that do not cover the tile ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "thread", "use"),
    [
        ((64, 64, 8), (8, 8), "smem transposeA float4"),
        ((32, 128, 8), (8, 8), "smem"),
        ((64, 48, 8), (8, 8), "smem"),
        ((64, 48, 8), (8, 8), "smem transposeA float4"),
        ((48, 80, 12), (6, 5), "smem float4"),
        ((7, 9, 5), (7, 3), "smem transposeA"),
    ],
)
def test_g01_loads_cover_any_tile(place: Place, block: tuple[int, int, int], thread: tuple[int, int], use: str) -> None:
    m, n, k = block
    for toggles in (use, f"coalescing {use}"):
        C = np.full((m, n), nan, F32)
        result = place.run(spec_of(block, thread, toggles), ones(m, k), ones(k, n), C)
        assert (result == float(k)).all()


# --- G04: rows and bases that are not aligned -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(6, 6, 6), (8, 8, 6), (8, 6, 8), (64, 64, 64), (65, 66, 67)])
@pytest.mark.parametrize("view", ["", "A", "B", "C", "ABC"])
@pytest.mark.parametrize("elements", [1, 2])
def test_g04_any_alignment_is_computed(place: Place, size: tuple[int, int, int], view: str, elements: int) -> None:
    m, n, k = size
    given = {"A": counting(m, k, 0), "B": counting(k, n, 1), "C": ones(m, n)}
    given = {name: shifted(x, elements) if name in view else x for name, x in given.items()}
    result = place.run(VECTOR, given["A"], given["B"], given["C"], 1.0, 1.0)
    assert (result == 1 + k * counting(m, n, 0) * counting(m, n, 1)).all()


def test_g04_rows_of_a_wider_buffer(place: Place) -> None:
    """A view whose rows are further apart than they are long; what lies between them stays."""
    wide = np.full((64, 73), 5, F32)
    C = wide[:, 3:67]
    result = place.run(VECTOR, counting(64, 64, 0), counting(64, 64, 1), C, 1.0, 0.0)
    assert (result == 64 * counting(64, 64, 0) * counting(64, 64, 1)).all()
    assert (wide[:, :3] == 5).all() and (wide[:, 67:] == 5).all()


# --- G07: empty dimensions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "factor"), [(1.0, 1.0), (2.0, 2.0)])
@pytest.mark.parametrize("alpha", [1.0, inf, nan])
def test_g07_k_zero_is_beta_c(place: Place, beta: float, factor: float, alpha: float) -> None:
    C = np.arange(1, 10, dtype=F32).reshape(3, 3)
    before = C.copy()
    for spec in (VECTOR, SMALL, spec_of((16, 16, 1), use="")):
        result = place.run(spec, np.empty((3, 0), F32), np.empty((0, 3), F32), before.copy(), alpha, beta)
        assert (result == factor * before).all()


def test_g07_k_zero_and_beta_zero_is_zero(place: Place) -> None:
    A, B = np.empty((3, 0), F32), np.empty((0, 3), F32)
    assert (place.run(VECTOR, A, B, np.full((3, 3), nan, F32)) == 0.0).all()
    assert (place.run(VECTOR, A, B) == 0.0).all()


@pytest.mark.parametrize(("m", "n"), [(0, 3), (3, 0), (0, 0)])
def test_g07_no_rows_or_columns_is_an_empty_array(place: Place, m: int, n: int) -> None:
    C = np.empty((m, n), F32)
    assert place.run(VECTOR, ones(m, 5), ones(5, n), C).shape == (m, n)
    assert place.run(VECTOR, ones(m, 5), ones(5, n)).shape == (m, n)


def test_g07_one_by_one(place: Place) -> None:
    spec = spec_of((128, 128, 8), (8, 8))
    A, B, C = np.full((1, 1), 2, F32), np.full((1, 1), 3, F32), np.full((1, 1), 10, F32)
    assert place.run(spec, A, B, C, 1.0, 0.5)[0, 0] == 11.0


# --- G13: scalars and types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "beta", "want"),
    [
        (2.0, 3.0, 67.0),
        (2, 3, 67.0),
        (np.float64(0.5), np.float64(3), 19.0),
        (np.float32(0.5), np.float32(3), 19.0),
        (np.int64(2), np.float16(3), 67.0),
        (np.array(2.0), True, 65.0),
    ],
)
def test_g13_scalars_arrive_as_numbers(place: Place, alpha: Any, beta: Any, want: float) -> None:
    assert (place.run(SMALL, ones(32, 32), ones(32, 32), ones(32, 32), alpha, beta) == want).all()


@pytest.mark.parametrize("name", ["A", "B", "C"])
@pytest.mark.parametrize("dtype", ["float64", "int32", "float16", ">f4", "complex64"])
def test_g13_wrong_types_are_refused(place: Place, name: str, dtype: str) -> None:
    given = {"A": ones(32, 32), "B": ones(32, 32), "C": ones(32, 32)}
    given[name] = given[name].astype(dtype)
    before = given[name].copy()
    kernel = place.compile(SMALL)
    # Host arrays on either device: a library may refuse to export some of these types at all.
    with pytest.raises(ArgumentError, match=rf"{name} has element type {re.escape(dtype)}.* wants float32"):
        kernel(given["A"], given["B"], given["C"])
    assert (given[name] == before).all()


@pytest.mark.parametrize("value", ["2", None, 1j, [1.0], np.ones(2), 10**400])
def test_g13_what_is_no_real_number_is_refused(place: Place, value: Any) -> None:
    kernel = place.compile(SMALL)
    for how in ({"alpha": value}, {"beta": value}):
        with pytest.raises(ArgumentError, match=r"alpha|beta"):
            kernel(ones(4, 4), ones(4, 4), ones(4, 4), **how)


# --- G14: strides -----------------------------------------------------------------------------------------------------


def strided_inputs() -> list[tuple[str, Any, list[list[float]]]]:
    X = np.array([[1, 2], [3, 4]], F32)
    wide = np.array([[1, 9, 3, 9], [2, 9, 4, 9]], F32)
    return [
        ("transposed", X.T, [[1, 30], [2, 40]]),
        ("every second column", wide[:, ::2], [[1, 30], [2, 40]]),
        ("broadcast", np.broadcast_to(np.array([[1, 3]], F32), (2, 2)), [[1, 30], [1, 30]]),
        ("reversed rows", X[::-1], [[3, 40], [1, 20]]),
        ("reversed columns", X[:, ::-1], [[2, 10], [4, 30]]),
        ("read-only", np.frombuffer(X.tobytes(), F32).reshape(2, 2), [[1, 20], [3, 40]]),
    ]


@pytest.mark.parametrize(("what", "A", "want"), strided_inputs(), ids=[w for w, _, _ in strided_inputs()])
@pytest.mark.parametrize("order", ["C", "F"])
def test_g14_inputs_of_any_strides(place: Place, what: str, A: Any, want: list[list[float]], order: str) -> None:
    B = np.array([[1, 0], [0, 10]], F32, order=order)  # type: ignore[call-overload]
    spec = spec_of((32, 32, 8), (1, 1))
    assert (place.run(spec, A, B, ones(2, 2), 1.0, 0.0) == want).all()


def test_g14_outputs_of_other_strides_are_refused(place: Place) -> None:
    whole = ones(8, 8)
    for C in (whole.T[:4], whole[::-1], whole[:, ::2], np.broadcast_to(whole[:1], (8, 8))):
        m, n = C.shape
        before = whole.copy()
        with pytest.raises(ArgumentError, match=r"^C (has strides|is read-only)"):
            place.compile(SMALL)(place.put(ones(m, 3)), place.put(ones(3, n)), place.put(C))
        assert (whole == before).all()


# --- G16: alpha = 0, NaN and Inf --------------------------------------------------------------------------------------


def test_g16_alpha_zero_reads_neither_a_nor_b(place: Place) -> None:
    A, B = np.full((32, 32), nan, F32), np.full((32, 32), inf, F32)
    assert (place.run(SMALL, A, B, np.full((32, 32), 2, F32), 0.0, 3.0) == 6.0).all()


def test_g16_zeros_read_nothing(place: Place) -> None:
    A = np.full((32, 32), nan, F32)
    assert (place.run(SMALL, A, A.copy(), A.copy(), 0.0, 0.0) == 0.0).all()


def test_g16_infinity_times_zero_is_nan(place: Place) -> None:
    A, B = np.array([[inf, 1]], F32), np.array([[0], [5]], F32)
    assert np.isnan(place.run(SMALL, A, B)).all()


@pytest.mark.parametrize("size", [(4, 4, 4), (5, 3, 4)])
def test_g16_nan_travels_along_its_row_only(place: Place, size: tuple[int, int, int]) -> None:
    m, n, k = size
    A = ones(m, k)
    A[1, 2] = nan
    for spec in (SMALL, VECTOR, spec_of((16, 16, 1), use="")):
        result = place.run(spec, A, ones(k, n))
        assert np.isnan(result[1]).all()
        assert (np.delete(result, 1, axis=0) == float(k)).all()


# --- G24: awkward shapes ----------------------------------------------------------------------------------------------

SHAPES = [(4, 8, 64), (3, 3, 431), (35, 79, 19), (33, 32, 32), (100, 100, 100), (256, 128, 256), (1, 1000, 7),
          (1000, 1, 7), (257, 1, 1)]  # fmt: skip
TOGGLES = [
    *("coalescing"[: 10 * on] for on in (0, 1)),
    *(
        " ".join(
            ["smem", *(t for t, on in zip(("coalescing", "transposeA", "float4", "warptile"), ons, strict=True) if on)]
        )
        for ons in product((0, 1), repeat=4)
    ),
]


@pytest.mark.parametrize("use", TOGGLES, ids=[u.replace(" ", "+") or "none" for u in TOGGLES])
@pytest.mark.parametrize("block", [(32, 32, 8), (128, 128, 8)], ids=["32x32x8", "128x128x8"])
def test_g24_every_toggle_set_computes_awkward_shapes(place: Place, use: str, block: tuple[int, int, int]) -> None:
    thread = (4, 4) if block[0] == 32 else (8, 8)
    spec = spec_of(block, thread, use.replace("warptile", ""))
    if "warptile" in use:
        warp = (32, 16) if block[0] == 32 else (64, 32)
        spec = spec.replace(warp=warp, use=spec.use | {"warptile"})
    kernel = place.compile(spec)
    for m, n, k in SHAPES:
        C = place.put(np.full((m, n), nan, F32))
        A, B = place.put(ones(m, k)), place.put(counting(k, n, 1))
        for _ in range(2 if m * n * k < 20000 else 1):
            assert (place.get(kernel(A, B, C)) == k * counting(m, n, 1)).all(), (m, n, k)


def test_g24_no_thread_returns_before_a_barrier() -> None:
    for use in TOGGLES:
        if "warptile" not in use:
            for variant in ("exact", "guarded", "guarded_unaligned"):
                assert not re.search(r"\breturn;", gemmgen.emit(spec_of((32, 32, 8), (4, 4), use), variant=variant))


# --- G26: exact values that TF32, or swapped leading dimensions, would spoil -----------------------------------------


def test_g26_float32_is_not_tf32(place: Place) -> None:
    A = np.full((16, 16), 1 + 2.0**-12, F32)
    assert (place.run(SMALL, A, np.eye(16, dtype=F32)) == 1.000244140625).all()


@pytest.mark.parametrize(("m", "n", "k"), [(256, 128, 64), (64, 256, 128)])
def test_g26_leading_dimensions_of_no_square(place: Place, m: int, n: int, k: int) -> None:
    result = place.run(VECTOR, counting(m, k, 0), counting(k, n, 1), ones(m, n), 1.0, 2.0)
    assert (result == k * counting(m, n, 0) * counting(m, n, 1) + 2).all()


# --- G28: large sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["exact", "guarded", "guarded_unaligned"])
@pytest.mark.parametrize("use", ["", "coalescing", "smem", "coalescing smem transposeA float4"])
def test_g28_offsets_of_rows_are_64_bit(variant: str, use: str) -> None:
    """Leading dimensions are 64-bit in the text, so every product with one is, whatever it starts from."""
    text = gemmgen.emit(spec_of((32, 32, 8), (4, 4), use), variant=variant)
    for name in ("lda", "ldb", "ldc"):
        assert re.search(rf"\bsize_t {name}\b", text)
        assert not re.search(rf"\b(int|unsigned)( int)? {name}\b|\(int\) ?{name}", text)


def test_g28_rows_past_2_31_elements(place: Place) -> None:
    """The offsets of views, with little memory touched: four rows that lie 2^29 elements apart."""
    if place.device == "sim":
        ir = gemmgen.lower(spec_of((4, 4, 4), use="smem"))
        from gemmgen.launch import plan

        step = plan(
            ir.program, {"A": (8, 4), "B": (4, 4), "C": (8, 4)}, {"A": (1 << 29, 1), "B": (4, 1), "C": (1 << 29, 1)},
            {"A": 0, "B": 1 << 40, "C": 1 << 50}, limits=Limits(grid_y=1),
        ).steps[1]  # fmt: skip
        assert (step.arguments.A, step.arguments.C) == (4 << 29, 4 << 29)
        return
    kernel, m, n = place.compile(spec_of((16, 16, 8))), 65537, 32768
    from gemmgen.runtime.memory import DeviceArray

    A = (np.arange(m) % 7 + 1).astype(F32).reshape(m, 1)
    B = (np.arange(n) % 5 + 1).astype(F32).reshape(1, n)
    C = DeviceArray.empty((m, n), "float32", 0)
    kernel(place.put(A), place.put(B), C)
    last = last_row(C)
    assert place.get(last)[0, 32767] == 9.0 and place.get(last)[0, 0] == float(65536 % 7 + 1)


def last_row(C: Any) -> DeviceView:
    """The last row of a packed matrix on the device."""
    rows, columns = C.shape
    whole = C.__cuda_array_interface__
    return DeviceView(C, {**whole, "shape": (1, columns), "data": (whole["data"][0] + (rows - 1) * columns * 4, False)})


def test_g28_more_row_blocks_than_a_grid_has(place: Place) -> None:
    m = 1_048_561
    result = place.run(spec_of((16, 16, 8)), ones(m, 8), ones(8, 16), np.full((m, 16), nan, F32))
    assert (result == 8.0).all()


@pytest.mark.parametrize("order", ["row", "col"])
def test_g28_panels_meet_without_a_seam(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """Every row and column its own value, in panels of 4 x 2 blocks."""
    from gemmgen import launch

    monkeypatch.setattr(launch.plan, "__kwdefaults__", {**launch.plan.__kwdefaults__, "limits": Limits(5, 40)})
    spec = gemmgen.parse(
        f"kernel seams\ntile block 16x16x8\nuse smem\noperands A f32 {order}, B f32 {order}, C f32 {order}\n"
    )
    m, n = 150, 70
    C = np.full((m, n), nan, F32, order="C" if order == "row" else "F")
    result = gemmgen.compile(spec, device="sim")(counting(m, 8, 0), counting(8, n, 1), C)
    assert result is C and (result == 8 * counting(m, n, 0) * counting(m, n, 1)).all()


# --- S2: denormals ----------------------------------------------------------------------------------------------------


def test_s2_denormals_are_kept(place: Place) -> None:
    result = place.run(SMALL, np.full((1, 1), 1e-40, F32), ones(1, 1))
    assert result.view(np.uint32)[0, 0] == 0x000116C2


def test_s2_rounding_of_products_is_within_the_bound(place: Place) -> None:
    A = np.array([[1, 1 + 2.0**-12]], F32)
    B = np.array([[-(1 + 2.0**-11)], [1 + 2.0**-12]], F32)
    result = place.run(SMALL, A, B)
    assert result[0, 0] in (0.0, 2.0**-24)
    assert verify(result, A, B).ok


# --- S3: compiled kernels are told apart ------------------------------------------------------------------------------


def test_s3_kernels_of_one_name_are_told_apart(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(tmp_path))
    first, second = spec_of((32, 32, 8), (4, 4)), spec_of((64, 64, 8), (8, 8))
    cubins = [gemmgen.compile(s, device="sim", arch=a).cubin for s in (first, second) for a in ("sm_80", "sm_90")]
    assert len(set(cubins)) == 4
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    again = gemmgen.compile(first, device="sim", arch="sm_80").cubin
    assert again == cubins[0] and sorted(tmp_path.iterdir()) == files
