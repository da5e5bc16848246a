"""Each row of tensor cores against one warp of a GPU, bit for bit with distinct small integers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_support import torch

from gemmgen.ir.types import BF16, E4M3, E5M2, F16, TF32, WARP, DType
from gemmgen.isa.async_copy import SHARED_ADDRESS
from gemmgen.isa.convert import TYPE_NAMES
from gemmgen.isa.mma import a_fragment, b_fragment, ldmatrix, mma, per_register

TYPES = (F16, BF16, TF32, E4M3, E5M2)


class Registers:
    """Registers of a warp, [elements, lanes], as a meaning sees them."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def read(self, width: int = 1) -> Any:
        return self.values[:width]

    def write(self, values: Any) -> None:
        self.values = np.asarray(values, self.values.dtype)


def lanes() -> Any:
    thread = np.arange(WARP)
    return SimpleNamespace(
        active=None, batch=SimpleNamespace(thread=thread), first=lambda n: True if n == WARP else thread < n
    )


def launch(text: str, name: str, *arrays: Any) -> list[Any]:
    """The arrays, each as bytes on the device, after one warp ran the kernel on them."""
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions
    from cuda.core import launch as start

    t = torch()
    t.cuda.init()
    device = Device()
    device.set_current()
    code = Program(text, "c++", ProgramOptions(std="c++17", arch=f"sm_{device.arch}")).compile("cubin")
    given = [t.from_numpy(np.ascontiguousarray(x).view(np.uint8).copy()).cuda() for x in arrays]
    t.cuda.synchronize()
    stream = device.create_stream()
    start(stream, LaunchConfig(grid=1, block=WARP), code.get_kernel(name), *(x.data_ptr() for x in given))
    stream.sync()
    return [x.cpu().numpy().view(y.dtype).reshape(y.shape) for x, y in zip(given, arrays, strict=True)]


def typed(dtype: DType, *texts: str) -> str:
    return "\n".join([TYPE_NAMES[dtype] if dtype.alias else "", SHARED_ADDRESS, *texts])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_mma_is_its_meaning(dtype: DType) -> None:
    a, b, row = a_fragment(dtype), b_fragment(dtype), mma(dtype)
    text = typed(
        dtype,
        row.helper,
        f"""
extern "C" __global__ void one(float* sums, const {dtype.c}* a, const {dtype.c}* b)
{{
    alignas(16) float acc[4];
    alignas(16) {dtype.c} x[{a.elements}], y[{b.elements}];
    for (int i = 0; i < 4; ++i) acc[i] = sums[threadIdx.x * 4 + i];
    for (int i = 0; i < {a.elements}; ++i) x[i] = a[threadIdx.x * {a.elements} + i];
    for (int i = 0; i < {b.elements}; ++i) y[i] = b[threadIdx.x * {b.elements} + i];
    {row.name}(acc, acc + 2, x, y);
    for (int i = 0; i < 4; ++i) sums[threadIdx.x * 4 + i] = acc[i];
}}
""",
    )
    rng = np.random.default_rng(1)
    for _ in range(4):
        left = rng.integers(-8, 9, (a.elements, WARP)).astype(dtype.numpy_dtype)
        right = rng.integers(-8, 9, (b.elements, WARP)).astype(dtype.numpy_dtype)
        sums = rng.permutation(4 * WARP).reshape(4, WARP).astype(np.float32)
        upper, lower = Registers(sums[:2]), Registers(sums[2:])
        assert row.meaning is not None
        row.meaning(lanes(), upper, lower, Registers(left), Registers(right))
        got, *_ = launch(text, "one", sums.T, left.T, right.T)
        assert np.array_equal(got.T, np.concatenate([upper.values, lower.values]))


def test_tf32_is_read_as_the_meaning_says() -> None:
    """The lowest 13 bits of a float count for nothing: also those of infinities and NaN."""
    a, b, row = a_fragment(TF32), b_fragment(TF32), mma(TF32)
    text = typed(
        TF32,
        row.helper,
        f"""
extern "C" __global__ void one(float* sums, const float* a, const float* b)
{{
    float acc[4] = {{}}, x[{a.elements}], y[{b.elements}];
    for (int i = 0; i < {a.elements}; ++i) x[i] = a[threadIdx.x * {a.elements} + i];
    for (int i = 0; i < {b.elements}; ++i) y[i] = b[threadIdx.x * {b.elements} + i];
    {row.name}(acc, acc + 2, x, y);
    for (int i = 0; i < 4; ++i) sums[threadIdx.x * 4 + i] = acc[i];
}}
""",
    )
    rng = np.random.default_rng(2)
    left = rng.standard_normal((a.elements, WARP)).astype(np.float32)
    right = np.zeros((b.elements, WARP), np.float32)
    right[0, ::4] = 1  # one k alone, so that each sum is one product
    upper, lower = Registers(np.zeros((2, WARP), np.float32)), Registers(np.zeros((2, WARP), np.float32))
    assert row.meaning is not None
    row.meaning(lanes(), upper, lower, Registers(left), Registers(right))
    got, *_ = launch(text, "one", np.zeros((WARP, 4), np.float32), left.T, right.T)
    assert np.array_equal(got.T, np.concatenate([upper.values, lower.values]))


@pytest.mark.parametrize("trans", [False, True], ids=["plain", "trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("dtype", [BF16, TF32, E4M3], ids=str)
def test_ldmatrix_is_its_meaning(dtype: DType, count: int, trans: bool) -> None:
    if trans and dtype != BF16:
        pytest.skip("ldmatrix transposes elements of 16 bits")
    per, row = per_register(dtype), ldmatrix(count, dtype, trans)
    width, held = 4 * per, count * per
    text = typed(
        dtype,
        row.helper,
        f"""
extern "C" __global__ void one({dtype.c}* out, const {dtype.c}* rows)
{{
    __shared__ alignas(16) {dtype.c} tile[{8 * count}][{width}];
    alignas(16) {dtype.c} to[{held}];
    for (int i = threadIdx.x; i < {8 * count * width}; i += 32) (&tile[0][0])[i] = rows[i];
    __syncthreads();
    {row.name}(to, tile[threadIdx.x % {8 * count}]);
    for (int i = 0; i < {held}; ++i) out[threadIdx.x * {held} + i] = to[i];
}}
""",
    )
    bits = np.random.default_rng(3).permutation(8 * count * width).astype(f"uint{dtype.bits}").reshape(-1, width)
    rows = np.stack([bits[lane % (8 * count)] for lane in range(WARP)], axis=1)
    to = Registers(np.zeros((held, WARP), bits.dtype))
    assert row.meaning is not None
    row.meaning(lanes(), to, SimpleNamespace(load=lambda _width, _where: rows))
    got, _ = launch(text, "one", np.zeros((WARP, held), bits.dtype), bits)
    assert np.array_equal(got.T, to.values)
