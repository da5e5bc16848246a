"""The text of pipelines, built by the host's C++ compiler and run where copies land as late as they may."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from host_cuda import product
from host_cuda.harness import Chosen, HostFault, HostModule, build, missing
from host_cuda.problem import F32, Problem, problem
from pipelinehelp import PIPELINES, depths, kernel, launches, line_of, spec_of, workspace
from simhelp import grid_of

from gemmgen.cuda.emit import emit_cuda
from gemmgen.launch import VARIANTS
from gemmgen.sim.run import GlobalArray, run_kernel

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory, chosen: Chosen) -> HostModule:
    wanted = {*chosen("name", "variant"), *((name, "guarded") for (name,) in chosen("name"))}
    named = [(f"{name}_{variant}", kernel(name, variant)) for name, variant in sorted(wanted)]
    found = [text for name, ir in named for text in product.texts(name, ir)]
    return build(found, tmp_path_factory.mktemp("host"))


def run(module: HostModule, name: str, variant: str, p: Problem, *, reverse: bool = False, text: str = "") -> None:
    """Runs the text of a pipeline, or another ``text`` of it."""
    product.run(module, text or f"{name}_{variant}", kernel(name, variant), p, reverse=reverse)


def simulated(name: str, variant: str, p: Problem) -> F32:
    """What the simulator makes of the same problem, with no fault."""
    ir = kernel(name, variant)
    m, n = p.c.shape
    given = product.arguments_of(p)
    matrices = {x: GlobalArray(y.buffer.copy(), y.offset) for x, y in (("A", p.a), ("B", p.b), ("C", p.c))}
    sums = GlobalArray(workspace(ir, given).reshape(-1))
    for one, values in launches(ir, given):
        arrays = matrices | ({"C": sums} if one.then else {"W": sums})
        arrays = {x: v for x, v in arrays.items() if x in {q.name for q in one.params}}
        scalars = {x: v for x, v in values.items() if x not in matrices}
        assert not run_kernel(one, grid_of(one, {"M": m, "N": n, "K": p.k}), scalars, arrays).faults
    return replace(p.c, buffer=matrices["C"].data).view


def of_size(name: str, variant: str, m: int, n: int, k: int, seed: int) -> Problem:
    spec = spec_of(name)
    orders = (spec.A.order, spec.B.order, spec.C.order)
    pad, offset = (3, 1) if variant == "guarded_unaligned" else (line_of(spec), 0)
    beta, (a, b, c) = (0.0, 0.75)[seed % 2], (x.dtype for x in spec.matrices)
    return problem(
        m, n, k, alpha=1.25, beta=beta, pad=pad, offset=offset, seed=seed, order=orders, dtypes=(a, b, c)
    )  # fmt: skip


def right(module: HostModule, name: str, variant: str, p: Problem, reverse: bool = False) -> None:
    """Runs the text, whose result is within the bound, and that of the simulator bit by bit."""
    expected = simulated(name, variant, p)
    run(module, name, variant, p, reverse=reverse)
    p.check()
    assert p.c.view.tobytes() == expected.tobytes()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PIPELINES)
def test_the_text_is_right_bit_by_bit_at_every_number_of_tiles(module: HostModule, name: str, variant: str) -> None:
    bm, bn, bk = spec_of(name).block
    line = line_of(spec_of(name))
    unit = {"exact": bk, "guarded": line, "guarded_unaligned": 1}[variant]
    m, n = {"exact": (2 * bm, bn), "guarded": (bm + line, bn + line), "guarded_unaligned": (bm + 3, bn + 1)}[variant]
    for seed, k in enumerate(depths(spec_of(name), unit)[:: 3 if variant == "guarded" else 1]):
        p = of_size(name, variant, m, n, k, seed)
        right(module, name, variant, p, reverse=seed % 3 == 1)


SWIZZLED = [name for name in PIPELINES if name.startswith("pipeline_cta_swizzle")]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", SWIZZLED)
def test_tiles_that_blocks_go_over_in_groups_are_right_bit_by_bit(module: HostModule, name: str, variant: str) -> None:
    """Five by three of them, in groups of two or three rows: the last group has fewer."""
    bm, bn, bk = spec_of(name).block
    rows, columns = {"exact": (0, 0), "guarded": (4, 4), "guarded_unaligned": (5, 3)}[variant]
    p = of_size(name, variant, 5 * bm - rows, 3 * bn - columns, 2 * bk * spec_of(name).split_k, 1)
    right(module, name, variant, p)


PERSISTENT = [name for name in PIPELINES if "persistent" in name]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PERSISTENT)
def test_blocks_that_compute_several_tiles_are_right_bit_by_bit(module: HostModule, name: str, variant: str) -> None:
    """Three by three tiles of C, and numbers of steps along K after which every stage may be the next one."""
    spec = spec_of(name)
    bm, bn, bk = spec.block
    line = line_of(spec)
    rows, columns = {"exact": (0, 0), "guarded": (line, line), "guarded_unaligned": (5, 3)}[variant]
    for seed, steps in enumerate((0, 1, spec.stages, spec.stages + 1, 2 * spec.stages + 2)):
        p = of_size(name, variant, 3 * bm - rows, 3 * bn - columns, steps * bk * spec.split_k, seed)
        right(module, name, variant, p, reverse=seed % 2 == 1)


@pytest.mark.parametrize("name", PIPELINES)
def test_alpha_zero_reads_neither_a_nor_b(module: HostModule, name: str) -> None:
    p = of_size(name, "guarded", 16, 8, 24, 1)
    p.alpha = 0.0
    p.a.buffer[...] = p.b.buffer[...] = np.nan
    run(module, name, "guarded", p)
    p.check()


# --- Texts with one thing wrong ---------------------------------------------------------------------------------------

CALLS = ("cp_async_commit", r"cp_async_wait\d", "mbarrier_init", "mbarrier_fence", "mbarrier_expect", "mbarrier_wait")
# Lanes of a warp that run apart do no harm where threads take turns: __syncwarp is left out in test_pipelines.py alone.
CALLS += ("mbarrier_release", "cluster_sync", "fence_async")
BROKEN = ("pipeline_groups_3_prefetch", "pipeline_groups_spread", "pipeline_tma_2_prefetch", "pipeline_tma_swizzle_128")
BROKEN += ("pipeline_tma_release", "pipeline_cluster_columns", "pipeline_cluster_tma")
BROKEN += ("pipeline_persistent_tma", "pipeline_persistent_release", "types_bf16_tma_swizzle", "types_f16_spread")


def mutants(text: str) -> dict[str, str]:
    """The text without each call, one at a time, and with the parity of each wait turned round."""
    start = text.index('extern "C"')
    found: dict[str, str] = {}
    for call in CALLS:
        for at, m in enumerate(re.finditer(rf"\b{call}(?=\()", text)):
            if m.start() > start:
                found[f"without {m.group()} {at}"] = text[: m.start()] + "left_out" + text[m.end() :]
    for at, m in enumerate(re.finditer(r"\bmbarrier_wait\(([^;]*), ([^;]*)\);", text)):
        if m.start() > start:
            turned = f"mbarrier_wait({m.group(1)}, 1 - ({m.group(2)}));"
            found[f"parity of wait {at}"] = text[: m.start()] + turned + text[m.end() :]
    return found


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> HostModule:
    texts = [(f"{x} {what}", text) for x in BROKEN for what, text in mutants(emit_cuda(kernel(x, "exact"))).items()]
    return build(texts, tmp_path_factory.mktemp("mutants"))


@pytest.mark.parametrize("name", BROKEN)
def test_a_text_without_one_of_its_waits_is_caught(broken: HostModule, name: str) -> None:
    bm, bn, bk = spec_of(name).block
    bm *= 2 * spec_of(name).persistent + 1  # a block whose tiles of C follow one another
    found = mutants(emit_cuda(kernel(name, "exact")))
    assert len(found) >= 3
    for what in found:
        p = of_size(name, "exact", bm, bn, 9 * spec_of(name).split_k * bk, 0)
        with pytest.raises((HostFault, AssertionError)):
            run(broken, name, "exact", p, text=f"{name} {what}")
            p.check()
            pytest.fail(f"{what} was not caught", pytrace=False)


DEPENDENT = [name for name in PIPELINES if name.startswith("pipeline_dependent")] + ["types_bf16_split"]


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_second_kernel_that_does_not_wait_for_the_first_is_caught(name: str) -> None:
    ir = kernel(name, "exact")
    assert ir.then is not None
    first, second = emit_cuda(ir), emit_cuda(ir.then)
    start = second.index("{", second.index('extern "C"'))
    early = second[:start] + second[start:].replace("wait_for_previous_kernel(", "left_out(")
    assert early != second
    texts = [("right", first), ("right_then", second), ("wrong", first), ("wrong_then", early)]
    built = build(texts)
    bm, bn, bk = ir.tile
    for text in ("right", "wrong"):
        p = of_size(name, "exact", bm, bn, 3 * ir.program.parts * bk, 0)
        run(built, name, "exact", p, text=text)
        assert np.isnan(p.c.view).all() == (text == "wrong")
