"""NVRTC takes the texts of bfloat16 and float16, without a warning, from the first architecture that has the types."""

from __future__ import annotations

import pytest
from test_cuda_nvrtc import compiled, missing

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import ArgumentError, SpecError
from gemmgen.launch import EXACT, GUARDED, VARIANTS, Variant
from gemmgen.lower import lower
from gemmgen.spec.architecture import architecture_problem
from gemmgen.spec.ladder import ladder_path
from gemmgen.spec.model import Operand, Spec
from gemmgen.spec.parse import load, parse

nvrtc = pytest.mark.skipif(missing() is not None, reason=str(missing()))
SINGLE = Variant(GUARDED.guard, (("A", 2), ("B", 2), ("C", 2)))
TYPED = [("bf16", "bf16"), ("f16", "f32")]


def typed(rung: str, inputs: str, output: str) -> Spec:
    return load(ladder_path(rung)).replace(A=Operand(inputs), B=Operand(inputs), C=Operand(output))


@nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize(("inputs", "output"), TYPED)
@pytest.mark.parametrize("rung", ["naive", "smem", "doublebuffer", "cpasync", "tma", "splitk", "pipelined"])
def test_a_sample_compiles_without_warnings(rung: str, inputs: str, output: str, arch: str) -> None:
    spec = typed(rung, inputs, output)
    if architecture_problem(spec, arch):
        with pytest.raises(ArgumentError, match="needs compute capability"):
            gemmgen.emit(spec, arch=arch)
        return
    for variant in (EXACT, SINGLE):
        for ir in lower(spec, variant).kernels:
            compiled(emit_cuda(ir), ir.name, arch)


@nvrtc
@pytest.mark.parametrize("variant", [*VARIANTS.values(), SINGLE], ids=["exact", "guarded", "align_4", "align_2"])
@pytest.mark.parametrize("output", ["bf16", "f32"])
@pytest.mark.parametrize("rung", ["vectorized", "warptile"])
def test_the_tiled_rungs_do_not_spill(rung: str, output: str, variant: Variant) -> None:
    ir = lower(typed(rung, "bf16", output), variant)
    made = compiled(emit_cuda(ir), ir.name, "sm_90")
    assert made.resources.spill_bytes == 0 and made.resources.threads == ir.threads


@nvrtc
def test_float16_is_there_from_the_oldest_architecture_on() -> None:
    ir = lower(typed("smem", "f16", "f16"))
    compiled(emit_cuda(ir), ir.name, "sm_75")


@pytest.mark.parametrize("output", ["bf16", "f32"])
def test_bfloat16_is_refused_where_nothing_converts_to_it(output: str) -> None:
    spec = typed("smem", "bf16", output)
    told = "element type bf16 needs compute capability 8.0, and sm_75 is below it"
    with pytest.raises(SpecError, match=f"{told}; leave 'arch' out, or take f32"):
        parse(spec.to_text() + "arch sm_75\n")
    with pytest.raises(SpecError, match=told):
        spec.replace(arch="sm_75")
    with pytest.raises(ArgumentError, match=told):
        gemmgen.emit(spec, arch="sm_75")
