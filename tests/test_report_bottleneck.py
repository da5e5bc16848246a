"""The page's bottlenecks: one name in every place, its number, and what the next rung does about it, computed."""

from __future__ import annotations

import re

import pytest
from page import Element, read
from reporthelp import rungs_at

from gemmgen.analysis.ablated import TOO_SMALL, too_small
from gemmgen.analysis.bottleneck import CAUSES, RESOURCES, bottleneck, cost_of
from gemmgen.api.explaining import explain
from gemmgen.report.ladder import RUNGS
from gemmgen.report.page import modelled_gpu, page
from gemmgen.report.page.facts import RungFacts, facts_of
from gemmgen.report.page.glossary import GLOSSARY
from gemmgen.report.page.recorded import Measured, Time
from gemmgen.report.page.remedy import lowers, measured_text, named, remedy, unexplained
from gemmgen.report.page.words import spec_delta
from gemmgen.text.numbers import time_text

SIZE = (4096, 4096, 4096)
NAMES = [rung.spec for rung in RUNGS]
MAIN = [i for i, rung in enumerate(RUNGS) if not rung.after]
every_rung = pytest.mark.parametrize("number", range(len(RUNGS)), ids=NAMES)
every_step = pytest.mark.parametrize("number", MAIN[:-1], ids=[NAMES[i] for i in MAIN[:-1]])


@pytest.fixture(scope="module")
def gathered() -> list[RungFacts]:
    return list(rungs_at(SIZE))


@pytest.fixture(scope="module")
def root(gathered: list[RungFacts]) -> Element:
    times = {name: Time(0.01 / (i + 1), 13.7 * (i + 1), None) for i, name in enumerate(NAMES)}
    return read(page(gathered, SIZE, modelled_gpu(None), Measured(SIZE, "NVIDIA Play", "this run", times)))


def plain(text: str) -> str:
    return " ".join(text.split())


@every_rung
def test_one_name_stands_in_every_place(root: Element, gathered: list[RungFacts], number: int) -> None:
    e = gathered[number].explanation
    assert e is not None
    of = bottleneck(e)
    section = root.by_id(f"rung-{NAMES[number]}")
    label = next(d for d in section.all("dl", "headline")).text
    now = next(section.all("div", "now"))
    strong = next(now.all("strong")).text
    row = next(r for r in next(root.all("table", "ladder")).all("tr") if f"{NAMES[number]}" in [
        th.text for th in r.all("th")])  # fmt: skip
    number_text = f"{time_text(of.seconds)} of the {time_text(of.total_s)} expected, {of.share:.0%}"
    assert "On an H200 at" not in now.text, (
        "the ladder's words are about the same bottleneck, and stand behind its name"
    )
    for place in (label, now.text, row.text):
        assert of.name in place and number_text in plain(place)
    assert strong.startswith(of.name) and f"is limited by {of.name}" in now.text


def test_where_the_next_rung_does_not_lower_it_the_first_that_does_is_named(
    root: Element, gathered: list[RungFacts]
) -> None:
    for number in MAIN[:-1]:
        e, rest = gathered[number].explanation, [gathered[i] for i in MAIN if i > number]
        assert e is not None
        found = [f for f in rest if f.explanation is not None and lowers(f.explanation, bottleneck(e))]
        card = next(root.by_id(f"rung-{NAMES[number]}").all("div", "next")).text
        if found and found[0] is not rest[0]:
            said = f"Rung {found[0].number}, {found[0].name}, is the next that reduces {bottleneck(e).short}: to"
            assert said in card
        else:
            assert "is the next that reduces" not in card


@every_step
def test_the_next_rung_s_effect_is_computed(root: Element, gathered: list[RungFacts], number: int) -> None:
    e, after = gathered[number].explanation, gathered[number + 1].explanation
    assert e is not None and after is not None
    of, card = bottleneck(e), next(root.by_id(f"rung-{NAMES[number]}").all("div", "next")).text
    then = cost_of(after, of)
    if then < 0.97 * of.seconds:
        assert f"{of.short}" in card and f"falls from {time_text(of.seconds)} to" in card
        assert (time_text(then) if then else " to 0.") in card
    else:
        assert ": rises from" in card or ": stays at about" in card
    saved = 1 - after.bound.total_s / e.bound.total_s
    if abs(saved) >= 0.005:
        said = f"from {time_text(e.bound.total_s)} to {time_text(after.bound.total_s)}, {abs(saved):.0%}"
        assert f"{said} {'less' if saved > 0 else 'more'}" in card
    delta = spec_delta(gathered[number].spec, gathered[number + 1].spec)
    assert ("This change" in card) is (len(delta) == 1) and (f"These {len(delta)} changes" in card) is (len(delta) > 1)
    assert f"{NAMES[number + 1]} takes" in card and "measured" in card


