"""The page of a ladder of three rungs: every part of it once. test_report.py has the whole ladder, in the full tier."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from page import Element, read
from reporthelp import some_at

import gemmgen
from gemmgen.ir.variant import EXACT
from gemmgen.report.ladder import RUNGS
from gemmgen.report.page import modelled_gpu, page, recorded
from gemmgen.report.page.facts import RungFacts
from gemmgen.spec.ladder import ladder_path
from gemmgen.tile import build, print_tile

SIZE = (4096, 4096, 4096)
NAMES = ("naive", "regblock2d", "vectorized")
SECONDS = {"naive": 0.3, "regblock2d": 0.004, "vectorized": 0.0035}


@pytest.fixture(scope="module")
def gathered() -> list[RungFacts]:
    return some_at(SIZE, NAMES)


@pytest.fixture(scope="module")
def html(gathered: list[RungFacts]) -> str:
    """The page with a run on a GPU."""
    rows = [
        {"kernel": name, "median_s": s, "gflops": 2 * 4096**3 / s / 1e9, "percent_of_cublas": 0.27 / s}
        for name, s in SECONDS.items()
    ]
    base = {"description": "cuBLAS 13.1", "median_s": 0.0027, "gflops": 2 * 4096**3 / 0.0027 / 1e9}
    run = {"size": SIZE, "gpu": "NVIDIA Play", "driver": "580.1", "commit": "c" * 40, "baseline": base, "rungs": rows}
    return page(gathered, SIZE, modelled_gpu(None), recorded.measured(run))


@pytest.fixture(scope="module")
def root(html: str) -> Element:
    return read(html)


def test_the_page_needs_nothing_else(html: str, root: Element) -> None:
    assert "://" not in html and "@import" not in html
    for element in root.all():
        for name in ("src", "href", "xlink:href", "poster", "action"):
            assert element.attributes.get(name, "#").startswith(("#", "data:,")), element.attributes


def test_ids_are_unique_and_what_refers_to_one_finds_it(root: Element) -> None:
    ids = [e.attributes["id"] for e in root.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for e in root.all():
        referred = [*e.attributes.get("aria-labelledby", "").split(), *e.attributes.get("href", "")[1:].split()]
        assert e.name == "link" or set(referred) <= set(ids), e.attributes


def test_pictures_have_titles_and_headings_leave_out_no_level(root: Element) -> None:
    drawn = [svg for svg in root.all("svg") if "defs" not in svg.attributes["class"]]
    assert len(drawn) > 5 * len(NAMES)
    assert all([child.name for child in svg.children[:2]] == ["title", "desc"] for svg in drawn)  # type: ignore[union-attr]
    levels = [int(e.name[1]) for e in root.all() if re.fullmatch("h[1-6]", e.name)]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))


def test_every_rung_is_in_the_table_and_on_the_rooflines(root: Element) -> None:
    table = next(root.all("table", "ladder"))
    rows = [row for row in table.all("tr") if any(th.attributes.get("scope") == "row" for th in row.all("th"))]
    assert [next(row.all("th")).text for row in rows] == [*NAMES, "cuBLAS"]
    for name in ("roofline-global", "roofline-sm"):
        chart = root.by_id(name)
        assert len(list(chart.all("circle", "measured"))) == len(NAMES)
        assert len(list(chart.all("line", "arrow"))) == len(NAMES) - 1


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_a_rung_shows_its_texts_whole_with_its_bottleneck_and_pictures(
    root: Element, gathered: list[RungFacts], number: int
) -> None:
    name, explained = NAMES[number], gathered[number].explanation
    section = root.by_id(f"rung-{name}")
    boxes = {
        box.attributes["aria-label"]: [line.text.rstrip("\u200b") for line in box.all(cls="line") if line.name != "del"]
        for box in section.all("pre", "code")
    }
    spec = gemmgen.load(ladder_path(name))
    assert boxes[f"{name}: spec"] == spec.to_text().splitlines()
    assert boxes[f"{name}: tile program"] == print_tile(build(spec, EXACT)).splitlines()
    assert boxes[f"{name}: CUDA"] == gemmgen.emit(spec).splitlines()
    merged = list(section.all("pre", "merged"))
    assert len(merged) == (number > 0) and all(list(box.all("del")) for box in merged)
    fixes, now, _ = (card.text for card in section.all("div", "card"))
    rung = next(rung for rung in RUNGS if rung.spec == name)
    assert rung.fixes in fixes and rung.leaves in now
    assert explained is not None and explained.paragraph in now
    tiles = [svg.attributes["id"] for svg in section.all("svg", "tile")]
    assert tiles == [f"{name}-{part}" for part in ("block", "warp", "thread")]
    assert len(list(section.all("svg", "lanes"))) == len(explained.accesses())
    ratio = SECONDS[name] / explained.bound.total_s
    assert f"the measured time is {ratio:.2f} times the expected time" in section.text


def test_every_figure_says_what_it_is_and_conflicts_are_coloured(root: Element) -> None:
    assert {span.text for span in root.all("span", "kind")} == {"measured", "simulated", "modelled"}
    for counts in root.all(cls="counts"):
        for row in next(counts.all("tbody")).all("tr"):
            assert next(row.all("span", "kind")).text in ("simulated", "modelled")
    opened = root.by_id("rung-regblock2d").all("details", "access")
    conflicts = [next(d.all("summary")).text for d in opened if list(d.all("g", "conflict"))]
    assert [text.partition(":")[2] for text in conflicts] == [" 2-way conflict", " 4-way conflict"]
