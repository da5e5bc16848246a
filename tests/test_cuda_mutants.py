"""The checks of the host's run can fail: texts with one thing wrong are caught."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from host_cuda.harness import BuildError, HostFault, HostModule, build, missing
from host_cuda.problem import Problem, problem
from host_cuda.samples import tiled

from gemmgen.cuda.emit import emit_cuda
from gemmgen.lower import lower
from gemmgen.spec.parse import parse

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

SPEC = """kernel mutant
tile block 32x32x8
tile thread 4x4
use coalescing, smem, transposeA, float4
"""

# What is wrong: which occurrence of what is replaced by what, and what the run says.
BARRIER = "__syncthreads();"
MUTANTS = {
    "no barrier after the copies": (0, BARRIER, "", "elements are wrong"),
    "no barrier before the next copies": (1, BARRIER, "", "elements are wrong"),
    "a barrier that some skip": (0, BARRIER, f"if (row < 8) {BARRIER}", "barrier not reached by all"),
    "operands swapped": (0, "regM[m] * regN[n]", "regM[n] * regN[m]", "elements are wrong"),
    "another step along K": (0, "k0 += BK", "k0 += 2 * BK", "elements are wrong"),
    "an index past the tile": (0, "as_float4(&As[k]", "as_float4(&As[k + BK]", "index out of bounds"),
    "a misaligned access": (0, "as_float4(&Bs[k][", "as_float4(&Bs[k][1 + ", "misaligned access"),
    "C read where beta is 0": (0, "if (beta != 0.0f)", "if (true)", "elements are wrong"),
    "alpha forgotten": (0, "alpha * threadResults", "threadResults", "elements are wrong"),
    "a store past the edge": (-1, "as_float4(&blockC[(row + i)", "as_float4(&blockC[(row + i + 1)", "wrong|outside C"),
}


def mutated(text: str, which: int, old: str, new: str) -> str:
    """``text`` with one occurrence of ``old`` replaced, counted from 0, or from the end where negative."""
    pieces = text.split(old)
    assert len(pieces) > 1, f"the text no longer has {old!r}"
    at = which % (len(pieces) - 1) + 1
    return old.join(pieces[:at]) + new + old.join(pieces[at:])


@pytest.fixture(scope="module")
def text() -> str:
    return emit_cuda(lower(parse(SPEC)))


@pytest.fixture(scope="module")
def module(text: str, tmp_path_factory: pytest.TempPathFactory) -> HostModule:
    texts = [(name, mutated(text, which, old, new)) for name, (which, old, new, _) in MUTANTS.items()]
    return build([("right", text), *texts], tmp_path_factory.mktemp("mutants"))


def run(module: HostModule, name: str, *, reverse: bool = False) -> Problem:
    p = problem(64, 64, 32, alpha=1.5)
    module.run(name, (2, 2), 64, p.arguments(), reverse=reverse)
    return p


@pytest.mark.parametrize("waits", ["kept", "left out"])
def test_an_asynchronous_copy_lands_when_it_is_waited_for(waits: str, tmp_path: Path) -> None:
    text = emit_cuda(lower(parse(f"{SPEC.strip()}, cpasync\nstages 3\n")))
    kept = waits == "kept"
    assert "cp_async_wait1();" in text
    module = build([("async", text if kept else text.replace("    cp_async_wait1();", "    "))], tmp_path)
    with nullcontext() if kept else pytest.raises(AssertionError, match="elements are wrong"):
        run(module, "async").check()


@pytest.mark.parametrize("reverse", [False, True])
def test_the_text_as_it_is_passes(module: HostModule, reverse: bool) -> None:
    run(module, "right", reverse=reverse).check()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(module: HostModule, name: str) -> None:
    with pytest.raises((HostFault, AssertionError), match=MUTANTS[name][3]):
        run(module, name).check()


def test_a_fault_names_its_line(module: HostModule, text: str) -> None:
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines, 1) if line.startswith("    ") and "__syncthreads" in line)
    with pytest.raises(HostFault, match=rf"line {at}: barrier not reached by all: \d+ of 64 threads wait"):
        run(module, "a barrier that some skip")


def test_a_min_of_an_int_and_a_size_does_not_build(tmp_path: Path) -> None:
    text = emit_cuda(tiled()).replace("min(blockIdx.y * 8 + row, M - 1)", "min(row * lda, M - 1)")
    with pytest.raises(BuildError, match="ambiguous"):
        build([("mixed", text)], tmp_path)


@pytest.mark.parametrize("rows", [8, 4096])
def test_a_kernel_built_by_hand_runs(rows: int, tmp_path: Path) -> None:
    module = build([("tiled", emit_cuda(tiled(rows=rows)))], tmp_path)
    for m, n, k in ((8, 8, 4), (13, 9, 7), (1, 17, 3), (3, 3, 0)):
        p = problem(m, n, k, alpha=-2.0, beta=0.5, pad=1)
        module.run("tiled", (-(-n // 8), -(-m // 8)), 64, p.arguments())
        p.check()
