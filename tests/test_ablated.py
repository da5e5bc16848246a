"""Measured changes beside modelled ones, and what the model cannot tell."""

from __future__ import annotations

import json
from math import log
from pathlib import Path

import pytest

import gemmgen
from gemmgen.analysis import ablated
from gemmgen.analysis.ablated import UNCERTAINTY, measured_change, recorded_changes, too_small
from gemmgen.analysis.recorded import settings_of
from gemmgen.cli import run
from gemmgen.report.ablation import ablations
from gemmgen.spec.data import data_folder
from gemmgen.target import gpu

SIZE = (4096, 4096, 4096)
H200 = gpu("h200")


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of two changes of `regblock2d`."""
    spec = gemmgen.load("regblock2d")
    found = {one.without: one.spec for one in ablations(spec) if one.spec is not None}
    rows = [
        {
            "kernel": "regblock2d", "change": f"without {name}", "size": list(SIZE), "before_s": 4e-3,
            "after_s": 4e-3 * factor, "spec": found[name].to_text(comment=False),
        }
        for name, factor in (("coalescing", 1.5), ("smem", 6.0))
    ]  # fmt: skip
    file = tmp_path / "h200" / "ablations.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"gpu": "NVIDIA H200", "commit": "c" * 40, "rows": rows}))
    monkeypatch.setattr(ablated, "data_folder", lambda name: tmp_path)
    return file


def without(name: str) -> gemmgen.Spec:
    return next(one.spec for one in ablations(gemmgen.load("regblock2d")) if one.without == name and one.spec)


def test_a_change_is_found_by_its_settings_both_ways(record: Path) -> None:
    whole, less = gemmgen.load("regblock2d"), without("coalescing")
    found = measured_change(whole.replace(name="mine"), less.replace(name="other"), SIZE, H200)
    assert (
        found is not None and found.ratio == pytest.approx(1.5) and found.source == "NVIDIA H200, commit cccccccccccc"
    )
    back = measured_change(less, whole, SIZE, H200)
    assert back is not None and back.ratio == pytest.approx(1 / 1.5)
    assert measured_change(whole, less, (1024, 1024, 1024), H200) is None
    assert measured_change(whole, less, SIZE, gpu("a6000")) is None
    assert measured_change(whole, whole.replace(stages=1, thread=(4, 4)), SIZE, H200) is None


def test_ablate_and_diff_show_it_beside_the_model(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["ablate", "regblock2d", "--gpu", "h200"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("coalescing"))
    assert "6 ms" in row and "x 1.5" in row and "measured" in out
    assert "Measured times are recorded: NVIDIA H200, commit cccccccccccc." in out
    file = tmp_path / "less.gemm"
    file.write_text(without("coalescing").to_text())
    assert run(["diff", "regblock2d", str(file), "--gpu", "h200"]) == 0
    assert "The measured time rises from 4 ms to 6 ms (NVIDIA H200, commit cccccccccccc)." in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_delta_within_the_uncertainty_is_too_small_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    assert too_small(1.0) and too_small(1 + UNCERTAINTY / 2) and too_small(1 - UNCERTAINTY / 2)
    assert not too_small(1.2) and not too_small(0.8)
    assert run(["diff", "tma", "pipelined", "--gpu", "h200", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    ratio = next(f["ratio"] for f in told["figures"] if f["name"] == "expected time")
    moves = "stays at" not in told["sentence"]
    assert ("too small to tell" in told["sentence"]) is (moves and too_small(ratio))


def test_a_damaged_record_is_none(record: Path) -> None:
    for text in ("{", "[]", '{"rows": [{}]}', '{"gpu": "x", "rows": [{"kernel": "a"}]}'):
        other = record.with_name(f"{len(text)}.json")
        other.write_text(text)
        assert recorded_changes(other) == ()
    assert recorded_changes(record.with_name("missing.json")) == ()


def test_what_ships_can_be_read() -> None:
    file = data_folder("generated") / "h200" / "ablations.json"
    rows = recorded_changes(file)
    assert bool(rows) is file.is_file()
    assert all(row.gpu == "NVIDIA H200" and settings_of(row.spec) for row in rows)


@pytest.mark.full
def test_three_of_four_steps_of_the_ladder_are_told_within_the_uncertainty() -> None:
    from itertools import pairwise

    from gemmgen.analysis.recorded import measured
    from gemmgen.report.ladder import RUNGS

    main = [gemmgen.explain(gemmgen.load(r.spec), *SIZE) for r in RUNGS if not r.after]
    off = []
    for a, b in pairwise(main):
        was, now = measured(a), measured(b)
        assert was is not None and now is not None
        off.append(abs(log(b.bound.total_s / a.bound.total_s) - log(now.seconds / was.seconds)))
    assert sum(x < log(1 + UNCERTAINTY) for x in off) >= 0.75 * len(off), [round(x, 3) for x in off]
