"""Idle multiprocessors: named where too few blocks run, with what they cost, and what would put them to work."""

from __future__ import annotations

import pytest

import gemmgen
from gemmgen.analysis.bottleneck import Bottleneck, bottleneck, costs
from gemmgen.analysis.explain import Explanation
from gemmgen.analysis.printed import explanation_text
from gemmgen.report.explained import explanation_dict
from gemmgen.report.page.glossary import GLOSSARY
from gemmgen.spec.ladder import ladder_path

WARPTILE = gemmgen.load(ladder_path("warptile"))


def at(size: int, **settings: int) -> tuple[Explanation, Bottleneck]:
    e = gemmgen.explain(WARPTILE.replace(**settings), size, size, size, compiled=False)
    return e, bottleneck(e)


def test_persistent_blocks_that_are_too_few_leave_multiprocessors_idle() -> None:
    e, of = at(4096, persistent=8)
    assert of.name == "exposed latency (idle SMs)" and of.share > 0.9
    assert e.advice is not None and e.advice.change.fields == {"persistent": 0}
    for words in ("The launch has 8 blocks for 132 SMs, because persistent is 8.", "Try: - persistent."):
        assert words in e.paragraph
    assert "idle SMs" in explanation_text(e)
    told = explanation_dict(e)["bottleneck"]
    assert told["name"] == of.name and told["costs_s"]["idle"] == of.seconds
    assert "idle SMs" in GLOSSARY


def test_so_does_a_c_of_few_tiles() -> None:
    e, of = at(512)
    assert (e.blocks, of.cause) == (16, "idle")
    assert "The launch has 16 blocks for 132 SMs." in e.paragraph


def test_the_time_that_is_saved_is_that_of_the_work_spread_over_all() -> None:
    """Twice as many SMs busy halve what they take; what a launch takes stays."""
    launch = costs(at(4096, persistent=8)[0])["launch"]
    left = {n: (e := at(4096, persistent=n)[0]).bound.total_s - costs(e)["idle"] for n in (33, 66)}
    for n, seconds in left.items():
        e = at(4096, persistent=n)[0]
        assert seconds - launch == pytest.approx((e.bound.total_s - launch) * n / 132)


@pytest.mark.parametrize(("size", "persistent"), [(4096, 0), (4096, 132), (4096, 264)])
def test_none_is_idle_with_a_block_for_each(size: int, persistent: int) -> None:
    e, of = at(size, persistent=persistent)
    assert costs(e)["idle"] == 0 and of.cause != "idle"
