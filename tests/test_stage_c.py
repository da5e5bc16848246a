"""C's tile on its way through shared memory: the same bits as without, fewer sectors a store, and no bank twice."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelinehelp import PIPELINES, kernel, resources_of, run_ordered, spec_of
from simhelp import operands
from strategies import specs
from test_pipelines_counts import given_for, same
from tiers import examples

import gemmgen
from gemmgen.analysis.counts import count
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import SpecError
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Stmt, Store, edit
from gemmgen.ir.variant import EXACT, GUARDED, GUARDED_UNALIGNED, VARIANTS
from gemmgen.lower import lower, lower_program
from gemmgen.lower.tiles import Turn
from gemmgen.report.ablation import ablations
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import parse
from gemmgen.tile import SHARED_LIMIT, print_tile
from gemmgen.tile.rewrites import build
from gemmgen.tile.staging import loads_of_lines, stores_of_sums
from gemmgen.tune.estimate import estimate

STAGED = [name for name in PIPELINES if name.startswith("pipeline_stagec")]
ASYNC = ["pipeline_stagec_columns", "pipeline_stagec_tma"]
TALL = "kernel tall\ntile block 64x64x8\ntile thread 8x1\nuse coalescing, smem, transposeA, float4, stageC\n"


def without(spec: Spec) -> Spec:
    return replace(spec, use=spec.use - {"stageC"})


# --- Results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 7, 100])
@pytest.mark.parametrize("name", STAGED)
def test_the_bits_are_those_of_the_registers(name: str, k: int) -> None:
    spec = spec_of(name)
    bm, bn, _ = spec.block
    for m, n in ((3 * bm, bn), (2 * bm + 4, bn + 8), (bm + 3, bn + 5), (1, 2)):
        a, b, c = operands(m, n, k, seed=k)
        if k:
            a[0, 0], b[-1, -1] = np.inf, np.nan
        order = "C" if spec.C.order == "row" else "F"
        for alpha, beta in ((1.0, 0.0), (0.5, -2.0), (0.0, 1.5)):
            start = np.asarray(c if beta else np.full_like(c, np.nan), order=order)
            one = gemmgen.simulate(spec, a, b, start.copy(order="K"), alpha, beta)
            two = gemmgen.simulate(without(spec), a, b, start.copy(order="K"), alpha, beta)
            assert one.faults == two.faults == ()
            assert np.array_equal(one.C, two.C, equal_nan=True)
            assert gemmgen.verify(one.C, a, b, start, alpha, beta).ok


@settings(max_examples=examples(40), deadline=None)
@given(
    spec=st.sampled_from(["plain", "cpasync", "tma"]).flatmap(
        lambda way: specs(max_threads=64, max_sums=16, max_size=24, orders=("row", "col"), way=way, split=True)
    ),
    variant=st.sampled_from([GUARDED, GUARDED_UNALIGNED]),
    size=st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 5)),
)
def test_any_spec(spec: Spec, variant: Any, size: tuple[int, int, int]) -> None:
    """Bit by bit as without it, with the counts that are read off the program."""
    spec = replace(spec, use=spec.use | {"stageC"})
    m, n, k = (4 * x if variant == GUARDED else 3 * x for x in size)
    a, b, c = operands(m, n, k, seed=3)
    found = []
    for each in (spec, without(spec)):
        found.append(c.copy())
        assert not run_ordered(lower(each, variant), a, b, found[-1], 1.5, -0.5).faults
    assert np.array_equal(found[0], found[1])
    same(lower(spec, variant), (m, n, k))


# --- Faults -----------------------------------------------------------------------------------------------------------


def faults_of(ir: KernelIR) -> list[str]:
    bm, bn, bk = ir.tile
    a, b, c = operands(bm, bn, bk * ir.program.parts * (2 * (ir.pipeline.ahead + 1) + 1))
    return [str(f) for f in run_ordered(ir, a, b, c).faults]


@pytest.mark.parametrize("name", STAGED)
def test_lines_are_read_behind_a_barrier(name: str) -> None:
    ir = kernel(name, "guarded")
    last = ir.syncs()[-1]
    assert last.hazard == "Cs: written by all threads above, read by all below"
    assert any("Cs[" in f for f in faults_of(ir.without(last)))


@pytest.mark.parametrize("name", [x for x in STAGED if not x.endswith("plain")])
def test_sums_wait_until_all_have_read_the_tiles_whose_place_they_take(name: str) -> None:
    ir = kernel(name, "guarded")
    *_, before, _ = ir.syncs()
    tiles = ", ".join(b.name for b in build(spec_of(name), GUARDED).buffers)
    assert before.hazard == f"{tiles}: read by all threads above, overwritten below"
    assert any("Cs[" in f and "several threads read it" in f for f in faults_of(ir.without(before)))


@pytest.mark.parametrize("name", ASYNC)
def test_a_copy_beyond_the_last_tile_would_land_on_the_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is started: each copy in the loop stands under the condition that there is such a tile."""
    assert not faults_of(kernel(name, "guarded"))
    monkeypatch.setattr(Turn, "exists", lambda self, ahead: None)
    program = kernel(name, "guarded").program
    late = replace(lower_program(build(spec_of(name), GUARDED)), program=program)
    assert any("Cs[" in f for f in faults_of(late))


