"""Kernels of tensor cores compile for every architecture that has their instructions, and use them."""

from __future__ import annotations

import pytest
from test_cuda_nvrtc import WARNING, missing
from test_mma import spec

from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import SpecError
from gemmgen.launch import EXACT, GUARDED
from gemmgen.lower import lower
from gemmgen.runtime.nvrtc import compile_cubin
from gemmgen.spec.ladder import LADDER_BF16, ladder_path
from gemmgen.spec.parse import load

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

ARCHS = ("sm_80", "sm_90", *(pytest.param(x, marks=pytest.mark.full) for x in ("sm_86", "sm_89", "sm_120")))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", [*(x for x in LADDER_BF16 if x.startswith("mma")), "tf32"])
def test_the_ladder_compiles_without_warnings(name: str, arch: str) -> None:
    for variant in (EXACT, GUARDED):
        ir = lower(load(ladder_path(name)), variant)
        made = compile_cubin(emit_cuda(ir), arch, name=ir.name, cache=None)
        assert not [line for line in made.log.splitlines() if WARNING.search(line)], made.log
        assert made.resources.spill_bytes <= (8 if variant == EXACT else 128)


@pytest.mark.parametrize("name", [*(x for x in LADDER_BF16 if x.startswith("wgmma")), "fp8"])
def test_warp_groups_compile_without_warnings(name: str) -> None:
    for variant in (EXACT, GUARDED):
        ir = lower(load(ladder_path(name)), variant)
        made = compile_cubin(emit_cuda(ir), ir.target("sm_90"), name=ir.name, cache=None)
        assert not [line for line in made.log.splitlines() if WARNING.search(line)], made.log
        assert made.resources.spill_bytes == 0 and "C7512" not in made.log  # serialised wgmma


@pytest.mark.parametrize("arch", ["sm_89", pytest.param("sm_120", marks=pytest.mark.full)])
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_float8_compiles_from_sm_89_on(dtype: str, arch: str) -> None:
    ir = lower(spec(dtype, ("row", "col", "row"), "bf16", "pipelined"))
    assert compile_cubin(emit_cuda(ir), arch, name=ir.name, cache=None).cubin


@pytest.mark.parametrize(("dtype", "arch"), [("e4m3", "sm_86"), ("bf16", "sm_75"), ("tf32", "sm_75")])
def test_an_architecture_without_the_instruction_is_an_error_that_names_both(dtype: str, arch: str) -> None:
    fine = spec(dtype, ("row", "col", "row"), "f32", "plain")
    with pytest.raises(SpecError) as info:
        fine.replace(arch=arch)
    assert fine.math in str(info.value) and arch in str(info.value)
