"""The emitted text itself, built by the host's C++ compiler and run: against NumPy, and bit by bit the simulator."""

from __future__ import annotations

from functools import cache

import pytest
from host_cuda.harness import HostModule, build, missing
from host_cuda.problem import Problem, problem

from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.expr import Const, Var, substitute, value_of
from gemmgen.ir.nodes import KernelIR
from gemmgen.launch import VARIANTS
from gemmgen.lower import lower
from gemmgen.spec.ladder import LADDER, ladder_path
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
    "dynamic": "tile block 128x128x64\ntile thread 8x8\nuse coalescing, smem, transposeA, float4",
    "columns": """operands A f32 col, B f32 col, C f32 col
tile block 32x32x8
tile thread 4x4
use coalescing, smem, float4""",
}
KERNELS = [(name, variant) for name in (*LADDER, *ABLATIONS) for variant in VARIANTS]
EXACT = [name for name, variant in KERNELS if variant == "exact"]


@cache
def kernel(name: str, variant: str) -> KernelIR:
    spec = load(ladder_path(name)) if name in LADDER else parse(f"kernel {name}\n{ABLATIONS[name]}\n")
    return lower(spec, VARIANTS[variant])


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> HostModule:
    texts = [(f"{name}_{variant}", emit_cuda(kernel(name, variant))) for name, variant in KERNELS]
    return build(texts, tmp_path_factory.mktemp("host"))


def grid(ir: KernelIR, m: int, n: int, k: int) -> tuple[int, ...]:
    sizes = {"M": Const(m), "N": Const(n), "K": Const(k)}
    found = []
    for extent in ir.grid:
        values = {v: sizes[v.name] for v in _variables(extent)}
        count = value_of(substitute(extent, values))
        assert count is not None
        found.append(count)
    return tuple(found)


def _variables(e: object) -> set[Var]:
    from gemmgen.ir.expr import Expr, variables

    assert isinstance(e, Expr)
    return set(variables(e))


def run(module: HostModule, name: str, variant: str, p: Problem, *, reverse: bool = False) -> None:
    ir = kernel(name, variant)
    m, n = p.c.shape
    module.run(f"{name}_{variant}", grid(ir, m, n, p.k), ir.threads, p.arguments(), reverse=reverse)
    p.check()


def tile(name: str) -> tuple[int, int, int]:
    return kernel(name, "exact").spec.block


@pytest.mark.parametrize("name", EXACT)
def test_exact(module: HostModule, name: str) -> None:
    bm, bn, bk = tile(name)
    order = kernel(name, "exact").spec.A.order
    for seed, (alpha, beta, pad) in enumerate([(1.0, 0.0, 0), (1.25, 0.0, 4), (-0.5, 2.0, 8)]):
        p = problem(2 * bm, bn, 3 * max(bk, 4), alpha=alpha, beta=beta, pad=pad, seed=seed, order=order)
        run(module, name, "exact", p, reverse=seed % 2 == 1)


@pytest.mark.parametrize("variant", ["guarded", "guarded_unaligned"])
@pytest.mark.parametrize("name", EXACT)
def test_ragged(module: HostModule, name: str, variant: str) -> None:
    bm, bn, bk = tile(name)
    order = kernel(name, variant).spec.A.order
    vectors = "as_float4" in emit_cuda(kernel(name, variant))
    pad, offset, unit = (3, 1, 1) if variant == "guarded_unaligned" else (0, 0, 4 if vectors else 1)
    sizes = [(bm + 1, bn + 3, 2 * bk + 1), (bm - 1, 2 * bn - 1, 5), (1, 1, 1), (3, bn + 1, 0), (1, 7, bk)]
    for seed, size in enumerate(sizes):
        m, n, k = (-(-extent // unit) * unit for extent in size)
        p = problem(m, n, k, alpha=1.5, beta=(0.0, 0.75)[seed % 2], pad=pad, offset=offset, seed=seed, order=order)
        run(module, name, variant, p, reverse=seed % 2 == 0)


@pytest.mark.parametrize("name", EXACT)
def test_alpha_zero_reads_neither_a_nor_b(module: HostModule, name: str) -> None:
    p = problem(12, 8, 4, alpha=0.0, beta=-2.0, order=kernel(name, "guarded").spec.A.order)
    p.a.buffer[...] = float("nan")
    p.b.buffer[...] = float("nan")
    run(module, name, "guarded", p)
