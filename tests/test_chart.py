"""The picture of the ladder in the README is made from the record, by a command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gemmgen.cli import run as run_command
from gemmgen.report.chart import LEFT, RIGHT, WIDTH, ladder_chart

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "generated" / "h200" / "ladder.json"
PICTURE = ROOT / "docs" / "ladder.svg"
SVG = "{http://www.w3.org/2000/svg}"


def recorded() -> dict[str, object]:
    found: dict[str, object] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def test_the_committed_picture_is_that_of_the_record(refresh: bool) -> None:
    made = ladder_chart(recorded())
    if refresh:
        PICTURE.write_text(made, encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == made, "gemmgen ladder --chart docs/ladder.svg writes it anew"


def test_bars_are_as_long_as_the_shares() -> None:
    run = recorded()
    tree = ElementTree.fromstring(ladder_chart(run))
    bars = [r for r in tree.iter(f"{SVG}rect") if r.get("class") in ("bar", "past")]
    rungs = [r for r in run["rungs"] if r["size"] == run["size"]]  # type: ignore[index, attr-defined]
    shares = [r["percent_of_cublas"] for r in rungs]
    assert len(bars) == len(shares) >= 12
    scale = (WIDTH - LEFT - RIGHT) / max(100, *shares)
    for bar, share in zip(bars, shares, strict=True):
        assert float(bar.get("width", 0)) == pytest.approx(max(1.0, share * scale), abs=0.1)
        assert (bar.get("class") == "past") == (share >= 100)


def test_the_picture_needs_nothing_from_elsewhere() -> None:
    text = ladder_chart(recorded())
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "<script" not in text


def test_a_run_without_cublas_has_no_chart() -> None:
    with pytest.raises(ValueError, match="no baseline"):
        ladder_chart({**recorded(), "baseline": None})


def test_the_command_writes_it(tmp_path: Path) -> None:
    assert run_command(["ladder", "--chart", str(tmp_path / "ladder.svg")]) == 0
    assert (tmp_path / "ladder.svg").read_text(encoding="utf-8") == ladder_chart(recorded())
