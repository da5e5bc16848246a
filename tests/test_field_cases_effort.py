"""Field cases of the second list on what takes too long, by number: spilling kernels, spaces, texts full of errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import at_most

import gemmgen
from gemmgen import CompileError, SpecError, TuneError
from gemmgen.cli import run
from gemmgen.diagnostics import MAX_PROBLEMS
from gemmgen.spec.effort import slow_to_compile
from gemmgen.spec.ladder import ladder_names, ladder_path
from gemmgen.tune.space import MOST, space

STAGED = "kernel staged\ntile block 16x16x8\ntile thread 4x4\nuse coalescing, smem\n"

# --- F05: kernels that must spill, and take the compiler long ---------------------------------------------------------

HEAVY = "kernel heavy\ntile block 256x256x64\ntile warp 128x128\ntile thread 8x4\nuse coalescing, smem, warptile\n"
LONE = "kernel lone\ntile block 32x32x1\ntile thread 32x32\nuse coalescing\n"
CROWDED = "kernel crowded\ntile block 256x256x8\ntile thread 8x8\nuse coalescing, smem\n"
ASKED = "kernel asked\ntile block 128x128x8\ntile thread 8x8\nuse coalescing, smem\nmin_blocks 4\n"


@pytest.mark.parametrize(
    ("text", "sums", "registers"), [(HEAVY, 512, 255), (LONE, 1024, 255), (CROWDED, 64, 64), (ASKED, 64, 64)]
)
def test_F05_check_notes_sums_that_must_spill(
    text: str, sums: int, registers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "given.gemm"
    path.write_text(text)
    assert run(["check", str(path)]) == 0
    told = capsys.readouterr().out
    assert f"keeps {sums} sums and has at most {registers} registers" in told and "must spill" in told


def test_F05_and_blocks_that_cannot_be_there_together() -> None:
    [note] = gemmgen.parse(CROWDED + "min_blocks 3\n").notes
    assert "min_blocks 3 cannot be met: at most 2 blocks of 32 warps" in note
    [note] = gemmgen.parse(CROWDED + "min_blocks 2\narch sm_86\n").notes
    assert "at most 1 blocks of 32 warps fit on an SM of sm_86" in note


@pytest.mark.parametrize("name", ladder_names())
def test_F05_no_rung_is_noted_or_slow(name: str) -> None:
    spec = gemmgen.load(ladder_path(name))
    assert not [note for note in spec.notes if "spill" in note] and not slow_to_compile(spec)


@pytest.mark.parametrize("text", [HEAVY, LONE.replace("32x32x1", "64x64x1").replace("coalescing", "coalescing, smem")])
def test_F05_compiling_is_given_up_with_the_reason(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime import limited

    monkeypatch.setenv("GEMMGEN_COMPILE_SECONDS", "1")
    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(limited, "WAITED", 100.0)  # however busy the machine, the processor time decides
    pytest.importorskip("cuda.bindings.nvrtc")
    kernel = gemmgen.compile(gemmgen.parse(text), device="sim")
    given_up = r"over [0-9]+ s( of processor time)? and was given up: .* sums .*255 registers"
    with pytest.raises(CompileError, match=given_up):
        _ = kernel.cubin
    monkeypatch.setattr(limited, "call", lambda *_: pytest.fail("what is remembered is not tried again"))
    with pytest.raises(CompileError, match="given up"):
        _ = gemmgen.compile(gemmgen.parse(text), device="sim").cubin


def test_F05_what_is_slow_and_done_in_time_is_the_same_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime.nvrtc import NvrtcMissing, compile_cubin

    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(tmp_path))
    text = gemmgen.emit(gemmgen.parse(STAGED))
    try:
        here = compile_cubin(text, name="staged", cache=None)
    except NvrtcMissing as missing:
        pytest.skip(str(missing))
    apart = compile_cubin(text, name="staged", cache=None, slow="for a test")
    assert (apart.cubin, apart.resources) == (here.cubin, here.resources)
    with pytest.raises(CompileError, match=r"staged\.cu"):
        compile_cubin(text.replace("blockA", "blockX", 1), name="staged", cache=None, slow="for a test")


@pytest.mark.parametrize("given", ["0", "x", "-3", "inf", "nan"])
def test_F05_the_seconds_are_a_number_of_seconds(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime.nvrtc import patience

    monkeypatch.setenv("GEMMGEN_COMPILE_SECONDS", given)
    with pytest.raises(gemmgen.ArgumentError, match=f"GEMMGEN_COMPILE_SECONDS is '{given}'"):
        patience()


def test_F05_explain_counts_what_cannot_be_compiled_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMGEN_COMPILE_SECONDS", "1")
    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(tmp_path))
    found = gemmgen.explain(gemmgen.parse(HEAVY), 512, 512, 512)
    assert found.compiled is None and found.occupancy.blocks_per_sm >= 1
    assert any("spills" in warning for warning in found.warnings)


# --- F06: how many combinations there are -----------------------------------------------------------------------------


def values(count: int) -> str:
    return ",".join(str(v) for v in range(1, count + 1))


FOUR = ("pad_a", "pad_b", "unroll", "cta_swizzle")


@pytest.mark.parametrize(("names", "count"), [(FOUR, 17), ((*FOUR, "split_k", "min_blocks"), 32)])
def test_F06_a_space_is_counted_and_drawn_from(
    names: tuple[str, ...], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    choices = [part for name in names for part in ("--set", f"{name}={values(count)}")]
    with at_most(calls=40_000_000):
        assert run(["tune", "warptile", "--model", "--size", "512", *choices]) == 0
    assert f"{MOST} of {count ** len(names)} combinations, drawn at random" in capsys.readouterr().out


def test_F06_with_nothing_legal_the_error_has_both_numbers() -> None:
    choices = {"unroll": range(2, 2000), "pad_a": range(50)}
    base = gemmgen.parse(STAGED.replace("16x16x8", "16x16x1"))
    with pytest.raises(TuneError, match=f"{MOST} combinations, drawn at random from {1998 * 50}"):
        gemmgen.tune(base, 64, 64, 64, choices=choices, device="sim", records=False)


def test_F06_what_is_drawn_is_the_same_every_time_and_all_of_a_small_space() -> None:
    base = gemmgen.parse(STAGED)
    small = space([base], {"pad_a": range(20), "pad_b": range(20)})
    assert (small.combinations, small.possible, len(small.candidates)) == (400, 400, 400)
    large = [space([base, base.replace(name="other")], {"pad_a": range(60), "pad_b": range(60)}) for _ in range(2)]
    assert large[0] == large[1] and (large[0].combinations, large[0].possible) == (MOST, 7200)


# --- F07: texts with thousands of errors ------------------------------------------------------------------------------

HEAD = "kernel x\ntile block 16x16x8\n"
WRONG = {
    "one line again": "q\n" * 32000,
    "other lines": "".join(f"q{i}\n" for i in range(9000)),
    "half a setting": "".join(f"tile {i}\n" for i in range(6000)),
    "no grammar": "(\n" * 32000,
    "control characters": "\x01\n" * 30000,
    "given twice": "kernel x\n" * 7000,
    "toggles": f"{HEAD}use {', '.join(f'a{i}' for i in range(3000))}\n",
    "toggles twice": f"{HEAD}use {', '.join(['smem'] * 3000)}\n",
    "options": f"{HEAD}use warptile({', '.join(f'b{i}=1' for i in range(3000))})\n",
    "operands": f"{HEAD}operands {', '.join(f'b{i}' for i in range(3000))}\n",
    "choices": f"{HEAD}tune pad_a in {{{', '.join(f'b{i}' for i in range(3000))}}}\n",
    "choices out of range": f"{HEAD}tune stages in {{{', '.join(str(i) for i in range(3000))}}}\n",
    "choices twice": f"{HEAD}tune pad_a in {{{', '.join(['1'] * 3000)}}}\n",
    "tune lines": HEAD + "".join(f"tune q{i} in {{1}}\n" for i in range(3000)),
}


@pytest.mark.parametrize("kind", WRONG)
def test_F07_thousands_of_errors_are_reported_at_once(kind: str) -> None:
    with pytest.raises(SpecError):
        gemmgen.parse("q\n")  # the grammar is read once
    with at_most(calls=500_000), pytest.raises(SpecError) as raised:
        gemmgen.parse(WRONG[kind])
    text = str(raised.value)
    assert len(raised.value.errors) <= MAX_PROBLEMS and len(text) < 10_000
    if len(raised.value.errors) > 20:
        assert f"and {MAX_PROBLEMS - 20} more errors" in text


@pytest.mark.parametrize("count", [1000, 4000, 30000])
def test_F07_nor_do_long_lines_take_long(count: int) -> None:
    text = f"{HEAD}tune pad_a in {{{', '.join(['1'] * count)}}}\n"
    with at_most(calls=500_000), pytest.raises(SpecError) as raised:
        gemmgen.parse(text[: 64 * 1024])
    assert ("over the limit of 4096" in raised.value.message) == (count > 4096)


def test_F07_the_report_says_where_reading_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.gemm"
    path.write_text("q\n" * 32000)
    assert run(["check", str(path), "--json"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.endswith("reading stopped at line 201 of 32001, after 200 errors: 31800 more lines are not read")
