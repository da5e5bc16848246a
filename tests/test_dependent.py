"""A second kernel that is launched while the first runs: which launch, with what attribute, and its wait."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pipelinehelp import PIPELINES, kernel, run_ordered
from played import GPU
from simhelp import operands
from test_launch import VECTOR, planned

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import ArgumentError, LaunchError
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Call, If, Section, Stmt, edit
from gemmgen.isa.dependent import ALLOW_NEXT_KERNEL, WAIT_FOR_PREVIOUS_KERNEL
from gemmgen.launch import EXACT, Limits
from gemmgen.runtime.frame import Frame
from gemmgen.runtime.launch import check_architecture
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import parse
from gemmgen.tile import build, print_tile
from gemmgen.tune.estimate import LAUNCH_S, estimate

DEPENDENT = [name for name in PIPELINES if name.startswith("pipeline_dependent")]
EARLY = VECTOR.replace(name="early", split_k=4, use=VECTOR.use | {"dependentLaunch"})


def without_it(spec: Spec) -> Spec:
    return spec.replace(use=spec.use - {"dependentLaunch"})


def second(ir: KernelIR) -> KernelIR:
    assert ir.then is not None
    return ir.then


# --- The launches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "alpha"), [(64, 2.0), (0, 1.0), (64, 0.0)])
def test_only_the_second_kernel_may_start_early_and_the_first_is_right_before_it(k: int, alpha: float) -> None:
    """Also of an empty sum, which the first kernel writes as zeros."""
    main, then = planned(EARLY, 128, 192, k, alpha=alpha).steps
    assert (main.kernel, main.dependent) == ("main", False)
    assert (then.kernel, then.dependent) == ("then", True)
    assert [replace(s, dependent=False) for s in (main, then)] == list(
        planned(without_it(EARLY), 128, 192, k, alpha=alpha).steps
    )


def test_g28_each_panels_second_kernel_follows_its_own_first() -> None:
    steps = planned(EARLY, 64 * 11 + 5, 192, 32, limits=Limits(grid_y=4)).steps
    assert [(s.kernel, s.dependent) for s in steps] == [("main", False), ("then", True)] * 3


def test_other_launches_have_no_attribute() -> None:
    for spec in (VECTOR, without_it(EARLY)):
        assert not any(s.dependent for s in planned(spec, 128, 192, 64).steps)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7), ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )  # fmt: skip


def test_the_attribute_is_programmatic_stream_serialization() -> None:
    early, plain = Frame((1, 2, 3), 256, 0, [], dependent=True), Frame((1, 2, 3), 256, 0, [])
    for _ in range(2):
        early.fill(77, 1, 2, 3, 4)
        plain.fill(77, 1, 2, 3, 4)
        config = _Config.from_address(early.config)
        assert (config.stream, config.count) == (77, 1)
        assert (config.attributes[0].id, config.attributes[0].value) == (6, 1)
        assert not _Config.from_address(plain.config).attributes and _Config.from_address(plain.config).count == 0


def test_the_attributes_bytes_are_those_of_the_drivers_own_type() -> None:
    driver: Any = pytest.importorskip("cuda.bindings.driver")
    made = driver.CUlaunchAttribute()
    made.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    made.value.programmaticStreamSerializationAllowed = 1
    early = Frame((1, 1, 1), 32, 0, [], dependent=True)
    early.fill(0)
    at = _Config.from_address(early.config).attributes
    assert ctypes.string_at(at, ctypes.sizeof(_Attribute)) == ctypes.string_at(made.getPtr(), ctypes.sizeof(_Attribute))


# --- The kernels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEPENDENT)
def test_the_first_statement_allows_and_every_thread_waits(name: str) -> None:
    for variant in ("exact", "guarded", "guarded_unaligned"):
        ir = kernel(name, variant)
        first = ir.body[0]
        assert isinstance(first, Call) and first.row is ALLOW_NEXT_KERNEL
        (wait,) = second(ir).waits()
        assert wait.row is WAIT_FOR_PREVIOUS_KERNEL and second(ir).arriving == ("W",)
        last = second(ir).body[-1]
        assert isinstance(last, Section) and last.body[0] is wait  # not in the branch
        text = emit_cuda(second(ir))
        assert "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION" in text
        kernel_text = text[text.index('extern "C"') :]
        assert kernel_text.index("wait_for_previous_kernel();") < min(kernel_text.index("W["), kernel_text.index("C["))


def test_a_kernel_without_shared_memory_allows_too() -> None:
    spec = parse("kernel flat\ntile block 32x8\nuse coalescing, dependentLaunch\nsplit_k 2\n")
    assert isinstance(gemmgen.lower(spec).body[0], Call)
    a, b, c = operands(33, 9, 17)
    found = gemmgen.simulate(spec, a, b, c, 0.5, 2.0)
    assert not found.faults and gemmgen.verify(found.C, a, b, c, 0.5, 2.0).ok


@pytest.mark.parametrize("name", DEPENDENT)
def test_reading_sums_before_the_wait_is_a_fault_of_the_workspace(name: str) -> None:
    ir = kernel(name, "guarded")
    (wait,) = second(ir).waits()
    a, b, c = operands(32, 64, 100)
    (fault,) = run_ordered(replace(ir, then=second(ir).without(wait)), a, b, c).faults
    assert (fault.kind, fault.buffer) == ("async", "W")
    assert "the kernel before may still be writing it" in str(fault)


def test_a_wait_that_comes_too_late_or_in_other_threads_is_none() -> None:
    ir = kernel("pipeline_dependent", "guarded")
    then = second(ir)
    (wait,) = then.waits()

    def late(s: Stmt) -> tuple[Stmt, ...]:
        return (s, wait) if isinstance(s, If) and s.cond == branch.cond else () if s is wait else (s,)

    last = then.body[-1]
    assert isinstance(last, Section)
    branch = last.body[1]
    assert isinstance(branch, If)
    others = replace(last, body=(If(branch.cond, (), (wait,)), branch))
    a, b, c = operands(32, 64, 100)
    for body in (edit(then.body, late), (*then.body[:-1], others)):
        found = run_ordered(replace(ir, then=replace(then, body=body)), a, b, c).faults
        assert [(f.kind, f.buffer) for f in found] == [("async", "W")]


@pytest.mark.parametrize("k", [0, 1, 7, 100])
def test_the_bits_are_those_without_it(k: int) -> None:
    for m, n in ((128, 64), (65, 70), (3, 5)):
        a, b, c = operands(m, n, k, seed=k)
        for alpha, beta in ((1.0, 0.0), (0.5, -2.0), (0.0, 1.5)):
            start = c if beta else np.full_like(c, np.nan)
            one = gemmgen.simulate(EARLY, a, b, start, alpha, beta)
            two = gemmgen.simulate(without_it(EARLY), a, b, start, alpha, beta)
            assert one.faults == two.faults == ()
            assert np.array_equal(one.C, two.C)
            assert one.counters["accesses"] == two.counters["accesses"]


# --- Around it --------------------------------------------------------------------------------------------------------


def test_turning_it_off_leaves_a_legal_spec_and_so_does_the_text() -> None:
    assert parse(EARLY.to_text()) == EARLY
    plain = second(gemmgen.lower(without_it(EARLY)))
    assert not plain.waits() and not plain.arriving and not plain.notes


def test_the_tile_program_says_so() -> None:
    text = print_tile(build(EARLY, EXACT))
    assert "allow the next kernel" in text and "in a second kernel, launched early" in text


def test_an_architecture_without_it_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"dependentLaunch needs compute capability 9\.0, and sm_86 is below it"):
        gemmgen.emit(EARLY, arch="sm_86")
    ir = gemmgen.lower(EARLY)
    for one in (ir, second(ir)):
        check_architecture(one, replace(GPU, cc=(9, 0)))
        with pytest.raises(LaunchError, match=r"which needs compute capability 9\.0; Test has 8\.6"):
            check_architecture(one, replace(GPU, cc=(8, 6)))


def test_the_models_know_that_most_of_the_second_launch_is_hidden() -> None:
    gpu, shape = gemmgen.target.gpu("h200"), (512, 512, 512)
    saved = estimate(without_it(EARLY), shape, gpu).seconds - estimate(EARLY, shape, gpu).seconds
    assert saved == pytest.approx(0.75 * LAUNCH_S)
    early, plain = (gemmgen.explain(x, 512, 512, 512) for x in (EARLY, without_it(EARLY)))
    assert early.launches == plain.launches == 2
    assert plain.bound.latency_s - early.bound.latency_s == pytest.approx(1.5e-6)
