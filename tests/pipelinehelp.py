"""The pipelines of fixtures/valid: every way to bring tiles, with every depth and every order of steps once; and those
of 16-bit elements, by the same ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from simhelp import grid_of, operands

from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.launch import GUARDED_UNALIGNED, VARIANTS, Variant
from gemmgen.lower import lower
from gemmgen.runtime.cubin import Resources
from gemmgen.runtime.nvrtc import NvrtcMissing, compile_cubin
from gemmgen.sim.run import DEFAULT, GlobalArray, Options, RunResult, merged, run_kernel
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import load

Floats = NDArray[np.float32]
Elements = NDArray[Any]
FOLDER = Path(__file__).parent / "fixtures" / "valid"
TYPES = tuple(sorted(p.stem for p in FOLDER.glob("types_*.gemm")))
PIPELINES = (*sorted(p.stem for p in FOLDER.glob("pipeline_*.gemm")), *TYPES)


@cache
def spec_of(name: str) -> Spec:
    return load(FOLDER / f"{name}.gemm")


def kernel(name: str, variant: str | Variant = GUARDED_UNALIGNED) -> KernelIR:
    spec = spec_of(name)
    if variant == GUARDED_UNALIGNED.label:
        variant = unaligned(spec)
    return lower(spec, VARIANTS[variant] if isinstance(variant, str) else variant)


def unaligned(spec: Spec) -> Variant:
    """The variant for operands that are aligned to their elements alone."""
    return replace(GUARDED_UNALIGNED, align=tuple((x.name, x.dtype.bytes) for x in spec.matrices))


def line_of(spec: Spec) -> int:
    """Elements of A in 16 bytes."""
    return spec.matrices[0].dtype.elements(VECTOR_BYTES)


def operands_of(ir: KernelIR, m: int, n: int, k: int, seed: int = 0) -> tuple[Elements, Elements, Elements]:
    """Random A (m x k), B (k x n) and C (m x n) of the types of a kernel."""
    typed, given = ir.then or ir, zip("ABC", operands(m, n, k, seed), strict=True)
    a, b, c = (values.astype(typed.matrix(name).dtype.numpy_dtype) for name, values in given)
    return a, b, c


def depths(spec: Spec, unit: int = 1) -> list[int]:
    """Values of K where pipelines break: no tile, one, fewer than stages, as many, odd and even numbers of them, and
    remainders; so many for each of the blocks that share a sum. All are multiples of ``unit``."""
    bk = spec.block[2] * spec.split_k
    tiles = {0, 1, spec.stages - 1, spec.stages, spec.stages + 1, 2 * spec.stages + 1}
    ragged = {1, bk - 1, spec.stages * bk + 1, 2 * spec.stages * bk + bk // 2}
    return sorted({-(-k // unit) * unit for k in (*(t * bk for t in tiles), *ragged)})


def launches(ir: KernelIR, scalars: Mapping[str, Any]) -> list[tuple[KernelIR, dict[str, Any]]]:
    """The kernels of a product with their scalars, as a plan has them: the sums go to a workspace where a second kernel
    makes C of them, and are added to C where a kernel before makes it ready."""
    if ir.then is None:
        return [(x, dict(scalars)) for x in ir.kernels]
    pitch = workspace(ir, scalars).shape[-1]
    return [(ir, {**scalars, "alpha": 1.0, "beta": 0.0, "ldc": pitch}), (ir.then, {**scalars, "ldw": pitch})]


def workspace(ir: KernelIR, scalars: Mapping[str, Any]) -> Floats:
    """NaN where the blocks that share sums leave them, [blocks, lines of C, elements]; empty where there is none."""
    lines, extent = scalars["M"], scalars["N"]
    if ir.matrix("C").order == "col":
        lines, extent = extent, lines
    shape = (ir.program.parts, lines, -(-extent // 4) * 4) if ir.then is not None else (0, 0, 0)
    return np.full(shape, np.nan, np.float32)


def run_ordered(
    ir: KernelIR,
    a: Elements,
    b: Elements,
    c: Elements,
    alpha: float = 1.0,
    beta: float = 0.0,
    options: Options = DEFAULT,
) -> RunResult:
    """Run on packed matrices in the orders of the spec, a kernel before or after too; ``c`` is updated in place."""
    (m, k), n = a.shape, b.shape[1]
    orders = {x: "C" if ir.matrix(x).order == "row" else "F" for x in "ABC"}
    flat = {x: np.asarray(v).reshape(-1, order=orders[x]) for x, v in (("A", a), ("B", b), ("C", c))}
    rows = {"A": (k, m), "B": (n, k), "C": (n, m)}
    leading = {f"ld{x.lower()}": rows[x][0 if orders[x] == "C" else 1] for x in "ABC"}
    scalars = {"M": m, "N": n, "K": k, "alpha": alpha, "beta": beta, **leading}
    sums, results = GlobalArray(workspace(ir, scalars).reshape(-1)), []
    for kernel, given in launches(ir, scalars):
        arrays = {x: GlobalArray(v) for x, v in flat.items()} | ({"C": sums} if kernel.then else {"W": sums})
        used = {p.name for p in kernel.params}
        arrays = {x: v for x, v in arrays.items() if x in used}
        results.append(run_kernel(kernel, grid_of(kernel, {"M": m, "N": n, "K": k}), given, arrays, options))
    c[...] = flat["C"].reshape(c.shape, order=orders["C"])
    return results[0] if len(results) == 1 else merged(results)


def resources_of(text: str, arch: str, name: str) -> Resources:
    """What a kernel takes as compiled; the test is skipped, with the reason, where there is no compiler."""
    try:
        return compile_cubin(text, arch, name=name).resources
    except NvrtcMissing as e:
        pytest.skip(str(e))
