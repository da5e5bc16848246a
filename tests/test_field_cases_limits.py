"""Field cases of the second list on limits, by number: grids, GPUs, shared memory, names, architectures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelinehelp import resources_of
from strategies import specs

import gemmgen
from gemmgen import ArgumentError, CompileError, SpecError
from gemmgen.cli import run
from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.variant import EXACT
from gemmgen.launch import plan_aligned
from gemmgen.spec.architecture import INSTRUCTIONS, architecture_problem, known_architectures, runs_on
from gemmgen.spec.ladder import ladder_names, ladder_path
from gemmgen.spec.model import SETTINGS, Spec
from gemmgen.target import ARCHS, GPUS, LIMITS
from gemmgen.tile import build
from gemmgen.tune.tuning import tune

STAGED = "kernel staged\ntile block 16x16x8\ntile thread 4x4\nuse coalescing, smem\n"
LIMITED = {row.name: row.most for row in SETTINGS if row.most is not None}
GRID = {"split_k": 65535, "persistent": 65535}


def refusal(text: str) -> SpecError:
    with pytest.raises(SpecError) as raised:
        gemmgen.parse(text)
    return raised.value


def saved(folder: Path, text: str, name: str = "given.gemm") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


# --- F01: settings that become a dimension of the grid ----------------------------------------------------------------


def test_F01_every_setting_that_becomes_a_grid_dimension_has_a_limit() -> None:
    assert GRID.items() <= LIMITED.items()


@pytest.mark.parametrize("setting", LIMITED)
@pytest.mark.parametrize("over", [1, 10**6, 999_000_000])
def test_F01_a_number_over_its_limit_is_refused_with_both(setting: str, over: int) -> None:
    most = LIMITED[setting]
    assert getattr(gemmgen.parse(f"{STAGED}{setting} {most}\n"), setting) == most
    error = refusal(f"{STAGED}{setting} {most + over}\n")
    assert f"{setting} {most + over} is over the limit of {most}" in error.message and str(most) in error.hint
    with pytest.raises(SpecError, match=f"over the limit of {most}"):
        gemmgen.parse(STAGED).replace(**{setting: most + over})
    assert (
        f"{most + over} is over the limit of {most}"
        in refusal(f"{STAGED}tune {setting} in {{1, {most + over}}}\n").message
    )


@pytest.mark.parametrize(("setting", "value"), [("split_k", 0), ("persistent", -1)])
def test_F01_nor_does_a_choice_hold_what_is_below_the_least(setting: str, value: int) -> None:
    with pytest.raises(SpecError, match=f"tune {setting}: {value} is below the least"):
        gemmgen.parse(STAGED).replace(tune={setting: (1, value)})


@pytest.mark.parametrize("use", ["", ", atomics"])
def test_F01_the_largest_split_has_a_largest_k_above_zero(use: str) -> None:
    spec = gemmgen.parse(STAGED.replace("smem", f"smem{use}") + "split_k 65535\n")
    with pytest.raises(ArgumentError, match=r"the largest K of one launch is [1-9]\d+$"):
        gemmgen.explain(spec, 16, 16, 2**31 - 1, compiled=False)
    assert max(step.grid[2] for step in steps(spec, (16, 16, 10**6))) == 65535


def steps(spec: Spec, size: tuple[int, int, int]) -> Any:
    m, n, k = size
    shapes = zip(((m, k), (k, n), (m, n)), (spec.A.order, spec.B.order, spec.C.order), strict=True)
    strides = tuple((columns, 1) if order == "row" else (1, rows) for (rows, columns), order in shapes)
    return plan_aligned(spec, size, strides, (0, 0, 0), 1.0, 0.0).steps


EXTENT = st.one_of(st.integers(1, 70_000), st.sampled_from([65535, 65536, 2**20 + 1, 2**31 - 1]))


@settings(max_examples=40)
@given(specs(split=True, atomics=True), EXTENT, EXTENT, st.integers(1, 5000), st.sampled_from([1, 7, 65535]))
def test_F01_every_launch_is_within_the_limits_of_a_grid(spec: Spec, m: int, n: int, k: int, many: int) -> None:
    spec = spec.replace(split_k=max(2, many) if spec.split_k > 1 else 1, persistent=many if spec.persistent else 0)
    bm, bn, _ = spec.block
    m, n = min(m, 300_000 * bm), min(n, 300_000 * bn)  # a plan of few panels
    for step in steps(spec, (m, n, k)):
        assert all(1 <= blocks <= most for blocks, most in zip(step.grid, (2**31 - 1, 65535, 65535), strict=True))


# --- F02: a GPU that lacks what a spec needs --------------------------------------------------------------------------

LACKS = [("tma", "a100", "9.0"), ("cpasync", "t4", "8.0"), ("pipelined", "rtx4090", "9.0")]


@pytest.mark.parametrize(("rung", "gpu", "least"), LACKS)
@pytest.mark.parametrize(
    "command",
    [
        ["explain", "{}"],
        ["diff", "{}", "naive"],
        ["diff", "naive", "{}"],
        ["ablate", "{}"],
        ["tune", "{}", "--model"],
        ["tune", "{}", "--model", "--set", "cta_swizzle=0,4"],
    ],
)
def test_F02_a_command_refuses_it_with_what_it_needs_and_what_the_gpu_is(
    command: list[str], rung: str, gpu: str, least: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*(part.format(rung) for part in command), "--gpu", gpu]) == 2
    out, err = capsys.readouterr()
    row = GPUS[gpu]
    assert not out and f"needs compute capability {least}" in err and row.title in err and row.arch in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("rung", ladder_names())
@pytest.mark.parametrize("gpu", ["t4", "a100", "h200"])
def test_F02_explain_and_simulate_agree_with_the_instructions_rows(rung: str, gpu: str) -> None:
    import numpy as np

    spec = gemmgen.load(ladder_path(rung))
    problem = architecture_problem(spec, GPUS[gpu].arch)
    rows = [INSTRUCTIONS[toggle].arch.min for toggle in spec.use if toggle in INSTRUCTIONS]
    assert (problem is not None) == (max([0, *rows]) > int(GPUS[gpu].arch[3:]))
    if problem is not None:
        with pytest.raises(ArgumentError, match=re.escape(GPUS[gpu].title)):
            gemmgen.explain(spec, 64, 64, 64, gpu=gpu, compiled=False)
        with pytest.raises(ArgumentError, match=re.escape(problem)):
            gemmgen.simulate(spec, np.ones((4, 4), np.float32), np.ones((4, 4), np.float32), gpu=gpu)
        with pytest.raises(ArgumentError, match=re.escape(problem)):
            tune(spec, 64, 64, 64, device="sim", gpu=gpu, records=False)


@pytest.mark.parametrize(
    ("use", "gpu", "least"),
    [("clusterReduce", "l40s", "9.0"), ("dependentLaunch", "a6000", "9.0"), ("float4, atomics", "a100", "9.0")],
)
def test_F02_and_a_call_each_instruction(use: str, gpu: str, least: str) -> None:
    spec = gemmgen.parse(STAGED.replace("smem", f"smem, {use}") + "split_k 2\n")
    with pytest.raises(ArgumentError, match=rf"{GPUS[gpu].arch}.*needs compute capability {least}"):
        gemmgen.explain(spec, 64, 64, 64, gpu=gpu)
    assert gemmgen.explain(spec, 64, 64, 64, gpu="h100", compiled=False).gpu.name == "h100"


def test_F02_a_spec_for_a_newer_architecture_does_not_run_on_an_older_gpu() -> None:
    spec = gemmgen.parse(f"{STAGED}arch sm_90\n")
    with pytest.raises(ArgumentError, match=r"A100.*sm_80.*'arch sm_90'"):
        gemmgen.explain(spec, 64, 64, 64, gpu="a100")
    assert gemmgen.explain(gemmgen.parse(f"{STAGED}arch sm_80\n"), 64, 64, 64, gpu="h200", compiled=False).blocks == 16


@pytest.mark.parametrize(
    ("arch", "there", "runs"),
    [
        ("sm_80", "sm_90", True), ("sm_90", "sm_80", False), ("sm_90a", "sm_90", True), ("sm_90a", "sm_100", False),
        ("sm_100f", "sm_103", True), ("sm_100f", "sm_120", False), ("sm_103a", "sm_100", False),
    ],
)  # fmt: skip
def test_F02_which_code_an_architecture_runs(arch: str, there: str, runs: bool) -> None:
    assert runs_on(arch, there) is runs


def test_F02_advice_for_a_gpu_is_of_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    for rung in ("smem", "vectorized"):
        assert run(["explain", rung, "--gpu", "t4", "--size", "1024"]) == 0
        assert not re.search(r"adding[^.]*(cpasync|tma)", capsys.readouterr().out)


# --- F03: what a block needs, against the architecture that is known --------------------------------------------------

LARGE = "kernel large\ntile block 128x128x{}\ntile thread 8x8\nuse coalescing, smem\n"


@pytest.mark.parametrize("arch", LIMITS)
def test_F03_shared_memory_is_checked_against_the_spec_s_architecture(arch: str) -> None:
    limit = LIMITS[arch].shared_per_block
    fits = limit // 1024
    assert gemmgen.parse(LARGE.format(fits) + f"arch {arch}\n").arch == arch
    error = refusal(LARGE.format(fits + 1) + f"arch {arch}\n")
    assert f"{1024 * (fits + 1)} bytes" in error.message and f"at most {limit} on {arch}" in error.message


def test_F03_and_against_that_of_a_command_or_a_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = LARGE.format(128)
    spec, path = gemmgen.parse(text), saved(tmp_path, text)
    for command in (["compile", path, "-o", str(tmp_path), "--arch", "sm_86"], ["explain", path, "--gpu", "rtx3090"],
                    ["ablate", path, "--gpu", "a6000"], ["tune", path, "--model", "--gpu", "l40s"]):  # fmt: skip
        assert run(command) == 2, command
        told = capsys.readouterr().err
        assert "131072 bytes" in told and "101376" in told, command
    for refused in (
        lambda: gemmgen.compile(spec, device="sim", arch="sm_86"),
        lambda: gemmgen.emit(spec, arch="sm_120"),
        lambda: gemmgen.explain(spec, 512, 512, 512, gpu="rtx5090"),
    ):
        with pytest.raises(ArgumentError, match=r"131072 bytes.*101376"):
            refused()


def test_F03_sums_in_shared_memory_are_checked_too() -> None:
    spec = gemmgen.parse("kernel sums\ntile block 256x128x8\ntile thread 8x8\nuse coalescing, smem, stageC\n")
    with pytest.raises(ArgumentError, match=r"stageC leaves 256x128 sums.* 131072 bytes.* 101376 on sm_89"):
        gemmgen.explain(spec, 512, 512, 512, gpu="l40s")


# --- F04: the shared memory that is reported is the cubin's -----------------------------------------------------------


@settings(max_examples=150)
@given(st.one_of(specs(orders=("row", "col"), cluster=True, split=True), specs(way="tma", split=True, cluster=True)))
def test_F04_the_tile_program_and_the_kernel_agree_on_shared_memory(spec: Spec) -> None:
    assert build(spec, EXACT).shared_bytes == gemmgen.lower(spec).shared_bytes


PADDED = "kernel padded\ntile block {}\ntile thread {}\nuse {}\npad_a {}\npad_b {}\n"


@pytest.mark.parametrize(
    ("block", "thread", "use", "pads", "need"),
    [
        ("25x32x1", "1x1", "smem", (242, 6181), 49152),  # of separate arrays 49,156
        ("25x32x1", "1x1", "smem", (242, 6180), 49152),  # 49,148 without the gap
        ("25x32x1", "1x1", "smem", (242, 6177), 49140),
        ("1x19x1", "1x1", "smem", (0, 0), 92),
        ("5x7x3", "1x1", "smem, coalescing, transposeA", (1, 2), 188),
        ("6x9x5", "2x3", "smem, cpasync", (3, 1), 392),
        ("16x16x3", "4x4", "smem, float4", (0, 3), 420),
    ],
)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_F04_the_cubin_takes_as_much_as_is_reported(
    block: str, thread: str, use: str, pads: tuple[int, int], need: int, arch: str
) -> None:
    spec = gemmgen.parse(PADDED.format(block, thread, use, *pads))
    for variant in ("exact", "guarded_unaligned"):
        ir = gemmgen.lower(spec, variant)
        assert ir.shared_bytes == need
        assert resources_of(emit_cuda(ir), arch, ir.name).shared_bytes == need


def test_F04_barriers_count_toward_the_limit() -> None:
    """227 KB of tiles, and a barrier for each stage of them."""
    text = "kernel full\ntile block {}x128x32\ntile thread {}x8\nuse coalescing, smem, float4, tma{}\nstages 8\n"
    assert gemmgen.lower(gemmgen.parse(text.format(96, 8, ""))).shared_bytes == 4 * 32 * (96 + 128) * 8 + 64
    assert "Bs 131072 + full 64); a block has at most 232448" in refusal(text.format(99, 9, "")).message
    assert "full 64 + empty 64)" in refusal(text.format(99, 9, ", release")).message


# --- F10: names of kernels --------------------------------------------------------------------------------------------

INSIDE = """
    t p k i j m n v q s f a b z row col acc out old warp lane tile tiles stage stage2 nextStage step sums part total
    M N K lda alpha beta line offset depth piece own number warpRow threadCol blockA tileB full parity
