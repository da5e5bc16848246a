"""The model of waiting: each of its ideas alone, on steps small enough to reckon by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

import gemmgen
from gemmgen.analysis.latency import Step, Waits, run_clocks
from gemmgen.analysis.model import block_step, bounds
from gemmgen.spec.ladder import ladder_path

WAITS = Waits(step=600, direct=260, fragment=80, apart=0.5, sharpness=2.0, launch_s=1e-6)
STEP = Step(issue=1000, issue_shared=1000, traffic=400, fragments=8, warps=2, shared=True)


def test_a_block_alone_waits_for_its_loads_and_fragments() -> None:
    assert STEP.alone(WAITS) == 1000 + 0.5 * 400 + 600 + 80 * 8 / 2
    assert replace(STEP, shared=False, fragments=0).alone(WAITS) == 1000 + 0.5 * 400 + 260
    # More warps a scheduler fill the waits for fragments; less than one cannot make them longer.
    assert replace(STEP, warps=8).alone(WAITS) == 1200 + 600 + 80
    assert replace(STEP, warps=0.25).alone(WAITS) == 1200 + 600 + 640


def test_tiles_on_their_way_hide_the_wait() -> None:
    assert replace(STEP, ahead=1).alone(WAITS) == 1200 + 320
    short = replace(STEP, issue=100, issue_shared=100, traffic=0, fragments=0)
    assert [replace(short, ahead=n).alone(WAITS) for n in (0, 1, 3, 6)] == [700, 600, 400, 100]


def test_blocks_side_by_side_take_more_than_either_limit_and_less_than_both() -> None:
    one = STEP.together(1, WAITS)
    assert one == STEP.alone(WAITS) and STEP.together(0, WAITS) == 0
    for blocks in (2, 4, 8):
        together = STEP.together(blocks, WAITS)
        assert max(one, blocks * STEP.busy) < together < blocks * one
    # In the long run what is busy decides, and the waits are filled.
    assert STEP.together(1000, WAITS) == pytest.approx(1000 * STEP.busy, rel=1e-2)


def test_the_busiest_resource_of_a_multiprocessor() -> None:
    assert STEP.busy == 1000
    assert replace(STEP, traffic=3000).busy == 3000
    # Two warps on four schedulers: alone they take what they take, beside others only their part.
    assert replace(STEP, issue=1000, issue_shared=500).busy == 500


def test_the_last_wave_is_not_full() -> None:
    def of(blocks: int) -> float:
        return run_clocks(STEP, 10, blocks, 132, 2, WAITS)

    assert of(1) == of(132) == 10 * STEP.together(1, WAITS)
    assert of(133) == of(264) == 10 * STEP.together(2, WAITS)
    assert of(265) == 10 * (STEP.together(2, WAITS) + STEP.together(1, WAITS))


def test_expected_time_is_never_below_a_bound() -> None:
    nothing = Waits(step=0, direct=0, fragment=0, apart=0, sharpness=50, launch_s=0)
    for name in ("naive", "smem", "warptile"):
        run = gemmgen.explain(gemmgen.load(ladder_path(name)), 2048, 2048, 2048, compiled=False).run
        b = bounds(run, nothing)
        assert b.total_s >= b.floor_s > 0 and b.latency_s < 0.1 * b.floor_s
        assert bounds(run).total_s > b.total_s
        assert b.total_s < inf


def test_a_step_of_a_spec() -> None:
    run = gemmgen.explain(gemmgen.load(ladder_path("vectorized")), 1024, 1024, 1024, compiled=False).run
    step, steps = block_step(run)
    assert (steps, step.fragments, step.warps, step.shared, step.ahead) == (128, 8, 2.0, True, 0)
    assert step.issue == step.issue_shared == pytest.approx(8 * 64 * 2 + 2 * 8 * 4 + 2 * 7, rel=0.05)
    naive, batches = block_step(gemmgen.explain(gemmgen.load(ladder_path("naive")), 64, 64, 64, compiled=False).run)
    assert (batches, naive.fragments, naive.shared) == (16, 0, False)


def test_pipelines_wait_less() -> None:
    spec = gemmgen.load(ladder_path("vectorized"))
    plain, piped = (
        bounds(gemmgen.explain(s, 1024, 1024, 1024, compiled=False).run)
        for s in (spec, spec.replace(stages=2, use=spec.use | {"prefetch"}))
    )
    assert piped.latency_s < plain.latency_s
