"""Shared-memory wavefronts and global sectors: measured counters, and the batch forms against plain Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmgen.diagnostics import ArgumentError
from gemmgen.isa.memory import (
    bytes_used_of,
    ideal_wavefronts,
    ideal_wavefronts_of,
    lines_of,
    sectors_of,
    shared_wavefronts,
    warp_wavefronts,
    wavefronts_of,
)

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "shared_memory_wavefronts.json").read_text(encoding="utf-8")
)["rows"]
OPS = {f"{kind}{bits}": (bits // 32, kind == "st") for kind in ("ld", "st") for bits in (32, 64, 128)}


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_measured_row(op: str) -> None:
    width, store = OPS[op]
    rows = [r for r in ROWS if r["op"] == op]
    assert len(rows) >= 30
    assert {r["name"]: shared_wavefronts(r["words"], width, store) for r in rows} == {
        r["name"]: r["wavefronts"] for r in rows
    }
    words = np.array([r["words"] for r in rows], dtype=np.int64)
    batch = wavefronts_of(words, np.ones(words.shape, dtype=bool), width, store)
    assert batch.tolist() == [r["wavefronts"] for r in rows]


@pytest.mark.parametrize("op", sorted(OPS))
def test_batch_equals_plain_with_inactive_lanes(op: str) -> None:
    width, store = OPS[op]
    rng = random.Random(5)
    rows: list[list[int | None]] = []
    for _ in range(300):
        spread, keep = rng.choice([4, 40, 4000]), rng.choice([0.0, 0.1, 0.5, 1.0])
        twin = rng.choice([0, 1, 2])
        row = [rng.randrange(spread) * width for _ in range(32)]
        row = [row[lane & ~twin] for lane in range(32)]
        rows.append([w if rng.random() < keep else None for w in row])
    rows += [[w + 1 if w is not None else None for w in row] for row in rows[:40]]  # misaligned, and shifted copies
    words = np.array([[-7 if w is None else w for w in row] for row in rows], dtype=np.int64)
    active = np.array([[w is not None for w in row] for row in rows])
    assert wavefronts_of(words, active, width, store).tolist() == [warp_wavefronts(r, width, store) for r in rows]
    ideal = ideal_wavefronts_of(words, active, width, store).tolist()
    assert ideal == [ideal_wavefronts(r, width, store) for r in rows]
    assert all(i <= warp_wavefronts(r, width, store) for i, r in zip(ideal, rows, strict=True))


def test_short_rows_and_no_lanes() -> None:
    assert shared_wavefronts([]) == 0
    assert shared_wavefronts([None] * 32, 4) == 0
    assert shared_wavefronts([0, 32, 64]) == 3
    assert shared_wavefronts([5]) == 1


@pytest.mark.parametrize(
    ("words", "width", "named"), [([0] * 33, 1, "33"), ([0], 3, "3"), ([-4], 1, "-4"), ([0], 0, "0")]
)
def test_what_cannot_be_is_refused(words: list[int], width: int, named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        shared_wavefronts(words, width)


@pytest.mark.parametrize("nbytes", [4, 8, 16])
def test_sectors_and_bytes_equal_sets(nbytes: int) -> None:
    rng = np.random.default_rng(3)
    addresses = rng.integers(0, 3000, size=(200, 32)) * 4
    addresses[100:] = addresses[:100] + 32 * 12345
    active = rng.random((200, 32)) < 0.6
    touched = [
        {b for a, on in zip(row, keep, strict=True) if on for b in range(a, a + nbytes)}
        for row, keep in zip(addresses.tolist(), active.tolist(), strict=True)
    ]
    assert sectors_of(addresses, active, nbytes).tolist() == [len({b // 32 for b in t}) for t in touched]
    assert lines_of(addresses, active, nbytes).tolist() == [len({b // 128 for b in t}) for t in touched]
    assert bytes_used_of(addresses, active, nbytes).tolist() == [len(t) for t in touched]


def test_ideal_is_what_the_phases_cost() -> None:
    row = list(range(0, 128, 4))
    assert [ideal_wavefronts(row, width) for width in (1, 2, 4)] == [1, 2, 4]
    assert ideal_wavefronts([0] * 32, 4) == 2
    assert ideal_wavefronts([0] * 32, 4, store=True) == 4
    assert ideal_wavefronts(row[:8], 4) == 1


def test_no_warps_is_no_work() -> None:
    none, mask = np.zeros((0, 32), dtype=np.int64), np.zeros((0, 32), dtype=bool)
    assert [f(none, mask, 4).shape for f in (sectors_of, bytes_used_of)] == [(0,), (0,)]


def test_sector_alignment_matters() -> None:
    lanes = np.arange(32, dtype=np.int64)[None] * 4
    on = np.ones((1, 32), dtype=bool)
    assert [int(sectors_of(lanes + start, on, 4)[0]) for start in (0, 4, 16, 32)] == [4, 5, 5, 4]
