"""bfloat16 and float16 by plain FMA: the text of every rung, built by the host's compiler and run, against float64."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from host_cuda import product
from host_cuda.harness import Chosen, HostFault, HostModule, build, missing
from host_cuda.problem import Problem, problem
from pipelinehelp import kernel as pipeline
from pipelinehelp import spec_of as spec_of_pipeline

from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.types import BF16, ELEMENT_TYPES, F16, F32
from gemmgen.launch import EXACT, GUARDED, Variant
from gemmgen.lower import lower
from gemmgen.spec.ladder import LADDER, ladder_path
from gemmgen.spec.model import Operand, Spec
from gemmgen.spec.parse import load

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

LINE = 8
"""Elements in 16 bytes."""
ALIGNED = {n: Variant(GUARDED.guard, (("A", n), ("B", n), ("C", n))) for n in (8, 4, 2)}
VARIANTS = {"exact": EXACT, "guarded": GUARDED, **{f"aligned_{n}": v for n, v in ALIGNED.items()}}
# Every rung reads both types, and writes each of the two that C may have for one of them.
TYPES = [(rung, t, (t, "f32")[(at + i) % 2]) for at, rung in enumerate(LADDER) for i, t in enumerate(("bf16", "f16"))]
OTHERS = ["smem", "regblock2d", "vectorized", "warptile", "tma", "splitk", "pipelined"]
"""Rungs with both types of C for each type of A and B, as accesses of single elements, vectors and copies differ."""
TYPES += [(rung, t, "f32" if (rung, t, t) in TYPES else t) for rung in OTHERS for t in ("bf16", "f16")]
KERNELS = [(*types, v) for types in TYPES for v in VARIANTS if v in ("exact", "guarded", "aligned_2")]
KERNELS += [(rung, "bf16", "bf16", f"aligned_{n}") for rung in ("vectorized", "cpasync", "splitk") for n in (8, 4)]
TILES = {"smem": ((32, 32, 8), (1, 1)), "vectorized": ((32, 32, 8), (4, 4)), "regblock2d": ((4, 4, 8), (2, 2))}
"""Tiles so small that long sums take little time here, by "g25_" and the rung that has them."""

SHARED_SUMS = ("splitk", "f16", "f16", "guarded")
BROKEN = ("vectorized", "bf16", "bf16", "guarded")
WRONG = {
    "bits multiplied as numbers": ("+= bf16_to_float(regM[m])", "+= regM[m]"),
    "a result cut off, not rounded": ("float_to_bf16(out[v])", "*((bf16*)&out[v] + 1)"),
    "a result that is no conversion": ("float_to_bf16(out[v])", "(bf16)(out[v])"),
    "half the way from copy to copy": ("innerColB * 8", "innerColB * 4"),
}
"""Texts with one thing wrong: what is replaced, and by what."""


@cache
def spec_of(rung: str, inputs: str, output: str) -> Spec:
    name = rung.removeprefix("g25_")
    spec = load(ladder_path(name))
    if name != rung:
        spec = spec.replace(block=TILES[name][0], thread=TILES[name][1])
    return spec.replace(A=Operand(inputs), B=Operand(inputs), C=Operand(output))


@cache
def kernel(rung: str, inputs: str, output: str, variant: str) -> KernelIR:
    return lower(spec_of(rung, inputs, output), VARIANTS[variant])


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory, chosen: Chosen) -> HostModule:
    small = [(f"g25_{rung}", "f16", c, "guarded") for rung in TILES for c in ("f16", "f32")]
    keys = {key for (key,) in chosen("key")} | {*small, SHARED_SUMS}
    found = [text for key in sorted(keys) for text in product.texts("_".join(key), kernel(*key))]
    ((_, right),) = product.texts("", kernel(*BROKEN))
    found += [(what, right.replace(old, new)) for what, (old, new) in WRONG.items()]
    return build(found, tmp_path_factory.mktemp("types"))


def of_size(
    key: tuple[str, str, str, str], size: tuple[int, int, int], *, alpha: float = 1.0, beta: float = 0.0, seed: int = 0
) -> Problem:
    """Random operands that lie as a variant needs them and no better."""
    _, inputs, output, variant = key
    a, c = ELEMENT_TYPES[inputs], ELEMENT_TYPES[output]
    step = VARIANTS[variant].bytes("A") // a.bytes
    pad, offset = (LINE, 0) if step == LINE else (3 * step, step)
    return problem(*size, alpha=alpha, beta=beta, pad=pad, offset=offset, seed=seed, dtypes=(a, a, c))


def run(module: HostModule, key: tuple[str, str, str, str], p: Problem, reverse: bool = False) -> None:
    product.run(module, "_".join(key), kernel(*key), p, reverse=reverse)


@pytest.mark.parametrize("key", KERNELS, ids="-".join)
def test_every_element_is_within_the_bound(module: HostModule, key: tuple[str, str, str, str]) -> None:
    """M, N and K differ, and no tile divides them but in the exact kernel. Rows are as long as their alignment says."""
    bm, bn, bk = kernel(*key).tile
    variant = VARIANTS[key[3]]
    if variant == EXACT:
        sizes = [(2 * bm, bn, 3 * max(bk, LINE)), (bm, 2 * bn, max(bk, LINE))]
    else:
        sizes = [(bm + 1, bn + 3, 2 * bk + 1), (bm - 1, 2 * bn - 1, 5), (1, 1, 1), (3, bn + 1, 0), (1, 7, bk + 1)]
    unit = 1 if variant == EXACT else variant.bytes("A") // BF16.bytes
    for seed, (m, n, k) in enumerate(sizes):
        size = (m, -(-n // unit) * unit, -(-k // unit) * unit)
        alpha, beta = ((1.0, 0.0), (-0.5, 2.0), (1.3, 0.75))[seed % 3]
        p = of_size(key, size, alpha=alpha, beta=beta, seed=seed)
        run(module, key, p, reverse=seed % 2 == 1)
        p.check()


GUARDED_KERNELS = [key for key in KERNELS if key[3] == "guarded"]


@pytest.mark.parametrize("key", GUARDED_KERNELS, ids="-".join)
def test_alpha_zero_reads_neither_a_nor_b(module: HostModule, key: tuple[str, str, str, str]) -> None:
    p = of_size(key, (11, 16, 8), alpha=0.0, beta=-2.0)
    p.a.buffer[...] = p.b.buffer[...] = np.nan
    run(module, key, p)
    p.check()


# --- Conversions ------------------------------------------------------------------------------------------------------

OWN = [("vectorized", t, t, "guarded") for t in ("bf16", "f16")]


@pytest.mark.parametrize("key", OWN, ids="-".join)
def test_every_value_of_the_type_goes_to_float_and_back(module: HostModule, key: tuple[str, str, str, str]) -> None:
    """C = 0 * A B + 1 * C for a C of all 65536 patterns: NaN stays NaN, and subnormal numbers are kept."""
    p = of_size(key, (256, 256, 0), alpha=0.0, beta=1.0)
    every = np.arange(1 << 16, dtype=np.uint16).view(p.before.dtype).reshape(256, 256)
    p.c.view[...] = every
    run(module, key, p)
    assert np.array_equal(p.c.view.astype(np.float32), every.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("key", OWN, ids="-".join)
def test_results_round_to_nearest_even(module: HostModule, key: tuple[str, str, str, str]) -> None:
    """Sums v + d s: halves of the last place of v and what lies beside them, subnormal numbers, and overflow."""
    dtype = ELEMENT_TYPES[key[1]].numpy_dtype
    info = ml_dtypes.finfo(dtype)
    rng = np.random.default_rng(2)
    v = rng.integers(0, 1 << 16, 256).astype(np.uint16).view(dtype)
    v[~np.isfinite(v.astype(np.float32))] = info.max
    v[:8] = np.array([info.max, -info.max, 1, 1.5, info.smallest_subnormal, info.smallest_normal, 0, 3], dtype)
    place = np.maximum(np.abs(v) * dtype.type(float(info.eps)), info.smallest_subnormal)  # about that of the last bit
    d = np.where(np.arange(256) % 3, place, -place).astype(dtype)
    scales = np.array([0.5, -0.5, 0.25, 0.75, 0.50390625, 0.498046875, 1.0, 2.0], dtype)
    p = of_size(key, (256, 8, 8))
    p.a.view[...], p.b.view[...] = 0, 0
    p.a.view[:, 0], p.a.view[:, 1] = v, d
    p.b.view[0], p.b.view[1] = 1, scales
    run(module, key, p)
    with np.errstate(all="ignore"):
        sums = v.astype(np.float32)[:, None] + d.astype(np.float32)[:, None] * scales.astype(np.float32)
        want = sums.astype(dtype)
    assert np.isinf(want.astype(np.float32)).any()
    assert np.array_equal(p.c.view.astype(np.float32), want.astype(np.float32))


# --- Field case G25: a float16 accumulator ----------------------------------------------------------------------------

SUMS = [(rung, "f16", "f16", "guarded") for rung in ("g25_smem", "g25_vectorized", "splitk")]


def ones(key: tuple[str, str, str, str], size: tuple[int, int, int], alpha: float = 1.0) -> Problem:
    p = of_size(key, size, alpha=alpha)
    p.a.view[...] = p.b.view[...] = 1
    return p


@pytest.mark.parametrize("key", SUMS, ids="-".join)
def test_g25a_sums_pass_2048(module: HostModule, key: tuple[str, str, str, str]) -> None:
    p = ones(key, (32, 32, 4096))
    run(module, key, p)
    assert (p.c.view == 4096).all()


@pytest.mark.parametrize("key", SUMS, ids="-".join)
def test_g25b_sums_pass_65504_on_the_way(module: HostModule, key: tuple[str, str, str, str]) -> None:
    p = ones(key, (32, 32, 8))
    p.a.view[...] = np.array([300, 300, 7, 0, 0, 0, 0, 0])
    p.b.view[...] = np.array([300, -300, 1, 0, 0, 0, 0, 0])[:, None]
    run(module, key, p)
    assert (p.c.view == 7).all()


@pytest.mark.parametrize("output", ["f16", "f32"])
def test_g25c_alpha_is_applied_before_rounding(module: HostModule, output: str) -> None:
    key = ("g25_regblock2d", "f16", output, "guarded")
    p = ones(key, (4, 8, 65536), alpha=0.5)
    run(module, key, p)
    assert (p.c.view == 32768).all()


@pytest.mark.parametrize(("output", "want"), [("f16", np.inf), ("f32", 70000)])
def test_g25d_what_float16_cannot_hold_is_infinite(module: HostModule, output: str, want: float) -> None:
    key = ("g25_regblock2d", "f16", output, "guarded")
    p = ones(key, (4, 8, 70000))
    run(module, key, p)
    assert (p.c.view == want).all()


def test_sums_of_several_blocks_are_rounded_once(module: HostModule) -> None:
    """Partial sums are float32: 2049 and what others add to it come to no whole number of float16 before the end."""
    key = SHARED_SUMS
    k = 2 * 8 * spec_of(*key[:3]).block[2] * spec_of(*key[:3]).split_k
    p = ones(key, (16, 16, k))
    p.a.view[:, 1:] = 0
    p.a.view[:, 0], p.a.view[:, k - 1] = 2048, 1
    p.a.view[:, k // 2] = 2
    run(module, key, p)
    assert (p.c.view == 2052).all()  # 2051 by its ends alone; a tie, to even


# --- Texts with one thing wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", WRONG)
def test_a_text_with_a_wrong_conversion_or_width_is_caught(module: HostModule, what: str) -> None:
    ((_, text),) = product.texts("", kernel(*BROKEN))
    assert WRONG[what][0] in text
    bm, bn, bk = kernel(*BROKEN).tile
    p = of_size(BROKEN, (bm, bn, 2 * bk), beta=1.0)
    with pytest.raises((HostFault, AssertionError)):
        product.run(module, what, kernel(*BROKEN), p)
        p.check()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("types_bf16_dynamic", "dynamicShared + STAGES", "dynamicShared + 16 + STAGES"),
        ("types_f16_stagec_larger", "blockShared[2 * BM", "blockShared[BM"),
        ("types_bf16_cluster_parts", "blockShared + BK", "blockShared + 2 * BK"),
    ],
)
def test_arrays_that_pass_the_end_of_shared_memory_are_caught(name: str, right: str, wrong: str) -> None:
    ir = pipeline(name, "exact")
    text = emit_cuda(ir)
    assert right in text
    bm, bn, bk = ir.tile
    spec = spec_of_pipeline(name)
    a, b, c = (x.dtype for x in spec.matrices)
    p = problem(bm, bn, 2 * spec.stages * spec.split_k * bk, dtypes=(a, b, c))
    built = build([("right", text), ("wrong", text.replace(right, wrong))])
    product.run(built, "right", ir, p)
    p.check()
    with pytest.raises(HostFault, match="behind the end of shared memory"):
        product.run(built, "wrong", ir, p)


def test_types_have_the_limits_that_the_bound_takes_from_them() -> None:
    for dtype in (BF16, F16, F32):
        info = ml_dtypes.finfo(dtype.numpy_dtype)
        assert dtype.unit_roundoff == 0.5 * float(info.eps) and dtype.tiny == float(info.smallest_subnormal)


def test_a_problem_keeps_its_types() -> None:
    p = of_size(("smem", "bf16", "f32", "aligned_2"), (3, 5, 7))
    assert [x.buffer.dtype.name for x in (p.a, p.b, p.c)] == ["bfloat16", "bfloat16", "float32"]
    assert p.a.address % 4 == 2 and p.a.pitch % 2 == 1
    assert replace(p.a, offset=0).address % 16 == 0
