"""What Python callers pass and keep: cases 18 to 24, by their numbers."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import pickle
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmgen
from gemmgen.diagnostics import ArgumentError, GemmgenError, SpecError
from gemmgen.launch.overlap import Rows, reaches

TEXT = "kernel mine\ntile block 16x16x8\ntile thread 4x4\nuse coalescing, smem\n"
SPEC = gemmgen.parse(TEXT)
RNG = np.random.default_rng(5)


def matrix(rows: int, columns: int) -> Any:
    return RNG.standard_normal((rows, columns)).astype(np.float32)


class OnlyDLPack:
    """A host array that offers nothing but DLPack."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __dlpack__(self, **given: Any) -> Any:
        return self.values.__dlpack__(**given)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


# --- F18: verify ---------------------------------------------------------------------------------------------------

A, B = matrix(8, 8), matrix(8, 8)
C = A @ B


@pytest.mark.parametrize("kind", ["i4", "u1", "?", "O", "c8", "c16", "U4", "S4", "M8[s]"])
def test_F18_verify_refuses_what_is_not_real_floating_point(kind: str) -> None:
    odd = np.ones((8, 8)).astype(kind) if kind != "M8[s]" else np.zeros((8, 8), kind)
    for given in ({"A": odd}, {"B": odd}, {"C0": odd, "beta": 1.0}, {"C": odd, "A": odd, "B": odd}):
        with pytest.raises(ArgumentError, match=r"has element type .*; real floating-point numbers are wanted"):
            gemmgen.verify(**{"C": C, "A": A, "B": B, **given})
    assert not gemmgen.verify(odd, A, B).ok


def test_F18_verify_takes_any_byte_order() -> None:
    for names in itertools.product((False, True), repeat=4):
        c, a, b, c0 = (x.astype(">f4") if other else x for x, other in zip((C + C, A, B, C), names, strict=True))
        assert gemmgen.verify(c, a, b, c0, 1.0, 1.0).ok, names
        assert not gemmgen.verify(c + 1, a, b, c0, 1.0, 1.0).ok, names
        assert gemmgen.verify(c, a, b, c0, 1.0, 1.0, spec=SPEC).ok, names


# --- F19: DLPack ---------------------------------------------------------------------------------------------------


def test_F19_matmul_takes_host_objects_by_dlpack_as_kernels_do() -> None:
    kernel = gemmgen.compile(SPEC, device="sim")
    want = kernel(OnlyDLPack(A), OnlyDLPack(B))
    assert gemmgen.verify(want, A, B).ok
    got = gemmgen.matmul(OnlyDLPack(A), OnlyDLPack(B))
    assert gemmgen.verify(got, A, B).ok
    assert gemmgen.verify(gemmgen.matmul(OnlyDLPack(A), B), A, B).ok
    assert gemmgen.verify(gemmgen.matmul(OnlyDLPack(A.T), OnlyDLPack(B[:, ::2])), A.T, B[:, ::2]).ok
    out = np.zeros((8, 8), np.float32)
    given = OnlyDLPack(out)
    try:
        assert gemmgen.matmul(A, B, given) is given and gemmgen.verify(out, A, B).ok
    except ArgumentError as error:  # NumPy before 2.1 reads DLPack without the right to write
        assert "C is read-only" in str(error)


def test_F19_an_object_whose_dlpack_fails_is_named() -> None:
    class Broken:
        def __dlpack__(self, **given: Any) -> Any:
            raise KeyError("nothing here")

        def __dlpack_device__(self) -> Any:
            return None

    for call in (gemmgen.matmul, gemmgen.compile(SPEC, device="sim")):
        with pytest.raises(ArgumentError, match=r"^B of type Broken"):
            call(A, Broken())


# --- F20: overlap --------------------------------------------------------------------------------------------------


def test_F20_views_that_share_no_element_are_accepted() -> None:
    X = np.zeros((8, 25), np.float32)
    X[:, ::3] = matrix(8, 9)
    a, c = X[:, ::3], X[:, 4:5]
    before = a.copy()
    b = matrix(9, 1)
    kernel = gemmgen.compile(SPEC, device="sim")
    assert kernel(a, b, c) is c and gemmgen.verify(c, before, b).ok and (a == before).all()
    assert gemmgen.matmul(a, b, X[:, 5:6]).shape == (8, 1)
    with pytest.raises(ArgumentError, match="C overlaps A"):
        kernel(a, b, X[:, 6:7])
    Y = np.zeros((16, 8), np.float32)
    kernel(Y[::2], matrix(8, 8), Y[1::2])
    kernel(Y[::-2], matrix(8, 8), Y[::2])
    with pytest.raises(ArgumentError, match="C overlaps A"):
        kernel(Y[::2], matrix(8, 8), Y[:8])


