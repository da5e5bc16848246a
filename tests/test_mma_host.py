"""Kernels of tensor cores: their text, built by the host's compiler and run, mma and ldmatrix being functions of all
lanes of a warp."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from host_cuda import product
from host_cuda.harness import HostFault, HostModule, build, missing
from host_cuda.problem import Problem, problem
from test_mma import spec

from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.types import ELEMENT_TYPES
from gemmgen.launch import EXACT, GUARDED, Variant
from gemmgen.lower import lower

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

VARIANTS = {"exact": EXACT, "guarded": GUARDED} | {
    f"aligned_{n}": Variant(GUARDED.guard, (("A", n), ("B", n), ("C", n))) for n in (4, 2)
}
KERNELS = {
    # name: (type of A and B, layouts, type of C, way, variant)
    "plain": ("bf16", ("row", "row", "row"), "f32", "plain", "exact"),
    "plain_tf32": ("tf32", ("col", "row", "row"), "f32", "plain", "guarded"),
    "ldmatrix_nt": ("f16", ("row", "col", "row"), "f16", "ldmatrix", "guarded"),
    "swizzled_tn": ("bf16", ("col", "row", "row"), "bf16", "swizzled", "exact"),
    "pipelined": ("bf16", ("row", "row", "row"), "bf16", "pipelined", "guarded"),
    "pipelined_tt": ("bf16", ("col", "col", "col"), "f32", "pipelined", "aligned_4"),
    "pipelined_odd": ("f16", ("row", "row", "row"), "f32", "pipelined", "aligned_2"),
    "pipelined_tf32": ("tf32", ("row", "col", "row"), "f32", "pipelined", "guarded"),
    "staged": ("bf16", ("row", "col", "col"), "bf16", "spread_staged", "guarded"),
    "split": ("f16", ("row", "row", "row"), "f16", "split", "guarded"),
    "persistent": ("bf16", ("row", "col", "row"), "f32", "persistent", "guarded"),
}
WRONG = {
    "a transposed fragment": ("ldmatrix_x4_trans(", "ldmatrix_x4("),
    "sums of the wrong rows": ("&acc[i * 2 + 1][j * 2]", "&acc[i * 2][j * 2]"),
    "half a step along k": ("k += MMA_K", "k += MMA_K / 2"),
    "no wait for copies": ("cp_async_wait1();", ""),
}


@cache
def kernel(name: str) -> KernelIR:
    dtype, layout, output, way, variant = KERNELS[name]
    return lower(spec(dtype, layout, output, way), VARIANTS[variant])


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> HostModule:
    found = [text for name in KERNELS for text in product.texts(name, kernel(name))]
    right = emit_cuda(kernel("pipelined"))
    found += [(what, right.replace(old, new)) for what, (old, new) in WRONG.items()]
    return build(found, tmp_path_factory.mktemp("mma"))


def of_size(name: str, size: tuple[int, int, int], alpha: float, beta: float) -> Problem:
    dtype, layout, output, _, variant = KERNELS[name]
    a, c = ELEMENT_TYPES[dtype], ELEMENT_TYPES[output]
    step = max(1, VARIANTS[variant].bytes("A") // a.bytes)
    pad, offset = (16 // a.bytes, 0) if step * a.bytes == 16 else (3 * step, step)
    p = problem(*size, alpha=alpha, beta=beta, pad=pad, offset=offset, order=layout, dtypes=(a, a, c))
    if dtype == "tf32":  # numbers that tf32 holds
        for x in (p.a, p.b):
            x.view[...] = np.round(x.view * 64) / 64
    return p


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_is_right(module: HostModule, name: str) -> None:
    variant = VARIANTS[KERNELS[name][4]]
    sizes = [(64, 128, 128)] if variant == EXACT else [(72, 80, 96), (8, 8, 8)]
    if variant.bytes("A") < 16:
        sizes = [(66, 70, 74), (2, 6, 2)] if variant.bytes("A") == 4 else [(65, 67, 69), (1, 3, 5)]
    for at, size in enumerate(sizes):
        p = of_size(name, size, *((1.0, 0.0), (-0.5, 2.0))[at])
        product.run(module, name, kernel(name), p, reverse=at == 1)
        p.check()


@pytest.mark.parametrize("what", WRONG)
def test_a_text_with_one_thing_wrong_is_caught(module: HostModule, what: str) -> None:
    assert WRONG[what][0] in emit_cuda(kernel("pipelined"))
    p = of_size("pipelined", (64, 64, 256), 1.0, 0.0)
    with pytest.raises((HostFault, AssertionError)):
        product.run(module, what, kernel("pipelined"), p)
        p.check()
