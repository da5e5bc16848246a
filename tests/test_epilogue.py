"""Epilogues in the simulator: every entry, every way to store C, every type and order, sizes that no tile divides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from epiloguehelp import ENTRIES, expected, operands
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmgen
from gemmgen.ir.types import ELEMENT_TYPES
from gemmgen.isa.epilogue import ROWS, entry
from gemmgen.spec.model import Operand, Spec

ROOT = Path(__file__).resolve().parent.parent
LOOSE = {"f32": 1e-4, "f16": 4e-3, "bf16": 4e-2}
"""Relative distances that no rounding reaches at these sizes, and a mistake in an entry or an index passes."""
TYPES = [("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("bf16", "f32")]
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"use": "coalescing"},
    "smem": {"use": "coalescing smem", "block": (16, 16, 8), "thread": (2, 4)},
    "vectors": {"use": "coalescing smem transposeA float4"},
    "stageC": {"use": "coalescing smem transposeA float4 stageC"},
    "split_k": {"use": "coalescing smem float4", "split_k": 3},
    "early": {"use": "coalescing smem float4 dependentLaunch", "split_k": 2},
    "cluster": {"use": "coalescing smem float4 clusterReduce", "split_k": 2},
    "persistent": {"use": "coalescing smem float4", "persistent": 3, "cta_swizzle": 2},
    "cpasync": {"use": "coalescing smem float4 cpasync stageC", "stages": 3},
}


def spec_of(
    way: str, chain: str | tuple[str, ...], inputs: str = "f32", output: str = "f32", order: str = "row"
) -> Spec:
    plain = gemmgen.load("naive").replace(name="tested")
    fixed: dict[str, Any] = {"block": (16, 16, 8), "thread": (4, 4)} if way != "plain" else {"block": (8, 16)}
    c = Operand(output, "row" if order == "row" else "col")
    changes = {**fixed, **WAYS[way], "A": Operand(inputs), "B": Operand(inputs), "C": c, "epilogue": chain}
    changes["use"] = frozenset(changes["use"].split())
    return plain.replace(**changes)


def product(spec: Spec, m: int, n: int, k: int, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    shapes = (m, k), (k, n)
    a, b = (random.standard_normal(s).astype(x.dtype.numpy_dtype) for s, x in zip(shapes, spec.matrices, strict=False))
    return a, b


def run(spec: Spec, size: tuple[int, int, int], beta: float = 0.0, pad: int = 0, seed: int = 0) -> None:
    """C, and what the chain stores, is what NumPy makes of the operands, and ``verify`` says so."""
    m, n, k = size
    a, b = product(spec, m, n, k, seed)
    beside = operands(spec, m, n, seed, pad)
    before = np.random.default_rng(seed + 5).standard_normal((m, n)).astype(spec.matrices[2].dtype.numpy_dtype)
    c = np.array(before, order="C" if spec.C.order == "row" else "F") if beta else None
    done = gemmgen.simulate(spec, a, b, c, 0.75, beta, **beside)
    assert done.faults == ()
    value = 0.75 * (a.astype(np.float64) @ b.astype(np.float64)) + (beta * before.astype(np.float64) if beta else 0.0)
    want, kept = expected(spec.epilogue, value, beside)
    loose = LOOSE[spec.C.dtype] + (2e-2 if any(e.startswith("cast") for e in spec.epilogue) else 0.0)
    loose += 5e-3 if spec.A.dtype == "tf32" else 0.0
    np.testing.assert_allclose(done.C.astype(np.float64), want, loose, loose * max(1.0, abs(want).max()))
    for name, x in kept.items():
        np.testing.assert_allclose(beside[name].astype(np.float64), x, loose, loose * max(1.0, abs(x).max()))
    assert gemmgen.verify(done.C, a, b, before, 0.75, beta, spec, **beside).ok


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_what_numpy_says(name: str, types: tuple[str, str]) -> None:
    for order in ("row", "col"):
        run(spec_of("vectors", name, *types, order), (33, 19, 21))


@pytest.mark.parametrize("way", WAYS)
def test_a_chain_holds_however_c_is_stored(way: str) -> None:
    chain = "bias -> aux -> gelu -> scale_a -> residual"
    for seed, (order, size) in enumerate((("row", (33, 19, 21)), ("col", (32, 48, 16)), ("row", (16, 32, 24)))):
        run(spec_of(way, chain, order=order), size, beta=(0.0, -0.5, 2.0)[seed], seed=seed)


@pytest.mark.parametrize("pad", [0, 1, 2, 4])
def test_operands_that_lie_apart_narrow_the_accesses(pad: int) -> None:
    run(spec_of("vectors", "bias -> residual -> aux", "bf16", "bf16"), (32, 32, 8), pad=pad)
    run(spec_of("split_k", "scale_b -> residual"), (17, 32, 8), pad=pad)


@pytest.mark.parametrize("name", ["mma_bf16", "mma_tf32"])
def test_tensor_cores_store_through_the_same_epilogue(name: str) -> None:
    spec = gemmgen.load(ROOT / f"tests/fixtures/valid/{name}.gemm").replace(epilogue="bias -> aux -> gelu -> residual")
    bm, bn, bk = spec.block
    run(spec, (bm + 1, bn - 3, bk + 5), beta=0.5)


def test_no_sum_still_has_an_epilogue() -> None:
    for way in ("vectors", "split_k", "cluster"):
        run(spec_of(way, "bias -> relu"), (17, 5, 0))


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, ...]:
    once = [e for e in ENTRIES if ROWS[e.partition("(")[0]].operands]
    chosen = draw(st.lists(st.sampled_from(once), max_size=4, unique=True))
    often = draw(st.lists(st.sampled_from([e for e in ENTRIES if e not in once]), max_size=3))
    return tuple(draw(st.permutations(chosen + often)))


@given(
    chain=chains(),
    way=st.sampled_from(list(WAYS)),
    types=st.sampled_from(TYPES),
    order=st.sampled_from(["row", "col"]),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 30)),
    beta=st.sampled_from([0.0, -0.5]),
    pad=st.sampled_from([0, 0, 1, 4]),
)
@settings(max_examples=40)
def test_any_chain_is_within_its_bound(
    chain: tuple[str, ...],
    way: str,
    types: tuple[str, str],
    order: str,
    size: tuple[int, int, int],
    beta: float,
    pad: int,
) -> None:
    spec = spec_of(way, chain, *types, order)
    m, n, k = size
    a, b = product(spec, m, n, k)
    beside = operands(spec, m, n, pad=pad)
    c = np.zeros((m, n), spec.matrices[2].dtype.numpy_dtype, "C" if order == "row" else "F") + 1 if beta else None
    done = gemmgen.simulate(spec, a, b, c, 1.0, beta, **beside)
    assert done.faults == ()
    assert gemmgen.verify(done.C, a, b, c, 1.0, beta, spec, **beside), chain


@pytest.mark.parametrize("name", ENTRIES)
def test_a_wrong_result_is_beyond_the_bound(name: str) -> None:
    """The bound that the rows carry on is no licence: an entry left out is seen, and so is one element of it."""
    spec = spec_of("vectors", name)
    a, b = product(spec, 32, 32, 16)
    beside = operands(spec, 32, 32)
    done = gemmgen.simulate(spec, a, b, **beside)
    plain = gemmgen.simulate(spec.replace(epilogue=()), a, b).C
    if name == "aux":
        beside["aux"][3, 4] += 0.01
        found = gemmgen.verify(done.C, a, b, spec=spec, **beside)
        assert not found and "aux[3, 4]" in str(found)
    else:
        # A float32 that a cast has rounded differs from one that it has not by no more than its own bound.
        assert name.startswith("cast") or not gemmgen.verify(plain, a, b, spec=spec, **beside)
        done.C[3, 4] += 0.05
        assert not gemmgen.verify(done.C, a, b, spec=spec, **beside)


def test_residual_may_be_c_itself() -> None:
    spec = spec_of("vectors", "residual -> relu")
    a, b = product(spec, 33, 20, 8)
    c = np.random.default_rng(3).standard_normal((33, 20)).astype(np.float32)
    before = c.copy()
    gemmgen.compile(spec, "sim")(a, b, c, residual=c)
    assert gemmgen.verify(c, a, b, spec=spec, residual=before)


def test_lipschitz_constants_and_errors_hold_where_they_are_tried() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([random.uniform(-8, 8, 20000), np.linspace(-12, 12, 4001)])
    for row in (entry(e) for e in ENTRIES):
        if row.row.operands or row.row.name == "cast":
            continue
        error = np.full_like(x, 1e-3)
        for moved in (x + 1e-3, x - 1e-3):
            assert (abs(row.value(moved, {}) - row.value(x, {})) <= row.error(x, error, {}) + 1e-12).all(), row.row.name
        narrow = x.astype(np.float32)
        exact = row.value(narrow.astype(np.float64), {})
        rounded = row.value(narrow, {}).astype(np.float64)
        assert (abs(rounded - exact) <= row.error(narrow.astype(np.float64), 0 * x, {})).all(), row.row.name


def test_types_without_arithmetic_of_their_own_are_carried_exactly() -> None:
    for name in ("f16", "bf16"):
        value = np.array([1 / 3, -2.7], np.float32)
        assert (entry(f"cast({name})").value(value, {}) == value.astype(ELEMENT_TYPES[name].numpy_dtype)).all()


# --- Entries from Python --------------------------------------------------------------------------------------------


def test_the_example_registers_an_entry_in_twenty_lines() -> None:
    source = (ROOT / "examples/epilogue.py").read_text()
    lines = [x for x in source.split('"""')[2].splitlines() if x.strip() and not x.lstrip().startswith("#")]
    assert len(lines) <= 20
    done = subprocess.run(
        [sys.executable, "examples/epilogue.py"], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert done.returncode == 0 and done.stdout.startswith("PASS"), done.stderr


def test_an_entry_from_python_is_checked_and_kept() -> None:
    def softsign(x: Any, width: Any) -> Any:
        return x / (1 + abs(x) * width)

    for _ in range(2):  # the same again changes nothing
        gemmgen.epilogue("softsign", cuda="x / (1.0f + fabsf(x) * width)", numpy=softsign, operands=["width row f32"])
    spec = spec_of("stageC", "bias -> softsign", "bf16", "bf16")
    a, b = product(spec, 18, 21, 9)
    beside = {"bias": np.ones(21, spec.matrices[2].dtype.numpy_dtype), "width": np.full(18, 0.25, np.float32)}
    done = gemmgen.simulate(spec, a, b, **beside)
    assert not done.faults and gemmgen.verify(done.C, a, b, spec=spec, **beside)
    assert "__device__ __forceinline__ float softsign(float x, float width)" in gemmgen.emit(spec)
    with pytest.raises(gemmgen.ArgumentError, match="softsign is an entry already, with another meaning"):
        gemmgen.epilogue("softsign", cuda="x", numpy=lambda x: x)
    with pytest.raises(gemmgen.ArgumentError, match="relu is an entry that comes with gemmgen"):
        gemmgen.epilogue("relu", cuda="x", numpy=lambda x: x)


@pytest.mark.parametrize(
    ("cuda", "numpy", "how", "said"),
    [
        ("x + 1.0f", lambda x: x + 2, {}, r"off_by_one\(0\): the text gives 1.0, and numpy in float64 2.0"),
        ("x", lambda x: x[:1], {}, r"numpy gave shape \(1,\) for x of shape"),
        ("x", lambda x, y: x, {}, "numpy, called with 1 array, raised TypeError"),
        ("x * alpha", lambda x, alpha: x, {"operands": ["alpha"]}, "an operand cannot be called alpha"),
        ("x * s", lambda x, s: x, {"operands": ["s diagonal"]}, "kind 'diagonal' is not one of tensor, row"),
    ],
)  # fmt: skip
def test_an_entry_that_contradicts_itself_is_refused(cuda: str, numpy: Any, how: dict[str, Any], said: str) -> None:
    with pytest.raises(gemmgen.ArgumentError, match=said):
        gemmgen.epilogue("off_by_one", cuda=cuda, numpy=numpy, **how)
    with pytest.raises(gemmgen.SpecError, match="unknown epilogue entry 'off_by_one'"):
        spec_of("plain", "off_by_one")


# --- matmul ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "numpy", "how", "said"),
    [
        ("3.0f * x", lambda x: 3 * x, {"lipschitz": 1.0}, "changes 3 times as much as x; give at least that"),
        ("x * s", lambda x, s: x * s, {"operands": ["s row"], "lipschitz": 2.0}, "s 100 the result changes 100 times"),
        ("fabsf(x)", lambda x: abs(x), {"lipschitz": 0.5}, "lipschitz is 0.5, and between x"),
        ("x", lambda x: x, {"lipschitz": -1.0}, "lipschitz is -1.0; it is a number, or None"),
        ("x", lambda x: x, {"lipschitz": float("nan")}, "lipschitz is nan; it is a number, or None"),
    ],
)
def test_a_lipschitz_constant_that_the_meaning_exceeds_is_refused(
    cuda: str, numpy: Any, how: dict[str, Any], said: str
) -> None:
    with pytest.raises(gemmgen.ArgumentError) as found:
        gemmgen.epilogue("too_steep", cuda=cuda, numpy=numpy, **how)
    assert said in str(found.value) and "\n" not in str(found.value)


