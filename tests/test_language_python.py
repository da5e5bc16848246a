"""Specs from Python: replace, check and variants."""

from __future__ import annotations

import pytest

from gemmgen.diagnostics import SpecError
from gemmgen.spec.check import check
from gemmgen.spec.ladder import ladder_path
from gemmgen.spec.model import Operand, Spec
from gemmgen.spec.parse import load, parse
from gemmgen.spec.variants import variants

WARPTILE = load(ladder_path("warptile"))


def test_replace_changes_and_checks() -> None:
    spec = WARPTILE.replace(block=[64, 64, 8], warp=(32, 64), use={"smem", "warptile"})
    assert (spec.block, spec.warp, spec.use) == ((64, 64, 8), (32, 64), {"smem", "warptile"})
    assert WARPTILE.block == (128, 128, 16)
    assert spec.comment == "" and not spec.spans
    assert WARPTILE.replace(name="other").comment == WARPTILE.comment


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block": (100, 64, 8)}, "100 rows is not a multiple of warp 64"),
        ({"blok": (64, 64, 8)}, "unknown setting 'blok'; did you mean 'block'?"),
        ({"block": (64,)}, "block takes (BM, BN, BK) or (BM, BN), whole numbers"),
        ({"block": 64}, "block takes"),
        ({"block": (64.0, 64, 8)}, "block takes"),
        ({"block": (True, 64, 8)}, "block takes"),
        ({"block": (128, 128)}, "smem needs BK"),
        ({"block": None}, "block takes"),
        ({"use": {"smem", "warptyle"}}, "unknown toggle 'warptyle'; did you mean 'warptile'?"),
        ({"use": [1]}, "use takes names of toggles"),
        ({"use": {"warptile"}}, "warptile needs smem"),
        ({"use": {"smem"}, "m_iter": 1}, "m_iter needs warptile"),
        ({"name": "int"}, "'int'"),
        ({"name": 3}, "name takes text"),
        ({"thread": (0, 4)}, "TM must be positive"),
        ({"stages": 9}, "stages '9' is not supported"),
        ({"A": "f64 row"}, "'f64' is not supported"),
        ({"A": Operand("f32", "diagonal")}, "'diagonal' is not supported"),
        ({"arch": "hopper"}, "'hopper' is not a value of arch"),
        ({"m_iter": 3}, "m_iter=3 does not cover"),
        ({"spans": {}}, "unknown setting 'spans'"),
        ({"prefetch": True}, "prefetch is a toggle: one of the names in use, and no setting of its own"),
        ({"prefetch": 1}, "use=spec.use | {'prefetch'}; with variants use=[spec.use, spec.use | {'prefetch'}]"),
        ({"float4": False}, "write use=spec.use - {'float4'}"),
        ({"prefetsh": True}, "unknown setting 'prefetsh'; did you mean 'prefetch'?"),
    ],
)
def test_replace_refuses_with_no_line(changes: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as info:
        WARPTILE.replace(**changes)
    assert said in str(info.value)
    assert info.value.line is None and info.value.column is None


def test_replace_takes_text_for_toggles_and_operands() -> None:
    spec = WARPTILE.replace(use="smem, float4", A="f32 col", arch="sm_90a")
    assert spec.use == {"smem", "float4"}
    assert (spec.A.dtype, spec.A.order) == ("f32", "col")
    assert parse(spec.to_text()) == spec


def test_options_leave_with_their_toggle() -> None:
    spec = WARPTILE.replace(m_iter=2)
    assert spec.replace(use={"smem"}, thread=(8, 8)).m_iter is None


def test_smem_on_a_spec_that_gave_no_bk() -> None:
    spec = load(ladder_path("naive"))
    with pytest.raises(SpecError, match="smem needs BK"):
        spec.replace(use={"smem"})
    assert spec.replace(use={"smem"}, block=(32, 32, 1)).block == (32, 32, 1)


def test_check_of_a_spec_made_by_hand() -> None:
    with pytest.raises(SpecError, match="100 rows"):
        check(Spec(name="k1", block=(100, 64, 8), thread=(8, 8), use=frozenset({"smem"})))
    check(Spec(name="k1", block=(96, 64, 8), thread=(8, 8), use=frozenset({"smem"})))


def test_variants_are_the_legal_combinations() -> None:
    spec = load(ladder_path("regblock2d"))
    found = list(variants(spec, block=[(128, 128, 8), (64, 64, 8), (100, 64, 8)], thread=[(8, 8), (2, 2), (8, 8)]))
    assert [(s.block, s.thread) for s in found] == [
        ((128, 128, 8), (8, 8)),  # 128x128 with 2x2 would be 4096 threads
        ((64, 64, 8), (8, 8)),
        ((64, 64, 8), (2, 2)),
    ]
    assert all(s.name == "regblock2d" for s in found)


def test_variants_of_nothing_is_the_spec() -> None:
    assert list(variants(WARPTILE)) == [WARPTILE]


@pytest.mark.parametrize("choices", [{"blok": [1]}, {"block": (64, 64, 8)}, {"use": "smem"}, {"thread": 8}])
def test_variants_refuse_at_once_what_is_no_choice(choices: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        variants(WARPTILE, **choices)  # type: ignore[arg-type]


def test_a_toggle_as_a_choice_is_refused_with_how_it_is_written() -> None:
    with pytest.raises(SpecError, match=r"prefetch is a toggle.*variants use="):
        variants(WARPTILE, prefetch=[True, False])
    assert len(list(variants(WARPTILE, use=[WARPTILE.use, WARPTILE.use | {"prefetch"}]))) == 2