@pytest.mark.parametrize("name", STAGED)
def test_what_tiles_left_is_no_sum(name: str) -> None:
    ir = kernel(name, "guarded")

    def none(s: Stmt) -> tuple[Stmt, ...]:
        return () if isinstance(s, Store) and s.dst.array.name == "Cs" else (s,)

    found = faults_of(replace(ir, body=edit(ir.body, none)))
    assert found and all("Cs[" in f and "nothing wrote it" in f for f in found)


# --- Counts -----------------------------------------------------------------------------------------------------------


def stores_of_c(spec: Spec, m: int, n: int) -> tuple[int, int]:
    """Requests and sectors of a product's stores of C, simulated."""
    a, b, c = operands(m, n, spec.block[2])
    rows = run_ordered(lower(spec), a, b, c).counters["accesses"]
    found = [x for x in rows if (x["operand"], x["op"], x["space"]) == ("C", "store", "global")]
    return sum(x["requests"] for x in found), sum(x["sectors"] for x in found)


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        # Of 128 x 128: one column a thread, and its stores are of 4 bytes: 512 requests of 4 sectors.
        ("", (512, 2048), (128, 2048)),
        # Threads 8 rows apart in a column: 16 bytes of every sector a request, and each sector twice.
        ("operands C f32 col\n", (128, 4096), (128, 2048)),
        # 4 bytes of every sector a request, and each sector eight times.
        ("operands C f32 col\nuse coalescing, smem, stageC\n", (512, 16384), (512, 2048)),
        # Threads 8 columns apart, as in the rung `vectorized`: half a sector a request.
        ("tile thread 8x8\n", (128, 4096), (128, 2048)),
    ],
    ids=["one column", "columns of C", "4 bytes", "8x8"],
)
def test_stores_of_c_before_and_after(change: str, before: tuple[int, int], after: tuple[int, int]) -> None:
    given = {line.rsplit(" ", 1)[0] if line.startswith("tile") else line.split()[0] for line in change.splitlines()}
    kept = [line for line in TALL.splitlines() if not any(line.startswith(x) for x in given)]
    spec = parse("\n".join(kept) + "\n" + change)
    assert stores_of_c(without(spec), 128, 128) == before
    assert stores_of_c(spec, 128, 128) == after


def on_the_way(spec: Spec) -> dict[str, tuple[int, int]]:
    """Wavefronts of one block's stores to and loads from C's tile in shared memory, and ideal ones, as counted."""
    bm, bn, bk = spec.block
    counts = count(lower(spec), given_for(lower(spec), (bm, bn, bk)))
    rows = [a for a in counts.accesses if (a.operand, a.space) == ("C", "shared")]
    return {
        op: (
            sum(a.cost.wavefronts for a in rows if a.op == op) // spec.split_k,
            sum(a.cost.ideal_wavefronts for a in rows if a.op == op) // spec.split_k,
        )
        for op in ("store", "load")
    }


@pytest.mark.parametrize("name", STAGED)
def test_no_bank_is_asked_twice(name: str) -> None:
    tile = build(spec_of(name), EXACT).output.tile
    assert tile is not None and "no bank conflicts" in tile.why
    assert all(taken == ideal for taken, ideal in on_the_way(spec_of(name)).values())


@settings(max_examples=examples(40), deadline=None)
@given(
    spec=st.sampled_from(["plain", "tma"]).flatmap(
        lambda way: specs(max_threads=128, max_sums=32, max_size=64, orders=("row", "col"), way=way, split=True)
    )
)
def test_what_the_padding_was_chosen_by_is_what_the_kernel_does(spec: Spec) -> None:
    spec = replace(spec, use=spec.use | {"stageC"})
    p = build(spec, EXACT)
    tile = p.output.tile
    assert tile is not None
    stores, loads = stores_of_sums(p, p.output.left), loads_of_lines(p, p.output.width)
    pitch, free = tile.layout.pitch, "no bank conflicts" in tile.why
    found = on_the_way(spec)
    assert found["store"] == (stores.wavefronts(pitch), stores.ideal(pitch))
    assert found["load"] == (loads.wavefronts(pitch), loads.ideal(pitch))
    assert free == all(taken == ideal for taken, ideal in found.values())
    unit = max(p.output.left, p.output.width)
    others = range(tile.layout.extents[1], tile.layout.extents[1] + 64, unit)
    assert sum(taken for taken, _ in found.values()) == min(stores.wavefronts(x) + loads.wavefronts(x) for x in others)


