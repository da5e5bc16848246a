"""Sums that the blocks of a cluster add up: the launch, the same bits as a second kernel's, and what can go wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pipelinehelp import PIPELINES, kernel, resources_of, run_ordered, spec_of
from simhelp import operands
from test_launch import VECTOR, planned

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import ArgumentError, SpecError
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Load, Stmt, Store, Sync, edit
from gemmgen.launch import VARIANTS, Limits
from gemmgen.spec.parse import parse
from gemmgen.tune.estimate import estimate

CLUSTERS = [name for name in PIPELINES if name.startswith("pipeline_cluster")]
SHARED = VECTOR.replace(name="shared", split_k=4, use=VECTOR.use | {"clusterReduce"})


def without_cluster(spec: gemmgen.Spec) -> gemmgen.Spec:
    return spec.replace(use=spec.use - {"clusterReduce"})


# --- The launch -------------------------------------------------------------------------------------------------------


def test_a_product_is_one_launch_with_no_workspace() -> None:
    result = planned(SHARED, 128, 192, 64, alpha=2.0, beta=3.0)
    (step,) = result.steps
    assert (step.kernel, step.output, step.grid) == ("main", "C", (3, 2, 4))
    assert (step.arguments.alpha, step.arguments.beta, step.arguments.ldc) == (2.0, 3.0, 192)
    assert result.partials == result.workspace == 0
    assert gemmgen.lower(SHARED).then is None


def test_g28_panels_have_whole_clusters() -> None:
    result = planned(SHARED, 64 * 11 + 5, 192, 32, limits=Limits(grid_y=4))
    assert [step.grid for step in result.steps] == [(3, 4, 4)] * 3
    assert [step.arguments.M for step in result.steps] == [256, 256, 197]


# --- Results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 7, 100])
@pytest.mark.parametrize("name", CLUSTERS)
def test_the_bits_are_those_of_a_second_kernel(name: str, k: int) -> None:
    spec = spec_of(name)
    bm, bn, _ = spec.block
    for m, n in ((2 * bm, bn), (bm + 3, bn + 5), (1, 2)):
        a, b, c = operands(m, n, k, seed=k)
        if k:
            a[0, 0], b[-1, -1] = np.inf, np.nan
        order = "C" if spec.C.order == "row" else "F"
        for alpha, beta in ((1.0, 0.0), (0.5, -2.0), (0.0, 1.5)):
            start = np.asarray(c if beta else np.full_like(c, np.nan), order=order)
            one = gemmgen.simulate(spec, a, b, start, alpha, beta)
            two = gemmgen.simulate(without_cluster(spec), a, b, start, alpha, beta)
            assert one.faults == two.faults == ()
            assert np.array_equal(one.C, two.C, equal_nan=True)
            assert gemmgen.verify(one.C, a, b, start, alpha, beta).ok


def test_batches_of_blocks_hold_whole_clusters() -> None:
    """With memory for one block at a time, the blocks of a cluster still run together."""
    from gemmgen.sim.run import Options

    ir = kernel("pipeline_cluster_plain", "guarded_unaligned")
    a, b, c = operands(70, 130, 50)
    want = c.copy()
    assert not run_ordered(ir, a, b, want).faults
    got = c.copy()
    assert not run_ordered(ir, a, b, got, options=Options(memory_bytes=1)).faults
    assert got.tobytes() == want.tobytes()


# --- Faults -----------------------------------------------------------------------------------------------------------


def faults_without(ir: KernelIR, sync: Sync) -> list[str]:
    bm, bn, bk = ir.tile
    a, b, c = operands(bm, bn, bk * ir.program.parts * ((ir.pipeline.ahead + 1) + 1))
    return [str(f) for f in run_ordered(ir.without(sync), a, b, c).faults]


@pytest.mark.parametrize("name", CLUSTERS)
def test_each_barrier_of_the_cluster_is_needed_and_said_to_be(name: str) -> None:
    ir = kernel(name, "guarded")
    first, second = [s for s in ir.syncs() if s.scope == "cluster"]
    (found,) = faults_without(ir, first)
    assert "sums[" in found and "of another block writes it" in found and "no barrier of the cluster between" in found
    (found,) = faults_without(ir, second)
    assert "sums[" in found and "the block that has it may end before" in found


@pytest.mark.parametrize("name", ["pipeline_cluster_columns", "pipeline_cluster_registers", "pipeline_cluster_tma"])
def test_sums_wait_until_all_have_read_the_tiles_whose_place_they_take(name: str) -> None:
    ir = kernel(name, "guarded")
    last = next(s for s in reversed(ir.syncs()) if s.scope == "block")
    assert last.hazard == "As, Bs: read by all threads above, overwritten below"
    assert any("sums[" in f and "several threads read it" in f for f in faults_without(ir, last))


def test_what_tiles_left_is_no_sum() -> None:
    """A kernel that leaves some of its sums out reads what lies there instead, and is told so."""
    ir = kernel("pipeline_cluster_tma", "guarded")

    def none(s: Stmt) -> tuple[Stmt, ...]:
        return () if isinstance(s, Store) and s.dst.array.name == "sums" else (s,)

    a, b, c = operands(64, 64, 3 * 16 * 4)
    found = run_ordered(replace(ir, body=edit(ir.body, none)), a, b, c).faults
    assert "uninitialized" in {f.kind for f in found}
    assert any("nothing wrote it since As lay there" in str(f) for f in found)


def test_overwriting_what_another_block_reads_is_a_race() -> None:
    ir = kernel("pipeline_cluster_plain", "guarded")
    first, second = [s for s in ir.syncs() if s.scope == "cluster"]
    again = next(s for s in ir.body[-1].body if not isinstance(s, Sync))  # type: ignore[union-attr]

    def before(s: Stmt) -> tuple[Stmt, ...]:
        return (again, s) if s == second else (s,)

    a, b, c = operands(32, 64, 24)
    found = run_ordered(replace(ir, body=edit(ir.body, before)), a, b, c).faults
    assert any(f.kind == "race" and "of another block reads it" in str(f) for f in found)
    assert first.id != second.id


# --- Counts -----------------------------------------------------------------------------------------------------------


def test_remote_loads_are_rows_of_their_own() -> None:
    """64 threads leave 8 pieces of 16 bytes each; each of 3 blocks fetches 3, 3 and 2 of them from all three."""
    a, b, c = operands(32, 64, 24)
    rows = run_ordered(kernel("pipeline_cluster_plain", "exact"), a, b, c).counters["accesses"]
    sums = [x for x in rows if x["operand"] == "sums"]
    assert [(x["op"], x["space"], x["width"]) for x in sums] == [("store", "shared", 4), ("load", "shared", 4)]
    assert [x["requests"] for x in sums] == [3 * 8 * 2, 3 * 8 * 2]
    assert all(x["wavefronts"] == 4 * x["requests"] for x in sums)  # 512 bytes each, no bank asked for twice


# --- Text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CLUSTERS)
def test_the_text_compiles_without_spills(name: str, variant: str) -> None:
    text = emit_cuda(kernel(name, variant))
    assert "__cluster_dims__(1, 1, SPLIT_K) __launch_bounds__(THREADS)" in text
    assert resources_of(text, "sm_90a", name).spill_bytes == 0


def test_the_sums_take_the_place_of_the_tiles() -> None:
    small, large = kernel("pipeline_cluster_plain", "exact"), kernel("pipeline_cluster_tma", "exact")
    assert small.shared_bytes == 4 * 32 * 64  # more than tiles of 32x8 and 8x64
    assert "blockShared[PIECES * THREADS * 4];" in emit_cuda(small)
    assert large.shared_bytes == 3 * 4 * (64 * 16 + 16 * 64) + 3 * 8  # tiles and their barriers, more than 64x64 sums
    assert all(s.rank is None for s in large.body if isinstance(s, Load))


def test_an_architecture_without_clusters_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"clusterReduce needs compute capability 9\.0, and sm_86 is below it"):
        gemmgen.emit(SHARED, arch="sm_86")


def test_more_sums_than_shared_memory_holds_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.gemm"
    file.write_text("kernel large\ntile block 256x256x8\ntile thread 8x8\nuse smem, clusterReduce\nsplit_k 2\n")
    with pytest.raises(SpecError, match=r"leaves 256x256 sums in shared memory, 262144 bytes; .*256x128 would fit"):
        gemmgen.load(file)


def test_turning_it_off_leaves_a_legal_spec_and_so_does_the_text() -> None:
    assert gemmgen.lower(without_cluster(SHARED)).then is not None
    assert parse(SHARED.to_text()) == SHARED


def test_the_models_know_that_there_is_no_second_launch() -> None:
    gpu, shape = gemmgen.target.gpu("h200"), (512, 512, 512)
    assert estimate(SHARED, shape, gpu).seconds < estimate(without_cluster(SHARED), shape, gpu).seconds
    one, two = (gemmgen.explain(x, 512, 512, 512) for x in (SHARED, without_cluster(SHARED)))
    assert (one.launches, two.launches) == (1, 2)
    assert one.bound.latency_s < two.bound.latency_s
