"""Pipelines on the simulator: right at every number of K tiles, and every barrier, wait, commit and fence needed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelinehelp import PIPELINES, Floats, depths, kernel, line_of, operands_of, run_ordered, spec_of
from simhelp import close, operands
from strategies import specs
from tiers import examples

from gemmgen import compile as compile_kernel
from gemmgen import emit
from gemmgen.cli import run
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import ArgumentError, SpecError
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Call, Sync, walk
from gemmgen.ir.variant import EXACT, GUARDED, GUARDED_UNALIGNED, VARIANTS, Variant
from gemmgen.lower import lower
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import parse


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PIPELINES)
def test_results_are_right_at_every_number_of_tiles(name: str, variant: str) -> None:
    spec = spec_of(name)
    bm, bn, bk = spec.block
    line = line_of(spec)
    unit = {"exact": bk, "guarded": line, "guarded_unaligned": 1}[variant]
    m, n = {"exact": (2 * bm, bn), "guarded": (bm + line, bn + line), "guarded_unaligned": (bm + 3, bn + 1)}[variant]
    # The text on the host is compared with the simulator, bit by bit, at the others too (test_pipelines_host.py).
    for k in depths(spec, unit)[::3]:
        a, b, c = operands_of(kernel(name, variant), m, n, k, seed=k)
        before = c.copy()
        result = run_ordered(kernel(name, variant), a, b, c, 1.5, -0.5)
        assert not result.faults, (k, result.faults)
        assert close(c, a, b, before, 1.5, -0.5), k


def in_order(a: Floats, b: Floats, fused: bool, whole: int) -> Floats:
    """float32 sums over k, in order, those of each ``whole`` by themselves first; each product rounded unless
    ``fused``."""
    if a.shape[1] > whole:
        parts = [in_order(a[:, k : k + whole], b[k : k + whole], fused, whole) for k in range(0, a.shape[1], whole)]
        return np.asarray(sum(parts, np.zeros_like(parts[0])), np.float32)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        x, y = a[:, k : k + 1], b[k : k + 1]
        total = (total + x.astype(np.float64) * y).astype(np.float32) if fused else total + x * y
    return total


@pytest.mark.parametrize("name", [name for name in PIPELINES if spec_of(name).lanes_k == 1])
def test_the_order_of_sums_is_that_of_k_however_tiles_are_brought(name: str) -> None:
    """Small whole numbers over 8, so that the sums of doubles above are those of one rounding."""
    spec = spec_of(name)
    bm, bn, bk = spec.block
    rng = np.random.default_rng(5)
    k = 4 * bk * spec.split_k
    types = [x.dtype.numpy_dtype for x in spec.matrices]
    a, b = (rng.integers(-99, 99, shape).astype(np.float32) / 8 for shape in ((bm, k), (k, bn)))
    large, alpha = (1e3, 2.0**-9) if types[0] == np.float16 else (1e7, 1.0)
    a[:, ::3] *= np.float32(large)
    a, b = a.astype(types[0]), b.astype(types[1])
    found = []
    for variant in VARIANTS:
        c = np.zeros((bm, bn), types[2])
        assert not run_ordered(kernel(name, variant), a, b, c, alpha).faults
        found.append(c)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    sums = in_order(a.astype(np.float32), b.astype(np.float32), spec.has("separators"), 4 * bk)
    assert np.isfinite(sums).all() and np.array_equal(found[0], (np.float32(alpha) * sums).astype(types[2]))


ANY = st.sampled_from([None, "plain", "cpasync", "tma"]).flatmap(
    lambda way: specs(way=way, orders=("row", "col"), cluster=True)
)


@settings(max_examples=examples(200), deadline=None)
@given(ANY, st.sampled_from(sorted(VARIANTS)))
def test_the_text_of_every_constant_comes_to_its_value(spec: Spec, variant: str) -> None:
    """The simulator takes the value, and the compiler the text."""
    known: dict[str, int] = {}
    for constant in lower(spec, VARIANTS[variant]).constants:
        known[constant.name] = eval(constant.text.replace("/", "//"), {}, known)
        assert known[constant.name] == constant.value, constant


# --- Each synchronisation removed -------------------------------------------------------------------------------------


def removable(ir: KernelIR) -> list[tuple[Sync | Call, KernelIR]]:
    """Each synchronisation of a kernel and of the one behind it, and the kernel without it."""
    found = [(s, ir.without(s)) for s in (*ir.syncs(), *ir.waits())]
    if ir.then is not None:
        found += [(s, replace(ir, then=ir.then.without(s))) for s in (*ir.then.syncs(), *ir.then.waits())]
    return found


# Where rows are not aligned, copies by TMA become those of cp.async; other pipelines stay as they are.
SYNCHRONISED = [(name, GUARDED) for name in PIPELINES]
SYNCHRONISED += [(name, GUARDED_UNALIGNED) for name in PIPELINES if spec_of(name).has("tma")]


@pytest.mark.parametrize(("name", "variant"), SYNCHRONISED, ids=lambda x: x if isinstance(x, str) else x.label)
def test_a_pipeline_without_one_of_its_synchronisations_is_caught(name: str, variant: Variant) -> None:
    ir = kernel(name, variant)
    bm, bn, bk = ir.tile
    bm *= 2 * ir.program.persistent + 1  # a block whose tiles of C follow one another
    a, b, c = operands_of(ir, bm, bn, (3 * (ir.pipeline.ahead + 1) + 1) * bk * ir.program.parts)
    assert not run_ordered(ir, a, b, c.copy()).faults
    for sync, rest in removable(ir):
        faults = run_ordered(rest, a, b, c.copy()).faults
        kinds = {f.kind for f in faults}
        assert kinds & expected(sync), (sync, faults)
        assert all(f.line is not None for f in faults if f.buffer in ("As", "Bs"))


def expected(sync: Sync | Call) -> set[str]:
    """Kinds of fault of which one must show."""
    if isinstance(sync, Sync):
        return {"race"}
    assert sync.row.orders is not None
    effect = sync.row.orders.value
    if effect == "acquire" and "empty" in str(sync):  # the engine overwrites what is still read
        return {"race"}
    return {
        "commit": {"async"}, "wait": {"async"}, "acquire": {"async"}, "fence": {"async"},
        "arrive": {"deadlock"}, "init": {"uninitialized"}, "meet": {"race"},
    }[effect]  # fmt: skip


def test_every_kind_of_synchronisation_stands_in_some_pipeline() -> None:
    rows = [s.row for name in PIPELINES for v in VARIANTS for s in kernel(name, v).waits()]
    found = {row.orders.value for row in rows if row.orders is not None}
    assert found == {"commit", "wait", "acquire", "fence", "arrive", "init", "meet"}


def test_one_of_two_equal_waits_is_left_out_alone() -> None:
    ir = kernel("pipeline_groups_spread_prefetch")
    count = len(ir.waits())
    assert [len(ir.without(w).waits()) for w in ir.waits()] == [count - 1] * count
    assert len({str(ir.without(w)) for w in ir.waits()}) == count


# --- Cases ------------------------------------------------------------------------------------------------------------

G23 = "kernel tails\ntile block 32x32x32\ntile thread 4x4\nuse coalescing, smem, {}\nstages {}\n"


@pytest.mark.parametrize("toggles", ["transposeA, float4, cpasync", "float4, cpasync, prefetch", "float4, tma"])
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("k", [33, 64, 65, 97])
def test_g23_k_tails_are_neither_dropped_nor_copied_too_narrowly(toggles: str, stages: int, k: int) -> None:
    ir = lower(parse(G23.format(toggles, stages)), GUARDED_UNALIGNED if k % 4 else GUARDED)
    a, b, c = np.ones((32, k), np.float32), np.ones((k, 32), np.float32), np.full((32, 32), np.nan, np.float32)
    assert not run_ordered(ir, a, b, c).faults
    assert (c == k).all()
    widths = re.findall(r"cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (\d+)", emit_cuda(ir))
    assert set(widths) <= {"4", "8", "16"}
    assert bool(widths) == any(isinstance(s, Call) and s.row.name.startswith("cp_async") for s in walk(ir.body))


@pytest.mark.parametrize(("toggle", "least"), [("cpasync", "8.0"), ("tma", "9.0")])
def test_g23_an_architecture_without_the_instruction_is_refused(toggle: str, least: str) -> None:
    text = G23.format(f"float4, {toggle}", 2)
    assert parse(f"{text}arch sm_90\n").arch == "sm_90"
    with pytest.raises(SpecError, match=f"{toggle} needs compute capability {least}, and sm_75 is below it") as error:
        parse(f"{text}arch sm_75\n")
    assert error.value.line == 6


@pytest.mark.parametrize(("toggle", "least"), [("cpasync", "8.0"), ("tma", "9.0")])
def test_g23_nor_is_such_an_architecture_taken_from_the_caller(toggle: str, least: str) -> None:
    spec = parse(G23.format(f"float4, {toggle}", 2))
    assert emit(spec, arch="sm_90a") == emit(spec)
    for refused in (lambda: emit(spec, arch="sm_75"), lambda: compile_kernel(spec, device="sim", arch="compute_75")):
        with pytest.raises(ArgumentError, match=f"{toggle} needs compute capability {least}"):
            refused()


def test_g23_the_command_refuses_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "tails.gemm"
    spec.write_text(G23.format("cpasync", 2))
    assert run(["compile", str(spec), "-o", str(tmp_path), "--arch", "sm_75"]) == 2
    told = capsys.readouterr().err.strip()
    assert "cpasync needs compute capability 8.0, and sm_75 is below it; or choose another" in told and "\n" not in told
    assert not list(tmp_path.glob("*.cu"))


@pytest.mark.parametrize(("pad", "width"), [(0, 4), (4, 4), (2, 2), (1, 1)])
def test_g19_a_pad_that_breaks_alignment_narrows_the_access(pad: int, width: int) -> None:
    """A pitch of 130 elements is 520 bytes: rows with odd k are not aligned to 16."""
    toggles = "tile block 128x128x8\ntile thread 8x8\nuse coalescing, smem, transposeA, float4"
    ir = lower(parse(f"kernel padded\n{toggles}\npad_a {pad}\n"), EXACT)
    a, b, c = operands(128, 128, 16)
    result = run_ordered(ir, a, b, c)
    assert not result.faults
    assert close(c, a, b, np.zeros_like(c))
    rows = result.counters["accesses"]
    fragments = [x for x in rows if (x["operand"], x["op"], x["space"]) == ("A", "load", "shared")]
    assert {x["width"] for x in fragments} == {width}
