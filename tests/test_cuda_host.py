"""The emitted text itself, built by the host's C++ compiler and run: against NumPy, and bit by bit the simulator."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from host_cuda.harness import HostModule, build, missing
from host_cuda.problem import F32, Matrix, Problem, Reserved, problem
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import specs
from tiers import examples

from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.expr import Const, Expr, value_of
from gemmgen.ir.facts import substitute, variables
from gemmgen.ir.kernel import KernelIR
from gemmgen.launch import VARIANTS
from gemmgen.lower import lower
from gemmgen.sim.run import GlobalArray, run_kernel
from gemmgen.spec.ladder import LADDER, ladder_path
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import load, parse

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

# Beyond the ladder: what its tiles and toggles leave out.
ABLATIONS = {
    "no_lanes": "tile block 16x16x8\ntile thread 2x2\nuse smem",
    "odd_tile": "tile block 12x20x6\ntile thread 3x5\nuse coalescing, smem",
    "odd_passes": "tile block 64x48x8\ntile thread 8x8\nuse coalescing, smem",
    "wide_line": "tile block 32x128x8\ntile thread 8x8\nuse coalescing, smem",
    "two_loads": "tile block 64x64x8\ntile thread 8x8\nuse coalescing, smem, transposeA, float4",
    "no_transpose": "tile block 32x64x16\ntile thread 4x8\nuse coalescing, smem, float4",
    "scalar_transpose": "tile block 32x32x8\ntile thread 4x2\nuse coalescing, smem, transposeA",
    "no_smem_tiled": "tile block 16x32\ntile thread 2x4\nuse coalescing",
    "one_warp": """tile block 32x32x8
tile warp 32x32
tile thread 4x8
use coalescing, smem, transposeA, float4, warptile""",
    "m_iter": """tile block 64x64x8
tile warp 32x32
tile thread 4x2
use coalescing, smem, float4, warptile(m_iter=2, n_iter=2)""",
    "two_stages": "tile block 64x64x8\ntile thread 8x4\nuse coalescing, smem, transposeA, float4\nstages 2",
    "async": "tile block 32x64x8\ntile thread 4x4\nuse coalescing, smem, transposeA, float4, cpasync\nstages 3",
    "async_spread": """tile block 64x64x16
tile warp 32x32
tile thread 8x4
use coalescing, smem, transposeA, float4, warptile, cpasync, spread, prefetch, snake
stages 3""",
    "along_k": """tile block 64x64x16
tile warp 32x64
tile thread 8x4
use coalescing, smem, float4, warptile, prefetch, alongK, smemSwizzle, snake, separators
stages 2""",
    "dynamic": "tile block 128x128x64\ntile thread 8x8\nuse coalescing, smem, transposeA, float4",
    "columns": """operands A f32 col, B f32 col, C f32 col
