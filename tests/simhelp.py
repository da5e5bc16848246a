"""Running a spec or a kernel IR on the simulator, with nothing but arrays between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.expr import Bin, Const, Expr, Var, apply
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.types import F32, NAMED
from gemmgen.launch import EXACT, GUARDED, GUARDED_UNALIGNED, Variant
from gemmgen.sim.run import DEFAULT, GlobalArray, Options, RunResult, run_kernel
from gemmgen.spec.model import Spec

Floats = NDArray[np.float32]
SPECS = Path(__file__).resolve().parent.parent / "specs"


def fitting(spec: Spec, m: int, n: int, k: int) -> Variant:
    """The fastest variant for packed matrices in row order."""
    bm, bn, bk = spec.block
    if k % 4 or n % 4:
        return GUARDED_UNALIGNED
    return EXACT if m % bm == 0 and n % bn == 0 and k % bk == 0 else GUARDED


def grid_of(ir: KernelIR, sizes: dict[str, int]) -> tuple[int, int, int]:
    """Blocks along x, y, z."""
    x, y, z = (evaluate(e, sizes) for e in ir.grid)
    return x, y, z


def evaluate(e: Expr, known: dict[str, int]) -> int:
    match e:
        case Const(value):
            return value
        case Var(name):
            return known[name]
        case Bin(op, a, b):
            return apply(op, evaluate(a, known), evaluate(b, known))
        case _:
            raise TypeError(e)


def run_ir(
    ir: KernelIR,
    a: Floats,
    b: Floats,
    c: Floats,
    alpha: float = 1.0,
    beta: float = 0.0,
    options: Options = DEFAULT,
) -> RunResult:
    """Run on contiguous matrices in row order; ``c`` is updated in place."""
    (m, k), n = a.shape, b.shape[1]
    scalars = {"M": m, "N": n, "K": k, "alpha": alpha, "lda": k, "ldb": n, "beta": beta, "ldc": n}
    arrays = {"A": GlobalArray(a.reshape(-1)), "B": GlobalArray(b.reshape(-1)), "C": GlobalArray(c.reshape(-1))}
    return run_kernel(ir, grid_of(ir, {"M": m, "N": n, "K": k}), scalars, arrays, options)


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Random A (m x k), B (k x n) and C (m x n)."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n), (m, n)))
    return a, b, c


def close(
    got: NDArray[Any], a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], alpha: float = 1.0, beta: float = 0.0
) -> bool:
    """Whether a result is within the rounding of float32 sums of alpha * a @ b + beta * c, and of them to its type."""
    wide = [x.astype(np.float64) for x in (a, b, c)]
    want = alpha * (wide[0] @ wide[1]) + (beta * wide[2] if beta else 0)
    size = abs(alpha) * (abs(wide[0]) @ abs(wide[1])) + abs(beta * wide[2]) + abs(want)
    bound = 2 * (a.shape[1] + 2) * F32.unit_roundoff * size
    if got.dtype != np.float32:
        out = NAMED[got.dtype.name]
        bound = bound + out.unit_roundoff * abs(want) + out.tiny
    return bool((abs(got.astype(np.float64) - want) <= bound).all())
