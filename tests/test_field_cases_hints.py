"""Field cases 8, 9, 11: a hint that is followed to the letter leads to a legal spec, and speaks of what was typed."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hints import followed
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmgen
from gemmgen.cli import run
from gemmgen.diagnostics import Problem, SpecError
from gemmgen.spec.check import problems
from gemmgen.spec.ladder import ladder_names
from gemmgen.spec.model import TOGGLES, Operand, Spec
from gemmgen.spec.subject import Subject
from gemmgen.tile import check_resources

TOGGLE_NAMES = tuple(t.name for t in TOGGLES)


def mistakes(spec: Spec) -> list[Problem]:
    """What is wrong with a spec, as ``gemmgen.parse`` finds it."""
    fits = lambda tried: not check_resources(tried, hints=False)  # noqa: E731
    return problems(Subject(spec, fits=fits)) or check_resources(spec)


def refused(lines: str) -> SpecError:
    with pytest.raises(SpecError) as info:
        gemmgen.parse(f"kernel x\n{lines}")
    return info.value


def follow(text: str, lines: str) -> None:
    """Read the spec again with one line as the hint has it. Raises SpecError where it is not legal."""
    name = " ".join(text.split()[:-1])
    kept = [line for line in lines.splitlines() if not line.startswith(name)]
    gemmgen.parse("\n".join(["kernel x", *kept, text]))


# --- 8: what does not fit in shared memory ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "largest"),
    [
        ("tile block 16x16x8\ntile thread 4x4\nuse smem\npad_a 5000", "pad_a 3616"),
        ("tile block 16x16x1\ntile thread 4x4\nuse smem\npad_a 5000", "pad_a 3630"),
        ("tile block 16x16x8\ntile thread 4x4\nuse smem\npad_b 9000", "pad_b 7232"),
        ("tile block 16x16x8\ntile thread 4x4\nuse smem\nstages 2\npad_a 5000", "pad_a 1800"),
        ("tile block 16x16x8\ntile thread 4x4\nuse smem\npad_a 5000\npad_b 16", "pad_a 3608"),
    ],
)
def test_F08_padding_that_is_too_large_is_named_with_the_largest_that_fits(lines: str, largest: str) -> None:
    error = refused(lines)
    assert error.hint == f"'{largest}' is the largest padding that fits"
    follow(largest, lines)
    name, number = largest.split()
    with pytest.raises(SpecError, match="shared memory"):
        follow(f"{name} {int(number) + 1}", lines)


def test_F08_where_both_paddings_are_too_large_both_are_given() -> None:
    lines = "tile block 16x16x8\ntile thread 4x4\nuse smem\npad_a 50000\npad_b 50000"
    assert "'pad_a 0' with 'pad_b 7232'" in refused(lines).hint
    gemmgen.parse("kernel x\n" + lines.replace("pad_a 50000", "pad_a 0").replace("pad_b 50000", "pad_b 7232"))


@pytest.mark.parametrize("rest", ["", ", prefetch\nunroll 4", ", prefetch\nunroll 24", ", float4, transposeA\npad_a 4"])
def test_F08_a_BK_that_is_proposed_fits_and_breaks_no_other_rule(rest: str) -> None:
    lines = f"tile block 256x256x480\ntile thread 8x8\nuse smem{rest}"
    found = re.match(r"BK ([0-9]+) is the largest that fits with 256x256", refused(lines).hint)
    assert found is not None
    gemmgen.parse("kernel x\n" + lines.replace("x480", f"x{found[1]}"))


def test_F08_stages_are_proposed_where_no_BK_fits() -> None:
    lines = "tile block 1024x1024x4\ntile thread 32x32\nuse smem, cpasync\nstages 8\nunroll 4"
    assert refused(lines).hint == "'stages 7' is the most that fits"
    follow("stages 7", lines)


def test_F08_a_block_whose_sums_do_not_fit_is_given_one_whose_do() -> None:
    lines = "tile block 256x256x8\ntile thread 8x8\nuse smem, stageC"
    found = re.match(r"([0-9]+x[0-9]+) would fit", refused(lines).hint)
    assert found is not None
    gemmgen.parse("kernel x\n" + lines.replace("256x256", found[1]))


# --- 9: rules that contradict one another's hints ---------------------------------------------------------------------


def test_F09_unroll_is_not_proposed_what_another_rule_refuses() -> None:
    lines = "tile block 8x8x15\nuse smem, prefetch\nunroll {}"
    for unroll in (1, 2, 3, 4, 5, 15, 16):
        hint = refused(lines.format(unroll)).hint
        assert hint.startswith("write BK 14 or 16 and leave unroll out"), hint
        assert ("or leave prefetch out" in hint) == (15 % unroll == 0)
    for bk in (14, 16):
        gemmgen.parse(f"kernel x\ntile block 8x8x{bk}\nuse smem, prefetch")


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ("tile block 8x8x12\nuse smem, prefetch\nunroll 3", "2 and 4 are"),
        ("tile block 8x8x8\nuse smem, float4, alongK, prefetch\nunroll 3", "4 would"),
        ("tile block 64x64x8\ntile thread 8x8\nuse smem\nstages 9", "1 and 2 are"),
        ("tile block 64x64x8\ntile thread 8x8\nuse smem, cpasync, spread\nstages 0", "2, 3, 4, 5, 6, 7 and 8 are"),
        ("tile block 64x64x8\ntile thread 8x8\nuse smem, clusterReduce\nsplit_k 0", "'split_k 2' would do"),
        ("tile block 0x64x8\ntile thread 8x8\nuse smem", "8 is the smallest that fits"),
        ("tile block 64x64\ntile thread 8x8\nuse transposeA",
         "add smem to the use line, and write 'tile block 64x64x8', or leave transposeA out"),
        ("tile block 64x64\ntile thread 8x8\nuse smem\nunroll 6", "64x64x12 has"),
        ("tile block 64x64x8\ntile thread 8x8\nuse smem, float4, alongK, smemSwizzle, transposeA",
         "leave alongK and smemSwizzle out, or leave transposeA out"),
        ("tile block 64x64x8\ntile thread 8x8\nuse smem, float4, tma, release, cpasync",
         "leave tma and release out, or leave cpasync out; tma falls back on cp.async by itself for rows that "
         "it cannot address"),
        ("tile block 256x256x8\ntile thread 8x8\nuse smem, clusterReduce", "leave clusterReduce out"),
    ],
)  # fmt: skip
def test_F09_a_hint_gives_only_what_every_rule_allows(lines: str, hint: str) -> None:
    assert hint in [p.hint for p in refused(lines).problems]


@pytest.mark.parametrize("name", ["cudaFoo", "NV_x", "__1x", "_Ax", "float", "__" + "a" * 98, "tile_program"])
def test_F09_a_name_that_is_proposed_is_legal(name: str) -> None:
    try:
        gemmgen.parse(f"kernel {name}\ntile block 16x16")
    except SpecError as error:
        found = re.search(r"such as '(\w+)'", error.hint)
        assert found is not None
        gemmgen.parse(f"kernel {found[1]}\ntile block 16x16")


near = st.integers(1, 200)
usual = st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128])


@st.composite
def any_specs(draw: st.DrawFn) -> Spec:
    """A spec of any settings, mostly illegal."""
    use = draw(st.sets(st.sampled_from(TOGGLE_NAMES), max_size=4)) | {"smem"}
    for _ in range(2):
        use |= {need for t in TOGGLES if t.name in use for need in t.needs}
    left_out = draw(st.sampled_from([frozenset(), frozenset(), frozenset({draw(st.sampled_from(TOGGLE_NAMES))})]))
    size = st.one_of(usual, near)
    order = st.builds(Operand, order=st.sampled_from(["row", "row", "col"]))
    return Spec(
        name="x", use=frozenset(use - left_out), A=draw(order), B=draw(order),
        block=(draw(size), draw(size), draw(st.one_of(st.sampled_from([4, 8, 15, 16]), st.integers(1, 40)))),
        thread=(draw(st.sampled_from([1, 2, 4, 8, 5])), draw(st.sampled_from([1, 2, 4, 8, 3]))),
        warp=draw(st.sampled_from([None, (64, 32), (32, 64), (16, 16)])),
        stages=draw(st.sampled_from([1, 1, 2, 2, 3, 4, 9])), unroll=draw(st.sampled_from([0, 0, 1, 2, 3, 4, 5, 8, -1])),
        pad_a=draw(st.sampled_from([0, 0, 0, 1, 4, -1, 5000])), pad_b=draw(st.sampled_from([0, 0, 0, 1, 4, 7000])),
        split_k=draw(st.sampled_from([1, 1, 2, 4, 16, 0])), persistent=draw(st.sampled_from([0, 0, 2, 70000])),
        min_blocks=draw(st.sampled_from([0, 0, 1, 33])), arch=draw(st.sampled_from([None, None, "sm_75", "sm_90"])),
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(any_specs())
def test_F09_a_hint_followed_to_the_letter_is_legal(spec: Spec) -> None:
    found = mistakes(spec)
    if len(found) != 1:
        return
    ways = list(followed(spec, found[0]))
    left = [(way, mistakes(replace(spec, **changes))) for way, changes in ways]
    # A second mistake is said once the first is mended: that the tiles do not fit, whatever is done about the first.
    unfit = all(p and "shared memory" in p[0].message for _, p in left)
    assert unfit or not any(p for _, p in left), (found[0].message, found[0].hint, left)


# --- 11: messages that speak of what was typed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", ""], "the name of a spec is empty; name a file, or a rung of the ladder"),
        (["compile", "warptile", "warptile"], "the same spec is given twice"),
        (["check", "warptil"], "did you mean warptile?"), (["explain", "Vectorised"], "did you mean vectorized?"),
        (["check", "nothing_like_it"], "it has naive, coalesced"),
        (["tune", "--set", "stages="], "--set stages: a value is missing; write it like --set stages=2,4"),
        (["tune", "--set", "stages=2,,3"], "--set stages: a value is missing"),
        (["tune", "--set", "stages=2}"], "--set stages: '2}' is not a value of it"),
        (["tune", "--set", "stages=2,2"], "--set stages: 2 is given twice"),
        (["tune", "--set", "stages=2", "--set", "stages=3"], "--set stages is given twice"),
        (["tune", "--set", "=2"], "write it like --set stages=2,3"),
        (["tune", "--set", "prefetch=yes"], "write it like --set prefetch=on,off"),
        (["tune", "--set", "block=64x64x8,x"], "write it like --set block=64x64x8,128x128x16"),
        (["compile", "naive", "-o", ""], "--output is empty"), (["run", "naive", "--out", ""], "--out is empty"),
        (["tune", "--plot", ""], "the name ends in .svg or .png"),
    ],
)  # fmt: skip
def test_F11_what_was_typed_is_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == "" and list(tmp_path.iterdir()) == []


def test_F11_the_same_spec_by_two_paths_is_said_to_be_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.gemm").write_text("kernel mine\ntile block 16x16\n", encoding="utf-8")
    assert run(["compile", "a.gemm", str(tmp_path / "a.gemm")]) == 2
    assert "the same spec is given twice: a.gemm and" in capsys.readouterr().err


def test_F11_a_file_that_is_nearly_there_is_proposed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.gemm").write_text("kernel mine\ntile block 16x16\n", encoding="utf-8")
    assert run(["check", "mime.gemm"]) == 2
    assert capsys.readouterr().err == "error: no file mime.gemm; did you mean mine.gemm?\n"


def test_F11_a_plot_that_cannot_be_drawn_fails_before_the_work_and_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is tuned")

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(gemmgen, "tune", never)
    assert run(["tune", "warptile", "--model", "--plot", str(tmp_path / "x.svg")]) == 1
    out, err = capsys.readouterr()
    assert "pip install 'gemmgen[tune]'" in err and out == "" and list(tmp_path.iterdir()) == []


def test_F11_every_extra_that_a_message_names_brings_what_the_message_is_about() -> None:
    """Each ``gemmgen[...]`` in the code is an extra of the project."""
    root = Path(gemmgen.__file__).resolve().parent
    extras = re.search(
        r"\[project.optional-dependencies\](.*?)\n\[", (root.parent / "pyproject.toml").read_text(), re.S
    )
    assert extras is not None
    known = dict(re.findall(r"^(\w+) = \[(.*?)\]", extras[1], re.M | re.S))
    for path in root.rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            for extra in re.findall(r"gemmgen\[(\w+)\]'", line):
                assert extra in known, (path, line)
                if "matplotlib" in line or "draw it as text" in line:
                    assert "matplotlib" in known[extra]


def test_F11_check_gives_no_BK_that_nobody_gave(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *ladder_names()]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if ": note: " not in line]
    assert lines[0].endswith("naive: OK, block 32x32, 1024 threads")
    assert [line.split(": ")[1:] for line in lines if "warptile.gemm" in line] == [
        ["warptile", "OK, block 128x128x16, 128 threads"]
    ]


# --- Tensor cores: all mistakes at once -------------------------------------------------------------------------------


TENSOR = [name for name in ladder_names() if gemmgen.load(name).math != "fma"]


@pytest.mark.parametrize("name", TENSOR)
@pytest.mark.parametrize("left", ["math alone", "smem", "warptile", "warptile and smem"])
def test_the_hints_of_one_check_lead_to_a_legal_spec_of_tensor_cores(name: str, left: str) -> None:
    """Followed all at once, with nothing that is found only then."""
    own = gemmgen.load(name)
    use = frozenset() if left == "math alone" else frozenset(left.split(" and "))
    spec = replace(
        own, use=use, warp=None, stages=1, roles=None, persistent=0, cta_swizzle=0, unroll=0, epilogue=(), spans={}
    )  # fmt: skip
    changes: dict[str, Any] = {"use": spec.use}
    for problem in mistakes(spec):
        way = next(followed(spec, problem))[1]
        changes |= way | {"use": changes["use"] | way.get("use", frozenset())}
    assert changes != {"use": spec.use}
    assert mistakes(replace(spec, **changes)) == []


@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        (
            "tile block 120x200x60\ntile warp 32x32\nuse smem, prefetsh",
            ["BM 120 is not", "BN is 200", "BK 60 makes", "tile warp 32x32: each warp", "unknown toggle 'prefetsh'"],
        ),
        ("tile block 128x256", ["needs BK", "needs smem", "needs warptile", "needs tma", "needs smemSwizzle"]),
    ],
)
def test_mistakes_in_the_tiles_of_wgmma_are_reported_whatever_else_is_wrong(lines: str, messages: list[str]) -> None:
    for operands in ("A bf16 row, B bf16 row, C bf16 row", "A f32 row, B f32 row, C f32 row"):
        said = str(refused(f"operands {operands}\nmath wgmma 64x256x16\n{lines}"))
        assert [m for m in messages if m not in said] == []
        assert ("which wgmma 64x256x16 does not multiply" in said) == ("f32" in operands)
        assert "tile warp 32x32'" not in said