def test_F20_the_test_of_overlap_agrees_with_sets_of_bytes() -> None:
    draw, seen = random.Random(20), set()

    def view() -> tuple[tuple[int, int], tuple[int, int], int]:
        shape, strides = (draw.randint(0, 5), draw.randint(0, 5)), (draw.randint(-9, 9), draw.randint(-9, 9))
        return shape, strides, draw.randint(0, 160)

    def cells(shape: tuple[int, int], strides: tuple[int, int], at: int) -> set[int]:
        (m, n), (s, t) = shape, strides
        return {at + 4 * (i * s + j * t) + byte for i in range(m) for j in range(n) for byte in range(4)}

    for _ in range(3000):
        x, y = view(), view()
        meet = bool(cells(*x) & cells(*y))
        assert Rows.of(*x, 4).overlaps(Rows.of(*y, 4)) == meet, (x, y)
        seen.add(meet)
    assert seen == {True, False}


def test_F20_sums_of_steps_agree_with_all_of_them() -> None:
    draw = random.Random(7)
    for _ in range(3000):
        dims = [(draw.randint(1, 7), draw.randint(1, 40)) for _ in range(draw.randint(0, 4))]
        low = draw.randint(-20, 150)
        high = low + draw.choice([0, 1, 3, 6, 10])
        sums = (
            sum(x * step for x, (_, step) in zip(at, dims, strict=True))
            for at in itertools.product(*(range(count) for count, _ in dims))
        )
        assert reaches(dims, low, high) == any(low <= s <= high for s in sums), (dims, low, high)


def test_F20_large_views_take_no_walk_over_their_elements() -> None:
    a = Rows.of((1 << 20, 1 << 20), (3 * (1 << 21) + 7, 3), 0, 4)
    assert not a.overlaps(Rows.of((1 << 20, 1), (3 * (1 << 21) + 7, 1), 16, 4))
    assert a.overlaps(Rows.of((1 << 20, 1), (3 * (1 << 21) + 7, 1), 24, 4))


# --- F21: simulate -------------------------------------------------------------------------------------------------


def test_F21_simulate_takes_a_read_only_C() -> None:
    fixed = C.copy()
    fixed.flags.writeable = False
    for what in (SPEC, gemmgen.lower(SPEC, "guarded")):
        found = gemmgen.simulate(what, A, B, fixed, 1.0, 2.0)
        assert gemmgen.verify(found.C, A, B, C, 1.0, 2.0).ok and not found.faults
        assert found.C.flags.writeable and (fixed == C).all()
    frozen = np.frombuffer(C.tobytes(), np.float32).reshape(8, 8)
    assert gemmgen.verify(gemmgen.simulate(SPEC, A, B, frozen).C, A, B).ok
    with pytest.raises(ArgumentError, match="C is read-only"):
        gemmgen.compile(SPEC, device="sim")(A, B, fixed)


# --- F22: every public function says what is wrong with an argument ---------------------------------------------------


def some(values: Any) -> Callable[..., Any]:
    return lambda *given, **named: list(values(*given, **named))


def _entered(budget_s: float) -> None:
    with gemmgen.autotune(budget_s):
        pass


