"""Blocks that add to C in memory: which launches, the sums, what races, what is counted, and who may choose it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simir
from host_cuda.harness import build, missing
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelinehelp import PIPELINES, Floats, kernel, launches, run_ordered
from played import GPU
from simhelp import operands
from strategies import specs
from test_launch import NAIVE, VECTOR, planned
from test_pipelines_counts import given_for, same
from test_pipelines_host import of_size
from test_pipelines_host import run as run_on_host
from tiers import examples

import gemmgen
from gemmgen.analysis.counters import ADDITIONS, compare, is_asynchronous, predicted
from gemmgen.analysis.counts import Counts, count
from gemmgen.cli import run
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import ArgumentError, LaunchError
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Alloc, Call, If, Load, Ref, Section, Stmt, Store, edit, walk
from gemmgen.isa.atomic import global_add
from gemmgen.isa.dependent import ALLOW_NEXT_KERNEL, WAIT_FOR_PREVIOUS_KERNEL
from gemmgen.launch import EXACT, GUARDED, VARIANTS, Limits
from gemmgen.lower.scope import BLOCK_Z
from gemmgen.report.ablation import ablations
from gemmgen.runtime.launch import check_architecture
from gemmgen.spec.model import Operand, Spec
from gemmgen.spec.parse import parse
from gemmgen.tile import build as tiled
from gemmgen.tile import print_tile

ATOMICS = [name for name in PIPELINES if name.startswith("pipeline_atomics")]
ADDS = VECTOR.replace(name="adds", split_k=4, use=VECTOR.use | {"atomics"})
EARLY = ADDS.replace(use=ADDS.use | {"dependentLaunch"})
COLUMNS = ADDS.replace(A=Operand(order="col"), C=Operand(order="col"))
FLAT = NAIVE.replace(name="flat", split_k=3, use={"coalescing", "atomics", "dependentLaunch"})


def first(ir: KernelIR) -> KernelIR:
    assert ir.first is not None
    return ir.first


def kernels(spec: Spec, k: int, **how: Any) -> list[tuple[str, bool]]:
    return [(s.kernel, s.dependent) for s in planned(spec, 128, 192, k, **how).steps]


# --- The launches -----------------------------------------------------------------------------------------------------


def test_c_is_made_ready_and_then_added_to_without_a_workspace() -> None:
    plan = planned(ADDS, 128, 192, 64, alpha=2.0, beta=3.0)
    scale, main = plan.steps
    assert (scale.kernel, main.kernel) == ("first", "main") and plan.workspace == plan.partials == 0
    assert (scale.grid, main.grid) == ((128, 1, 1), (3, 2, 4))
    assert (scale.output, main.output) == ("C", "C") and scale.arguments == main.arguments
    assert (main.arguments.alpha, main.arguments.ldc) == (2.0, 192)


def test_what_would_do_nothing_is_not_launched() -> None:
    assert kernels(ADDS, 64, beta=1.0) == [("main", False)]
    assert kernels(ADDS, 0, beta=2.0) == kernels(ADDS, 64, alpha=0.0) == [("first", False)]
    assert kernels(ADDS, 0, beta=1.0) == kernels(ADDS, 64, alpha=0.0, beta=1.0) == []
    assert kernels(ADDS, 64, beta=float("nan")) == [("first", False), ("main", False)]


def test_only_a_kernel_behind_another_may_start_early() -> None:
    assert kernels(EARLY, 64) == [("first", False), ("main", True)]
    assert kernels(EARLY, 64, beta=1.0) == [("main", False)]
    assert kernels(ADDS, 64) == [("first", False), ("main", False)]


def test_g28_each_panel_is_made_ready_before_it_is_added_to() -> None:
    steps = planned(EARLY, 64 * 11 + 5, 192, 32, limits=Limits(grid_y=4)).steps
    assert [(s.kernel, s.dependent) for s in steps] == [("first", False), ("main", True)] * 3
    assert [s.arguments.M for s in steps] == [256, 256, 256, 256, 197, 197]
    for one, two in zip(steps[::2], steps[1::2], strict=True):
        assert one.arguments == two.arguments


# --- The sums ---------------------------------------------------------------------------------------------------------

WAYS = {
    "plain": ADDS,
    "early": EARLY,
    "columns": COLUMNS,
    "flat": FLAT,
    "registers": ADDS.replace(stages=2, use=EARLY.use | {"prefetch"}),
    "cpasync": EARLY.replace(stages=3, use=EARLY.use | {"cpasync", "prefetch", "spread"}, cta_swizzle=2),
    "direct": EARLY.replace(use=EARLY.use | {"directB"}, split_k=7),
    "single": ADDS.replace(arch="sm_80", split_k=2),
}


def start_of(spec: Spec, c: Floats, beta: float) -> Floats:
    """C as the spec stores it; NaN where it is not to be read."""
    return np.array(c if beta else np.full_like(c, np.nan), order="C" if spec.C.order == "row" else "F")


@pytest.mark.parametrize("size", [(128, 64, 64), (65, 70, 33), (3, 5, 7), (131, 1, 9), (1, 130, 100), (66, 68, 1)])
@pytest.mark.parametrize("name", WAYS)
def test_right_at_every_size_and_with_every_factor(name: str, size: tuple[int, int, int]) -> None:
    """Some blocks have no part of a short K; C starts as NaN where it must not be read."""
    a, b, c = operands(*size)
    for alpha, beta in ((1.0, 0.0), (0.5, -2.0), (2.0, 1.0), (0.0, 1.5), (0.0, 1.0), (0.0, 0.0)):
        start = start_of(WAYS[name], c, beta)
        found = gemmgen.simulate(WAYS[name], a, b, start, alpha, beta)
        assert not found.faults
        right = gemmgen.verify(found.C, a, b, start, alpha, beta, WAYS[name])
        assert right.ok, (alpha, beta, str(right))
        assert np.array_equal(start, start_of(WAYS[name], c, beta), equal_nan=True)


@pytest.mark.parametrize("name", WAYS)
def test_an_empty_sum(name: str) -> None:
    a, b, c = operands(33, 34, 0)
    for beta in (2.0, 1.0, 0.0):
        start = start_of(WAYS[name], c, beta)
        found = gemmgen.simulate(WAYS[name], a, b, start, np.nan, beta)
        assert not found.faults and np.array_equal(found.C, beta * c)


def test_a_block_without_a_part_adds_nothing_not_alpha_times_nothing() -> None:
    a, b = np.ones((64, 8), np.float32), np.ones((8, 64), np.float32)
    found = gemmgen.simulate(ADDS, a, b, None, np.inf)
    assert not found.faults and np.isposinf(found.C).all()


def test_infinities_and_nans_go_where_they_do_elsewhere() -> None:
    a, b, c = operands(64, 64, 64)
    a[3, 5], b[7, 9], c[1, 2] = np.inf, np.nan, -np.inf
    found = gemmgen.simulate(ADDS, a, b, c, 1.0, 0.5)
    assert gemmgen.verify(found.C, a, b, c, 1.0, 0.5, ADDS).ok and np.isneginf(found.C[1, 2])


def test_additions_take_subnormal_numbers_for_zeros_and_the_bound_knows() -> None:
    """As the hardware does: 2^-130 in each of four parts is gone, though their sum is no subnormal number's part."""
    a, b = np.full((64, 32), 2.0**-70, np.float32), np.full((32, 64), 2.0**-63, np.float32)
    found = gemmgen.simulate(ADDS, a, b)
    assert not found.faults and (found.C == 0).all()
    assert gemmgen.verify(found.C, a, b, spec=ADDS).ok and not gemmgen.verify(found.C, a, b).ok
    kept = gemmgen.simulate(VECTOR, a, b).C
    assert (kept == np.float32(2.0**-128)).all()


