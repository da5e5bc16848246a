"""Sectors of asynchronous copies: the rules against what an H200 counted, warp by warp and box by box."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmgen.isa.memory import box_sectors_of, pair_sectors_of, sectors_of

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
        # Copies of 4 bytes go through L1, as an ordinary load.
        found = sectors_of(addresses, active, 4) if size == 4 else pair_sectors_of(addresses, active)
        assert found[0] == c["sectors"], c


def test_boxes_count_as_the_hardware_counted_them() -> None:
    boxes = record()["boxes"]
    assert len(boxes) >= 100
    for b in boxes:
        (along, across), (columns, rows) = b["box"], b["extents"]
        inside = np.array([4 * max(0, min(along, columns - b["x"]))]), np.array([max(0, min(across, rows - b["y"]))])
        first = np.array([b["address"] + b["y"] * b["pitch_bytes"] + 4 * b["x"]])
        assert box_sectors_of(first, b["pitch_bytes"], *inside, (4 * along, across))[0] == b["sectors"], b