def test_a_lipschitz_constant_that_is_exact_is_taken() -> None:
    gemmgen.epilogue("as_steep", cuda="3.0f * x", numpy=lambda x: 3 * x, lipschitz=3.0)
    gemmgen.epilogue("flat", cuda="1.0f", numpy=lambda x: x * 0 + 1, lipschitz=0.0)


def test_matmul_fuses_bias_activation_and_residual() -> None:
    random = np.random.default_rng(2)
    a, b, bias, residual = (random.standard_normal(s).astype(np.float32) for s in ((70, 33), (33, 45), (45,), (70, 45)))
    c = gemmgen.matmul(a, b, bias=bias, residual=residual, activation="gelu", alpha=0.5)
    want, _ = expected(
        ("bias", "gelu", "residual"), 0.5 * (a.astype(np.float64) @ b), {"bias": bias, "residual": residual}
    )
    np.testing.assert_allclose(c, want, 1e-4, 1e-3)
    assert np.array_equal(gemmgen.matmul(a, b, activation="relu"), np.maximum(gemmgen.matmul(a, b), 0))
    with pytest.raises(gemmgen.ArgumentError, match="unknown epilogue entry 'gelo'"):
        gemmgen.matmul(a, b, activation="gelo")
    with pytest.raises(gemmgen.ArgumentError, match=r"bias has shape \(70,\); \(45,\) is wanted"):
        gemmgen.matmul(a, b, bias=residual[:, 0].copy())
    with pytest.raises(gemmgen.ArgumentError, match="C is bf16, and A and B are f32"):
        gemmgen.matmul(a, b, out_dtype="bf16")


