"""Blocks that compute tile after tile of C: every tile once and in order, the same bits and counts as without it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from effort import at_most
from hypothesis import given, settings
from hypothesis import strategies as st
from orderhelp import grouped, numbered
from pipelinehelp import FOLDER, PIPELINES, Floats, kernel, run_ordered, spec_of
from simhelp import close, operands
from strategies import specs
from test_launch import VECTOR, planned
from test_pipelines_counts import given_for, same
from tiers import examples

import gemmgen
from gemmgen.analysis.classes import evaluate
from gemmgen.analysis.counts import count
from gemmgen.analysis.printed import heading
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import SpecError
from gemmgen.ir.expr import Var
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Call, For, Let, Sync, walk
from gemmgen.ir.variant import EXACT
from gemmgen.isa.async_copy import MBARRIER_INIT, MBARRIER_WAIT
from gemmgen.isa.dependent import ALLOW_NEXT_KERNEL
from gemmgen.launch import LARGEST, VARIANTS, Limits
from gemmgen.lower import lower
from gemmgen.report.ablation import ablations
from gemmgen.sim.run import RunResult
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import parse
from gemmgen.tile import build, print_tile
from gemmgen.tune.estimate import blocks_of, estimate
from gemmgen.tune.families import default_specs
from gemmgen.tune.space import ranked, space

PERSISTENT = [name for name in PIPELINES if name.startswith("pipeline_persistent")]
ENGINE = [name for name in PERSISTENT if spec_of(name).has("tma")]
STAYING = VECTOR.replace(name="staying", persistent=5)
Size = tuple[int, int, int]


def one_each(spec: Spec) -> Spec:
    return replace(spec, persistent=0)


# --- The order --------------------------------------------------------------------------------------------------------


def loop_of(ir: KernelIR) -> For:
    (found,) = [s for s in walk(ir.body) if isinstance(s, For) and s.shared is not None]
    return found


def tiles(ir: KernelIR, columns: int, rows: int) -> list[tuple[int, int]]:
    """(row, column) of the tiles of C by their numbers."""
    known = {"tile": np.arange(columns * rows, dtype=np.int64)}
    known |= {"tileRows": np.asarray(rows), "tileCols": np.asarray(columns)}
    return numbered(list(walk(loop_of(ir).body)), known)


@pytest.mark.parametrize("group", [0, 2, 3, 8, 256])
def test_tiles_are_numbered_along_rows_or_in_groups_of_rows(group: int) -> None:
    ir = lower(STAYING.replace(cta_swizzle=group))
    for columns in (1, 2, 5, 16):
        for rows in (1, 2, 3, 7, 9, 260):
            assert tiles(ir, columns, rows) == list(grouped(columns, rows, group or 1))


def test_the_loop_takes_as_many_steps_as_there_are_blocks() -> None:
    loop = loop_of(lower(STAYING, VARIANTS["guarded"]))
    assert [str(e) for e in (loop.start, loop.stop, loop.step)] == ["blockIdx.x", "tileRows * tileCols", "gridDim.x"]


def test_what_is_the_same_for_all_tiles_stands_in_front_of_the_loop() -> None:
    text = emit_cuda(kernel("pipeline_persistent_release", "guarded"))
    text = text[text.index('extern "C"') :]
    before, inside = text.split("    for (int tile = blockIdx.x; tile < tileRows * tileCols; tile += gridDim.x) {")
    for once in ("const int row =", "const int col =", "const int tiles =", "mbarrier_init(", "mbarrier_fence()"):
        assert once in before and once not in inside, once
    for each in ("const int tileRow =", "float* blockC =", "const int passed =", "mbarrier_wait("):
        assert each in inside and each not in before, each
    assert re.findall(r"// (\d)\. (\w+)", text) == [
        ("1", "Placement"), ("2", "Pipeline"), ("3", "Which"), ("4", "Main"), ("5", "Epilogue")
    ]  # fmt: skip
    assert not re.search(r"blockIdx\.[xy]|gridDim\.y", inside)


# --- Results and counts -----------------------------------------------------------------------------------------------


def ran(spec: Spec, variant: str, size: Size, beta: float = -0.5, alpha: float = 1.5) -> tuple[Floats, RunResult]:
    a, b, c = operands(*size, seed=7)
    if not beta:
        c[...] = np.nan
    result = run_ordered(lower(spec, VARIANTS[variant]), a, b, c, alpha, beta)
    assert not result.faults, result.faults
    return c, result


def same_as_one_block_each(spec: Spec, variant: str, size: Size) -> None:
    """Bit by bit, and access by access; and the counts that are read off the program are those of running it."""
    c, result = ran(spec, variant, size)
    plain, expected = ran(one_each(spec), variant, size)
    assert np.array_equal(c, plain)
    spread = [{**x, "line": 0} for x in result.counters["accesses"]]
    assert spread == [{**x, "line": 0} for x in expected.counters["accesses"]]
    same(lower(spec, VARIANTS[variant]), size)


@pytest.mark.parametrize(
    ("tiles", "variant"), [((5, 2), "guarded_unaligned"), ((2, 4), "exact"), ((2, 3), "guarded"), ((1, 1), "exact")]
)
@pytest.mark.parametrize("name", PERSISTENT)
def test_any_number_of_tiles(name: str, tiles: tuple[int, int], variant: str) -> None:
    spec = spec_of(name)
    (bm, bn, bk), (rows, columns) = spec.block, tiles
    short = {"exact": (0, 0), "guarded": (4, 4), "guarded_unaligned": (5, 3)}[variant]
    size = (rows * bm - short[0], columns * bn - short[1], (spec.stages + 2) * bk * spec.split_k)
    for blocks in (1, 3, 1000):
        same_as_one_block_each(replace(spec, persistent=blocks), variant, size)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", PERSISTENT)
def test_stages_run_on_after_any_number_of_steps(name: str, steps: int) -> None:
    """Fewer steps along K than stages, as many and more, over many tiles of C of one block."""
    spec = replace(spec_of(name), persistent=1)
    bm, bn, bk = spec.block
    size = (3 * bm + 1, 2 * bn + 3, max(0, steps * bk * spec.split_k - 1))
    if spec.has("tma"):  # whose engine is used where rows are aligned
        size = (3 * bm + 4, 2 * bn + 4, steps * bk * spec.split_k)
    variant = "guarded" if spec.has("tma") else "guarded_unaligned"
    c, _ = ran(spec, variant, size)
    assert np.array_equal(c, ran(one_each(spec), variant, size)[0])


@pytest.mark.parametrize("name", PERSISTENT)
def test_factors_and_empty_sums(name: str) -> None:
    """beta 0 never reads C, alpha 0 neither A nor B, and K 0 scales C."""
    spec = spec_of(name)
    m, n, k = 3 * spec.block[0] + 1, 2 * spec.block[1] + 3, 5 * spec.block[2] + 1
    a, b, c = operands(m, n, k, seed=3)
    c = np.asarray(c, order="C" if spec.C.order == "row" else "F")
    for alpha, beta in ((1.0, 0.0), (0.0, 1.5), (0.0, 0.0), (0.5, -2.0)):
        start = c if beta else np.full_like(c, np.nan)
        x, y = (a, b) if alpha else (np.full_like(a, np.nan), np.full_like(b, np.nan))
        found = gemmgen.simulate(spec, x, y, start.copy(order="K"), alpha, beta)
        before = start if beta else np.zeros_like(start)
        assert not found.faults and close(found.C, a, b, before, alpha, beta)
    found = gemmgen.simulate(spec, a[:, :0], b[:0], c.copy(order="K"), 1.0, 2.0)
    assert not found.faults and np.array_equal(found.C, 2 * c)


@settings(max_examples=examples(30), deadline=None)
@given(
    spec=st.sampled_from([None, "plain", "cpasync", "tma"]).flatmap(
        lambda way: specs(max_threads=64, max_sums=16, max_size=16, orders=("row", "col"), way=way, split=True)
    ),
    blocks=st.integers(1, 5),
    size=st.tuples(st.integers(1, 15), st.integers(1, 12), st.integers(1, 6)),
)
def test_any_spec(spec: Spec, blocks: int, size: Size) -> None:
    same_as_one_block_each(replace(spec, persistent=blocks), "guarded", (4 * size[0], 4 * size[1], 4 * size[2]))


# --- What must be ordered ---------------------------------------------------------------------------------------------


def waits(ir: KernelIR) -> list[Call]:
    return [s for s in walk(ir.body) if isinstance(s, Call) and s.row is MBARRIER_WAIT]


@pytest.mark.parametrize(
    ("name", "hazards"),
    [
        ("pipeline_persistent_groups", 1), ("pipeline_persistent_columns", 1), ("pipeline_persistent", 0),
        ("pipeline_persistent_tma", 0), ("pipeline_persistent_release", 0), ("pipeline_persistent_release_1", 0),
    ],
)  # fmt: skip
def test_a_barrier_round_the_back_stands_where_no_other_one_does_its_work(name: str, hazards: int) -> None:
    found = [s.hazard for s in kernel(name, "guarded").syncs() if "next tile of C" in s.hazard]
    assert found == ["As, Bs: read by all threads above, overwritten for the next tile of C"] * hazards
    text = print_tile(build(spec_of(name), VARIANTS["guarded"]))
    assert text.count("next tile of C") == hazards
    assert not [s for s in lower(one_each(spec_of(name)), VARIANTS["guarded"]).syncs() if "tile of C" in s.hazard]


@pytest.mark.parametrize("name", ["pipeline_persistent_groups", "pipeline_persistent_columns"])
def test_without_the_barrier_round_the_back_tiles_are_overwritten_while_they_are_read(name: str) -> None:
    ir = kernel(name, "guarded")
    (sync,) = [s for s in ir.syncs() if "next tile of C" in s.hazard]
    bm, bn, bk = ir.tile
    steps = 1 + (ir.pipeline.ahead + 1)  # the last one's stage is filled again first
    rows = bm * 2 * ir.program.persistent
    a, b, c = operands(rows, bn, steps * bk * ir.program.parts)
    assert not run_ordered(ir, a, b, c).faults
    faults = run_ordered(ir.without(sync), a, b, c).faults
    assert {f.kind for f in faults} == {"race"} and {f.buffer for f in faults} <= {"As", "Bs"}
    a, b, c = operands(bm, bn, steps * bk * ir.program.parts)  # one tile of C: there is nothing to overwrite
    assert not run_ordered(ir.without(sync), a, b, c).faults


@pytest.mark.parametrize("name", ["pipeline_persistent_release", "pipeline_persistent_release_1"])
def test_the_first_tiles_of_the_next_tile_of_c_wait_for_every_warps_release(name: str) -> None:
    ir = kernel(name, "guarded")
    (first,) = [s for s in waits(ir) if "empty" in str(s) and "lastPhase" in str(s)]
    bm, bn, bk = ir.tile
    for tiles_of_c, kinds in ((1, set()), (2 * ir.program.persistent + 1, {"race"})):
        a, b, c = operands(bm * tiles_of_c, bn, 4 * bk * ir.program.parts)
        assert {f.kind for f in run_ordered(ir.without(first), a, b, c).faults} == kinds


@pytest.mark.parametrize("name", ENGINE)
def test_barriers_are_set_up_once_and_their_phases_run_on(name: str) -> None:
    ir = kernel(name, "guarded")
    inside = list(walk(loop_of(ir).body))
    assert not [s for s in inside if isinstance(s, Call) and s.row is MBARRIER_INIT]
    assert not [s for s in inside if isinstance(s, Sync) and "set up" in s.hazard]
    (passed,) = [s for s in inside if isinstance(s, Let) and s.var.name == "passed"]
    stages = ir.pipeline.ahead + 1
    rng = np.random.default_rng(1)
    for before, steps, blocks in zip(*(rng.integers(1, 1 << 15, 50) for _ in range(3)), strict=True):
        number = before * blocks + rng.integers(0, blocks)  # the block's tile of C behind ``before`` others
        known = {"tile": np.asarray(number), "gridDim.x": np.asarray(blocks), "tiles": np.asarray(steps)}
        assert evaluate(passed.expr, known) == before * steps % (2 * stages)
    high = passed.var.hi
    assert high is not None and high < 2 * stages


def test_stage_and_phase_are_still_kept_by_counting() -> None:
    text = emit_cuda(kernel("pipeline_persistent_release", "exact"))
    assert "int stage = passed % STAGES;" in text and "int parity = passed / STAGES;" in text
    assert "if (++stage == STAGES) { stage = 0; parity ^= 1; }" in text
    loop = text[text.index("for (int t = 0; t < tiles; ++t)") :]
    loop = loop[: loop.index("mbarrier_release(")]
    assert "passed" not in loop and "% STAGES" not in loop and "/ STAGES" not in loop


# --- The launch -------------------------------------------------------------------------------------------------------


def test_the_grid_is_as_many_blocks_as_there_are_tiles_or_as_are_asked_for() -> None:
    for m, n, blocks in ((64 * 9, 192, 5), (64, 192, 3), (64, 64, 1), (1, 1, 1), (64 * 5, 64, 5)):
        (step,) = planned(STAYING, m, n, 24).steps
        assert step.grid == (blocks, 1, 1)
    main, then = planned(STAYING.replace(split_k=3), 64 * 9, 192, 240).steps
    assert main.grid == (5, 1, 3) and then.kernel == "then"
    assert then == planned(one_each(STAYING).replace(split_k=3), 64 * 9, 192, 240).steps[1]


@pytest.mark.parametrize("name", ["pipeline_persistent", "pipeline_persistent_columns"])
def test_each_panel_of_a_large_product_has_its_own_launch(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from gemmgen import launch

    spec = spec_of(name)
    a, b, _ = operands(150, 130, 20)
    start = np.full((150, 130), np.nan, np.float32, order="C" if spec.C.order == "row" else "F")
    whole = gemmgen.simulate(spec, a, b, start.copy(order="K"))
    limits = Limits(grid_y=5, span=120)
    assert len(planned(spec.replace(A=VECTOR.A, C=VECTOR.C), 150, 130, 20, limits=limits).steps) > 2
    monkeypatch.setattr(launch.plan, "__kwdefaults__", {**launch.plan.__kwdefaults__, "limits": limits})
    parts = gemmgen.simulate(spec, a, b, start.copy(order="K"))
    assert whole.faults == parts.faults == () and np.array_equal(whole.C, parts.C)


def test_numbers_of_tiles_stay_below_2_31() -> None:
    tiny = Spec(name="tiny", block=(1, 1, 1), persistent=65535)
    for m, n in ((1, 1 << 24), (1 << 17, 1 << 16), (70000, 20000)):
        for step in planned(tiny, m, n, 1).steps:
            rows, columns = step.arguments.M, step.arguments.N
            assert step.grid == (min(65535, rows * columns), 1, 1)
            assert rows <= 65535 and rows * columns + 65535 <= LARGEST
    assert len(planned(STAYING, 1 << 20, 1 << 20, 1).steps) == 1


# --- Around it --------------------------------------------------------------------------------------------------------


def test_counts_of_any_size_take_no_longer() -> None:
    for name in PERSISTENT:
        ir = kernel(name, "guarded")
        for size in ((1024, 1024, 1028), (65540, 32772, 10004), (1 << 20, 1 << 20, 1 << 20)):
            with at_most(calls=500_000):
                found = count(ir, given_for(ir, size))
            assert found.fma == count(lower(one_each(spec_of(name)), ir.variant), given_for(ir, size)).fma


def test_explain_knows_how_many_blocks_and_how_many_tiles_each() -> None:
    spec = STAYING.replace(persistent=264)
    few, many = (gemmgen.explain(spec, 64 * tiles, 64 * 20, 512, compiled=False) for tiles in (10, 33))
    assert few.blocks == 200 and "200 blocks of 64 threads, at most 1 tile of C per block" in " ".join(
        heading(few).split()
    )
    assert many.blocks == 264 and "264 blocks of 64 threads, at most 3 tiles of C per block" in " ".join(
        heading(many).split()
    )
    plain = gemmgen.explain(one_each(spec), 64 * 33, 64 * 20, 512, compiled=False)
    assert plain.blocks == 660 and many.counts.fma == plain.counts.fma
    assert many.bound.floor_s == plain.bound.floor_s
    fewer = gemmgen.explain(spec.replace(persistent=1), 64 * 33, 64 * 20, 512, compiled=False)
    assert fewer.bound.total_s > 50 * many.bound.total_s  # one block leaves all multiprocessors but one idle


def test_the_tuner_takes_it_for_any_family() -> None:
    shape = (4096, 4096, 4096)
    gpu = gemmgen.target.gpu("h200")
    found = space(default_specs(shape)[:200], {"persistent": (0, 132, 264)})
    assert found.combinations == 600 and {c.spec.persistent for c in found.candidates} == {0, 132, 264}
    assert not [c for c in found.candidates if c.spec.persistent and c.spec.has("clusterReduce")]
    assert {c.spec.persistent for c in ranked(found, shape, gpu).candidates} == {0, 132, 264}
    spec = STAYING.replace(persistent=264)
    assert [blocks_of(build(spec, EXACT), x) for x in (shape, (64, 192, 8))] == [264, 3]
    assert estimate(spec.replace(persistent=1), shape, gpu).seconds > 50 * estimate(spec, shape, gpu).seconds


def test_it_is_a_setting_like_any_other() -> None:
    spec = gemmgen.load(FOLDER / "pipeline_persistent.gemm")
    assert spec.persistent == 2 and gemmgen.parse(spec.to_text()) == spec
    assert "persistent 2" in {a.without for a in ablations(spec)}
    tuned = gemmgen.parse(one_each(spec).to_text() + "tune persistent in {0, 132, 264}\n")
    assert tuned.tune == (("persistent", (0, 132, 264)),)


def test_the_tile_program_says_so() -> None:
    text = print_tile(build(STAYING, EXACT))
    assert "at most 5 blocks, of which each computes tile after tile of C" in text
    assert "for each of this block's tiles of C at (bm, bn), one after another:" in text


def test_the_text_says_how_it_is_launched() -> None:
    text = re.sub(r"\n// ", " ", emit_cuda(lower(STAYING)))
    assert "Launched with a block along x for each tile of C, but with no more than 5" in text


def test_the_next_kernel_is_allowed_before_all_tiles() -> None:
    ir = kernel("pipeline_persistent_release_1", "guarded")
    first = ir.body[0]
    assert isinstance(first, Call) and first.row is ALLOW_NEXT_KERNEL
    assert not [s for s in walk(loop_of(ir).body) if isinstance(s, Call) and s.row is ALLOW_NEXT_KERNEL]


def test_clusters_are_refused_in_one_line() -> None:
    with pytest.raises(SpecError, match=r"clusterReduce leaves sums .* with persistent 4 a block goes on") as error:
        parse("kernel x\ntile block 16x16x8\nuse smem, clusterReduce\nsplit_k 2\npersistent 4\n")
    assert error.value.line == 5 and len(error.value.errors) == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_nvrtc_needs_no_more_registers_than_without_it(variant: str) -> None:
    from test_cuda_nvrtc import compiled, missing

    if missing():
        pytest.skip(str(missing()))
    text = (
        "kernel winner\ntile block 128x128x32\ntile warp 32x128\ntile thread 1x4\n"
        "use coalescing, smem, float4, warptile(m_iter=8, n_iter=4), tma, release, prefetch, alongK, snake, "
        "separators\nstages 3\nunroll 8\nmin_blocks 2\n"
    )
    made = {}
    for blocks in (0, 264):
        ir = lower(parse(f"{text}persistent {blocks}\n"), VARIANTS[variant])
        made[blocks] = compiled(emit_cuda(ir), ir.name, "sm_90").resources
        assert made[blocks].spill_bytes == 0 or variant == "guarded_unaligned"
    assert made[264].registers <= made[0].registers + 8 or variant == "guarded_unaligned"


def test_the_variable_of_the_loop_is_an_int() -> None:
    loop = loop_of(lower(STAYING))
    assert isinstance(loop.var, Var) and loop.var.hi is not None and loop.var.hi + 65535 <= LARGEST