def test_each_addition_may_round_what_was_in_c_and_the_bound_knows() -> None:
    """Four halves of a unit in the last place, each rounded away; once they would be two units."""
    spec = parse("kernel one\ntile block 8x8\nuse atomics\nsplit_k 4\n")
    a, b = np.ones((8, 4), np.float32), np.full((4, 8), 2.0**-24, np.float32)
    c = np.ones((8, 8), np.float32)
    found = gemmgen.simulate(spec, a, b, c, 1.0, 1.0)
    assert not found.faults and (found.C == 1).all()
    assert gemmgen.verify(found.C, a, b, c, 1.0, 1.0, spec).ok


# --- The kernels ------------------------------------------------------------------------------------------------------


def test_the_text_says_that_bits_may_not_repeat() -> None:
    for name in ATOMICS:
        ir = kernel(name, "exact")
        said = " ".join(x.removeprefix("//").strip() for x in emit_cuda(ir).splitlines() if x.startswith("//"))
        assert "the last bits of a result may differ from run to run" in said and f"{ir.name}_scale" in said
        assert "beta" not in [p.name for p in ir.params]
        assert f"Launched before {ir.main}, unless beta is 1." in emit_cuda(first(ir))
        assert ir.then is None and ir.kernels == (ir.first, ir)