"""
FEATURES = (
    "tile block 64x64x8\ntile thread 4x4\nuse coalescing, smem, transposeA, float4, cpasync, prefetch\n"
    "stages 3\nsplit_k 2\n",
    "tile block 64x64x16\ntile thread 4x4\nuse coalescing, smem, float4, tma, alongK, prefetch, release\nstages 3\n",
)


@pytest.mark.parametrize("name", INSIDE.split())
def test_F10_a_name_inside_the_kernel_is_free(name: str) -> None:
    for text in FEATURES:
        assert gemmgen.parse(f"kernel {name}\n{text}").name == name


@pytest.mark.parametrize("name", ["t", "p", "k", "row", "tile", "stage2", "M", "sums"])
def test_F10_and_its_text_compiles(name: str) -> None:
    for text in FEATURES:
        main = gemmgen.lower(gemmgen.parse(f"kernel {name}\n{text}"), "guarded")
        for ir in main.kernels:
            assert resources_of(emit_cuda(ir), "sm_90", ir.name).registers


@pytest.mark.parametrize(
    "name", ["BM", "STRIDE_A", "as_float4", "TensorMap", "cp_async_wait2", "dynamicShared", "int", "min"]
)
def test_F10_a_name_that_would_not_compile_is_refused(name: str) -> None:
    assert f"kernel name '{name}'" in refusal(f"kernel {name}\n{FEATURES[0]}").message


# --- F25: architectures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arch", ["sm_52", "sm_70", "sm_61", "sm_80a", "sm_90f", "sm_99", "sm_999", "compute_90", "hopper", "sm_9"]
)
def test_F25_an_architecture_without_machine_code_is_refused_with_those_that_have_it(
    arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = gemmgen.parse(STAGED)
    for refused in (lambda: gemmgen.compile(spec, device="sim", arch=arch), lambda: gemmgen.emit(spec, arch=arch)):
        with pytest.raises(ArgumentError) as raised:
            refused()
        assert known_architectures() in str(raised.value) and arch in str(raised.value)
    path = saved(tmp_path, STAGED)
    assert run(["compile", path, "-o", str(tmp_path), "--arch", arch]) == 2
    assert known_architectures() in capsys.readouterr().err
    assert not list(tmp_path.glob("*.cu"))
    error = refusal(f"{STAGED}arch {arch}\n")
    assert error.line == 5 and arch in error.message


def test_F25_a_virtual_architecture_names_the_real_one() -> None:
    with pytest.raises(ArgumentError, match=r"virtual architecture.*write 'sm_90'"):
        gemmgen.compile(gemmgen.parse(STAGED), device="sim", arch="compute_90")


def test_F25_each_known_architecture_compiles() -> None:
    from gemmgen.runtime.nvrtc import NvrtcMissing, supported_archs

    try:
        there = supported_archs()
    except NvrtcMissing as missing:
        pytest.skip(str(missing))
    spec = gemmgen.parse("kernel tiny\ntile block 32x1\n")
    for arch in ARCHS:
        if int(re.sub(r"\D", "", arch)) in there:
            assert gemmgen.compile(spec, device="sim", arch=arch).cubin


def test_F25_what_this_nvrtc_lacks_is_said_with_what_it_has() -> None:
    from gemmgen.runtime.nvrtc import NvrtcMissing, compile_cubin

    source = 'extern "C" __global__ void f(float* x) { *x = 1; }'
    try:
        compile_cubin(source, name="f", cache=None)
    except NvrtcMissing as missing:
        pytest.skip(str(missing))
    with pytest.raises(CompileError, match=r"does not compile for sm_52; it does for .*sm_90"):
        compile_cubin(source, "sm_52", name="f", cache=None)
