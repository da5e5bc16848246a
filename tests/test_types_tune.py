"""What is tuned and timed of 16-bit types: the model ranks such a spec; nothing else is timed with f32 operands."""

from __future__ import annotations

import pytest

import gemmgen
from gemmgen import ArgumentError

HALF = gemmgen.parse(
    "kernel half\noperands A bf16, B bf16, C f32\ntile block 64x64x16\ntile thread 4x4\nuse coalescing, smem\n"
)


def test_the_model_ranks_the_spec_itself_and_no_kernel_of_other_types() -> None:
    result = gemmgen.tune(HALF, 64, 64, 64, device="sim", records=False)
    assert [t.spec for t in result.trials] == [HALF] and result.best == HALF
    result = gemmgen.tune(HALF, 64, 64, 64, device="sim", records=False, choices={"stages": (1, 2)})
    assert {str(t.spec.A.dtype) for t in result.trials} == {"bf16"}


def test_times_are_of_float32_alone() -> None:
    from test_tune import FakeBackend

    with pytest.raises(ArgumentError, match="half takes A bf16, B bf16; kernels are tuned with operands of f32 only"):
        gemmgen.tune(HALF, 64, 64, 64, backend=FakeBackend(), records=False)
