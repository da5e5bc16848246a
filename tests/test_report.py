"""``gemmgen ladder --report``: what is on the page, and where its figures come from."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest
from page import Element, read
from reporthelp import rungs_at

import gemmgen
from gemmgen.cli import run
from gemmgen.diagnostics import GemmgenError
from gemmgen.ir.variant import EXACT
from gemmgen.report import ladder
from gemmgen.report.ladder import RUNGS
from gemmgen.report.page import code, facts, lesson, modelled_gpu, page, recorded
from gemmgen.report.page.facts import RungFacts
from gemmgen.report.page.recorded import Measured
from gemmgen.runtime import device
from gemmgen.spec.ladder import ladder_path
from gemmgen.tile import build, print_tile

SIZE = (4096, 4096, 4096)
SHORT = ("naive", "smem", "vectorized")
NAMES = [rung.spec for rung in RUNGS]
GPU = modelled_gpu(None)


@pytest.fixture(scope="module")
def gathered() -> list[RungFacts]:
    return list(rungs_at(SIZE))


def played_run(size: tuple[int, int, int] = SIZE) -> Measured:
    """A run in which each rung is faster than the one before, beside cuBLAS."""
    flops = 2 * size[0] * size[1] * size[2]
    rows = [
        {
            "kernel": name,
            "median_s": 0.02 / (i + 1),
            "gflops": flops / 0.02 * (i + 1) / 1e9,
            "percent_of_cublas": 9.5 * i,
        }
        for i, name in enumerate(NAMES)
    ]
    base = {"description": "cuBLAS 13.1", "median_s": 0.0027, "gflops": flops / 0.0027 / 1e9}
    return recorded.measured(
        {"size": size, "gpu": "NVIDIA Play", "driver": "580.1", "commit": "c" * 40, "baseline": base, "rungs": rows}
    )


@pytest.fixture(scope="module")
def modelled(gathered: list[RungFacts]) -> Element:
    """The page with no run on a GPU."""
    return read(page(gathered, SIZE, GPU))


@pytest.fixture(scope="module")
def timed(gathered: list[RungFacts]) -> Element:
    """The page with a run on a GPU."""
    return read(page(gathered, SIZE, GPU, played_run()))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with no GPU and no recorded run, and a ladder of three rungs: what is tested is the command."""
    monkeypatch.setattr(ladder, "RUNGS", tuple(rung for rung in RUNGS if rung.spec in SHORT))
    monkeypatch.setattr(device, "current", lambda: None)
    monkeypatch.setattr(device, "why_none", lambda: "there is none")
    monkeypatch.setattr(recorded, "recorded_path", lambda: tmp_path / "nothing.json")


def lines_of(box: Element) -> list[str]:
    return [line.text.rstrip("\u200b") for line in box.all(cls="line") if line.name != "del"]


# --- The page as a whole ----------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_else(timed: Element, gathered: list[RungFacts]) -> None:
    html = page(gathered, SIZE, GPU, played_run())
    assert "://" not in html and "@import" not in html and len(html) < 1_500_000
    for element in timed.all():
        for name in ("src", "href", "xlink:href", "poster", "action"):
            assert element.attributes.get(name, "#").startswith(("#", "data:,")), element.attributes
    assert set(re.findall(r"url\((.*?)\)", html)) == {
        "#hatch",
        *(f"#{chart}-head" for chart in ("roofline-global", "roofline-sm")),
    }


def test_ids_are_unique_and_what_refers_to_one_finds_it(timed: Element, modelled: Element) -> None:
    for root in (timed, modelled):
        ids = [e.attributes["id"] for e in root.all() if "id" in e.attributes]
        assert len(ids) == len(set(ids))
        for e in root.all():
            referred = [*e.attributes.get("aria-labelledby", "").split(), *e.attributes.get("href", "")[1:].split()]
            assert e.name == "link" or set(referred) <= set(ids), e.attributes


def test_every_picture_has_a_title_a_description_and_shapes(timed: Element) -> None:
    drawn = [svg for svg in timed.all("svg") if "defs" not in svg.attributes["class"]]
    assert len(drawn) > 5 * len(RUNGS)
    for svg in drawn:
        assert svg.attributes["role"] == "img" and svg.attributes["viewbox"]
        title, description = svg.children[:2]
        assert isinstance(title, Element) and isinstance(description, Element)
        assert (
            title.name == "title" and len(title.text) > 5 and description.name == "desc" and len(description.text) > 30
        )
        assert any(True for shape in svg.all() if shape.name in ("rect", "circle", "line"))


