"""What was recorded on a GPU: counters that agreed with what was predicted, and still would."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.analysis.counters import COUNTERS, binding, predicted
from gemmgen.report.ladder import RUNGS
from gemmgen.spec.ladder import LADDER, ladder_path

RECORD = Path(__file__).resolve().parent.parent / "generated" / "h200" / "counters.json"
OF_THE_COMPILER = ("shared load requests", "shared load wavefronts")
"""Counts in which the compiler has a say, and another version of it another one."""

pytestmark = pytest.mark.skipif(not RECORD.is_file(), reason="no counters are recorded")


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def test_where_it_was_measured_is_said() -> None:
    found = record()
    assert all(found[key] for key in ("gpu", "arch", "driver", "versions", "commit", "ncu"))


def test_every_count_equals_its_counter() -> None:
    wrong = [
        (run["kernel"], run["size"], c) for run in record()["runs"] for c in run["counts"] if c["agrees"] is not True
    ]
    assert not wrong, wrong
    assert all(c["predicted"] == c["measured"] for run in record()["runs"] for c in run["counts"])


def test_where_the_counters_say_what_binds_the_model_says_the_same_or_latency() -> None:
    """L1 looks up tags for global memory and moves data for both: its pipe and its whole are one resource here."""
    one = {"shared": "l1"}
    said = [(r, binding(r["busy_percent"])) for r in record()["runs"]]
    wrong = [
        (r["kernel"], r["size"], resource, r["bound"]["by"])
        for r, resource in said
        if resource and r["bound"]["by"] != "latency"
        if one.get(resource, resource) != one.get(r["bound"]["by"], r["bound"]["by"])
    ]
    assert not wrong, wrong
    assert sum(resource is not None for _, resource in said) >= 8


def test_every_rung_was_measured_at_every_size_and_beta() -> None:
    runs = {(run["kernel"], tuple(run["size"]), run["beta"]) for run in record()["runs"]}
    assert runs >= {
        (name, size, beta)
        for name in LADDER
        for size in ((1024, 1024, 1024), (1023, 1025, 1027))
        for beta in (0.0, 1.0)
    }


@pytest.mark.parametrize("name", LADDER)
def test_what_is_predicted_now_is_what_was_measured(name: str) -> None:
    for run in (r for r in record()["runs"] if r["kernel"] == name):
        m, n, k = run["size"]
        e = gemmgen.explain(gemmgen.load(ladder_path(name)), m, n, k, beta=run["beta"], compiled=False)
        now = predicted(e)
        for c in run["counts"]:
            if c["name"] in COUNTERS and c["name"] not in OF_THE_COMPILER:
                assert now[c["name"]] == c["predicted"], (run["size"], c["name"])


# --- Beside cuBLAS ---------------------------------------------------------------------------------------------------

SUITE = RECORD.with_name("f32.json")
AT_LEAST = {
    (512, 512, 512): 1.15, (1024, 1024, 1024): 1.15, (2048, 2048, 2048): 1.10, (4096, 4096, 4096): 1.09,
    (8192, 8192, 8192): 1.10, (8, 4096, 4096): 2.0, (16, 4096, 4096): 3.3,
}  # fmt: skip
"""At 4096 it was 1.10 before loads were fenced from the TMA engine that overwrites what they read: 0.3% of the time,
a race that other tiles lost."""


def test_no_shape_of_the_suite_is_slower_than_cublas() -> None:
    found = json.loads(SUITE.read_text(encoding="utf-8"))
    ratios = {(r["m"], r["n"], r["k"]): r["ratio"] for r in found["rows"]}
    assert len(ratios) == 21 and found["commit"] and found["gpu"]
    assert not {shape: r for shape, r in ratios.items() if r < AT_LEAST.get(shape, 1.0)}
    assert math.prod(ratios.values()) ** (1 / 21) >= 1.20
    assert all(row["verified"] == [True, True] and not row["unordered"] for row in found["rows"])


def test_each_rung_of_the_ladder_is_faster_than_the_one_before() -> None:
    found = json.loads(RECORD.with_name("ladder.json").read_text(encoding="utf-8"))
    seconds = {r["kernel"]: r["median_s"] for r in found["rungs"]}
    order = [seconds[r.spec] for r in RUNGS if not r.after]
    assert order == sorted(order, reverse=True) and len(order) == 12