# --- What is refused ------------------------------------------------------------------------------------------------

N32 = np.zeros(32, np.float32)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({}, "bias is missing: the epilogue of 'tested' reads it; pass bias="),
        ({"bias": N32, "gain": N32}, "gain is given, and the epilogue of 'tested' takes bias and aux"),
        ({"bias": N32}, "aux is missing: the epilogue of 'tested' stores to it; pass aux="),
        ({"bias": N32[:5], "aux": 0}, "bias has shape (5,); (32,) is wanted: one element per column of C"),
        (
            {"bias": N32.astype(np.float64), "aux": 0},
            "bias has element type float64; the kernel 'tested'",
        ),
        ({"bias": np.zeros(64, np.float32)[::2], "aux": 0}, "bias has stride 2 (in elements); 1 is wanted"),
        ({"bias": [0.0], "aux": 0}, "bias is a list; it must be an array"),
        ({"bias": N32, "aux": np.zeros((32, 32), np.float32, order="F")}, "aux has strides (1, 32) (in elements)"),
        ({"bias": N32, "aux": np.broadcast_to(N32, (32, 32))}, "aux is read-only, and the epilogue stores to it"),
    ],
)
def test_operands_that_do_not_fit_are_named(named: dict[str, Any], said: str) -> None:
    spec = spec_of("vectors", "bias -> aux -> relu")
    a, b = product(spec, 32, 32, 8)
    given = {name: np.zeros((32, 32), np.float32) if isinstance(x, int) else x for name, x in named.items()}
    with pytest.raises(gemmgen.ArgumentError) as caught:
        gemmgen.compile(spec, "sim")(a, b, **given)
    assert said in str(caught.value)