tile block 32x32x8
tile thread 4x4
use coalescing, smem, float4""",
}
# What writes C itself; split-K is two kernels, and has a test of its own.
RUNGS = [name for name in LADDER if load(ladder_path(name)).split_k == 1]
SPLIT = [name for name in LADDER if name not in RUNGS]
KERNELS = [(name, variant) for name in (*RUNGS, *ABLATIONS) for variant in VARIANTS]
EXACT = [name for name, variant in KERNELS if variant == "exact"]


@cache
def kernel(name: str, variant: str) -> KernelIR:
    spec = load(ladder_path(name)) if name in RUNGS else parse(f"kernel {name}\n{ABLATIONS[name]}\n")
    return lower(spec, VARIANTS[variant])


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> HostModule:
    texts = [(f"{name}_{variant}", emit_cuda(kernel(name, variant))) for name, variant in KERNELS]
    for name in SPLIT:
        ir = lower(load(ladder_path(name)), VARIANTS["guarded_unaligned"])
        assert ir.then is not None
        texts += [(name, emit_cuda(ir)), (ir.then.name, emit_cuda(ir.then))]
    return build(texts, tmp_path_factory.mktemp("host"))


def grid(ir: KernelIR, m: int, n: int, k: int) -> tuple[int, int, int]:
    """Blocks along x, y and z."""
    sizes = {"M": Const(m), "N": Const(n), "K": Const(k)}

    def count(extent: Expr) -> int:
        found = value_of(substitute(extent, {v: sizes[v.name] for v in variables(extent)}))
        assert found is not None
        return found

    x, y, z = ir.grid
    return count(x), count(y), count(z)


def run(module: HostModule, name: str, variant: str, p: Problem, *, reverse: bool = False) -> None:
    """Runs the text and checks the result."""
    ir = kernel(name, variant)
    m, n = p.c.shape
    module.run(f"{name}_{variant}", grid(ir, m, n, p.k), ir.threads, p.arguments(ir.tensor_maps), reverse=reverse)
    p.check()


def simulated(name: str, variant: str, p: Problem) -> F32:
    """What the simulator makes of the same problem, C as it was before, with no fault."""
    ir = kernel(name, variant)
    m, n = p.c.shape
    scalars = {param.name: value for param, value in zip(ir.params, p.arguments(), strict=False)}
    arrays = {x: GlobalArray(y.buffer.copy(), y.offset) for x, y in (("A", p.a), ("B", p.b), ("C", p.c))}
    for x in arrays:
        del scalars[x]
    result = run_kernel(ir, grid(ir, m, n, p.k), scalars, arrays)
    assert not result.faults
    return replace(p.c, buffer=arrays["C"].data).view


def tile(name: str) -> tuple[int, int, int]:
    return kernel(name, "exact").tile


@pytest.mark.parametrize("name", EXACT)
def test_exact(module: HostModule, name: str) -> None:
    bm, bn, bk = tile(name)
    order = kernel(name, "exact").matrix("A").order
    for seed, (alpha, beta, pad) in enumerate([(1.0, 0.0, 0), (1.25, 0.0, 4), (-0.5, 2.0, 8)]):
        p = problem(2 * bm, bn, 3 * max(bk, 4), alpha=alpha, beta=beta, pad=pad, seed=seed, order=order)
        run(module, name, "exact", p, reverse=seed % 2 == 1)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", EXACT)
def test_the_text_computes_bit_by_bit_what_the_simulator_does(module: HostModule, name: str, variant: str) -> None:
    bm, bn, bk = tile(name)
    order = kernel(name, variant).matrix("A").order
    m, n, k = (bm, bn, 2 * max(bk, 4)) if variant == "exact" else (bm + 4, bn + 4, bk + 4)
    p = problem(m, n, -(-k // 4) * 4, alpha=1.3, beta=0.7, order=order, seed=7)
    expected = simulated(name, variant, p)
    run(module, name, variant, p)
    assert p.c.view.tobytes() == expected.tobytes()


@pytest.mark.parametrize("variant", ["guarded", "guarded_unaligned"])
@pytest.mark.parametrize("name", EXACT)
def test_ragged(module: HostModule, name: str, variant: str) -> None:
    bm, bn, bk = tile(name)
    order = kernel(name, variant).matrix("A").order
    vectors = "as_float4" in emit_cuda(kernel(name, variant))
    pad, offset, unit = (3, 1, 1) if variant == "guarded_unaligned" else (0, 0, 4 if vectors else 1)
    sizes = [(bm + 1, bn + 3, 2 * bk + 1), (bm - 1, 2 * bn - 1, 5), (1, 1, 1), (3, bn + 1, 0), (1, 7, bk)]
    for seed, size in enumerate(sizes):
        m, n, k = (-(-extent // unit) * unit for extent in size)
        p = problem(m, n, k, alpha=1.5, beta=(0.0, 0.75)[seed % 2], pad=pad, offset=offset, seed=seed, order=order)
        run(module, name, variant, p, reverse=seed % 2 == 0)


@pytest.mark.parametrize("name", EXACT)
def test_alpha_zero_reads_neither_a_nor_b(module: HostModule, name: str) -> None:
    p = problem(12, 8, 4, alpha=0.0, beta=-2.0, order=kernel(name, "guarded").matrix("A").order)
    p.a.buffer[...] = float("nan")
    p.b.buffer[...] = float("nan")
    run(module, name, "guarded", p)


@pytest.mark.parametrize("tiles", ["64x64x8 / 8x8 float4", "32x128x8 / 8x8", "64x48x8 / 8x8"])
def test_g01_every_element_of_a_tile_is_loaded_once(module: HostModule, tiles: str) -> None:
    name = {"64x64x8 / 8x8 float4": "two_loads", "32x128x8 / 8x8": "wide_line", "64x48x8 / 8x8": "odd_passes"}[tiles]
    m, n, k = tile(name)
    p = problem(m, n, k)
    p.a.view[...] = p.b.view[...] = 1.0
    run(module, name, "exact", p)
    assert (p.c.view == 8.0).all()


@pytest.mark.parametrize("name", SPLIT)
def test_sums_shared_by_blocks(module: HostModule, name: str) -> None:
    """Both kernels, one after the other, with a workspace that is NaN until the first has written it."""
    ir = lower(load(ladder_path(name)), VARIANTS["guarded_unaligned"])
    bm, bn, bk = ir.tile
    assert ir.then is not None
    for seed, (m, n, k) in enumerate([(bm + 1, bn + 3, 5 * bk + 1), (3, 5, 7), (1, bn, 0), (bm, 2 * bn, 9 * bk)]):
        p = problem(m, n, k, alpha=1.5, beta=(0.0, 0.75)[seed % 2], pad=3, offset=1, seed=seed)
        pitch = -(-n // 4) * 4
        workspace = np.full(ir.program.parts * m * pitch, np.nan, dtype=np.float32)
        sums = [m, n, p.k, 1.0, p.a.address, p.a.pitch, p.b.address, p.b.pitch, 0.0, workspace, pitch]
        module.run(name, grid(ir, m, n, k), ir.threads, sums, reverse=seed % 2 == 1)
        result = [m, n, p.alpha, workspace, pitch, p.beta, p.c.address, p.c.pitch]
        module.run(ir.then.name, grid(ir.then, m, n, k), ir.then.threads, result)
        p.check()


G24 = [(4, 8, 64), (3, 3, 431), (35, 79, 19), (33, 32, 32), (100, 100, 100), (1, 1000, 7), (1000, 1, 7), (257, 1, 1)]


@pytest.mark.parametrize("name", RUNGS)
def test_g24_matrices_smaller_than_the_tile_and_awkward_shapes(module: HostModule, name: str) -> None:
    for m, n, k in G24:
        p = problem(m, n, k)
        p.a.view[...] = 1.0
        p.b.view[...] = np.arange(1, n + 1, dtype=np.float32)
        run(module, name, "guarded_unaligned", p)
        assert (p.c.view == k * np.arange(1, n + 1)).all()


@pytest.mark.parametrize("name", EXACT)
def test_g28_offsets_past_2_to_the_31_elements(module: HostModule, name: str) -> None:
    """Two rows (columns) of each matrix, 2^31 + 4 elements apart, in memory that is only reserved."""
    order = kernel(name, "guarded").matrix("A").order
    pitch = 2**31 + 4
    with Reserved(3 * 4 * (pitch + 64)) as memory:
        whole = memory.floats
        a, b, c = (Matrix(whole[x * (pitch + 64) :], 0, pitch, (2, 2), order) for x in range(3))
        a.view[...] = [[1, 2], [3, 4]]
        b.view[...] = [[5, 6], [7, 8]]
        p = Problem(a, b, c, np.zeros((2, 2), dtype=np.float32), 1.0, 0.0, 2)
        ir = kernel(name, "guarded_unaligned")
        module.run(f"{name}_guarded_unaligned", grid(ir, 2, 2, 2), ir.threads, p.arguments(ir.tensor_maps))
        assert c.view.tolist() == [[19, 22], [43, 50]]


ANY = st.sampled_from([None, "plain", "cpasync", "tma"]).flatmap(lambda way: specs(max_sums=32, way=way, cluster=True))


@settings(max_examples=examples(3), phases=(Phase.reuse, Phase.generate))
@given(st.lists(ANY, min_size=8, max_size=8), st.integers(0, 2**32 - 1))
def test_random_specs(chosen: list[Spec], seed: int) -> None:
    """Eight at a time, since most of the time goes into the host's compiler."""
    rng = random.Random(seed)
    named = {f"k{i}": rng.choice(["guarded_unaligned", "guarded"]) for i in range(len(chosen))}
    kernels = {name: lower(spec, VARIANTS[named[name]]) for name, spec in zip(named, chosen, strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        module = build([(name, emit_cuda(ir)) for name, ir in kernels.items()], Path(folder))
        for name, ir in kernels.items():
            unit = 4 if named[name] == "guarded" else 1
            extents = [max(1, rng.choice([1, tile - 1, tile + 1, 2 * tile, 17])) for tile in ir.tile]
            m, n, k = (-(-x // unit) * unit for x in extents)
            pad, offset = (4 * rng.randrange(2), 0) if unit == 4 else (rng.randrange(5), 1)
            orders = (ir.matrix("A").order, ir.matrix("B").order, ir.matrix("C").order)
            p = problem(m, n, k, alpha=1.5, beta=0.5, pad=pad, offset=offset, order=orders, seed=seed)
            reverse = rng.random() < 0.5
            module.run(name, grid(ir, m, n, k), ir.threads, p.arguments(ir.tensor_maps), reverse=reverse)
            p.check()
