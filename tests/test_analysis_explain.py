"""Explanations: figures that people look up, bounds against measured times, and advice that holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import at_most

from gemmgen.analysis.advice import TRIES, Advice, advise
from gemmgen.analysis.counts import Counts, count
from gemmgen.analysis.explain import Compiled, Explanation, explained
from gemmgen.analysis.occupancy import named_registers, register_limit
from gemmgen.analysis.printed import explanation_text
from gemmgen.analysis.traffic import compulsory_bytes, flops
from gemmgen.api.explaining import explain
from gemmgen.api.simulation import simulate
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.variant import EXACT
from gemmgen.launch import plan_aligned
from gemmgen.lower import lower
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import load, parse
from gemmgen.target import gpu

SPECS = Path(__file__).parent.parent / "specs"
RUNGS = ["naive", "coalesced", "smem", "regblock1d", "regblock2d", "vectorized", "warptile"]

# TFLOP/s of the ladder's reference kernels at 4096^3, measured on the H200 of the table of GPUs.
MEASURED = {"naive": 0.50, "coalesced": 6.24, "smem": 9.05, "regblock1d": 16.85, "regblock2d": 25.6,
            "vectorized": 31.1, "warptile": 36.1}  # fmt: skip


def rung(name: str, m: int = 4096, n: int = 4096, k: int = 4096, beta: float = 0.0) -> Explanation:
    return explain(load(SPECS / f"{name}.gemm"), m, n, k, beta=beta)


def test_to_dict_has_the_promised_keys() -> None:
    d = rung("warptile").to_dict()
    assert list(d) == [
        "kernel", "size", "gpu", "variant", "blocks", "threads_per_block", "shared_bytes", "registers", "occupancy",
        "flops", "fma", "global", "shared", "accesses", "intensity", "bound",
    ]  # fmt: skip
    assert list(d["occupancy"]) == ["blocks_per_sm", "warps_per_sm", "fraction", "limiter"]
    assert list(d["global"]["load"]) == list(d["global"]["store"]) == ["requests", "sectors", "bytes_used"]
    assert list(d["shared"]["load"]) == ["requests", "wavefronts", "ideal_wavefronts"]
    assert list(d["intensity"]) == ["naive", "block_tile", "ideal", "flop_per_shared_load"]
    resources = ["compute", "issue", "shared", "l1", "l2", "dram", "latency"]
    assert list(d["bound"]) == [*(f"{r}_s" for r in resources), "by"]
    assert d["bound"]["by"] in resources
    for row in d["accesses"]:
        assert list(row) == [
            "operand", "op", "space", "width", "spec_line", "cuda_line", "requests", "sectors", "wavefronts",
        ]  # fmt: skip
    assert d["registers"] is None or set(d["registers"]) == {"per_thread", "spill_bytes", "arch"}
    assert json.loads(json.dumps(d)) == d
    assert (d["blocks"], d["threads_per_block"], d["shared_bytes"]) == (1024, 128, 16384)
    assert (d["flops"], d["fma"]) == (2 * 4096**3, 4096**3)


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize(("size", "beta"), [((130, 132, 40), 0.0), ((37, 131, 21), 1.5), ((256, 128, 32), 1.0)])
def test_counts_are_those_of_the_simulator(name: str, size: tuple[int, int, int], beta: float) -> None:
    m, n, k = size
    a, b, c = (np.zeros(s, dtype=np.float32) for s in ((m, k), (k, n), (m, n)))
    ran = simulate(load(SPECS / f"{name}.gemm"), a, b, c, beta=beta).counters
    read = rung(name, m, n, k, beta).to_dict()
    for key in ("global", "shared", "fma"):
        assert read[key] == ran[key]
    fields = ("operand", "op", "space", "width", "spec_line", "requests", "sectors", "wavefronts")
    assert rows(read, fields) == rows(ran, fields)


def rows(counters: Any, fields: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return [tuple(a[f] for f in fields) for a in counters["accesses"] if a["requests"]]


@pytest.mark.parametrize("name", RUNGS)
def test_rows_point_at_their_line_of_cuda(name: str) -> None:
    spec = load(SPECS / f"{name}.gemm")
    cuda = emit_cuda(lower(spec, EXACT)).split("\n")
    spec_lines = (SPECS / f"{name}.gemm").read_text(encoding="utf-8").split("\n")
    for row in rung(name).accesses():
        assert row["operand"] in cuda[row["cuda_line"] - 1]
        assert row["spec_line"] is None or spec_lines[row["spec_line"] - 1].split()[0] in ("tile", "use")


@pytest.mark.parametrize("name", RUNGS)
def test_fast_at_any_size(name: str) -> None:
    rung(name, 1023, 1023, 1023)  # compiles, which is not counted
    with at_most(calls=1_000_000):
        rung(name, 1023, 1023, 1023).to_dict()


def test_nothing_to_do() -> None:
    empty = rung("warptile", 0, 64, 64)
    d = empty.to_dict()
    assert (d["blocks"], d["fma"], d["flops"], d["accesses"]) == (0, 0, 0, [])
    assert d["intensity"] == {"naive": None, "block_tile": None, "ideal": 0.0, "flop_per_shared_load": None}
    assert set(d["bound"].values()) == {0.0, "compute"}
    assert "nothing" in empty.paragraph
    no_sum = rung("warptile", 128, 128, 0, beta=2.0).to_dict()
    assert no_sum["fma"] == 0
    assert [(a["operand"], a["op"]) for a in no_sum["accesses"]] == [("C", "load"), ("C", "store")]
    assert no_sum["intensity"]["naive"] is None


def test_what_is_refused() -> None:
    spec = load(SPECS / "naive.gemm")
    with pytest.raises(ArgumentError, match="h200"):
        explain(spec, 64, 64, 64, gpu="h20")
    with pytest.raises(ArgumentError, match="n is -1"):
        explain(spec, 64, -1, 64)


def test_several_launches_are_added_up() -> None:
    spec = parse("kernel rows\ntile block 16x16x8\nuse smem, coalescing\n")
    d = explain(spec, 65536 * 16, 16, 8).to_dict()  # 65536 rows of blocks: more than a grid may have
    assert (d["blocks"], d["fma"]) == (65536, 65536 * 16 * 16 * 8)
    one = explain(spec, 16, 16, 8).to_dict()
    assert d["shared"]["load"] == {name: 65536 * value for name, value in one["shared"]["load"].items()}


# --- Against measurements -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNGS)
def test_no_bound_exceeds_the_measured_time(name: str) -> None:
    measured = 2 * 4096**3 / (MEASURED[name] * 1e12)
    assert rung(name).bound.floor_s <= measured


# The settings that were timed, whatever specs/ says by now.
TIMED = {
    "naive": "tile block 32x32",
    "coalesced": "tile block 32x32\nuse coalescing",
    "smem": "tile block 32x32x32\nuse coalescing, smem",
    "regblock1d": "tile block 64x64x8\ntile thread 8x1\nuse coalescing, smem",
    "regblock2d_64": "tile block 64x64x8\ntile thread 8x8\nuse coalescing, smem",
    "regblock2d": "tile block 128x128x8\ntile thread 8x8\nuse coalescing, smem",
    "vectorized": "tile block 128x128x8\ntile thread 8x8\nuse coalescing, smem, transposeA, float4",
    "warptile": "tile block 128x128x16\ntile warp 64x64\ntile thread 8x4\n"
    "use coalescing, smem, transposeA, float4, warptile",
}

# Milliseconds on an H200 (700 W, 1980 MHz), replayed as graphs beyond the L2.
TIMES = {
    4096: {"naive": 275.8, "coalesced": 22.2, "smem": 15.1, "regblock1d": 7.71, "regblock2d_64": 4.42,
           "regblock2d": 4.28, "vectorized": 3.75, "warptile": 3.70},
    1024: {"naive": 4.42, "coalesced": 0.342, "smem": 0.2456, "regblock1d": 0.122, "regblock2d_64": 0.131,
           "regblock2d": 0.2064, "vectorized": 0.1852, "warptile": 0.1754},
}  # fmt: skip


@pytest.mark.parametrize("n", TIMES)
def test_expected_times_are_near_the_measured_ones(n: int) -> None:
    specs = {name: parse(f"kernel {name}\n{TIMED[name]}\n") for name in TIMES[n]}
    found = {name: 1e3 * explain(spec, n, n, n).bound.total_s for name, spec in specs.items()}
    for name, measured in TIMES[n].items():
        assert 0.7 * measured < found[name] < 1.3 * measured, (name, found[name], measured)
    if n == 4096:
        assert sorted(found, key=found.__getitem__, reverse=True) == list(TIMES[n])


def test_waiting_is_where_a_small_product_spends_its_time() -> None:
    small = rung("warptile", 1024, 1024, 1024).bound
    assert small.by == "latency"
    assert small.latency_s > small.floor_s
    assert small.total_s == pytest.approx(small.floor_s + small.latency_s)
    # With a hundredth of the product's steps, the launch itself is what is left.
    assert rung("warptile", 128, 128, 16).bound.total_s > 2e-6


def test_what_binds_each_rung() -> None:
    found = {name: rung(name).bound.by for name in RUNGS[:6]}
    assert found == {
        "naive": "l1", "coalesced": "l1", "smem": "shared", "regblock1d": "shared", "regblock2d": "shared",
        "vectorized": "shared",
    }  # fmt: skip
    assert rung("warptile").bound.by in ("issue", "compute")


def test_the_ladder_goes_down() -> None:
    times = [rung(name).bound.total_s for name in RUNGS]
    assert times == sorted(times, reverse=True)


def test_scalar_loads_of_neighbours_count_as_the_compiler_joins_them() -> None:
    ir = lower(load(SPECS / "smem.gemm"), EXACT)
    counts = count(ir, {"M": 32, "N": 32, "K": 32, "lda": 32, "ldb": 32, "ldc": 32, "beta": 0.0})
    a, b = (next(x for x in counts.accesses if (x.operand, x.op, x.space) == (o, "load", "shared")) for o in "AB")
    # Along k a thread's row of As is contiguous: four loads become one of 16 bytes, 2 wavefronts.
    assert (a.cost.wavefronts, a.cost.merged_wavefronts) == (32 * 32, 32 * 32 // 4 * 2)
    assert b.cost.merged_wavefronts == b.cost.wavefronts == 32 * 32


# --- Advice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "setting"), [("naive", "coalescing"), ("coalesced", "smem"), ("smem", "tile thread"),
                          ("regblock2d", "warptile"), ("vectorized", "warptile")],
)  # fmt: skip
def test_advice_names_the_next_rungs_setting(name: str, setting: str) -> None:
    e = rung(name)
    text = e.paragraph
    assert setting.lower() in text.lower()
    assert e.bound.by in ("l1", "shared")
    assert "lower as compiled (modelled" in text or "lower as written (modelled" in text


@pytest.mark.parametrize("name", RUNGS)
def test_advice_holds_when_followed(name: str) -> None:
    e = rung(name)
    advice = advise(e)
    if advice is None:
        assert "No change that was tried" in e.paragraph
        return
    followed = explain(e.spec.replace(**advice.change.fields), *e.size)
    assert followed.bound.total_s < e.bound.total_s
    m, n, _ = e.size
    zeros = m * n if "prefetch" in followed.spec.use else 0  # fragments are zeros before the first are fetched
    assert followed.counts.fma == e.counts.fma + zeros
    if e.compiled is not None:
        assert (advice.compiled, advice.before, advice.after) == (True, e.bound, followed.bound)


def test_advice_says_whether_it_was_compiled() -> None:
    written, compiled = explain(load(SPECS / "smem.gemm"), 512, 512, 512, compiled=False), rung("smem", 512, 512, 512)
    assert written.again is None and "lower as written (modelled" in written.paragraph
    if compiled.compiled is not None:
        assert "lower as compiled (modelled" in compiled.paragraph
    assert compiled.paragraph == rung("smem", 512, 512, 512).paragraph


def test_what_does_not_hold_as_compiled_is_not_advised() -> None:
    """The settings that promise most are compiled in order, a few at most, until one holds."""
    e = explain(load(SPECS / "smem.gemm"), 4096, 4096, 4096, compiled=False)
    asked: list[Spec] = []

    def holds_from(number: int) -> Advice | None:
        def again(spec: Spec) -> Explanation:
            asked.append(spec)
            bound = replace(e.bound, shared_s=e.bound.shared_s * (0.5 if len(asked) >= number else 2))
            return replace(e, bound=bound, compiled=Compiled(32, 0, "sm_90"))

        asked.clear()
        return advise(replace(e, again=again))

    first, second = holds_from(1), holds_from(2)
    assert first is not None and first.compiled and len(asked) == 2
    assert second is not None and e.spec.replace(**second.change.fields) == asked[1] != asked[0]
    assert second.change != first.change
    assert holds_from(99) is None and TRIES <= len(asked) <= 2 * TRIES


def test_advice_names_the_line() -> None:
    e = rung("coalesced")
    lines = (SPECS / "coalesced.gemm").read_text(encoding="utf-8").split("\n")
    line = next(i for i, text in enumerate(lines, start=1) if text.startswith("use"))
    assert f"+ smem (line {line})" in e.paragraph


# --- Figures people look up, and field cases ----------------------------------------------------------------------


def test_lesson_problem_two_intensities() -> None:
    n = 4096
    assert rung("naive").intensity.block_tile == 0.25
    assert rung("smem").intensity.block_tile == 8
    assert rung("warptile").intensity.block_tile == 32
    assert rung("warptile").intensity.ideal == pytest.approx(n / 6)
    assert rung("regblock1d").intensity.flop_per_shared_load == pytest.approx(2 * 8 / 9)
    assert rung("regblock2d").intensity.flop_per_shared_load == 8


def test_g27_flops_and_bytes() -> None:
    size = (16, 1000, 2048)
    assert flops(size) == 65_536_000
    assert compulsory_bytes(size) == 8_387_072
    assert compulsory_bytes(size, beta=1.0) == 8_451_072
    assert flops((65536, 65536, 65536)) == 562_949_953_421_312
    for beta, ideal in ((0.0, 7.8139), (1.0, 7.7548)):
        d = explain(parse("kernel gemm\ntile block 32x32\nuse coalescing\n"), *size, beta=beta).to_dict()
        assert d["flops"] == 65_536_000
        assert d["intensity"]["ideal"] == pytest.approx(ideal, abs=5e-5)


G22B = "kernel gemm\ntile block 256x256x8\ntile thread 8x8\nuse coalescing, smem\n"


def test_g22_explainer_warns_of_spills() -> None:
    ir = lower(parse(G22B), EXACT)
    assert (ir.threads, register_limit(ir, gpu("h200"))) == (1024, 64)
    assert named_registers(ir.body) >= 64
    uncompiled = explained(parse(G22B), ir, (256, 256, 8), gpu("h200"), ())
    assert any("spills" in w and "1024 threads" in w and "64 registers" in w for w in uncompiled.warnings)
    e = explain(parse(G22B), 256, 256, 8)
    assert any("spills" in w for w in e.warnings)
    assert e.compiled is None or e.compiled.spill_bytes > 0
    assert "spills" in e.paragraph


def test_no_warning_where_nothing_spills() -> None:
    assert [rung(name).warnings for name in RUNGS] == [()] * len(RUNGS)


# --- Sizes at the limits ----------------------------------------------------------------------------------------------

ROW = parse("kernel rows\ntile block 1x4x4\ntile thread 1x4\nuse smem, float4\nsplit_k 2\n")


@pytest.mark.parametrize("rows", [65532 * 3 + 1, 65532 * 4])
def test_equal_launches_are_counted_once_and_taken_as_often_as_they_are(rows: int) -> None:
    found = explain(ROW, rows, 5, 7, beta=1.0, compiled=False)
    plan = plan_aligned(ROW, (rows, 5, 7), ((7, 1), (5, 1), (5, 1)), (0, 0, 0), 1.0, 1.0)
    assert found.launches == len(plan.steps) == 8
    main, total = lower(ROW, plan.steps[0].variant), Counts()
    for s in plan.steps:
        bases = {x: 4 * getattr(s.arguments, x) for x in "ABC"}
        total += count(s.ir(main), s.scalars, s.grid, bases)
    assert found.counts == total
    assert found.counts.fma >= rows * 5 * 7


def test_very_many_launches_take_no_longer_than_one() -> None:
    with at_most(calls=12_000_000):
        found = explain(ROW, (1 << 31) - 1, 1, 1, compiled=False)
    assert found.launches == 2 * 32771
    stored = [a.cost.elements for a in found.counts.accesses if (a.operand, a.op, a.space) == ("C", "store", "global")]
    assert sum(stored) == 3 * ((1 << 31) - 1)  # two parts of each sum, and the sum


def test_an_empty_sum_of_a_cluster_is_told() -> None:
    text = "kernel shares\ntile block 16x24x4\ntile thread 2x4\nuse smem, float4, clusterReduce\nsplit_k 7\n"
    found = explanation_text(explain(parse(text), 5, 5, 0, compiled=False))
    assert [line.split(":")[0] for line in found.splitlines() if line.startswith("shared loads")] == [
        "shared loads as written"
    ]


@pytest.mark.parametrize(("size", "name"), [((1 << 30, 1 << 20, 1 << 26), "A"), ((1, 1 << 30, 1 << 26), "B")])
def test_matrices_beyond_all_addresses_are_refused(size: tuple[int, int, int], name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} would be .*, more than the 2\\^57 bytes"):
        explain(ROW, *size)
    m, n, _ = size
    assert explain(ROW, m, n, 1, compiled=False).counts.fma >= m * n
