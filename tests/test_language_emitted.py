"""What of a spec's text reaches the CUDA text: its name, and nothing that depends on how the file was saved."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import specs

from gemmgen.cuda.emit import emit_cuda
from gemmgen.launch import VARIANTS
from gemmgen.lower import lower
from gemmgen.spec.ladder import ladder_names, ladder_path
from gemmgen.spec.model import Spec
from gemmgen.spec.names import name_problem
from gemmgen.spec.parse import load, parse


def identifiers(cuda: str) -> set[str]:
    """The names in a text that a kernel's own could clash with: what is declared outside it, and its arrays. Names
    inside it, and those of its parameters, hide its own."""
    helpers, kernel = re.sub(r'//.*|"[^"]*"|#pragma.*', "", cuda).split("extern", 1)
    declared = re.findall(r"^(?:__device__ .*?(\w+)\(|struct .*?(\w+) \{|constexpr int (\w+))", helpers, re.MULTILINE)
    shared = re.findall(r"__shared__ (?:\w+\(\d+\) )?(?:float|unsigned long long) (As|Bs|Cs|dynamicShared)\b", kernel)
    named = re.findall(r"__global__ void .*?__launch_bounds__\(.*?\)\s+(\w+)\(", kernel, re.DOTALL)
    assert len(named) == 1
    return {name for name in {*shared, *named, *(x for names in declared for x in names)} if name}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ladder_names())
def test_names_of_the_ladders_text_are_reserved(name: str, variant: str) -> None:
    used = identifiers(emit_cuda(lower(load(ladder_path(name)), VARIANTS[variant])))
    assert {name for name in used if not name_problem(name)} == {name}


@given(
    specs(orders=("row", "col"), split=True, cluster=True, dependent=True, atomics=True),
    st.sampled_from(sorted(VARIANTS)),
)
def test_names_of_any_text_are_reserved(spec: Spec, variant: str) -> None:
    used = identifiers(emit_cuda(lower(spec, VARIANTS[variant])))
    assert {name for name in used if not name_problem(name)} == {spec.name}


ASYNCHRONOUS = """kernel mine
tile block 64x128x16
tile thread 8x4
use coalescing, smem, float4, prefetch, separators, {}
stages 3
"""


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("use", ["tma", "cpasync", "cpasync, spread", "tma, alongK", "cpasync, transposeA"])
def test_names_of_asynchronous_texts_are_reserved(use: str, variant: str) -> None:
    used = identifiers(emit_cuda(lower(parse(ASYNCHRONOUS.format(use)), VARIANTS[variant])))
    assert {name for name in used if not name_problem(name)} == {"mine"}


@pytest.mark.parametrize("name", ["smem_k", "float4_test", "x", "kernel_a"])
def test_g10_the_name_is_the_kernels_in_cuda(name: str) -> None:
    spec = parse(f"kernel {name}\ntile block 32x32x8\ntile thread 4x4\nuse coalescing, smem, transposeA, float4\n")
    assert re.search(rf"^(?:.*\s)?{name}\(int M, int N, int K", emit_cuda(lower(spec)), re.MULTILINE)


@pytest.mark.parametrize("name", ladder_names())
def test_g29_the_form_of_the_file_does_not_reach_cuda(name: str) -> None:
    text = ladder_path(name).read_text(encoding="utf-8")
    cuda = emit_cuda(lower(parse(text)))
    for form in ("\ufeff" + text, text.replace("\n", "\r\n"), text.rstrip("\n"), text.replace("\n", " \t\n") + "# end"):
        assert emit_cuda(lower(parse(form))) == cuda
    # The canonical text has no comments behind its lines, which the header repeats.
    plain = emit_cuda(lower(parse(parse(text).to_text())))
    assert _code(plain) == _code(cuda)


def _code(cuda: str) -> str:
    """A text without comments."""
    return "\n".join(line for x in cuda.split("\n") if (line := x.partition("//")[0].rstrip()))