def test_kernels_are_timed_without_operands_of_an_epilogue() -> None:
    from gemmgen.api.specs import refuse_untimed

    refuse_untimed(spec_of("vectors", "relu"))
    with pytest.raises(
        gemmgen.ArgumentError, match="the epilogue of tested takes bias, residual; kernels are timed with"
    ):
        refuse_untimed(spec_of("vectors", "bias -> residual"))


def test_outputs_that_overlap_are_refused() -> None:
    spec = spec_of("vectors", "aux -> relu")
    a, b = product(spec, 32, 32, 32)
    c = np.zeros((32, 32), np.float32)
    with pytest.raises(gemmgen.ArgumentError, match="C overlaps aux in memory, and both are written"):
        gemmgen.compile(spec, "sim")(a, b, c, aux=c)
    with pytest.raises(gemmgen.ArgumentError, match="aux overlaps A"):
        gemmgen.compile(spec, "sim")(a, b, c, aux=a)
    plain = spec_of("vectors", ())
    with pytest.raises(gemmgen.ArgumentError, match="bias is given, and the epilogue of 'tested' takes no operands"):
        gemmgen.compile(plain, "sim")(a, b, c, bias=N32)


# --- Counts and words -----------------------------------------------------------------------------------------------


def test_counts_are_what_the_simulator_counts() -> None:
    for way in ("vectors", "stageC", "split_k", "persistent"):
        spec = spec_of(way, "bias -> aux -> gelu -> residual")
        a, b = product(spec, 37, 29, 11)
        done = gemmgen.simulate(spec, a, b, **operands(spec, 37, 29))
        found = gemmgen.explain(spec, 37, 29, 11, compiled=False)
        for op in ("load", "store"):
            assert found.counts.total("global", op).totals("global") == done.counters["global"][op], (way, op)


