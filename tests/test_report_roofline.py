"""The roofline drawn: numbers, arrows and texts by their places, read from the SVG."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from math import hypot

import pytest
from page import Element, read
from reporthelp import rungs_at

from gemmgen.report.ladder import RUNGS
from gemmgen.report.page import modelled_gpu, page, recorded
from gemmgen.report.page.roofline import BUBBLE, HEIGHT, Dot, Roof, roofline
from gemmgen.report.page.spread import CLOSE, Room, crowd, distance, passes, spread

SIZE = (4096, 4096, 4096)
PEAK = ("float32 peak", 64.6)
ROOFS = (Roof("DRAM", 4220), Roof("L2", 10138))
ARROWS = len([rung for rung in RUNGS if not rung.after]) - 1
Point = tuple[float, float]


def centres(svg: Element) -> list[Point]:
    return [(float(c.attributes["cx"]), float(c.attributes["cy"])) for c in svg.all("circle", "bubble")]


def arrows(svg: Element) -> list[tuple[Point, Point]]:
    ends = [[float(a.attributes[k]) for k in ("x1", "y1", "x2", "y2")] for a in svg.all("line", "arrow")]
    return [((x1, y1), (x2, y2)) for x1, y1, x2, y2 in ends]


def chart(dots: Sequence[Dot], cublas: float | None = 51.3) -> Element:
    return next(read(roofline("r", "A roofline", dots, ROOFS, PEAK, cublas)).all("svg"))


@pytest.fixture(scope="module")
def drawn() -> list[Element]:
    """Both charts of the ladder, with the recorded times where they are here, and without."""
    gpu = modelled_gpu(None)
    roots = [read(page(list(rungs_at(SIZE)), SIZE, gpu, run)) for run in (recorded.recorded(SIZE), None)]
    return [root.by_id(name) for root in roots for name in ("roofline-global", "roofline-sm")]


def test_no_number_covers_another(drawn: list[Element]) -> None:
    for svg in drawn:
        assert len(centres(svg)) == len(RUNGS)
        for a, b in itertools.combinations(centres(svg), 2):
            assert distance(a, b) > 2 * BUBBLE + 1


def test_arrows_lead_from_number_to_number_and_under_none(drawn: list[Element]) -> None:
    for svg in drawn:
        assert len(arrows(svg)) == ARROWS
        for tail, tip in arrows(svg):
            under = [at for at in centres(svg) if passes(tail, tip, at, BUBBLE - 1)]
            assert not under, (tail, tip, under)


def test_no_number_covers_a_level_text(drawn: list[Element]) -> None:
    for svg in drawn:
        for text in svg.all("text", "label"):
            if "bubble-text" in text.attributes["class"] or "transform" in text.attributes:
                continue
            x, y, width = float(text.attributes["x"]), float(text.attributes["y"]), 6.0 * len(text.text)
            kind = text.attributes["class"].split()
            x -= width if "end" in kind else width / 2 if "mid" in kind else 0
            for at in centres(svg):
                near = max(x - at[0], 0, at[0] - x - width), max(y - 9 - at[1], 0, at[1] - y)
                assert hypot(*near) > BUBBLE - 3, (text.text, at)


def test_everything_is_in_the_drawing(drawn: list[Element]) -> None:
    for svg in drawn:
        _, _, width, height = (float(part) for part in svg.attributes["viewbox"].split())
        for x, y in [*centres(svg), *(end for arrow in arrows(svg) for end in arrow)]:
            assert BUBBLE - 2 < x < width - BUBBLE + 2 and BUBBLE - 2 < y < height - BUBBLE + 2


def test_the_crowded_part_is_enlarged_and_framed(drawn: list[Element]) -> None:
    for svg in drawn:
        assert len(list(svg.all("rect", "zoom"))) == 2 and "enlarged below" in svg.text
        inside = [at for at in centres(svg) if at[1] > HEIGHT]
        assert 4 <= len(inside) < len(RUNGS)


def test_what_is_not_crowded_is_not_enlarged() -> None:
    dots = [Dot(i, f"k{i}", 2.0**i, 2.0**i, 2.0**i * 1.2) for i in range(6)]
    svg = chart(dots)
    assert not list(svg.all("rect", "zoom")) and svg.attributes["viewbox"].endswith(f" {HEIGHT:g}")
    assert "enlarged" not in svg.text


def test_equal_points_are_told_apart() -> None:
    dots = [Dot(i, f"k{i}", 32.0, 40.0, 60.0, 40.0 if i % 2 else None) for i in range(7)]
    svg = chart(dots)
    assert all(distance(a, b) > 2 * BUBBLE for a, b in itertools.combinations(centres(svg), 2))
    assert [t.text for t in svg.all("text", "bubble-text")] == [str(i) for i in range(7)]


def test_a_chart_of_nothing_is_empty() -> None:
    assert centres(chart([])) == [] and not re.search("nan|inf", roofline("r", "t", [], ROOFS, PEAK, None))


def test_a_number_stands_on_its_point_where_there_is_room() -> None:
    points = [(50.0, 50.0), (150.0, 80.0), (250.0, 60.0)]
    assert spread(points, Room((0, 0, 300, 200), BUBBLE), [False] * 3) == points
    moved = spread([(50.0, 50.0), (50.0, 50.0)], Room((0, 0, 300, 200), BUBBLE), [False] * 2)
    assert distance(*moved) >= CLOSE * BUBBLE


def test_a_crowd_is_the_largest_group() -> None:
    points = [(0.0, 0.0), (10.0, 0.0), (20.0, 0.0), (100.0, 0.0), (105.0, 0.0)]
    assert crowd(points, 12, 3) == {0, 1, 2} and crowd(points, 12, 4) == set() and crowd([], 12, 1) == set()