def test_additions_are_as_wide_as_stores_where_the_architecture_can() -> None:
    def widths(spec: Spec, variant: str) -> set[int]:
        rows = [s.row for s in walk(gemmgen.lower(spec, variant).body) if isinstance(s, Call) and s.row.adds]
        return {row.moves[0].width for row in rows}

    assert [widths(ADDS, v) for v in VARIANTS] == [{4}, {4}, {1}]
    assert widths(ADDS.replace(thread=(8, 2)), "exact") == {2}
    assert widths(ADDS.replace(use=ADDS.use - {"float4"}), "exact") == {1}
    assert widths(ADDS.replace(arch="sm_80"), "exact") == {1}
    assert widths(COLUMNS.replace(thread=(2, 8)), "exact") == {2}
    assert "red.global.add.v4.f32" in emit_cuda(gemmgen.lower(ADDS))
    text = emit_cuda(gemmgen.lower(ADDS.replace(arch="sm_80")))
    assert "atomicAdd(&blockC[" in text and "red.global" not in text and "asm" not in text


def test_an_older_architecture_is_for_the_spec_to_say() -> None:
    said = r"which needs compute capability 9\.0, and sm_80 is below it; write 'arch sm_80' in the spec"
    with pytest.raises(ArgumentError, match=said):
        gemmgen.emit(ADDS, arch="sm_80")
    for spec in (ADDS.replace(arch="sm_80"), ADDS.replace(thread=(8, 1)), FLAT.replace(use={"atomics"})):
        assert "atomicAdd" in gemmgen.emit(spec, arch="sm_80")
        check_architecture(gemmgen.lower(spec), replace(GPU, cc=(8, 0)))
    with pytest.raises(LaunchError, match=r"uses add_float4, which needs compute capability 9\.0; Test has 8\.6"):
        check_architecture(gemmgen.lower(ADDS), replace(GPU, cc=(8, 6)))


@pytest.mark.parametrize("name", [name for name in ATOMICS if kernel(name).arriving])
def test_the_kernel_before_allows_and_every_thread_waits_before_it_adds(name: str) -> None:
    for variant in VARIANTS:
        ir = kernel(name, variant)
        allow = first(ir).body[0]
        assert isinstance(allow, Call) and allow.row is ALLOW_NEXT_KERNEL
        (wait,) = [s for s in ir.waits() if s.row is WAIT_FOR_PREVIOUS_KERNEL]
        last = ir.body[-1]
        assert isinstance(last, Section) and last.body[0] is wait and ir.arriving == ("C",)
        assert "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION" in emit_cuda(ir)


@pytest.mark.parametrize("spec", [EARLY, FLAT], ids=lambda s: s.name)
def test_adding_before_the_wait_is_a_fault(spec: Spec) -> None:
    ir = gemmgen.lower(spec, "guarded")
    (wait,) = [s for s in ir.waits() if s.row is WAIT_FOR_PREVIOUS_KERNEL]
    a, b, c = operands(64, 68, 64)
    (fault,) = run_ordered(ir.without(wait), a, b, c).faults
    assert (fault.kind, fault.buffer) == ("async", "C")
    assert "the kernel before may still be writing it" in str(fault)


