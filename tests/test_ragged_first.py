"""What whole tiles leave of K comes first: the same bits, and no check along K in the loop over the other tiles."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pipelinehelp import PIPELINES, spec_of
from simhelp import operands

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.launch import EXACT, GUARDED, GUARDED_UNALIGNED, Variant
from gemmgen.lower import lower
from gemmgen.spec.model import Spec
from gemmgen.tile import build, print_tile

RAGGED = [name for name in PIPELINES if name.startswith("pipeline_ragged")]
PADDED = Variant(GUARDED.guard, tuple((x, 16) for x in "ABC"), frozenset("A"))


def last_first(spec: Spec) -> Spec:
    return spec.replace(use=spec.use - {"raggedFirst"})


def loop_of(text: str) -> str:
    """The loop over tiles along K."""
    return text[text.index("for (int t = 0; t < tiles; ++t)") :]


def test_there_are_enough() -> None:
    assert len(RAGGED) >= 4


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize("k", [1, 5, 11, 12, 13, 15, 16, 17, 31, 37, 50, 64, 77])
def test_the_bits_are_those_of_the_short_tile_last(name: str, k: int) -> None:
    """Zeros are added in other places, and sums are in the same order."""
    spec = spec_of(name)
    if spec.split_k > 1:
        spec = spec.replace(split_k=1)
    a, b, c = operands(45, 71, k)
    one = gemmgen.simulate(spec, a, b, c, 1.5, -0.5)
    other = gemmgen.simulate(last_first(spec), a, b, c, 1.5, -0.5)
    assert one.faults == other.faults == ()
    assert np.array_equal(one.C, other.C)
    assert gemmgen.verify(one.C, a, b, c, 1.5, -0.5).ok


def test_the_loop_checks_nothing_along_k() -> None:
    spec = spec_of("pipeline_ragged_first")
    text = emit_cuda(lower(spec, GUARDED_UNALIGNED))
    assert "endK" in text and "or_zero" in text
    assert "endK" not in loop_of(text) and "or_zero(" not in loop_of(text) and "cp_async4(" in loop_of(text)
    assert "or_zero(" in loop_of(emit_cuda(lower(last_first(spec), GUARDED_UNALIGNED)))


@pytest.mark.parametrize("name", RAGGED)
def test_the_exact_kernel_is_the_same(name: str) -> None:
    spec = spec_of(name)
    texts = [re.sub(r"(?m)^//.*\n", "", emit_cuda(lower(s, EXACT))) for s in (spec, last_first(spec))]
    assert texts[0] == texts[1]


def test_rows_padded_with_zeros_keep_the_short_tile_last() -> None:
    """Their zeros are read with it, so that accesses stay whole."""
    spec = spec_of("pipeline_ragged_first")
    assert build(spec, GUARDED).pipeline.ragged_first and not build(spec, PADDED).pipeline.ragged_first
    assert "firstTile" not in emit_cuda(lower(spec, PADDED))


def test_it_is_said_in_the_tile_program() -> None:
    text = print_tile(build(spec_of("pipeline_ragged_spread"), GUARDED))
    assert "the first tile along K is the short one" in text
    copies = [line for line in text.splitlines() if "copy A" in line]
    assert len(copies) == 2
    assert "guarded in k, m" in copies[0] and "guarded in m spread over the steps" in copies[1]
