"""Sectors of asynchronous copies: the rules against what an H200 counted, warp by warp and box by box."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmgen.isa.memory import box_sectors_of, pair_fetches_of, pair_sectors_of, sectors_of

RECORD = Path(__file__).resolve().parent.parent / "generated" / "h200" / "sectors.json"


@cache
def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def warp(copy: dict[str, Any]) -> tuple[Any, Any]:
    """Addresses and active lanes of one warp, [1, 32]."""
    places = copy["bytes"]
    return np.array([[p or 0 for p in places]]), np.array([[p is not None for p in places]])


@pytest.mark.parametrize("size", [4, 16])
def test_copies_count_as_the_hardware_counted_them(size: int) -> None:
    copies = [c for c in record()["copies"] if c["instruction"] == f"cp.async {size}"]
    assert len(copies) >= 40
    for c in copies:
        addresses, active = warp(c)
        if size == 4:  # through L1, as an ordinary load
            expected = sectors_of(addresses, active, 4)[0], sectors_of(addresses, active, 4)[0]
        else:
            expected = pair_sectors_of(addresses, active)[0], pair_fetches_of(addresses, active)[0]
        assert (c["l1_sectors"], c["ldgsts_sectors"]) == expected, c


def test_a_copy_past_l1_from_the_middle_of_a_sector_fetches_every_sector_twice() -> None:
    aligned, shifted = (np.arange(32)[None] * 16 + first for first in (0, 16))
    every = np.ones((1, 32), np.bool_)
    assert pair_fetches_of(aligned, every) == 16 and pair_fetches_of(shifted, every) == 32


def test_boxes_count_as_the_hardware_counted_them() -> None:
    boxes = record()["boxes"]
    assert len(boxes) >= 100
    for b in boxes:
        (along, across), (columns, rows) = b["box"], b["extents"]
        inside = np.array([4 * max(0, min(along, columns - b["x"]))]), np.array([max(0, min(across, rows - b["y"]))])
        first = np.array([b["address"] + b["y"] * b["pitch_bytes"] + 4 * b["x"]])
        assert box_sectors_of(first, b["pitch_bytes"], *inside, (4 * along, across))[0] == b["sectors"], b
