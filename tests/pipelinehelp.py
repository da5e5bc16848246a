"""The pipelines of fixtures/valid: every way to bring tiles, with every depth and every order of steps once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from simhelp import grid_of

from gemmgen.ir.nodes import KernelIR
from gemmgen.launch import GUARDED_UNALIGNED, VARIANTS, Variant
from gemmgen.lower import lower
from gemmgen.sim.run import DEFAULT, GlobalArray, Options, RunResult, run_kernel
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import load

Floats = NDArray[np.float32]
FOLDER = Path(__file__).parent / "fixtures" / "valid"
PIPELINES = tuple(sorted(p.stem for p in FOLDER.glob("pipeline_*.gemm")))


@cache
def spec_of(name: str) -> Spec:
    return load(FOLDER / f"{name}.gemm")


def kernel(name: str, variant: str | Variant = GUARDED_UNALIGNED) -> KernelIR:
    return lower(spec_of(name), VARIANTS[variant] if isinstance(variant, str) else variant)


def depths(spec: Spec, unit: int = 1) -> list[int]:
    """Values of K where pipelines break: no tile, one, fewer than stages, as many, odd and even numbers of them, and
    remainders; so many for each of the blocks that share a sum. All are multiples of ``unit``."""
    bk = spec.block[2] * spec.split_k
    tiles = {0, 1, spec.stages - 1, spec.stages, spec.stages + 1, 2 * spec.stages + 1}
    ragged = {1, bk - 1, spec.stages * bk + 1, 2 * spec.stages * bk + bk // 2}
    return sorted({-(-k // unit) * unit for k in (*(t * bk for t in tiles), *ragged)})


def run_ordered(
    ir: KernelIR, a: Floats, b: Floats, c: Floats, alpha: float = 1.0, beta: float = 0.0, options: Options = DEFAULT
) -> RunResult:
    """Run on packed matrices in the orders of the spec; ``c`` is updated in place."""
    (m, k), n = a.shape, b.shape[1]
    orders = {x: "C" if getattr(ir.spec, x).order == "row" else "F" for x in "ABC"}
    flat = {x: np.asarray(v).reshape(-1, order=orders[x]) for x, v in (("A", a), ("B", b), ("C", c))}
    rows = {"A": (k, m), "B": (n, k), "C": (n, m)}
    leading = {f"ld{x.lower()}": rows[x][0 if orders[x] == "C" else 1] for x in "ABC"}
    scalars = {"M": m, "N": n, "K": k, "alpha": alpha, "beta": beta, **leading}
    arrays = {x: GlobalArray(v) for x, v in flat.items()}
    result = run_kernel(ir, grid_of(ir, {"M": m, "N": n, "K": k}), scalars, arrays, options)
    c[...] = flat["C"].reshape(c.shape, order=orders["C"])
    return result
