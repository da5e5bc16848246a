"""Random text and random specs: always a Spec or a SpecError, and what is legal stays so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import specs
from tiers import examples

from gemmgen.diagnostics import SpecError
from gemmgen.spec.check import check
from gemmgen.spec.ladder import ladder_names, ladder_path
from gemmgen.spec.model import SETTINGS, TOGGLES, Spec
from gemmgen.spec.names import RESERVED
from gemmgen.spec.parse import load, parse

WORDS = [
    *("kernel", "tile", "block", "warp", "thread", "use", "operands", "arch", "stages", "x", "k1", "A f32 row", "f16"),
    *("8x8", "64x64x8", "0x128x8", "99999999999x1", "-1x4", "8X8", "1024x1024", "32x32x32x32", "٣x٣", "×", "sm_90"),
    *(t.name for t in TOGGLES),
    *(",", "(", ")", "{", "}", "=", "#", "m_iter=1", "n_iter=0"),
    *("\n", "\r\n", "\t", " ", "\ufeff", "\u00a0", "\x00", "\x1b"),
]


def spec_or_error(text: str) -> Spec | None:
    """The spec; None where it was refused, as it should be."""
    try:
        spec = parse(text, "random.gemm")
    except SpecError as error:
        assert error.errors
        assert "lark" not in str(error).replace(text, "")
        str(error).encode("utf-8")
        for one in error.errors:
            assert one.line is not None and one.column is not None and one.message
        return None
    check(spec)
    assert parse(spec.to_text()) == spec
    return spec


@given(st.text())
def test_any_text_is_a_spec_or_refused(text: str) -> None:
    spec_or_error(text)


@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join))
def test_any_words_are_a_spec_or_refused(text: str) -> None:
    spec_or_error(text)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """The text of a legal spec with a few characters or lines taken out, put in, or doubled."""
    text = draw(specs(split=True, cluster=True, dependent=True, atomics=True)).to_text()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        until = min(len(text), at + draw(st.integers(0, 6)))
        middle = draw(st.one_of(st.just(""), st.sampled_from(WORDS), st.just(text[at:until] * 2), st.text(max_size=3)))
        text = text[:at] + middle + text[until:]
    return text


@settings(max_examples=examples(500))
@given(mutated())
def test_a_mutated_spec_is_a_spec_or_refused(text: str) -> None:
    spec_or_error(text)


@pytest.mark.thorough
@settings(max_examples=10_000)
@given(st.one_of(mutated(), st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)))
def test_ten_thousand_texts(text: str) -> None:
    spec_or_error(text)


@settings(max_examples=examples(300))
@given(
    specs(orders=("row", "col"), split=True, cluster=True, dependent=True, atomics=True),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
)
def test_round_trip(spec: Spec, comment: str) -> None:
    commented = spec.replace(comment=comment)
    again = parse(commented.to_text())
    assert again == spec
    assert again.to_text() == commented.to_text()


@given(specs(split=True, cluster=True, dependent=True, atomics=True))
def test_the_order_of_lines_and_toggles_does_not_matter(spec: Spec) -> None:
    lines = spec.replace(m_iter=None, n_iter=None).to_text().splitlines()
    turned = [
        "use " + ", ".join(reversed(line.removeprefix("use").split(","))) if line.startswith("use") else line
        for line in lines
    ]
    assert parse("\n".join(reversed(turned))) == spec.replace(m_iter=None, n_iter=None)


@given(specs(split=True, cluster=True, dependent=True, atomics=True))
def test_iterations_cover_the_warp_tile(spec: Spec) -> None:
    m_iter, n_iter = spec.warp_iterations
    assert 1 <= spec.threads <= 1024
    if spec.has("warptile"):
        assert spec.warp is not None
        lanes_m, rest_m = divmod(spec.warp[0], m_iter * spec.thread[0])
        lanes_n, rest_n = divmod(spec.warp[1], n_iter * spec.thread[1])
        assert (lanes_m * lanes_n, rest_m, rest_n) == (32, 0, 0)
        assert spec.replace(m_iter=m_iter, n_iter=n_iter).warp_iterations == (m_iter, n_iter)
    else:
        assert (m_iter, n_iter) == (1, 1)


@given(st.sampled_from(sorted({row.name for row in SETTINGS} | RESERVED | {"a", "Z9", "_a"})))
def test_a_kernel_name_is_taken_or_refused_by_the_table(name: str) -> None:
    taken = spec_or_error(f"kernel {name}\ntile block 8x8\n") is not None
    assert taken == (name not in RESERVED and " " not in name)


@pytest.mark.parametrize("name", ladder_names())
def test_every_cut_of_a_ladder_spec(name: str) -> None:
    text = ladder_path(name).read_text(encoding="utf-8")
    cut = [spec_or_error(text[:at]) for at in range(len(text))]
    assert any(cut) and cut[0] is None
    assert load(ladder_path(name)) == parse(text)
