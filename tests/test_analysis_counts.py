"""Counts read off the program equal the counts of running it, and cost the same at any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import at_most
from hypothesis import given, settings
from hypothesis import strategies as st
from simhelp import grid_of
from strategies import specs
from tiers import examples

from gemmgen.analysis.counts import Counts, count
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.variant import EXACT, GUARDED, GUARDED_UNALIGNED, VARIANTS, Variant
from gemmgen.isa.memory import shared_wavefronts
from gemmgen.lower import lower
from gemmgen.sim.run import GlobalArray, run_kernel
from gemmgen.spec.ladder import LADDER as RUNGS
from gemmgen.spec.ladder import ladder_path
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import load, parse

LADDER = sorted(ladder_path(name) for name in RUNGS)
Size = tuple[int, int, int]


def scalars(ir: KernelIR, size: Size, beta: float = 1.0, gap: int = 0) -> dict[str, float]:
    """Arguments for packed matrices, or with ``gap`` elements after each row."""
    m, n, k = size
    shapes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    leading = {
        f"ld{x.lower()}": shapes[x][1 if ir.matrix(x).order == "row" else 0] + gap for x in shapes
    }  # fmt: skip
    return {"M": m, "N": n, "K": k, "alpha": 1.0, "beta": beta, **leading}


def simulated(ir: KernelIR, grid: Size, given: dict[str, float]) -> dict[str, Any]:
    rows = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}
    arrays = {}
    for x, (r, c) in rows.items():
        outer = given[r] if ir.matrix(x).order == "row" else given[c]
        matrices = ir.program.parts if x == "C" else 1  # each slice of K leaves a matrix of its own
        elements = int(matrices * outer * given[f"ld{x.lower()}"])
        arrays[x] = GlobalArray(np.zeros(elements, dtype=np.float32), alignment=256)
    result = run_kernel(ir, grid, given, arrays)
    assert result.faults == ()
    return result.counters


def as_counters(counts: Counts) -> dict[str, Any]:
    """The counts in the form of the simulator's counters, without what only one of the two knows."""
    names = {"global": ("requests", "sectors", "bytes_used"), "shared": ("requests", "wavefronts", "ideal_wavefronts")}
    out: dict[str, Any] = {
        space: {op: {f: getattr(counts.total(space, op), f) for f in fields} for op in ("load", "store")}
        for space, fields in names.items()
    }
    out["fma"] = counts.fma
    out["accesses"] = [
        (a.operand, a.op, a.space, a.width, a.cost.requests, a.cost.sectors, a.cost.wavefronts) for a in counts.accesses
    ]
    return out


def same_as_running(ir: KernelIR, size: Size, beta: float, gap: int = 0) -> None:
    given = scalars(ir, size, beta, gap)
    ran = simulated(ir, grid_of(ir, dict(zip("MNK", size, strict=True))), given)
    ran["accesses"] = [
        tuple(a[f] for f in ("operand", "op", "space", "width", "requests", "sectors", "wavefronts"))
        for a in ran["accesses"]
    ]
    read = as_counters(count(ir, given))
    # A line that was never reached may be missing from either list.
    for side in (read, ran):
        side["accesses"] = [a for a in side["accesses"] if a[4]]
    assert read == ran