# --- Races ------------------------------------------------------------------------------------------------------------


def changed(ir: KernelIR, to: Any) -> KernelIR:
    """The kernel with something else for each of its additions."""

    def change(s: Stmt) -> tuple[Stmt, ...]:
        return to(s) if isinstance(s, Call) and s.row.adds else (s,)

    return replace(ir, body=edit(ir.body, change))


def target_of(s: Call) -> Ref:
    assert isinstance(s.args[0], Ref)
    return s.args[0]


@pytest.mark.parametrize("spec", [ADDS, EARLY], ids=["plain", "early"])
def test_additions_race_with_stores_and_loads_but_not_with_one_another(spec: Spec) -> None:
    ir = gemmgen.lower(spec.replace(use=spec.use - {"float4"}))
    a, b, c = operands(64, 64, 64)
    assert not run_ordered(ir, a, b, c.copy()).faults

    def stored(s: Call) -> tuple[Stmt, ...]:
        assert isinstance(s.args[1], Ref)
        return (Store(target_of(s), s.args[1]),)

    def looked_at(s: Call) -> tuple[Stmt, ...]:
        return Alloc(simir.R), Load(Ref(simir.R), target_of(s)), s

    def looked_at_after(s: Call) -> tuple[Stmt, ...]:
        return s, Alloc(simir.R), Load(Ref(simir.R), target_of(s))

    def also_stored(s: Call) -> tuple[Stmt, ...]:
        assert isinstance(s.args[1], Ref)
        return s, If(BLOCK_Z.eq(0), (Store(target_of(s), s.args[1]),))

    ways = ((stored, "writes"), (looked_at, "reads"), (looked_at_after, "adds to"), (also_stored, "adds to"))
    for to, verb in ways:
        faults = run_ordered(changed(ir, to), a, b, c.copy()).faults
        assert {(f.kind, f.buffer) for f in faults} == {("race", "C")} and any(
            f"{verb} it too" in str(f) for f in faults
        )


@pytest.mark.parametrize("width", [1, 2, 4])
def test_lanes_that_add_to_the_same_word_all_count(width: int) -> None:
    """64 threads of two blocks, all to the same words; and nothing of it is a race."""
    values = simir.register("x", 4)
    add = Call(global_add(width), (simir.at(simir.C, 0), *(simir.at(values, v) for v in range(width))))
    ir = simir.kernel(Alloc(values, 0.5), add, threads=32)
    c = simir.ramp(64)
    result = simir.run(ir, c=c, blocks=2)
    assert not result.faults
    assert list(c[:6]) == [v + (32.0 if v < width else 0.0) for v in range(6)]
    store = result.counters["global"]["store"]
    assert store == {"requests": 2, "sectors": 2, "bytes_used": 8 * width}


def test_an_addition_outside_or_misaligned_is_reported() -> None:
    values = simir.register("x", 4)
    lane = simir.tid() * 4
    for offset, kind in ((-4, "out-of-bounds"), (1, "misaligned")):
        target = simir.at(simir.C, lane + offset)
        add = Call(global_add(4), (target, *(simir.at(values, v) for v in range(4))))
        (fault,) = simir.run(simir.kernel(Alloc(values, 1.0), add), c=simir.zeros(192), N=192, ldc=192).faults
        assert (fault.kind, fault.buffer) == (kind, "C")


# --- Counts -----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(30), deadline=None)
@given(
    spec=st.sampled_from([None, "plain", "cpasync", "tma"]).flatmap(
        lambda way: specs(
            max_threads=64, max_sums=16, max_size=16, orders=("row", "col"), way=way,
            split=True, atomics=True, dependent=True,
        )
    ).filter(lambda spec: spec.unordered),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 12)),
)  # fmt: skip
def test_any_counts_equal_running(spec: Spec, size: tuple[int, int, int]) -> None:
    same(gemmgen.lower(spec, "guarded"), (4 * size[0], 4 * size[1], 4 * size[2]))


