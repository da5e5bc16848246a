"""What was recorded on a GPU: counters that agreed with what was predicted, and still would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.analysis.counters import COUNTERS, predicted
from gemmgen.spec.ladder import ladder_names, ladder_path

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


REPLAYED = {"shared load wavefronts": 0.001, "shared store wavefronts": 0.25}
"""How much more of these a busy multiprocessor may count than the accesses need: it replays some, and not as many of
them from run to run. What the accesses need is the least that can be counted."""


def test_every_count_agreed_but_for_replays() -> None:
    for run in record()["runs"]:
        for c in (c for c in run["counts"] if not c["agrees"]):
            assert c["name"] in REPLAYED, (run["kernel"], run["size"], run["beta"], c)
            assert c["predicted"] <= c["measured"] <= c["predicted"] * (1 + REPLAYED[c["name"]]), (run["kernel"], c)


LESSON = (
    "naive", "coalesced", "smem", "regblock1d", "regblock2d_64", "regblock2d", "vectorized", "warptile",
)  # fmt: skip


def test_every_rung_of_the_lesson_was_measured_at_every_size_and_beta() -> None:
    runs = {(run["kernel"], tuple(run["size"]), run["beta"]) for run in record()["runs"]}
    assert runs >= {
        (name, size, beta)
        for name in LESSON
        for size in ((1024, 1024, 1024), (1023, 1025, 1027))
        for beta in (0.0, 1.0)
    }


@pytest.mark.parametrize("name", ladder_names())
def test_what_is_predicted_now_is_what_was_measured(name: str) -> None:
    for run in (r for r in record()["runs"] if r["kernel"] == name):
        m, n, k = run["size"]
        e = gemmgen.explain(gemmgen.load(ladder_path(name)), m, n, k, beta=run["beta"], compiled=False)
        now = predicted(e)
        for c in run["counts"]:
            if c["name"] in COUNTERS and c["name"] not in OF_THE_COMPILER:
                within = REPLAYED.get(c["name"], c["within"])
                assert abs(now[c["name"]] - c["measured"]) <= within * c["measured"], (run["size"], c["name"])
