"""``NAME=VALUE``: settings given beside a spec."""

from __future__ import annotations

import pytest

import gemmgen
from gemmgen.diagnostics import SpecError
from gemmgen.spec.assign import NAMES, assigned
from gemmgen.spec.ladder import ladder_path
from gemmgen.spec.model import SETTINGS, TOGGLES, Operand
from gemmgen.spec.parse import load

WARPTILE = load(ladder_path("warptile"))


def test_values_become_settings() -> None:
    tiles = ["block=128x64x16", "thread=8x4", "warp=64x32", "stages=2", "min_blocks=0", "name=other"]
    found = assigned(WARPTILE, [*tiles, "B=bf16 row", "A=bf16", "C=col"])
    assert (found.block, found.warp, found.stages, found.min_blocks) == ((128, 64, 16), (64, 32), 2, 0)
    assert [Operand("bf16"), Operand("bf16"), Operand("f32", "col")] == [found.A, found.B, found.C]
    assert found.name == "other"


def test_toggles_go_on_and_off() -> None:
    found = assigned(WARPTILE, ["float4=off", "snake=on", "transposeA=on"])
    assert found.use == (WARPTILE.use - {"float4"}) | {"snake"}
    assert assigned(WARPTILE, ["warptile=off", "warp=none"]).warp is None


def test_nothing_given_is_the_spec_itself() -> None:
    assert assigned(WARPTILE, []) is WARPTILE
    assert assigned(WARPTILE, ["float4=on"]) == WARPTILE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stages", "is not NAME=VALUE"),
        ("=2", "is not NAME=VALUE"),
        ("stages=", "is not NAME=VALUE"),
        ("stage=2", "did you mean 'stages'"),
        ("stages=two", "is not a whole number"),
        ("stages=2,3", "`gemmgen tune` takes several"),
        ("float4=yes", "float4=on or float4=off"),
        ("block=128", "BMxBNxBK"),
        ("thread=8x4x2", "TMxTN"),
        ("A=f64", "unknown 'f64'"),
        ("accumulate=bf16", "not supported"),
        ("stages=99", "stages"),
        ("thread=7x4", "64"),
    ],
)
def test_mistakes_name_the_setting_and_what_to_write(text: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        assigned(WARPTILE, [text])
    assert said in str(error.value)


def test_a_setting_given_twice_is_a_mistake() -> None:
    with pytest.raises(SpecError, match="stages is given twice"):
        assigned(WARPTILE, ["stages=2", "stages=3"])


def test_every_setting_of_the_language_can_be_given() -> None:
    fields = {f for row in SETTINGS for f in row.fields if row.form not in ("toggles", "tune")}
    assert fields | {t.name for t in TOGGLES} | {o for t in TOGGLES for o in t.options} == set(NAMES) | {"use"} - {
        "use"
    }


def test_the_result_is_what_python_makes() -> None:
    assert assigned(WARPTILE, ["stages=2"]) == WARPTILE.replace(stages=2)
    texts = [gemmgen.emit(spec) for spec in (assigned(WARPTILE, ["unroll=4"]), WARPTILE.replace(unroll=4))]
    assert "// Made by: gemmgen compile specs/warptile.gemm --set unroll=4" in texts[0].splitlines()
    assert texts[0].partition("constexpr")[2] == texts[1].partition("constexpr")[2] != ""


def test_mistakes_of_the_result_name_all_that_was_set() -> None:
    with pytest.raises(SpecError, match=r"warptile\.gemm --set thread=7x4 --set stages=2: error: "):
        assigned(WARPTILE, ["thread=7x4", "stages=2"])