def test_what_scrolls_can_be_reached_with_the_keyboard(timed: Element) -> None:
    boxes = [*timed.all(cls="scroll"), *timed.all(cls="code")]
    assert boxes
    for box in boxes:
        assert box.attributes["tabindex"] == "0" and box.attributes["role"] == "region"
        assert box.attributes.get("aria-label") or box.attributes.get("aria-labelledby")
    skips = [a.attributes["href"] for a in timed.all("a", "skip")]
    assert skips == ["#main", f"#rung-{NAMES[0]}"]


def test_headings_leave_out_no_level(timed: Element) -> None:
    levels = [int(e.name[1]) for e in timed.all() if re.fullmatch("h[1-6]", e.name)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


# --- The table, the bars, the rooflines -------------------------------------------------------------------------------


def test_the_table_has_every_rung_and_cublas(timed: Element, modelled: Element) -> None:
    for root, extra in ((timed, ["cuBLAS"]), (modelled, [])):
        table = next(root.all("table", "ladder"))
        rows = [row for row in table.all("tr") if any(th.attributes.get("scope") == "row" for th in row.all("th"))]
        assert [next(row.all("th")).text for row in rows] == [*NAMES, *extra]
        for rung, row in zip(RUNGS, rows, strict=False):
            assert all(part in row.text for part in rung.leaves.split(": ")) and rung.fixes in row.text


def test_bars_stand_beside_those_of_the_lesson(timed: Element, modelled: Element) -> None:
    assert list(lesson.PERCENT_OF_CUBLAS.values()) == [1.3, 8.5, 12.8, 36.5, 68.7, 78.4, 93.7]
    for root in (timed, modelled):
        bars = next(t for t in root.all("table", "bars") if t.attributes["aria-labelledby"] == "cublas-title")
        rows = {next(row.all("th")).text.split()[-1]: row.text for row in bars.all("tr") if next(row.all("td"), None)}
        assert list(rows) == NAMES
        for name, share in lesson.PERCENT_OF_CUBLAS.items():
            assert f"{share:.1f}%" in rows[name]
        assert ("not measured" in rows["warptile"]) is (root is modelled)
        assert ("57.0%" in rows["warptile"]) is (root is timed)


def test_a_rung_that_the_lesson_lacks_has_no_bar_of_its(gathered: list[RungFacts]) -> None:
    other = dataclasses.replace(
        gathered[-1], rung=dataclasses.replace(gathered[-1].rung, spec="regblock2d_64"), number=7
    )
    root = read(page([*gathered, other], SIZE, GPU))
    bars = next(t for t in root.all("table", "bars") if t.attributes["aria-labelledby"] == "cublas-title")
    assert "not in the lesson" in list(bars.all("tr"))[-1].text
    assert root.by_id("rung-regblock2d_64")


@pytest.mark.parametrize("name", ["roofline-global", "roofline-sm"])
def test_every_rung_is_on_the_rooflines_with_an_arrow_to_the_next(timed: Element, modelled: Element, name: str) -> None:
    for root, kind in ((timed, "measured"), (modelled, "modelled")):
        chart = root.by_id(name)
        assert [t.text for t in chart.all("text", "bubble-text")] == [str(i) for i in range(len(RUNGS))]
        assert len(list(chart.all("line", "arrow"))) == len([rung for rung in RUNGS if not rung.after]) - 1
        assert len(list(chart.all("circle", kind))) == len(RUNGS)
        assert len(list(chart.all("line", "cublas"))) == (root is timed)
        description = next(chart.all("desc")).text
        assert all(f"rung {i} {spec}: " in description for i, spec in enumerate(NAMES))


def test_intensities_are_the_lesson_s(modelled: Element) -> None:
    description = next(modelled.by_id("roofline-global").all("desc")).text
    found = dict(re.findall(r"rung \d+ (\w+): ([\d.]+) flop/byte", description))
    expected = {"naive": "0.25", "coalesced": "0.25", "smem": "8", "regblock1d": "16", "warptile": "32"}
    assert expected.items() <= found.items()


def test_a_run_of_another_size_is_not_drawn_on_the_rooflines(gathered: list[RungFacts]) -> None:
    root = read(page(gathered, SIZE, GPU, played_run((1024, 1024, 1024))))
    assert not list(root.by_id("roofline-global").all("circle", "measured"))
    assert "another size than this page" in root.text and "1024x1024x1024" in root.text
    for rung in RUNGS:  # the small shapes of the side branches are the same on both ladders where they are cut to size
        same = rung.size(SIZE) == rung.size((1024, 1024, 1024))
        assert ("times the expected time" in root.by_id(f"rung-{rung.spec}").text) is same


def test_every_figure_says_what_it_is(timed: Element, modelled: Element) -> None:
    for root in (timed, modelled):
        for place in [*root.all("dl", "headline"), *root.all("table", "ladder")]:
            for head in [*place.all("dt"), *place.all("th")]:
                if head.text.split()[0] in ("time", "TFLOP/s", "expected", "limited", "warps"):
                    assert len(list(head.all("span", "kind"))) == 1, head.text
        for counts in root.all(cls="counts"):
            for row in list(next(counts.all("tbody")).all("tr")):
                assert next(row.all("span", "kind")).text in ("simulated", "modelled")
    kinds = {span.text for span in timed.all("span", "kind")}
    assert kinds == {"measured", "simulated", "modelled"}
    assert "Nothing was measured for this page" in modelled.text


# --- A rung -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(RUNGS)), ids=NAMES)
def test_a_rung_shows_its_texts_whole(timed: Element, gathered: list[RungFacts], number: int) -> None:
    name = NAMES[number]
    section = timed.by_id(f"rung-{name}")
    boxes = {box.attributes["aria-label"]: lines_of(box) for box in section.all("pre", "code")}
    spec = gemmgen.load(ladder_path(name))
    assert boxes[f"{name}: spec"] == spec.to_text().splitlines()
    assert boxes[f"{name}: tile program"] == print_tile(build(spec, EXACT)).splitlines()
    assert boxes[f"{name}: CUDA"] == gemmgen.emit(spec).splitlines()
    merged = list(section.all("pre", "merged"))
    assert len(merged) == (number > 0) and all(list(box.all("del")) for box in merged)


@pytest.mark.parametrize("number", range(1, len(RUNGS)), ids=NAMES[1:])
def test_new_lines_are_marked_and_only_those(timed: Element, number: int) -> None:
    """Without its marked lines, a kernel is part of the one before, line after line."""
    name, before = NAMES[number], RUNGS[number].after or NAMES[number - 1]
    box = next(b for b in timed.all("pre", "code") if b.attributes["aria-label"] == f"{name}: CUDA")
    kept = [e.text.rstrip("\u200b") for e in box.all(cls="line") if e.name == "span"]
    marked = [e for e in box.all(cls="line") if e.name == "ins"]
    texts = {which: gemmgen.emit(gemmgen.load(ladder_path(which))) for which in (name, before)}
    for e in [*marked, *box.all("del")]:  # what is far from any change, though it is one, stands in the header
        header = code.header(texts[before if e.name == "del" else name])
        assert ("far" in e.attributes["class"]) is (int(e.attributes["data-n"]) <= header)
    old = iter(same(line, before) for line in gemmgen.emit(gemmgen.load(ladder_path(before))).splitlines())
    assert all(same(line, name) in old for line in kept)


def same(line: str, name: str) -> str:
    """A line without the kernel's name; a toggle, as in ``use smem``, may be called the same."""
    text = " ".join(line.split())
    return text if "use " in text else re.sub(rf"\b{name}\b", "KERNEL", text)


@pytest.mark.parametrize("number", range(len(RUNGS)), ids=NAMES)
def test_a_rung_names_its_bottleneck_and_what_comes_next(
    timed: Element, gathered: list[RungFacts], number: int
) -> None:
    known = gathered[number]
    section = timed.by_id(f"rung-{known.name}")
    fixes, now, after = (card.text for card in section.all("div", "card"))
    assert known.rung.fixes in fixes and all(part in now for part in known.rung.leaves.split(": "))
    assert known.explanation is not None and known.explanation.paragraph in now
    if known.rung.after:
        assert f"side branch of {known.rung.after}" in after and "×".join(map(str, known.rung.size(SIZE))) in after
    elif known.name != "pipelined":
        assert NAMES[number + 1] in after and RUNGS[number + 1].fixes in after
    else:
        assert "last rung" in after


@pytest.mark.parametrize("number", range(len(RUNGS)), ids=NAMES)
def test_a_rung_has_its_pictures(timed: Element, gathered: list[RungFacts], number: int) -> None:
    name = NAMES[number]
    section = timed.by_id(f"rung-{name}")
    tiles = [svg.attributes["id"] for svg in section.all("svg", "tile")]
    assert tiles == [f"{name}-{part}" for part in ("block", "warp", "thread")]
    explanation = gathered[number].explanation
    assert explanation is not None
    own = 2 if RUNGS[number].after else 0  # the kernel that adds up is not drawn
    rows = [row for row in explanation.accesses() if row["space"] != "tma"][own:]
    assert len(list(section.all("svg", "lanes"))) == len(rows) == len(list(section.all("details", "access")))
    opened = [d for d in section.all("details", "access") if "open" in d.attributes]
    assert len(opened) == 1


def test_conflicts_are_coloured_and_said(timed: Element) -> None:
    names = ("regblock2d", "vectorized", "warptile")
    found = {name: list(timed.by_id(f"rung-{name}").all("details", "access")) for name in names}
    conflicts = {
        name: {next(d.all("summary")).text: len(list(d.all("g", "conflict"))) for d in found[name]} for name in names
    }
    by_name = {name: [text for text, marked in conflicts[name].items() if marked] for name in names}
    assert by_name["regblock2d"] == [
        "load of the A tile, shared, 4 bytes per lane: 2-way conflict",
        "load of the B tile, shared, 4 bytes per lane: 4-way conflict",
    ]
    assert by_name["vectorized"][-1] == "load of the B tile, shared, 16 bytes per lane: 2-way conflict"
    assert by_name["warptile"] == ["store of the A tile, shared, 4 bytes per lane: 4-way conflict"]


def test_the_measured_time_stands_beside_the_expected(timed: Element, gathered: list[RungFacts]) -> None:
    run_, explained = played_run(), gathered[2].explanation
    assert explained is not None
    ratio = run_.times[NAMES[2]].seconds / explained.bound.total_s
    assert f"the measured time is {ratio:.2f} times the expected time" in timed.by_id(f"rung-{NAMES[2]}").text


# --- The command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page_with_no_gpu(
    no_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "ladder.html"
    assert run(["ladder", "--report", str(file), "--size", "1000x777x333"]) == 0
    out, err = capsys.readouterr()
    assert f"wrote {file}" in err and out.startswith(
        "1000x777x333: exact counts; not timed here, because there is none\n"
    )
    assert all(name in out for name in SHORT)
    root = read(file.read_text(encoding="utf-8"))
    assert "1000×777×333" in root.text and "guarded" in root.by_id("rung-vectorized").text


def test_the_command_fails_where_a_rung_is_wrong(
    no_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = facts.checked

    def wrong(spec: gemmgen.Spec) -> facts.Check:
        return dataclasses.replace(real(spec), right=spec.name != "smem")

    monkeypatch.setattr(facts, "checked", wrong)
    file = tmp_path / "ladder.html"
    assert run(["ladder", "--report", str(file), "--size", "128"]) == 1
    assert "wrong results: smem" in capsys.readouterr().err
    assert "wrong result" in next(read(file.read_text(encoding="utf-8")).by_id("rung-smem").all("p", "warn")).text


def test_a_kernel_that_cannot_be_counted_is_still_drawn(
    no_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gemmgen.api import explaining

    real = explaining.explain

    def unknown(spec: gemmgen.Spec, *size: int, **options: object) -> object:
        if spec.name == "vectorized":
            raise GemmgenError("what this instruction moves is not counted")
        return real(spec, *size, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(explaining, "explain", unknown)
    file = tmp_path / "ladder.html"
    assert run(["ladder", "--report", str(file), "--size", "256"]) == 0
    root = read(file.read_text(encoding="utf-8"))
    section = root.by_id("rung-vectorized")
    assert "Not counted: what this instruction moves is not counted" in section.text
    assert len(list(section.all("svg", "tile"))) == 3
    assert len(list(root.by_id("roofline-global").all("text", "bubble-text"))) == len(SHORT) - 1


@pytest.mark.parametrize("size", ["0x64x64", "64x64x0", "1"])
def test_g07_a_report_of_an_empty_product_divides_by_nothing(no_gpu: None, tmp_path: Path, size: str) -> None:
    file = tmp_path / "ladder.html"
    assert run(["ladder", "--report", str(file), "--size", size]) == 0
    assert [s.attributes["id"] for s in read(file.read_text(encoding="utf-8")).all("section", "rung")] == [
        f"rung-{name}" for name in SHORT
    ]


def test_missing_packages_are_named_before_anything_is_done(
    no_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gemmgen.report import page as package

    monkeypatch.setattr(package, "find_spec", lambda name: None)
    assert run(["ladder", "--report", str(tmp_path / "ladder.html")]) == 1
    assert "pip install 'gemmgen[report]'" in capsys.readouterr().err
    assert not (tmp_path / "ladder.html").exists()


def test_a_page_that_cannot_be_written_is_an_error(
    no_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ladder", "--report", str(tmp_path), "--size", "64"]) == 1
    assert str(tmp_path) in capsys.readouterr().err