def test_explain_says_what_the_epilogue_reads() -> None:
    plain, fused = spec_of("vectors", ()), spec_of("vectors", "bias -> gelu -> residual")
    before, after = (gemmgen.explain(s, 64, 64, 64, compiled=False) for s in (plain, fused))
    said = "epilogue: bias -> gelu -> residual: about 26 flops per element of C, 16.6 KB of bias and residual"
    assert said in " ".join(str(after).split())
    assert after.to_dict()["epilogue"] == ["bias", "gelu", "residual"] and "epilogue" not in before.to_dict()
    assert after.beside == {"bias": 256, "residual": 64 * 256}
    assert after.intensity.block_tile == before.intensity.block_tile and after.intensity.ideal < before.intensity.ideal


def test_every_entry_is_in_the_language_reference() -> None:
    text = (ROOT / "docs/language.md").read_text()
    assert [name for name in ROWS if f"`{name}" not in text] == []


def test_the_command_line_draws_operands_and_checks_them(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from gemmgen.cli.app import app

    for spec, how in (("gemm_bias_gelu", []), ("batched", ["--set", "epilogue=bias -> aux", "--set", "A=bf16"])):
        typed = [*how, "--set", "B=bf16"] if how else []
        command = ["run", spec, "--size", "130x70x33", "--device", "sim", "-o", str(tmp_path), *typed]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0 and "PASS" in done.output, done.output
