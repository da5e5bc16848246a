"""The bottleneck by name: of every rung, in what it costs, and the settings that only help together."""

from __future__ import annotations

from functools import cache

import pytest

from gemmgen.analysis.advice import advise
from gemmgen.analysis.bottleneck import CAUSES, MEANS, RESOURCES, bottleneck, cost_of, costs
from gemmgen.analysis.changes import sets
from gemmgen.analysis.explain import Explanation
from gemmgen.api.explaining import explain
from gemmgen.diagnostics import GemmgenError
from gemmgen.report.ladder import RUNGS, Rung
from gemmgen.spec.ladder import ladder_path
from gemmgen.spec.parse import load, parse

NAMES = [rung.spec for rung in RUNGS]
SIZE = (4096, 4096, 4096)
SMALL_COPIES = """kernel copies
tile block 128x128x16
tile warp 64x64
tile thread 8x4
use coalescing, smem, transposeA, float4, warptile, cpasync, spread, prefetch
stages 3
unroll 8
pad_a 4
"""
"""Each step starts copies of 4 bytes, which take many instructions."""
every_rung = pytest.mark.parametrize("rung", RUNGS, ids=NAMES)


@cache
def of(name: str, size: tuple[int, int, int] = SIZE, compiled: bool = True) -> Explanation:
    return explain(load(ladder_path(name)), *size, compiled=compiled)


@cache
def shown(name: str) -> Explanation:
    """At the size at which the ladder shows it."""
    return of(name, next(rung for rung in RUNGS if rung.spec == name).size(SIZE))


def compiled_here() -> bool:
    e = of("warptile")
    return e.compiled is not None and e.compiled.loop is not None


@every_rung
def test_what_the_ladder_says_is_what_the_model_finds(rung: Rung) -> None:
    """A rung's own words start with the computed name, so that the two cannot come apart."""
    if not compiled_here():
        pytest.skip("register-bank conflicts are not known without NVRTC and nvdisasm")
    assert rung.leaves.startswith(bottleneck(shown(rung.spec)).short)


@every_rung
def test_the_paragraph_names_it_with_its_number(rung: Rung) -> None:
    e = shown(rung.spec)
    b = bottleneck(e)
    assert f"is limited by {b.name}: " in e.paragraph
    assert f"expected, {b.share:.0%} (modelled)" in e.paragraph
    assert b.name.startswith(RESOURCES[e.bound.by]), "it is the resource that binds, or what that one is lost to"


@every_rung
def test_a_cost_is_never_negative_nor_all_of_the_time(rung: Rung) -> None:
    e = shown(rung.spec)
    assert set(costs(e)) == set(CAUSES) == set(MEANS)
    assert all(0 <= s < e.bound.total_s for s in costs(e).values())
    assert cost_of(e, bottleneck(e)) == pytest.approx(bottleneck(e).seconds)


def test_the_dearest_cause_is_named_where_issue_binds() -> None:
    for name in ("warptile", "doublebuffer", "cpasync", "registerbanks", "tma", "pipelined"):
        e = of(name)
        assert e.bound.by in ("issue", "compute")
        b = bottleneck(e)
        assert b.cause and b.seconds == max(costs(e).values()) and 0 < b.share < 1


def test_each_cause_is_what_its_setting_lowers() -> None:
    """prefetch takes the latency of shared memory away, stages that of global memory, TMA instructions that copy, and
    separators keep the order of FMAs, which avoids register-bank conflicts."""
    warptile, doublebuffer, cpasync = of("warptile"), of("doublebuffer"), of("cpasync")
    assert costs(warptile)["loads"] > 0 and costs(doublebuffer)["loads"] == 0
    assert costs(doublebuffer)["fragments"] > 0 and costs(cpasync)["fragments"] == 0
    if compiled_here():
        assert costs(of("tma"))["instructions"] < costs(explain(parse(SMALL_COPIES), *SIZE))["instructions"] / 2
        assert costs(of("tma"))["ports"] == 0 < costs(of("registerbanks"))["ports"] < costs(cpasync)["ports"]


def test_without_a_compiler_no_cause_needs_one() -> None:
    e = of("warptile", compiled=False)
    assert costs(e)["ports"] == 0
    assert bottleneck(e).name.startswith(RESOURCES[e.bound.by])


def test_of_nothing() -> None:
    b = bottleneck(of("warptile", (0, 64, 64)))
    assert (b.seconds, b.share, b.name) == (0.0, 0.0, "FP32 arithmetic")


def test_a_small_product_waits() -> None:
    b = bottleneck(of("warptile", (128, 128, 16)))
    assert b.name == "exposed latency (launch overhead)"


# --- Settings that only help together ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_advice_holds_when_followed_on_every_rung(name: str) -> None:
    e = shown(name)
    found = advise(e)
    if found is None:
        assert "No change that was tried lowers the expected time at this size." in e.paragraph
        return
    followed = explain(e.spec.replace(**found.change.fields), *e.size)
    assert followed.bound.total_s < 1.02 * e.bound.total_s, found.change.words
    assert ("No single change helps. Try together: " in e.paragraph) is found.together


def test_where_no_single_setting_helps_several_together_do() -> None:
    found = advise(of("registerbanks"))
    assert found is not None and found.together
    assert {"tma", "alongK"} <= found.change.fields["use"] and "transposeA" not in found.change.fields["use"]
    assert "Try together: + tma (line " in of("registerbanks").paragraph


def test_tma_takes_the_place_of_copies() -> None:
    found = advise(explain(parse(SMALL_COPIES), *SIZE))
    assert found is not None and found.together
    assert "tma" in found.change.fields["use"] and not {"cpasync", "spread"} & found.change.fields["use"]


@pytest.mark.parametrize("name", NAMES)
def test_sets_are_legal_where_they_are_offered_and_take_room_from_no_register(name: str) -> None:
    spec = load(ladder_path(name))
    for change in sets(spec, "issue"):
        try:
            new = spec.replace(**change.fields)
        except GemmgenError:
            continue  # advice skips what is not legal
        assert new.min_blocks == 0 and len(change.fields) > 1
        assert not spec.min_blocks or "- min_blocks" in change.words.split(", ")