ELSEWHERE = {"epilogue", "export"}
"""Functions that change what there is, or write files: their own tests have their wrong arguments."""
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "compile": (gemmgen.compile, {"spec": SPEC, "device": "sim", "arch": "sm_90"}),
    "emit": (gemmgen.emit, {"spec": SPEC, "arch": "sm_90", "variant": "exact"}),
    "explain": (
        gemmgen.explain,
        {"spec": SPEC, "m": 64, "n": 64, "k": 64, "gpu": "h200", "beta": 0.0, "compiled": False},
    ),
    "load": (gemmgen.load, {"path": "naive"}),
    "lower": (gemmgen.lower, {"spec": SPEC, "variant": "exact"}),
    "matmul": (
        gemmgen.matmul,
        {"A": A, "B": B, "C": C.copy(), "alpha": 1.0, "beta": 0.0, "stream": None, "unordered": False,
         "out_dtype": None, "precision": "exact", "bias": None, "residual": None, "activation": None},
    ),
    "autotune": (_entered, {"budget_s": 1.0}),
    "choose": (
        gemmgen.choose,
        {"m": 64, "n": 64, "k": 64, "dtype": "f32", "layout": "nn", "batch": 1, "align": None, "gpu": "h200"},
    ),
    "occupancy": (gemmgen.occupancy, {"gpu": "h200", "threads": 128, "registers": 32, "shared_bytes": 0}),
    "parse": (gemmgen.parse, {"text": TEXT, "filename": "mine.gemm"}),
    "shared_wavefronts": (gemmgen.shared_wavefronts, {"words": [0, 4], "width": 1, "store": False}),
    "simulate": (
        gemmgen.simulate,
        {"spec_or_ir": SPEC, "A": A, "B": B, "C": C.copy(), "alpha": 1.0, "beta": 0.0, "gpu": "h200"},
    ),
    "tune": (
        gemmgen.tune,
        {
            "spec_or_specs": [SPEC], "m": 64, "n": 64, "k": 64, "choices": None, "search": "guided", "timings": 5,
            "seed": 0, "warm": False, "device": "sim", "gpu": "h200", "records": False, "jobs": 1, "backend": None,
            "options": None, "progress": None, "unordered": False,
        },
    ),
    "variants": (some(gemmgen.variants), {"spec": SPEC, "stages": [1, 2]}),
    "verify": (
        gemmgen.verify,
        {"C": C, "A": A, "B": B, "C0": C, "alpha": 1.0, "beta": 0.0, "spec": SPEC},
    ),
    "Kernel.__call__": (
        gemmgen.compile(SPEC, device="sim"), {"A": A, "B": B, "C": C.copy(), "alpha": 1.0, "beta": 0.0, "stream": None},
    ),
}  # fmt: skip


class Odd:
    """Nothing that anyone asks for."""


BAD: tuple[Any, ...] = (
    None, True, 3, -1, 0, 128.0, 1.5, math.nan, math.inf, 10**400, 1j, Fraction(1, 2), "128", "", "\x1b[2J", "\ud800",
    b"x",
    [], [None], ["a"], (1, 2), {}, {1: 2}, {"a"}, Odd(), Odd, np.float32(1), np.int64(4), np.zeros(3), np.zeros((2, 2)),
    np.array("a"), np.array([object()]), range(3), iter([1]), ..., lambda: None, Path("none"), memoryview(b"abcd"),
)  # fmt: skip


def _places() -> Iterator[tuple[str, str]]:
    return ((name, argument) for name, (_, given) in CALLS.items() for argument in given)


@pytest.mark.parametrize(("name", "argument"), _places())
def test_F22_a_wrong_argument_is_refused_by_gemmgens_own_error(name: str, argument: str) -> None:
    call, given = CALLS[name]
    for bad in BAD:
        if argument == "backend" and bad is not None:
            continue
        try:
            call(**{**given, argument: bad})
        except GemmgenError as error:
            assert str(error)
        except Exception as error:
            pytest.fail(f"{name}({argument}={bad!r}): {type(error).__name__}: {error}")


def test_F22_every_public_function_is_called_here() -> None:
    public = {name for name in gemmgen.__all__ if inspect.isfunction(getattr(gemmgen, name))}
    assert public - ELSEWHERE == set(CALLS) - {"Kernel.__call__"}
    for name in public - ELSEWHERE:
        wanted = set(inspect.signature(getattr(gemmgen, name)).parameters) - {"choices", "named", "counted"}
        assert wanted - set(CALLS[name][1]) == set(), name


WHOLE = [
    ("occupancy", "threads"), ("occupancy", "registers"), ("occupancy", "shared_bytes"), ("explain", "m"),
    ("explain", "k"), ("tune", "m"), ("tune", "n"), ("tune", "timings"), ("tune", "seed"), ("tune", "jobs"),
    ("shared_wavefronts", "width"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "argument"), WHOLE)
def test_F22_a_whole_number_is_no_text_float_or_bool(name: str, argument: str) -> None:
    call, given = CALLS[name]
    for bad in (
        "128",
        128.0,
        4.0,
        1.5,
        True,
        -1,
        math.nan,
        [1],
        b"4",
        np.float32(4),
        *([None] if argument != "jobs" else []),
    ):
        with pytest.raises(ArgumentError, match=rf"^{argument} is .*; it must be a whole number"):
            call(**{**given, argument: bad})
    call(**{**given, argument: np.int64(4)})


