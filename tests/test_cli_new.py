"""``gemmgen new`` and ``gemmgen settings``, and what a shell completes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.spec.assign import NAMES, assigned
from gemmgen.spec.ladder import LADDER
from gemmgen.spec.model import TOGGLES


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


# --- new ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", LADDER)
def test_a_new_spec_is_its_rung_under_another_name(rung: str, here: Path) -> None:
    assert run(["new", "mine", "--from", rung]) == 0
    assert gemmgen.load(here / "mine.gemm") == gemmgen.load(rung).replace(name="mine")


def test_a_new_spec_keeps_the_comments_of_its_rung(here: Path) -> None:
    assert run(["new", "mine", "--from", "cpasync"]) == 0
    text = (here / "mine.gemm").read_text(encoding="utf-8")
    assert text.startswith("# A copy of cpasync:\n") and "stages 3    " in text and "  # " in text


def test_a_new_spec_can_be_changed_at_once(here: Path) -> None:
    assert run(["new", "mine", "--from", "vectorized", "--set", "thread=4x8", "-o", "a/b.gemm"]) == 0
    assert gemmgen.load(here / "a" / "b.gemm") == gemmgen.load("vectorized").replace(name="mine", thread=(4, 8))


def test_a_file_is_replaced_only_by_force(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.gemm").write_text("# kept\n", encoding="utf-8")
    assert run(["new", "mine"]) == 2
    assert "mine.gemm exists; add --force" in capsys.readouterr().err
    assert (here / "mine.gemm").read_text(encoding="utf-8") == "# kept\n"
    assert run(["new", "mine", "--force"]) == 0
    assert gemmgen.load(here / "mine.gemm").name == "mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["new", "9a"], "not an identifier"),
        (["new", "for"], "for"),
        (["new", "mine", "--from", "warptil"], "did you mean warptile?"),
        (["new", "mine", "--set", "stages=99"], "mine.gemm --set stages=99: error: "),
        (["new", "mine", "-o", ""], "--output is empty"),
    ],
)
def test_mistakes_write_nothing(
    arguments: list[str], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert says in capsys.readouterr().err
    assert list(here.iterdir()) == []


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_lists_everything_that_set_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} == set(NAMES)
    assert all(row["meaning"] and row["default"] and row["values"] for row in rows)
    assert run(["settings"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{name} " in out for name in NAMES)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_each_setting_has_a_sheet_whose_example_reads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The example may be illegal for a spec; it is never one that cannot be read."""
    assert run(["settings", name]) == 0
    example = next(line for line in capsys.readouterr().out.splitlines() if "--set" in line).split("--set ")[1]
    [example] = shlex.split(example)
    try:
        assigned(gemmgen.load("warptile"), [example])
    except gemmgen.SpecError as error:
        assert not any(said in str(error) for said in ("unknown setting", "is not NAME=VALUE", "write it like"))


def test_an_unknown_setting_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "stage"]) == 2
    assert "did you mean 'stages'?" in capsys.readouterr().err


# --- Completion ---------------------------------------------------------------------------------------------------


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What fish is told for the last word of a command line."""
    monkeypatch.setenv("_GEMMGEN_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert run([]) == 0
    return [found.split("\t")[0] for found in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("gemmgen expl", ["explain"]),
        ("gemmgen run warp", ["warptile"]),
        ("gemmgen check mi", ["mine.gemm"]),
        ("gemmgen explain warptile --set sta", ["stages=", "stageC="]),
        ("gemmgen explain warptile --set float4=o", ["float4=on", "float4=off"]),
        ("gemmgen explain warptile --gpu h1", ["h100"]),
        ("gemmgen new mine --from splitk", ["splitk"]),
    ],
)
def test_a_shell_completes(
    line: str, holds: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.gemm").write_text("", encoding="utf-8")
    assert completed(line, monkeypatch, capsys) == holds


def test_completion_is_shown_for_a_shell(here: Path) -> None:
    """Of the shell that is named: which one runs the tests does not matter."""
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(here)}
    command = [sys.executable, "-m", "gemmgen", "--show-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **named})
    assert "_GEMMGEN_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("word", "names"),
    [("operands", ["A", "B", "C", "accumulate"]), ("tile", ["block", "warp", "thread"]), ("kernel", ["name"])],
)
def test_the_first_word_of_a_line_shows_what_the_line_gives(
    word: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["settings", word]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\w+): ", out, re.MULTILINE) == names
    assert run(["settings", "use", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == {t.name for t in TOGGLES}


def test_every_way_to_multiply_and_every_entry_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    from gemmgen.isa.epilogue import ROWS
    from gemmgen.isa.math import NAMES as WAYS

    assert run(["settings", "math"]) == 0
    out = capsys.readouterr().out
    forms = {re.sub(r"(wgmma 64x)[0-9]+", r"\1N", name) for name in WAYS}
    assert len(forms) > 5 and all(f"\n  {form} " in out for form in forms)
    assert run(["settings", "epilogue"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name}" in out for name in ROWS)


def test_every_set_of_help_and_docs_is_one_word_of_a_shell() -> None:
    """``--set roles=producer 1, consumers 2`` would be three."""
    root = Path(gemmgen.__file__).parent.parent
    for path in (root / "README.md", *root.glob("docs/*.md"), *root.glob("gemmgen/cli/*.py"), *root.glob("examples/*")):
        for line in path.read_text().splitlines() if path.is_file() else ():
            for found in re.findall(r"--set (?!NAME)(\S+(?: [^-`\n]*)?)", line):
                name, equals, rest = found.partition("=")
                if equals and not found.startswith(("'", '"', "{")):
                    assert name not in ("roles", "math", "epilogue"), f"{path.name}: {line.strip()}"
                    assert not (name in ("A", "B", "C") and re.match(r"\S+ (row|col)", rest)), f"{path.name}: {line}"


@pytest.mark.parametrize(
    ("settings", "kept", "gone"),
    [
        (["stages=2"], ["# BM x BN x BK", "# WM x WN", "# unroll half", "# for three blocks per SM"], ["Rung 6"]),
        (["block=128x256x16"], ["256x16", "# BM x BN x BK", "# WM x WN"], ["half of the steps", "three blocks"]),
        (["min_blocks=2"], ["# unroll half of the steps", "# TM x TN"], ["for three blocks"]),
        (["float4=off"], ["# TM x TN"], ["half of the steps", "three blocks", "Rung 6"]),
    ],
)
def test_a_changed_copy_keeps_the_comments_that_still_hold(
    settings: list[str], kept: list[str], gone: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [part for setting in settings for part in ("--set", setting)]
    assert run(["new", "mine", "--from", "warptile", *changes, "-o", "-"]) == 0
    text = capsys.readouterr().out
    assert [x for x in kept if x not in text] == [] and [x for x in gone if x in text] == []
    assert assigned(gemmgen.load("warptile"), settings).replace(name="mine") == gemmgen.parse(text)
