"""What each change of a rung is worth, and the argument of the last rungs: measured where recorded, else modelled."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from page import read
from reporthelp import some_at

import gemmgen
from gemmgen.analysis import ablated
from gemmgen.analysis.explain import Explanation
from gemmgen.api.explaining import explain
from gemmgen.report.ablation import ablations
from gemmgen.report.ladder import RUNGS
from gemmgen.report.page import modelled_gpu, page, recorded
from gemmgen.report.page.argument import REMOVES, UNSEEN, last_rungs, more_registers, summary
from gemmgen.report.page.facts import RungFacts, facts_of, rung_before
from gemmgen.report.page.parts import Part, Parts, parts
from gemmgen.report.page.recorded import Measured, Time
from gemmgen.report.page.remedy import measured_text
from gemmgen.report.page.roofline import Dot, Roof, above
from gemmgen.spec.model import Spec
from gemmgen.text.numbers import time_text

SIZE = (4096, 4096, 4096)
LAST = ("cpasync", "registerbanks", "tma", "pipelined")


def explained(spec: Spec) -> Explanation:
    """As where it is compiled, in that other specs are explained too."""
    e = explain(spec, *SIZE, gpu="h200", compiled=False)
    return replace(e, again=explained)


@pytest.fixture
def nothing_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ablated, "FILE", str(tmp_path / "none.json"))


# --- Of which ---------------------------------------------------------------------------------------------------------


def test_a_change_undone_is_measured_where_recorded_and_else_modelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = gemmgen.load("pipelined")
    released = next(a.spec for a in ablations(spec) if a.without == "release" and a.spec)
    row = {
        "kernel": "pipelined", "change": "without release", "size": SIZE, "before_s": 2.4e-3, "after_s": 2.5e-3,
        "spec": released.to_text(),
    }  # fmt: skip
    (tmp_path / "record.json").write_text(json.dumps({"gpu": "NVIDIA H200", "commit": "c" * 40, "rows": [row]}))
    monkeypatch.setattr(ablated, "FILE", str(tmp_path / "record.json"))
    found = parts(gemmgen.load("tma"), explained(spec))
    assert found is not None and found.bound == ()
    assert [(p.what, p.kind) for p in sorted(found.alone, key=lambda p: p.what)] == [
        ("stages 2 in place of 3", "modelled"), ("without min_blocks 2", "modelled"), ("without release", "measured"),
    ]  # fmt: skip
    measured = next(p for p in found.alone if p.kind == "measured")
    assert (measured.whole_s, measured.undone_s, measured.told) == (2.4e-3, 2.5e-3, "4% more")
    assert found.whole["measured"] == 2.4e-3 and list(found.alone) == sorted(found.alone, key=lambda p: -p.ratio)


def test_a_modelled_part_is_the_model_s_time_of_the_spec_with_the_change_undone(nothing_recorded: None) -> None:
    e = explained(gemmgen.load("doublebuffer"))
    found = parts(gemmgen.load("warptile"), e)
    assert found is not None
    stages = next(p for p in found.alone if p.what == "without stages 2")
    assert stages.whole_s == e.bound.total_s
    assert stages.undone_s == explained(e.spec.replace(stages=1)).bound.total_s
    assert any(p.what == "min_blocks 3 again" for p in found.alone)


def test_changes_that_need_one_another_are_named_or_undone_together() -> None:
    found = parts(gemmgen.load("registerbanks"), explained(gemmgen.load("tma")))
    assert found is not None and {"transposeA", "tile thread"} <= set(found.bound)
    assert "with cpasync again" in {
        p.what for p in (parts(gemmgen.load("cpasync"), explained(gemmgen.load("registerbanks"))) or found).alone
    }


def test_what_else_has_to_change_is_named() -> None:
    found = parts(gemmgen.load("doublebuffer"), explained(gemmgen.load("cpasync")))
    assert found is not None and "without cpasync, with stages 3 \u2192 2" in {p.what for p in found.alone}


@pytest.mark.parametrize(("before", "name"), [("naive", "coalesced"), ("coalesced", "smem"), ("smem", "regblock1d")])
def test_one_change_has_no_parts(before: str, name: str) -> None:
    assert parts(gemmgen.load(before), explained(gemmgen.load(name))) is None


def test_an_effect_that_the_model_cannot_tell_is_said_to_be_about() -> None:
    assert Part("x", 1.0, 1.05, "modelled").told == "about 5% more"
    assert Part("x", 1.0, 1.05, "measured").told == "5% more"
    assert Part("x", 1.0, 1.5, "modelled").told == "50% more"
    assert Part("x", 1.0, 1.002, "measured").told == "the same"


def test_the_rung_before_is_the_one_below() -> None:
    rungs = {r.spec: r for r in RUNGS}
    assert rung_before(rungs["naive"]) == "" and rung_before(rungs["tma"]) == "registerbanks"


# --- On the page ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gathered() -> list[RungFacts]:
    return some_at(SIZE, LAST)


@pytest.fixture(scope="module")
def run() -> Measured:
    """The recorded run of this size."""
    found = recorded.recorded(SIZE)
    assert found is not None
    return found


def test_the_last_rungs_are_one_argument(gathered: list[RungFacts], run: Measured) -> None:
    last = last_rungs(gathered, run, SIZE)
    assert [x.name for x in last] == list(LAST)
    for x in last:
        assert x.fma_s + x.modelled_s + x.unseen_s == pytest.approx(x.measured_s) and x.removes
    assert [x.unseen_s for x in last] == sorted((x.unseen_s for x in last), reverse=True), "each leaves less unmodelled"
    told = summary(last)
    first, final = (time_text(run.times[name].seconds) for name in (LAST[0], LAST[-1]))
    assert told.startswith("From rung 0 on, the FMAs alone take over 80%") and f"falls from {first} to {final}" in told
    assert last_rungs(gathered, run, (64, 64, 64)) == [] and last_rungs(gathered, None, SIZE) == []
    assert last_rungs(gathered[:1], run, SIZE) == []


def test_the_page_shows_the_argument_and_the_parts(gathered: list[RungFacts], run: Measured) -> None:
    worth = Parts((Part("without release", 2.4e-3, 2.5e-3, "measured"), Part("x", 2e-3, 2e-3, "modelled")), ("tma",))
    shown = [replace(f, parts=worth if f.name == "pipelined" else None) for f in gathered]
    root = read(page(shown, SIZE, modelled_gpu(None), run))
    table = " ".join(root.by_id("table").text.split())
    assert "The last rungs: stalls between FMAs" in table
    assert all(REMOVES[name] in table for name in LAST) and all(f"{UNSEEN[name]}." in table for name in LAST[1:])
    rung = " ".join(root.by_id("rung-pipelined").text.split())
    assert "Of which: pipelined with one change undone without release2.5 ms4% more timemeasured" in rung
    assert "Beside 2.4 ms measured and 2 ms modelled with all changes." in rung
    assert "A modelled effect below 14% may be none. Not legal alone: tma." in rung
    assert "Of which" not in root.by_id("rung-tma").text
    card = " ".join(next(root.by_id("rung-tma").all("div", "next")).text.split())
    steps = run.times["tma"], run.times["pipelined"]
    assert measured_text(*steps, "pipelined", 0.0, UNSEEN["pipelined"]) in card
    slow, fast = Time(1.0, 1.0, None), Time(0.9, 1.1, None)
    assert measured_text(slow, fast, "x", 0.0, UNSEEN["tma"]).endswith(f"The model expects no gain: {UNSEEN['tma']}.")


@pytest.mark.full
def test_the_page_as_the_command_writes_it_is_small(run: Measured) -> None:
    gpu = modelled_gpu(None)
    with ThreadPoolExecutor(4) as workers:
        found = list(workers.map(lambda i: facts_of(i, RUNGS[i], SIZE, gpu, sass=True), range(len(RUNGS))))
    if any(f.explanation is None or f.explanation.compiled is None for f in found):
        pytest.skip("the page is smaller without the compiler")
    assert {f.name for f in found if f.parts} >= {"vectorized", "warptile", "doublebuffer", *LAST, "splitk", "skinny"}
    assert len(page(found, SIZE, gpu, run).encode()) < 1_500_000


def test_every_gain_on_the_h200_that_the_model_misses_at_the_end_is_explained(run: Measured) -> None:
    for rung in RUNGS:
        if rung.spec in LAST[1:]:
            assert run.times[rung.spec].seconds < run.times[rung_before(rung)].seconds and UNSEEN[rung.spec]


def test_more_registers_are_explained_where_their_limit_is_lifted() -> None:
    facts = {f.name: f for f in some_at(SIZE, ("warptile", "doublebuffer", "cpasync"))}
    before, e, after = (facts[n].explanation for n in ("warptile", "doublebuffer", "cpasync"))
    if e is None or e.compiled is None:
        pytest.skip("registers are not known without the compiler")
    told = more_registers(e, before)
    assert f"The compiler uses {e.compiled.registers} registers per thread" in told and "even numbers" in told
    assert more_registers(after, e) == "" == more_registers(e, None)


def test_a_side_branch_stands_beside_its_base_at_its_own_size() -> None:
    shown = some_at(SIZE, ("vectorized", "splitk"))
    base = shown[1].base
    assert base is not None and base.size == (512, 512, 512) and base.spec.name == "vectorized"
    times = {"vectorized": Time(3.7e-3, 36.9, 72.0), "splitk": Time(1.57e-5, 17.1, 86.2)}
    text = read(page(shown, SIZE, modelled_gpu(None), Measured(SIZE, "NVIDIA Play", "this run", times)))
    side = " ".join(text.by_id("rung-splitk").text.split())
    assert "vectorized at 512×512×512: " in side and "expected, not measured. splitk: " in side
    assert "is counted at" not in side, "both are counted at one size"


def test_rungs_above_a_roof_are_named() -> None:
    roofs = (Roof("DRAM", 4000), Roof("L2", 10000))
    low, high = Dot(1, "low", 1.0, 2.0, 3.0), Dot(2, "high", 1.0, 5.0, 6.0, measured=11.0)
    assert above((low, high), roofs) == [(high, ["DRAM", "L2"])]
    assert above((replace(high, measured=None),), roofs) == [(replace(high, measured=None), ["DRAM"])]