@pytest.mark.parametrize("name", ["occupancy", "explain", "simulate", "tune"])
def test_F22_a_gpu_is_a_name_or_a_row(name: str) -> None:
    call, given = CALLS[name]
    for bad in (None, 3, 1.5, b"h200", ["h200"], {}):
        with pytest.raises(ArgumentError, match=r"gpu is .*; it is the name of a GPU, such as 'h200'"):
            call(**{**given, "gpu": bad})


@pytest.mark.parametrize("name", ["compile", "emit", "explain", "lower", "simulate", "tune", "variants"])
def test_F22_a_spec_is_a_spec(name: str) -> None:
    call, given = CALLS[name]
    for bad in (3, "naive", {}, 1.5, [3], Odd()):
        with pytest.raises(ArgumentError):
            call(**{**given, next(iter(given)): bad})


@pytest.mark.parametrize("bad", [None, 3, "0123", b"01", {0: 1}, ["a"], [1.0], [True], [math.nan], [-1], [0] * 33])
def test_F22_addresses_are_whole_numbers_or_none(bad: Any) -> None:
    with pytest.raises(ArgumentError):
        gemmgen.shared_wavefronts(bad)


# --- F23: alignment of a lane's address ------------------------------------------------------------------------------


def test_F23_a_lanes_address_is_a_multiple_of_its_width() -> None:
    with pytest.raises(ArgumentError, match=r"^lane 1: word address 1 is no multiple of width 2"):
        gemmgen.shared_wavefronts(range(32), width=2)
    with pytest.raises(ArgumentError, match=r"^lane 2: word address 10 is no multiple of width 4"):
        gemmgen.shared_wavefronts([None, 4, 10], width=4, store=True)
    assert gemmgen.shared_wavefronts(range(32)) == 1
    assert gemmgen.shared_wavefronts(range(0, 64, 2), width=2) == 2
    assert gemmgen.shared_wavefronts(np.arange(0, 128, 4), width=4) == 4


# --- F24: copies, pickles, and names of rungs -----------------------------------------------------------------------


def kept() -> Iterator[tuple[str, Any]]:
    yield "Spec", gemmgen.load("warptile")
    yield "Explanation", gemmgen.explain(SPEC, 64, 64, 64, compiled=False)
    yield "Explanation, compiled", gemmgen.explain(SPEC, 64, 64, 64)
    yield "TuneResult", gemmgen.tune([SPEC], 64, 64, 64, device="sim", records=False)
    yield "Verification", gemmgen.verify(C, A, B)
    yield "Simulation", gemmgen.simulate(SPEC, A, B)
    yield "Occupancy", gemmgen.occupancy("h200", 128, 32)
    yield "KernelIR", gemmgen.lower(SPEC)


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("how", COPIES)
def test_F24_results_can_be_copied_and_pickled(how: str) -> None:
    for name, found in kept():
        again = COPIES[how](found)
        assert type(again) is type(found), name
        if name == "Simulation":
            assert (again.C == found.C).all() and again.counters == found.counters
        elif hasattr(found, "to_dict"):
            assert again.to_dict() == found.to_dict(), name
        else:
            assert again == found, name
    spec = COPIES[how](gemmgen.load("warptile"))
    assert spec.spans.keys() == gemmgen.load("warptile").spans.keys()


@pytest.mark.parametrize("how", COPIES)
def test_F24_kernels_can_be_copied_and_pickled(how: str) -> None:
    kernel = gemmgen.compile(SPEC, device="sim", arch="sm_80")
    kernel(A, B)
    again = COPIES[how](kernel)
    assert (again.spec, again.device, again.arch) == (kernel.spec, "sim", "sm_80")
    assert again.source == kernel.source and (again(A, B) == kernel(A, B)).all()


@pytest.mark.parametrize("how", COPIES)
def test_F24_errors_can_be_copied_and_pickled(how: str) -> None:
    for call in (lambda: gemmgen.parse("kernel 1\n"), lambda: gemmgen.occupancy("h200", 0, 0)):
        with pytest.raises(GemmgenError) as caught:
            call()
        assert str(COPIES[how](caught.value)) == str(caught.value)


def test_F24_load_takes_a_ladders_name_where_no_such_file_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gemmgen.load("warptile").name == "warptile"
    (tmp_path / "warptile").write_text(TEXT)
    assert gemmgen.load("warptile").name == "mine"
    with pytest.raises(SpecError, match="did you mean 'warptile'"):
        gemmgen.load("warptil")
    with pytest.raises(SpecError, match="cannot read the spec"):
        gemmgen.load("none.gemm")