def test_padding_that_takes_a_conflict_of_four_away() -> None:
    """Columns of C, of which a warp's lanes hold 4 elements each: with columns of 32 elements all in the same banks."""
    p = build(spec_of("pipeline_stagec_direct"), EXACT)
    stores = stores_of_sums(p, 4)
    assert p.output.tile is not None and p.output.tile.layout.pad == 4
    assert [stores.wavefronts(x) // stores.ideal(x) for x in (32, 36, 40)] == [8, 1, 2]


# --- Text and resources -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", STAGED)
def test_the_text_compiles_without_spills(name: str, variant: str, arch: str) -> None:
    if arch == "sm_80" and spec_of(name).has("tma"):
        pytest.skip("tma needs sm_90")
    assert resources_of(emit_cuda(kernel(name, variant)), arch, name).spill_bytes == 0


def test_the_text_says_why() -> None:
    text, engine = (
        re.sub(r"\n *// ", " ", emit_cuda(kernel(name, "guarded"))) for name in ("pipeline_stagec_direct", ASYNC[1])
    )
    assert "constexpr int PAD_C = 4;    // padding elements after each row of Cs" in text
    assert "rows are padded: no bank conflicts" in text
    assert "consecutive threads store neighbours of a column of C" in text
    assert "float (*Cs)[BM + PAD_C] = reinterpret_cast<float (*)[BM + PAD_C]>(blockShared);" in text
    assert "no copy that could overwrite them is in flight" in engine


def test_all_variants_have_one_layout_and_narrow_accesses_where_c_is_not_aligned() -> None:
    spec = parse(TALL)
    found = [build(spec, v).output for v in VARIANTS.values()]
    assert [x.width for x in found] == [4, 4, 1] and [x.left for x in found] == [1, 1, 1]
    assert len({x.tile.layout for x in found if x.tile is not None}) == 1


def test_shared_memory_is_that_of_the_larger() -> None:
    tiles, tile = 4 * (64 * 8 + 8 * 64), 4 * 64 * 64
    assert lower(parse(TALL)).shared_bytes == tile
    assert lower(without(parse(TALL))).shared_bytes == tiles
    deep = parse(TALL.replace("64x64x8", "64x64x48"))
    assert lower(deep).shared_bytes == lower(without(deep)).shared_bytes > tile


def test_more_than_shared_memory_holds_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.gemm"
    file.write_text("kernel large\ntile block 256x256x8\ntile thread 8x8\nuse smem, stageC\n")
    message = r"large\.gemm:4:11: error: stageC leaves 256x256 sums in shared memory, \d+ bytes; .*256x\d+ would fit"
    with pytest.raises(SpecError, match=message):
        gemmgen.load(file)


def test_no_padding_makes_a_tile_too_large() -> None:
    """One more element a row would take 896 bytes more than a block has."""
    spec = parse("kernel brim\ntile block 224x256x8\ntile thread 8x8\nuse smem, stageC\n")
    tile = build(spec, EXACT).output.tile
    assert tile is not None and tile.layout.pad <= 3 and lower(spec).shared_bytes <= SHARED_LIMIT


# --- The setting ------------------------------------------------------------------------------------------------------


def test_it_is_a_setting_like_any_other() -> None:
    spec = parse(TALL)
    assert parse(spec.to_text()) == spec
    assert "stageC" in {a.without for a in ablations(spec)}
    assert parse(without(spec).to_text() + "tune stageC in {on, off}\n").tune == (("stageC", (True, False)),)
    assert estimate(spec, (512, 512, 64), gemmgen.target.gpu("h200")).seconds > 0


def test_the_tile_program_prints_it() -> None:
    text = print_tile(build(parse(TALL), GUARDED))
    assert "  Cs = shared f32 [BM=64, BN=64]          # no bank conflicts" in text
    *_, leave, barrier, finish = text.splitlines()
    assert leave == "  Cs = acc   4 bytes per store, in the place of As, Bs"
    assert barrier == "  barrier                 # Cs: written by all threads above, read by all below"
    assert finish.startswith(
        "  C[bm, bn] = alpha * Cs + beta * C   16 bytes per store, consecutive threads along n, inside"
    )


def test_explained_it_fills_whole_sectors() -> None:
    spec = parse(TALL + "operands C f32 col\n")
    one, two = (gemmgen.explain(x, 512, 512, 64).to_dict()["global"]["store"] for x in (spec, without(spec)))
    assert one["bytes_used"] == two["bytes_used"] == 4 * 512 * 512
    assert one["sectors"] == 512 * 512 // 8 and two["sectors"] == 2 * one["sectors"]


def test_a_block_without_a_part_of_k_adds_nothing_to_lines_either() -> None:
    """Infinity times an empty sum would be no number."""
    text = "kernel x\ntile block 16x16x8\ntile thread 4x4\nuse coalescing, smem, atomics, stageC\nsplit_k 2\n"
    ones = np.ones((16, 8), np.float32), np.ones((8, 16), np.float32)
    done = gemmgen.simulate(gemmgen.parse(text), *ones, alpha=float("inf"))
    assert done.faults == () and np.isposinf(done.C).all()