def test_where_no_single_setting_helps_those_of_the_next_rung_are_named(
    root: Element, gathered: list[RungFacts]
) -> None:
    told = 0
    for number in MAIN[:-1]:
        e, after = gathered[number].explanation, gathered[number + 1].explanation
        now = next(root.by_id(f"rung-{NAMES[number]}").all("div", "now")).text
        assert e is not None and after is not None
        saved = 1 - after.bound.total_s / e.bound.total_s
        delta = spec_delta(gathered[number].spec, gathered[number + 1].spec)
        if ("No change that was tried" in now or "No single change helps" in now) and saved >= 0.01 and len(delta) > 1:
            told += 1
            small = f" ({TOO_SMALL})" if too_small(1 - saved) else ""
            assert f"changes together save {saved:.0%}{small}: {', '.join(delta)}." in now
        else:
            assert "changes together save" not in now
    assert told


def test_what_a_rung_pays_is_said(gathered: list[RungFacts]) -> None:
    double = gathered[NAMES.index("doublebuffer")].explanation
    assert double is not None
    if double.compiled is None or double.compiled.loop is None:
        pytest.skip("what instructions cost is not known without the compiler")
    use = double.spec.use | {"cpasync", "spread", "prefetch"}  # copies of 4 bytes, some at every step
    copying = explain(double.spec.replace(use=use, stages=3, pad_a=4), *SIZE)
    text = remedy(double, copying, ["+ cpasync", "+ prefetch"]).text
    assert "It increases time lost to non-FMA instructions: from " in text
    assert "raise the expected time" in text


def test_measured_steps_in_words() -> None:
    slow, fast = Time(0.004, 1.0, None), Time(0.003, 1.0, None)
    assert measured_text(slow, fast, "x", 0.24) == "x takes 25% less time: 3 ms after 4 ms."
    assert measured_text(fast, slow, "x", None) == "x takes 33% more time: 4 ms after 3 ms."
    assert measured_text(slow, fast, "x", 0.0).endswith(
        " The model expects no gain: part of what was saved is not modelled."
    )
    assert measured_text(slow, fast, "x", 0.1, "it has no barriers").endswith(
        " The model expects 10%: it has no barriers."
    )
    assert measured_text(slow, fast, "x", 0.4).endswith(" The model expects 40%: part of what is lost is not modelled.")
    assert measured_text(slow, slow, "x", 0.0) == "x takes the same time: 4 ms after 4 ms."


def test_what_the_model_cannot_explain_is_said(gathered: list[RungFacts]) -> None:
    e = gathered[0].explanation
    assert e is not None
    assert unexplained(e, Time(e.bound.total_s * 1.1, 1.0, None)) == ""
    assert "2 times the expected one" in unexplained(e, Time(e.bound.total_s * 2, 1.0, None))


def test_the_ladder_s_words_are_left_out_where_they_are_about_another(gathered: list[RungFacts]) -> None:
    e = gathered[NAMES.index("smem")].explanation
    assert e is not None
    of = bottleneck(e)
    assert named(of, "shared-memory bandwidth: two loads") == "shared-memory bandwidth: two loads"
    assert named(of, "register-bank conflicts: few") == "shared-memory bandwidth"


def test_another_size_says_where_the_ladder_s_words_hold() -> None:
    gpu = modelled_gpu(None)
    small = [facts_of(0, RUNGS[NAMES.index("warptile")], (256, 256, 256), gpu)]
    text = read(page(small, (256, 256, 256), gpu)).by_id("rung-warptile").text
    assert "exposed latency (" in text and "register-bank conflicts: three blocks" in text
    assert "On an H200 at 4096×4096×4096 it is register-bank conflicts: three blocks" in text


def test_every_name_and_abbreviation_is_explained(root: Element) -> None:
    words = next(root.all("dl", "words"))
    assert [dt.text for dt in words.all("dt")] == list(GLOSSARY)
    known = " ".join(GLOSSARY)
    names = {re.sub("^.*: ", "", bottleneck_name) for bottleneck_name in (*CAUSES.values(),)}
    assert all(name in known for name in names - {RESOURCES["shared"]})
    assert all(word in known for word in ("SM", "FMA", "TMA", "warp", "lane", "sector", "wavefront", "fragment"))
