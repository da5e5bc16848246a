"""Occupancy by the allocation rules against the driver's own, for random launches of real kernels."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from gemmgen.analysis.occupancy import occupancy_of
from gemmgen.runtime import device as devices
from gemmgen.runtime.nvrtc import compile_cubin
from gemmgen.target import limits

pytestmark = pytest.mark.gpu

TRIPLES = 320
MOST_REGISTERS = (0, 24, 32, 40, 56, 64, 80, 96, 112, 128, 168, 200, 255)
VALUES = (4, 24, 60, 120, 220)
STATIC = (0, 1000, 20000)

SOURCE = """
extern "C" __global__ void busy(const float* in, float* out, int n)
{{
    {shared}
    float sum[{values}];
    #pragma unroll
    for (int i = 0; i < {values}; ++i) sum[i] = in[i * 32 + threadIdx.x];
    for (int step = 0; step < n; ++step) {{
        const float x = in[step];
        #pragma unroll
        for (int i = 0; i < {values}; ++i) sum[i] = sum[i] * x + sum[(i + 1) % {values}];
    }}
    #pragma unroll
    for (int i = 0; i < {values}; ++i) out[i * 32 + threadIdx.x] = sum[i];
    {use}
}}
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel that takes some registers per thread and static shared memory per block."""

    function: Any
    registers: int
    shared: int


def source(values: int, static: int) -> str:
    shared = f"__shared__ volatile char kept[{static}]; kept[threadIdx.x % {static}] = n;" if static else ""
    return SOURCE.format(values=values, shared=shared, use=f"out[n] = kept[n % {static}];" if static else "")


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    """Kernels of many sizes, compiled and loaded."""
    from gemmgen.runtime.driver import call, make_current

    here = devices.required()
    make_current(here.ordinal)
    found = []
    for i, most in enumerate(MOST_REGISTERS):
        for j, values in enumerate(VALUES):
            options = (f"--maxrregcount={most}",) if most else ()
            text = source(values, STATIC[(i + j) % len(STATIC)])
            made = compile_cubin(text, here.arch, name="busy", options=options)
            function = call("cuModuleGetFunction", call("cuModuleLoadData", made.cubin), b"busy")
            found.append(Kernel(function, made.resources.registers, made.resources.shared_bytes))
    return found


def test_occupancy_is_the_drivers(kernels: list[Kernel]) -> None:
    from gemmgen.runtime.driver import bindings, call

    here = devices.required()
    of = limits(here.arch)
    attribute = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    draw = random.Random(3)
    seen = set()
    for number in range(TRIPLES):
        kernel = draw.choice(kernels)
        threads = draw.choice((draw.randint(1, 1024), 32 * draw.randint(1, 32)))
        dynamic = draw.choice((0, draw.randint(0, 48 << 10), draw.randint(0, of.shared_per_block - kernel.shared)))
        call("cuFuncSetAttribute", kernel.function, attribute, of.shared_per_block - kernel.shared)
        driver = int(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", kernel.function, threads, dynamic))
        ours = occupancy_of(of, threads, kernel.registers, kernel.shared + dynamic)
        said = (number, threads, kernel.registers, kernel.shared, dynamic, ours)
        assert ours.blocks_per_sm == driver, said
        seen.add((threads, kernel.registers, kernel.shared + dynamic))
    assert len(seen) >= 200
    assert len({registers for _, registers, _ in seen}) >= 10


def test_the_device_has_the_limits_of_the_table() -> None:
    here = devices.required()
    of = limits(here.arch)
    assert here.threads_per_sm == 32 * of.warps
    assert here.registers_per_block == of.registers_per_block
    assert here.registers_per_sm == of.registers
    assert here.shared_per_block == of.shared_per_block
    assert here.shared_static == of.shared_static


def test_the_ladders_kernels() -> None:
    """The kernels themselves, at their own launch bounds."""
    from pathlib import Path

    import gemmgen
    from gemmgen.runtime.driver import bindings, call, make_current

    here = devices.required()
    make_current(here.ordinal)
    attribute = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    for path in sorted((Path(__file__).parents[2] / "specs").glob("*.gemm")):
        spec = gemmgen.load(path)
        ir = gemmgen.lower(spec)
        made = compile_cubin(gemmgen.emit(spec), spec.arch or here.arch, name=spec.name)
        function = call("cuModuleGetFunction", call("cuModuleLoadData", made.cubin), spec.name.encode())
        dynamic = ir.shared_bytes - made.resources.shared_bytes
        if dynamic > 0:
            call("cuFuncSetAttribute", function, attribute, dynamic)
        driver = int(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, ir.threads, max(0, dynamic)))
        ours = occupancy_of(limits(here.arch), ir.threads, made.resources.registers, ir.shared_bytes)
        assert ours.blocks_per_sm == driver, spec.name
