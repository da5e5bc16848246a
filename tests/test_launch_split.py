"""The launch plan of split-K: partial sums into a workspace, then the kernel that adds them up."""

from __future__ import annotations

import numpy as np
import pytest
from test_launch import SCALAR, VECTOR, planned, variant_of

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import ArgumentError
from gemmgen.launch import EXACT, LARGEST, Limits
from gemmgen.spec.model import Operand, Spec

SHARED = VECTOR.replace(name="shared", split_k=4)
BY_COLUMNS = SHARED.replace(C=Operand(order="col"))


def test_split_k_is_sums_into_the_workspace_and_then_c() -> None:
    result = planned(SHARED, 128, 192, 64, alpha=2.0, beta=3.0)
    main, then = result.steps
    assert (main.kernel, main.output, main.grid) == ("main", "W", (3, 2, 4))
    assert (then.kernel, then.output, then.grid) == ("then", "C", (128, 1, 1))
    assert (main.arguments.alpha, main.arguments.beta, main.arguments.ldc) == (1.0, 0.0, 192)
    assert (then.arguments.alpha, then.arguments.beta, then.arguments.ldw, then.arguments.ldc) == (2.0, 3.0, 192, 192)
    assert result.partials == result.workspace == 4 * 128 * 192 * 4


def test_split_k_leaves_lines_of_whole_16_bytes() -> None:
    for spec, ldw, lines in ((SHARED, 68, 130), (BY_COLUMNS, 132, 67)):
        c = (67, 1) if spec is SHARED else (1, 130)
        main, then = (result := planned(spec, 130, 67, 9, c=c)).steps
        assert main.arguments.ldc == then.arguments.ldw == ldw and then.grid[0] == lines
        assert result.partials == 4 * lines * ldw * 4


def test_g07_split_k_of_an_empty_sum_still_writes_c() -> None:
    for k, alpha in ((0, 1.0), (64, 0.0)):
        main, then = planned(SHARED, 64, 64, k, alpha=alpha, beta=2.0).steps
        assert main.arguments.K == 0 and main.grid[2] == 4
        assert (then.arguments.alpha, then.arguments.beta) == (0.0, 2.0)
    assert planned(SHARED, 0, 64, 8).steps == ()


@pytest.mark.parametrize("spec", [SHARED, BY_COLUMNS])
def test_g28_panels_share_one_workspace(spec: Spec) -> None:
    """Each panel's sums are added up before the next panel's overwrite them: the launches follow one another."""
    m, n = 64 * 11 + 5, 64 * 3
    c = (n, 1) if spec is SHARED else (1, m)
    result = planned(spec, m, n, 32, c=c, limits=Limits(grid_y=4))
    assert [step.kernel for step in result.steps] == ["main", "then"] * 3
    assert all(step.grid[1] <= 4 for step in result.steps)
    rows = [step.arguments.M for step in result.steps]
    assert rows == [256, 256, 256, 256, 197, 197]
    scale = n if spec is SHARED else 1
    assert [step.arguments.C for step in result.steps[1::2]] == [0, 256 * scale, 512 * scale]
    assert all(step.arguments.C == 0 for step in result.steps[::2])
    lines, ldw = (256, n) if spec is SHARED else (n, 256)
    assert result.partials == 4 * lines * ldw * 4


def test_g28_the_kernel_that_adds_up_keeps_within_the_grid_too() -> None:
    """Its blocks along y are along a line of C, where the main kernel's are along x."""
    wide = planned(SHARED, 64, 64 * 1000, 32, limits=Limits(grid_y=2))
    assert len(wide.steps) > 2 and all(step.grid[1] <= 2 for step in wide.steps)
    assert sum(step.arguments.N for step in wide.steps[::2]) == 64 * 1000


def test_g04_alignment_counts_for_the_kernel_that_adds_up() -> None:
    """A kernel whose own stores are single, but whose second kernel moves 16 bytes of C an access."""
    spec = SCALAR.replace(name="scalar_shared", split_k=2)
    assert variant_of(planned(SCALAR, 64, 64, 16, c_at=4)) == EXACT
    assert variant_of(planned(spec, 64, 64, 16)) == EXACT
    assert variant_of(planned(spec, 64, 64, 16, c_at=4)).bytes("C") == 4


DEEP = SHARED.replace(name="deep", use=SHARED.use | {"cpasync"}, stages=6)


@pytest.mark.parametrize("spec", [SHARED, DEEP, DEEP.replace(split_k=1)], ids=lambda s: s.name)
def test_g28_the_rounded_slices_of_k_and_the_tiles_ahead_stay_within_an_int(spec: Spec) -> None:
    bk, slices = spec.block[2], spec.split_k
    largest = LARGEST - bk * (slices + spec.stages)
    with pytest.raises(ArgumentError, match=f"the largest K of one launch is {largest}"):
        planned(spec, 64, 64, largest + 1)
    assert largest == planned(spec, 64, 64, largest).steps[0].arguments.K
    # What the kernels compute of it in ints: K rounded up, where the last slice begins, the first k of the tiles ahead.
    assert largest + bk * slices - 1 <= LARGEST
    size = -(-largest // (bk * slices)) * bk
    assert (slices - 1) * size + size <= LARGEST
    assert (-(-size // bk) - 1 + spec.stages) * bk <= LARGEST


@pytest.mark.parametrize("k", [0, 1, 7, 8, 31, 32, 33, 100])
@pytest.mark.parametrize("spec", [SHARED, BY_COLUMNS, SCALAR.replace(name="three", split_k=3)])
def test_g07_split_k_is_right_for_few_and_no_steps_of_k(spec: Spec, k: int) -> None:
    """On the simulator, with C and the workspace full of NaN where they are not to be read."""
    rng = np.random.default_rng(k)
    for m, n in ((64, 64), (65, 70), (3, 5)):
        a, b, c = (rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n), (m, n)))
        for alpha, beta in ((1.0, 0.0), (0.5, -2.0)):
            start = np.asarray(c if beta else np.full_like(c, np.nan), order="C" if spec.C.order == "row" else "F")
            found = gemmgen.simulate(spec, a, b, start, alpha, beta)
            assert found.faults == ()
            assert gemmgen.verify(found.C, a, b, start, alpha, beta).ok


def test_g28_offsets_into_the_workspace_are_64_bit() -> None:
    second = gemmgen.lower(SHARED).then
    assert second is not None
    text = emit_cuda(second)
    assert "W[z * ldw * M + blockIdx.x * ldw + at]" in text and "blockIdx.y * THREADS + threadIdx.x" in text
