"""The order in which blocks go over C: every tile once, in groups of rows; the same bits and counts as without it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orderhelp import grouped, numbered
from pipelinehelp import FOLDER, PIPELINES, Floats, run_ordered, spec_of
from simhelp import operands
from strategies import specs
from test_launch import VECTOR, planned
from test_pipelines_counts import same
from tiers import examples

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import walk
from gemmgen.launch import LARGEST, VARIANTS, Limits
from gemmgen.lower import lower
from gemmgen.report.ablation import ablations
from gemmgen.sim.run import RunResult
from gemmgen.spec.model import Spec

SWIZZLED = [name for name in PIPELINES if name.startswith("pipeline_cta_swizzle")]
GROUPED = VECTOR.replace(name="grouped", cta_swizzle=8)


def along_rows(spec: Spec) -> Spec:
    return spec.replace(cta_swizzle=0)


# --- The order --------------------------------------------------------------------------------------------------------


def tiles(ir: KernelIR, columns: int, rows: int) -> list[tuple[int, int]]:
    """(row, column) of the tile that each block of a grid computes, in the order in which blocks start."""
    number = np.arange(columns * rows, dtype=np.int64)
    known = {"blockIdx.x": number % columns, "blockIdx.y": number // columns}
    known |= {"gridDim.x": np.asarray(columns), "gridDim.y": np.asarray(rows)}
    return numbered(list(walk(ir.body)), known)


@pytest.mark.parametrize("group", [2, 3, 8, 256])
def test_every_tile_is_taken_once_down_the_rows_of_its_group(group: int) -> None:
    ir = lower(VECTOR.replace(cta_swizzle=group))
    for columns in (1, 2, 5, 16):
        for rows in (1, 2, 3, 7, 8, 9, 260):
            assert tiles(ir, columns, rows) == list(grouped(columns, rows, group))


def test_the_text_asks_for_the_block_in_one_place() -> None:
    text = emit_cuda(lower(GROUPED.replace(split_k=2), VARIANTS["guarded"]))
    *_, last = re.finditer(r".*const int tileCol = .*", text)
    assert len(re.findall(r"blockIdx\.[xy]|gridDim", text[: last.end()])) == 5
    assert not re.search(r"blockIdx\.[xy]|gridDim", text[last.end() :])
    assert "tileRow * BM * lda" in text and "tileCol * BN;" in text


def test_groups_of_one_row_are_the_order_of_the_grid() -> None:
    plain = lower(VECTOR)
    one = lower(VECTOR.replace(cta_swizzle=1))
    assert one.body == plain.body and one.constants == plain.constants and one.renumbered == ()
    (note,) = gemmgen.parse(VECTOR.replace(cta_swizzle=1).to_text()).notes
    assert note.startswith("cta_swizzle 1 has no effect")


# --- Results and counts -----------------------------------------------------------------------------------------------


def ran(spec: Spec, variant: str, size: tuple[int, int, int]) -> tuple[Floats, RunResult]:
    a, b, c = operands(*size, seed=7)
    result = run_ordered(lower(spec, VARIANTS[variant]), a, b, c, 1.5, -0.5)
    assert not result.faults
    return c, result


def same_as_along_rows(spec: Spec, variant: str, size: tuple[int, int, int]) -> None:
    """Bit by bit, and access by access; and the counts that are read off the program are those of running it."""
    c, result = ran(spec, variant, size)
    plain, expected = ran(replace(spec, cta_swizzle=0), variant, size)
    assert np.array_equal(c, plain)
    spread = [{**x, "line": 0} for x in result.counters["accesses"]]
    assert spread == [{**x, "line": 0} for x in expected.counters["accesses"]]
    same(lower(spec, VARIANTS[variant]), size)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tiles", [(5, 3), (2, 5), (7, 1)])
@pytest.mark.parametrize("name", SWIZZLED)
def test_odd_numbers_of_tiles(name: str, tiles: tuple[int, int], variant: str) -> None:
    spec = spec_of(name)
    (bm, bn, bk), (rows, columns) = spec.block, tiles
    short = {"exact": (0, 0), "guarded": (4, 4), "guarded_unaligned": (5, 3)}[variant]
    same_as_along_rows(spec, variant, (rows * bm - short[0], columns * bn - short[1], 2 * bk * spec.split_k))


@settings(max_examples=examples(40), deadline=None)
@given(
    spec=st.sampled_from([None, "plain", "cpasync", "tma"]).flatmap(
        lambda way: specs(max_threads=64, max_sums=16, max_size=16, orders=("row", "col"), way=way, cluster=True)
    ),
    group=st.integers(2, 5),
    size=st.tuples(st.integers(1, 30), st.integers(1, 20), st.integers(1, 4)),
)
def test_any_spec(spec: Spec, group: int, size: tuple[int, int, int]) -> None:
    same_as_along_rows(replace(spec, cta_swizzle=group), "guarded", (4 * size[0], 4 * size[1], 4 * size[2]))


# --- The launch -------------------------------------------------------------------------------------------------------


def test_the_grid_is_the_same() -> None:
    assert [planned(x, 64 * 9, 192, 24).steps[0].grid for x in (GROUPED, VECTOR)] == [(3, 9, 1)] * 2


@pytest.mark.parametrize("name", ["pipeline_cta_swizzle", "pipeline_cta_swizzle_columns"])
def test_each_panel_of_a_large_product_is_grouped_by_itself(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from gemmgen import launch

    spec = spec_of(name)
    a, b, _ = operands(150, 130, 20)
    start = np.full((150, 130), np.nan, np.float32, order="C" if spec.C.order == "row" else "F")
    whole = gemmgen.simulate(spec, a, b, start.copy(order="K"))
    limits = Limits(grid_y=5, span=60)
    monkeypatch.setattr(launch.plan, "__kwdefaults__", {**launch.plan.__kwdefaults__, "limits": limits})
    parts = gemmgen.simulate(spec, a, b, start.copy(order="K"))
    assert whole.faults == parts.faults == () and np.array_equal(whole.C, parts.C)


def test_numbers_of_blocks_stay_below_2_31() -> None:
    tiny = Spec(name="tiny", block=(1, 1, 1), cta_swizzle=256)
    steps = planned(tiny, 1, 1 << 24, 1).steps
    assert len(steps) == 4 and all(256 * step.grid[0] <= LARGEST for step in steps)
    assert len(planned(along_rows(tiny), 1, 1 << 24, 1).steps) == 1


# --- The setting ------------------------------------------------------------------------------------------------------


def test_it_is_a_setting_like_any_other() -> None:
    spec = gemmgen.load(FOLDER / "pipeline_cta_swizzle.gemm")
    assert spec.cta_swizzle == 3 and gemmgen.parse(spec.to_text()) == spec
    assert "cta_swizzle 3" in {a.without for a in ablations(spec)}
    tuned = gemmgen.parse(along_rows(spec).to_text() + "tune cta_swizzle in {0, 4, 8}\n")
    assert tuned.tune == (("cta_swizzle", (0, 4, 8)),)
