"""NVRTC takes every text, without a warning, for the oldest and the newest of the architectures that matter."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from host_cuda.samples import THREAD, A, C, kernel, tiled
from pipelinehelp import PIPELINES
from pipelinehelp import kernel as pipeline

from gemmgen.cuda.emit import STATIC_SHARED_BYTES, emit_cuda
from gemmgen.diagnostics import CompileError
from gemmgen.ir.expr import Const
from gemmgen.ir.kernel import Param
from gemmgen.ir.nodes import Alloc, Array, Fma, Load, Ref, Store
from gemmgen.launch import VARIANTS
from gemmgen.lower import lower
from gemmgen.runtime.nvrtc import Compiled, NvrtcMissing, compile_cubin, version
from gemmgen.spec.architecture import architecture_problem
from gemmgen.spec.ladder import LADDER, ladder_path
from gemmgen.spec.parse import load, parse


def missing() -> str | None:
    """Why nothing can be compiled here; None if it can."""
    try:
        version()
    except NvrtcMissing as e:
        return str(e)
    return None


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

SPILLED = {((13, 0), "warptile", "exact", "sm_90"): 8}
"""Bytes that a version of NVRTC spills where later ones spill none: three blocks per SM leave 168 registers."""
WARNING = re.compile(r"warning|remark|error", re.IGNORECASE)


def compiled(text: str, name: str, arch: str) -> Compiled:
    made = compile_cubin(text, arch, name=name, cache=None)
    assert not [line for line in made.log.splitlines() if WARNING.search(line)], made.log
    return made


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", LADDER)
def test_ladder_compiles_without_warnings_or_spills(name: str, variant: str, arch: str) -> None:
    spec = load(ladder_path(name))
    if architecture_problem(spec, arch):
        pytest.skip(f"{name} is not for {arch}")
    main = lower(spec, VARIANTS[variant])
    for ir in (main, main.then):
        if ir is None:
            continue
        made = compiled(emit_cuda(ir), ir.name, arch)
        # With narrow copies, the code for sm_80 of kernels that hold a tile on its way keeps some addresses in memory.
        spills_somewhere = arch == "sm_80" and variant == "guarded_unaligned" and spec.stages > 1
        known = SPILLED.get((version(), ir.name, variant, arch), 0)
        assert made.resources.spill_bytes <= known or spills_somewhere
        assert made.resources.threads == ir.threads
        dynamic = ir.shared_bytes > STATIC_SHARED_BYTES  # asked for at launch
        assert made.resources.shared_bytes == (0 if dynamic else ir.shared_bytes)


# A tile dimension of 1, a copy of one line a pass, an edge where nothing divides, more than 48 KB.
UNUSUAL = {
    "one_row": "tile block 1x32x1\nuse smem",
    "one_column": "tile block 32x1x4\nuse smem, transposeA, float4",
    "line_a_pass": "tile block 64x64x8\ntile thread 8x8\nuse coalescing, smem",
    "nothing_divides": "tile block 33x35x7\ntile thread 3x5\nuse coalescing, smem",
    "columns": """operands A f32 col, B f32 col, C f32 col
tile block 32x32x8
tile thread 4x4
use smem, transposeA, float4""",
    "large": "tile block 128x128x64\ntile thread 8x8\nuse coalescing, smem, transposeA, float4",
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_tiles_compile_without_warnings(name: str, variant: str) -> None:
    spec = parse(f"kernel {name}\n{UNUSUAL[name]}\n")
    compiled(emit_cuda(lower(spec, VARIANTS[variant])), name, "sm_90")


@pytest.mark.parametrize("variant", ["exact", "guarded_unaligned"])
@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_compile_without_warnings_or_spills(name: str, variant: str) -> None:
    for ir in pipeline(name, variant).kernels:
        made = compiled(emit_cuda(ir), ir.name, "sm_90")
        assert made.resources.spill_bytes == 0
        assert made.resources.threads == ir.threads


def test_s1_comments_do_not_break_the_text() -> None:
    spec = parse("# tile A\\\n# a */ b ??/\nkernel hostile\ntile block 16x16x8\nuse smem\n")
    text = emit_cuda(lower(spec))
    assert "tile A" in text
    compiled(text, "hostile", "sm_90")


def test_what_the_ladder_does_not_use_compiles_too() -> None:
    tile = Array("As", "shared", shape=(Const(4), Const(128)), align=16)
    x, acc = Array("x", "register", shape=(Const(4),)), Array("acc", "register")
    place = (Const(1), THREAD * 4)
    loads = [
        Load(Ref(x, (Const(0),)), Ref(tile, place), 4, pinned=True),
        Load(Ref(x, (Const(0),)), Ref(tile, place), 2, pinned=True),
        Load(Ref(x, (Const(0),)), Ref(A, (THREAD * 4,)), 4, pinned=True),
        Load(Ref(x, (Const(0),)), Ref(A, (THREAD,)), pinned=True),
    ]
    fma = Fma(Ref(acc), Ref(x, (Const(0),)), Ref(x, (Const(1),)), fused=True)
    body = (Alloc(x), Alloc(acc, 0.0), *loads, fma, Store(Ref(C, (THREAD,)), Ref(acc)))
    ir = kernel(body, shared=(tile,))
    ir = replace(ir, params=(*ir.params, Param("mapA", "tensormap")))
    compiled(emit_cuda(ir), "sample", "sm_90")


@pytest.mark.parametrize("rows", [8, 4096])
def test_static_and_dynamic_shared_memory(rows: int) -> None:
    compiled(emit_cuda(tiled(rows=rows)), "tiled", "sm_80")


@pytest.mark.parametrize("name", [n for n in LADDER if load(ladder_path(n)).min_blocks])
def test_a_rung_says_what_min_blocks_does_as_compiled(name: str) -> None:
    """Its comment says that it limits nothing where the compiler takes as many registers without it."""
    spec = load(ladder_path(name))
    texts = [emit_cuda(lower(s)) for s in (spec, spec.replace(min_blocks=0))]
    with_it, without = (compile_cubin(text, "sm_90", name=name).resources.registers for text in texts)
    said = " ".join(re.findall(r"#(.*)", ladder_path(name).read_text()))
    assert ("limits nothing" in said) == (with_it == without), (with_it, without)


@pytest.mark.parametrize(
    ("name", "constant", "value", "message"),
    [
        ("vectorized", "BK", 16, "A's tile must be whole passes of the block's threads"),
        ("smem", "BK", 16, "A's tile must be whole passes of the block's threads"),
        ("warptile", "BM", 64, ""),  # one pass of A less, all of it copied
        ("cpasync", "UNROLL", 1, "UNROLL must be even: prefetch takes turns between two sets of registers"),
        ("pipelined", "UNROLL", 2, "UNROLL must be a multiple of 4: A is loaded 4 steps at a time"),
        ("splitk", "BK", 20, "A's tile must be whole passes of the block's threads"),
    ],
)
def test_a_constant_that_a_reader_edits_is_refused_where_the_kernel_would_be_wrong(
    name: str, constant: str, value: int, message: str
) -> None:
    text = re.sub(rf"(constexpr int {constant} = )[^;]+;", rf"\g<1>{value};", emit_cuda(lower(load(ladder_path(name)))))
    try:
        said = compile_cubin(text, "sm_90", name=name).log
    except CompileError as error:
        said = str(error)
    assert (message in said) if message else not re.search("error|assert", said)
