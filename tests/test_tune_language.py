"""``tune SETTING in {...}`` lines: what they say, how they print, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gemmgen
from gemmgen.diagnostics import SpecError
from gemmgen.spec.model import Spec
from gemmgen.spec.tuning import TUNABLE, with_choice

BASE = """kernel w
tile block 128x128x16
tile warp 64x64
tile thread 8x4
use coalescing, smem, transposeA, float4, warptile
"""


def test_choices_are_kept_in_order_with_values_of_their_own_kind() -> None:
    spec = gemmgen.parse(
        BASE + "tune tile block in {128x128x8, 64x64x8}\ntune stages in { 1,2 }\ntune prefetch in {on, off}\n"
        "tune n_iter in {2, 4}\n"
    )
    assert spec.tune == (
        ("block", ((128, 128, 8), (64, 64, 8))),
        ("stages", (1, 2)),
        ("prefetch", (True, False)),
        ("n_iter", (2, 4)),
    )
    assert gemmgen.parse(spec.to_text()) == spec
    assert gemmgen.parse(BASE + "tune block in {64x64x8}") == gemmgen.parse(BASE + "tune tile block in {64x64x8}")
    assert spec != gemmgen.parse(BASE)
    assert gemmgen.emit(spec).count("\n") > gemmgen.emit(gemmgen.parse(BASE)).count("\n")  # its lines are in the header
    assert spec.replace(tune=()) == gemmgen.parse(BASE)


@pytest.mark.parametrize(
    ("line", "said", "column"),
    [
        ("tune stages in {1, 99}", "tune stages: 99 is not supported", 6),
        ("tune stages", "tune stages needs a set of values", 6),
        ("tune stages {1}", "tune stages needs a set of values", 6),
        ("tune stages is {1}", "tune stages needs a set of values", 6),
        ("tune stages in {1} {2}", "tune stages needs a set of values", 6),
        ("tune stagez in {1}", "'stagez' is not a setting that can be tuned; did you mean 'stages'?", 6),
        ("tune arch in {sm_90}", "'arch' is not a setting that can be tuned", 6),
        ("tune block in {64x64x8, 0x1x1}", "tune block: 0x1x1 has a size outside 1 to 1024", 6),
        ("tune block in {64x64x8, 64}", "'64' is not a value of block", 25),
        ("tune block in {64x64x8x8}", "'64x64x8x8' is not a value of block", 16),
        ("tune prefetch in {yes}", "'yes' is not a value of prefetch", 19),
        ("tune stages in {1 2}", "'1 2' is not a value of stages", 17),
        ("tune stages in {2, 2}", "tune stages: 2 stands in the set twice", 6),
        ("tune stages in {1}, unroll in {2}", "one tune line chooses for one setting", 21),
        ("tune", "tune needs a value", 1),
    ],
)
def test_a_mistake_in_a_choice_has_its_place(line: str, said: str, column: int) -> None:
    with pytest.raises(SpecError) as info:
        gemmgen.parse(BASE + line)
    assert said in str(info.value) and (info.value.line, info.value.column) == (6, column)


def test_two_sets_for_one_setting_name_both_lines() -> None:
    with pytest.raises(SpecError, match="tune stages is given twice, on lines 6 and 8"):
        gemmgen.parse(BASE + "tune stages in {1, 2}\ntune unroll in {8}\ntune stages in {3}\n")


@pytest.mark.parametrize(
    ("tune", "said"),
    [
        ({"stagez": (1,)}, "'stagez' is not a setting"),
        ({"stages": ()}, "has no values"),
        ({"stages": ("2",)}, "is not a value of it"),
        ({"prefetch": (1,)}, "is not a value of it"),
        (7, "tune takes pairs"),
        ({"stages": "12"}, "tune takes pairs"),
    ],
)
def test_choices_from_python_are_checked(tune: object, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        gemmgen.parse(BASE).replace(tune=tune)


def test_a_combination_is_a_plain_spec() -> None:
    spec = gemmgen.parse(BASE).replace(tune={"block": [(64, 64, 8)], "float4": [True, False]})
    made = spec.replace(**with_choice(spec, [("block", (64, 64, 8)), ("float4", False)]))
    assert made.tune == () and made.block == (64, 64, 8) and not made.has("float4") and made.has("smem")


NUMBERS = ("stages", "unroll", "pad_a", "pad_b", "min_blocks", "cta_swizzle", "persistent")


@given(st.lists(st.sampled_from(NUMBERS), unique=True), st.sets(st.integers(1, 8), min_size=1))
def test_any_choices_survive_the_text(names: list[str], values: set[int]) -> None:
    spec: Spec = gemmgen.parse(BASE).replace(tune=[(name, sorted(values)) for name in names])
    assert gemmgen.parse(spec.to_text()) == spec and set(names) <= set(TUNABLE)
