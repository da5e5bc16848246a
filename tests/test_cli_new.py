"""``gemmgen new`` and ``gemmgen settings``, and what a shell completes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.spec.assign import NAMES, assigned
from gemmgen.spec.ladder import LADDER


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