def test_an_addition_is_a_store_of_as_many_sectors() -> None:
    """64 x 64 of C: four slices of K add to it, after it was written once."""
    ir = gemmgen.lower(ADDS)
    counts = sum((count(k, x) for k, x in launches(ir, given_for(ir, (64, 64, 64)))), Counts())
    stored = [(a.operand, a.width, a.cost.requests, a.cost.bytes_used) for a in counts.accesses if a.op == "store"]
    assert [x for x in stored if x[0] == "C"] == [("C", 4, 64, 4 * 64 * 64), ("C", 4, 4 * 2 * 16, 4 * 4 * 64 * 64)]


def test_explain_numbers_the_main_kernels_accesses_first_and_profile_counts_reductions() -> None:
    found = gemmgen.explain(EARLY, 128, 192, 64, compiled=False)
    assert found.launches == 2
    text = emit_cuda(gemmgen.lower(EARLY)).splitlines()
    rows = [x for x in found.to_dict()["accesses"] if x["operand"] == "C"]
    assert "add_float4(" in text[rows[0]["cuda_line"] - 1] and rows[-1]["cuda_line"] is None
    assert not is_asynchronous(found)
    nothing = gemmgen.explain(EARLY, 128, 192, 0, compiled=False)  # the first kernel alone
    assert [x["cuda_line"] for x in nothing.to_dict()["accesses"]] == [None] and nothing.blocks == 0
    said = predicted(found)
    assert said["global addition requests"] == 4 * 6 * 2 * 16 and said["global store requests"] == 128 * 2
    measured = {counter: 1.0 for of in ADDITIONS.values() for counter in of}
    assert {c.name for c in compare(found, measured) if c.measured == 1} == set(ADDITIONS)
    assert not {c.name for c in compare(gemmgen.explain(VECTOR, 64, 64, 64), {})} & set(ADDITIONS)


# --- On the host ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_text_that_does_not_wait_is_caught(tmp_path: Path) -> None:
    ir = kernel("pipeline_atomics_early", "exact")
    text, before = emit_cuda(ir), emit_cuda(first(ir))
    start = text.index("{", text.index('extern "C"'))
    early = text[:start] + text[start:].replace("wait_for_previous_kernel(", "left_out(")
    texts = [("right", text), ("right_first", before), ("wrong", early), ("wrong_first", before)]
    built = build(texts, tmp_path)
    bm, bn, bk = ir.tile
    for name in ("right", "wrong"):
        p = of_size(ir.main, "exact", bm, bn, 3 * ir.program.parts * bk, 0)
        run_on_host(built, ir.main, "exact", p, text=name)
        assert np.isnan(p.c.view).all() == (name == "wrong")


# --- Around it --------------------------------------------------------------------------------------------------------


def test_the_tile_program_says_so() -> None:
    text = print_tile(tiled(EARLY, EXACT))
    assert "before, in a first kernel, during which this one starts: C = beta * C" in text
    assert "wait for the first kernel" in text and "in no fixed order" in text and "W[part" not in text
    guarded = print_tile(tiled(ADDS, GUARDED))
    assert "16 bytes per atomic addition, inside m, n only" in guarded and "wait for the first" not in guarded


def test_text_and_the_spec_without_it() -> None:
    assert parse(EARLY.to_text()) == EARLY and EARLY.unordered
    plain = EARLY.replace(use=EARLY.use - {"atomics"})
    assert gemmgen.lower(plain).then is not None and gemmgen.lower(plain).first is None


def test_compile_writes_the_first_kernel_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "adds.gemm"
    spec.write_text(ADDS.to_text())
    assert run(["compile", str(spec), "-o", str(tmp_path)]) == 0
    assert {p.name for p in tmp_path.glob("*.cu")} == {"adds.cu", "adds_guarded.cu", "adds_scale.cu"}
    capsys.readouterr()
    assert run(["ablate", str(spec), "--size", "64x64x64"]) == 0
    assert "atomics" in capsys.readouterr().out
    gone = {a.without: a.also for a in ablations(EARLY)}
    assert gone["split_k 4"] == ("atomics", "dependentLaunch") and gone["atomics"] == gone["dependentLaunch"] == ()