def sizes_of(spec: Spec, variant: str) -> list[Size]:
    bm, bn, bk = spec.block
    match variant:
        case "exact":
            return [(2 * bm, bn, 3 * max(bk, 4))]
        case "guarded":
            return [(bm + 3, bn + 4, 2 * bk + 4), (5, 36, 12)]
        case _:
            return [(bm + 3, bn + 5, 2 * bk + 1), (37, 70, 23), (1, 1, 1)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("path", LADDER, ids=lambda p: p.stem)
def test_equal_to_running(path: Path, variant: str) -> None:
    spec = load(path)
    for number, size in enumerate(sizes_of(spec, variant)):
        same_as_running(lower(spec, VARIANTS[variant]), size, beta=float(number % 2))


@pytest.mark.parametrize(
    "name", ["naive", "coalesced", "smem", "regblock1d", "regblock2d_64", "vectorized", "warptile"]
)
def test_rows_of_1023_start_anywhere_in_their_sector(name: str) -> None:
    spec = load(next(p for p in LADDER if p.stem == name))
    same_as_running(lower(spec, VARIANTS["guarded_unaligned"]), (33, 1023, 41), beta=1.0)


def test_a_leading_dimension_longer_than_the_row() -> None:
    spec = load(next(p for p in LADDER if p.stem == "smem"))
    same_as_running(lower(spec, VARIANTS["guarded_unaligned"]), (35, 40, 33), beta=0.0, gap=3)


@settings(max_examples=examples(60), deadline=None)
@given(
    spec=specs(max_threads=128, max_sums=16, max_size=48, orders=("row", "col")),
    size=st.tuples(st.integers(1, 90), st.integers(1, 90), st.integers(1, 40)),
    variant=st.sampled_from(["guarded_unaligned", "exact"]),
    beta=st.sampled_from([0.0, 2.0]),
)
def test_any_spec_equals_running(spec: Spec, size: Size, variant: str, beta: float) -> None:
    if variant == "exact":
        bm, bn, bk = spec.block
        # Whole tiles, and rows of a multiple of 16 bytes.
        size = (bm * 4, bn * 4, max(bk, 1) * 4) if bm * bn <= 1024 else (bm, bn, bk)
        if any(s % 4 for s in size):
            size = (bm * 4, bn * 4, bk * 4)
    same_as_running(lower(spec, VARIANTS[variant]), size, beta)


HUGE = [(1023, 1023, 1023), (4096, 4096, 4096), (65537, 32771, 10001), (1 << 20, 1 << 20, 1 << 20)]


@pytest.mark.parametrize("path", LADDER, ids=lambda p: p.stem)
def test_any_size_in_constant_time(path: Path) -> None:
    spec = load(path)
    for variant in ("guarded", "guarded_unaligned"):
        ir = lower(spec, VARIANTS[variant])
        for size in HUGE:
            given = scalars(ir, size)
            with at_most(calls=500_000):
                counts = count(ir, given)
            m, n, k = size
            more = 1.01 if spec.split_k == 1 else 1.03  # every slice of K is whole tiles
            assert m * n * k <= counts.fma < more * m * n * k


def test_twice_the_blocks_is_twice_the_counts() -> None:
    ir = lower(load(next(p for p in LADDER if p.stem == "warptile")), EXACT)
    one, two = (count(ir, scalars(ir, (1024 * i, 1024, 1024))) for i in (1, 2))
    assert two == one + one


# --- Field cases --------------------------------------------------------------------------------------------------


def per_request(counts: Counts, operand: str, op: str = "load") -> float:
    a = next(a for a in counts.accesses if (a.operand, a.op, a.space) == (operand, op, "global"))
    return a.cost.sectors / a.cost.requests


def test_s4_sectors_of_a_request() -> None:
    size = (1024, 1024, 1024)
    spec = "kernel gemm\ntile block 32x32\n"
    rows = lower(parse(spec), EXACT)
    counts = count(rows, scalars(rows, size))
    assert [per_request(counts, x) for x in "ABC"] == [32, 1, 32]
    assert per_request(counts, "C", "store") == 32
    columns = lower(parse(spec + "use coalescing\n"), EXACT)
    counts = count(columns, scalars(columns, size))
    assert [per_request(counts, x) for x in "ABC"] == [1, 4, 4]


def test_s4_row_one_of_1023_columns_takes_five_sectors() -> None:
    ir = lower(parse("kernel gemm\ntile block 1x32\nuse coalescing\n"), GUARDED)
    given = scalars(ir, (2, 1023, 8), beta=0.0)
    both, first = (count(ir, given | {"M": m}, grid=(1, m, 1)) for m in (2, 1))
    assert both.total("global", "store").sectors - first.total("global", "store").sectors == 5
    assert first.total("global", "store").sectors == 4


def store_of_as(bk: int, pitch: int, rows: int) -> list[int]:
    """Wavefronts of the four stores of one warp: lanes hold float4 of A's rows, and store them transposed."""
    lanes = [(lane // (bk // 4), lane % (bk // 4) * 4) for lane in range(32)]
    assert max(row for row, _ in lanes) < rows
    return [shared_wavefronts([(k + v) * pitch + row for row, k in lanes], store=True) for v in range(4)]


@pytest.mark.parametrize(
    ("bk", "pitch", "wavefronts"),
    [(8, 128, 2), (8, 132, 1), (8, 130, 2), (16, 128, 4), (16, 130, 1), (16, 132, 2), (32, 128, 8), (8, 64, 2),
     (16, 64, 4), (32, 64, 8)],
)  # fmt: skip
def test_g19_transposed_store(bk: int, pitch: int, wavefronts: int) -> None:
    assert store_of_as(bk, pitch, pitch) == [wavefronts] * 4


@pytest.mark.parametrize(("bk", "wavefronts", "ideal"), [(8, 64, 32), (16, 256, 64)])
@pytest.mark.parametrize("bm", [128])
def test_g19_totals_of_a_k_tile(bm: int, bk: int, wavefronts: int, ideal: int) -> None:
    spec = f"kernel gemm\ntile block {bm}x128x{bk}\ntile thread 8x8\nuse coalescing, smem, transposeA, float4\n"
    ir = lower(parse(spec), EXACT)
    assert ir.threads == 256
    counts = count(ir, scalars(ir, (bm, 128, bk)))
    store = next(a for a in counts.accesses if (a.operand, a.op, a.space) == ("A", "store", "shared"))
    assert (store.cost.wavefronts, store.cost.ideal_wavefronts) == (wavefronts, ideal)


@pytest.mark.parametrize(("toggles", "wavefronts"), [("smem, transposeA", 1), ("smem", 2)])
def test_g19_reading_the_fragment(toggles: str, wavefronts: int) -> None:
    spec = f"kernel gemm\ntile block 128x128x8\ntile thread 8x8\nuse coalescing, {toggles}\n"
    ir = lower(parse(spec), EXACT)
    load_a = next(
        a
        for a in count(ir, scalars(ir, (128, 128, 8))).accesses
        if (a.operand, a.space, a.op) == ("A", "shared", "load")
    )
    assert load_a.width == 1
    assert load_a.cost.wavefronts == wavefronts * load_a.cost.requests


@pytest.mark.parametrize("name", ["naive", "coalesced"])
@pytest.mark.parametrize("variant", [EXACT, GUARDED_UNALIGNED], ids=lambda v: v.label)
def test_counts_beyond_64_bits_are_exact(name: str, variant: Variant) -> None:
    """Not of any matrices that there are, but wrapped round they were negative, or plausible and wrong."""
    m, n, k = (2097120, 1 << 30, (1 << 31) - 4096) if variant == EXACT else (2097113, (1 << 30) - 3, (1 << 31) - 4093)
    given = {"M": m, "N": n, "K": k, "lda": k, "ldb": n, "ldc": n, "beta": 0.0}
    counts = count(lower(load(ladder_path(name)), variant), given)
    loads = {a.operand: a.cost for a in counts.accesses if a.op == "load" and a.operand in "AB" and a.cost.requests}
    assert counts.fma == m * n * k > 1 << 63
    assert {x: c.elements for x, c in loads.items()} == {"A": m * n * k, "B": m * n * k}
    for c in loads.values():
        assert c.requests <= c.sectors <= 32 * c.requests and c.lines <= c.sectors
        assert c.bytes_used <= 32 * c.sectors and 4 * c.elements <= 32 * c.bytes_used
