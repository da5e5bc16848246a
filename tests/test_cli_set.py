"""``--set NAME=VALUE``, stdin and pipes: what a command takes for a spec."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.cli.app import WITH_SET, app
from gemmgen.spec.ladder import ladder_path

NAIVE = ladder_path("naive").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def on_stdin(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


# --- --set --------------------------------------------------------------------------------------------------------


COMMANDS = [info.name for info in app.registered_commands if info.name]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_lists_the_commands_that_have_set(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert bool(re.search("^ +--set NAME=", capsys.readouterr().out, re.MULTILINE)) == (command in WITH_SET)
    assert run(["--help"]) == 0
    told = re.search(r"changes a setting of the spec in (.*?);", " ".join(capsys.readouterr().out.split()))
    assert told and tuple(told[1].replace(" and ", ", ").split(", ")) == WITH_SET


@pytest.mark.parametrize("command", [["run", "--device", "sim", "--size", "64"], ["compile"]])
def test_a_changed_spec_does_not_replace_the_files_of_the_spec_as_written(command: list[str], tmp_path: Path) -> None:
    first, *options = command
    assert run([first, "vectorized", *options]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.cu")}
    assert run([first, "vectorized", "--set", "float4=off", "--set", "A=f32 row", *options]) == 0
    assert {path: path.read_bytes() for path in before} == before
    new = {path.name for path in tmp_path.rglob("*.cu")} - {path.name for path in before}
    assert new == {"vectorized_float4_off_A_f32_row.cu", "vectorized_float4_off_A_f32_row_guarded.cu"}


def test_the_changed_spec_is_the_one_that_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["--set", "block=64x128x16", "--set", "warp=32x64", "--set", "float4=off"]
    assert run(["compile", "warptile", *changes, "-o", "-"]) == 0
    out = capsys.readouterr().out
    spec = gemmgen.load("warptile")
    wanted = spec.replace(block=(64, 128, 16), warp=(32, 64), use=spec.use - {"float4"})
    made = "// Made by: gemmgen compile specs/warptile.gemm --set block=64x128x16 --set warp=32x64 --set float4=off"
    code = [line for line in out.splitlines() if not line.startswith("//")]
    assert code == [line for line in gemmgen.emit(wanted).splitlines() if not line.startswith("//")]
    assert made in out.replace("\n// ", " ") or "--set float4=off" in out


def test_several_specs_are_all_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "regblock2d", "vectorized", "--set", "block=128x64x16", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["block"] for row in rows] == [[128, 64, 16]] * 2


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("thread=7x4", "warptile.gemm --set thread=7x4: error: "),
        ("stages=9", "warptile.gemm --set stages=9: error: "),
        ("stagse=2", "--set 'stagse=2': unknown setting 'stagse'; did you mean 'stages'?"),
        ("stages=1,2", "`gemmgen tune` takes several"),
        ("use=float4", "name the toggle itself, like --set float4=on"),
        ("block=512x512x128", "warptile.gemm --set block=512x512x128: error: "),
    ],
)
def test_a_mistake_names_the_setting(setting: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "warptile", "--set", setting]) == 2
    captured = capsys.readouterr()
    assert says in captured.err and captured.out == ""


def test_run_shows_the_variant_and_a_changed_spec_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    exact = ["run", "vectorized", "--set", "block=64x64x8", "--device", "sim", "--size", "64x128x16"]
    assert run(exact) == 0
    out = capsys.readouterr().out
    assert "the exact variant" in out and "PASS" in out
    assert run([*exact[:-1], "65x127x17"]) == 0
    assert "variant" in capsys.readouterr().out


def test_diff_of_one_spec_compares_it_with_itself_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "vectorized", "--set", "thread=4x8", "--size", "256"]) == 0
    assert "tile thread: 8x8 -> 4x8" in capsys.readouterr().out
    assert run(["diff", "vectorized"]) == 2
    assert "name a second spec" in capsys.readouterr().err


def test_banks_draws_the_changed_spec_and_refuses_settings_of_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["banks", "vectorized", "--set", "pad_a=4", "--access", "1", "--json"]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert run(["banks", "vectorized", "--access", "1", "--json"]) == 0
    assert changed != json.loads(capsys.readouterr().out)
    assert run(["banks", "--pattern", "lane", "--set", "pad_a=4"]) == 2
    assert "--set changes a spec" in capsys.readouterr().err


def test_tune_varies_what_it_can_and_sets_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "vectorized", "--model", "--size", "256", "--set", "stages=1,2", "--json"]
    assert run([*command, "--set", "C=col"]) == 0
    assert "operands A f32 row, B f32 row, C f32 col" in json.loads(capsys.readouterr().out)["best"]["spec"]
    assert run(["tune", "--model", "--set", "C=col"]) == 2
    assert "none is named" in capsys.readouterr().err


# --- Where a spec is read from ------------------------------------------------------------------------------------


def test_a_spec_is_read_from_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    on_stdin(NAIVE, monkeypatch)
    assert run(["check", "-", "--set", "block=16x16"]) == 0
    assert capsys.readouterr().out == "<stdin>: naive: OK, block 16x16, 256 threads\n"
    on_stdin(NAIVE, monkeypatch)
    assert run(["compile", "-", "vectorized", "-o", "-"]) == 0
    assert "naive(" in capsys.readouterr().out


def test_mistakes_on_stdin_have_their_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_stdin("kernel a\ntile block 0x8\n", monkeypatch)
    assert run(["compile", "-", "-o", "-"]) == 2
    assert "<stdin>:2:12: error: " in capsys.readouterr().err
    assert run(["compile", "-", "-"]) == 2
    assert "stdin holds one spec" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_spec_is_read_from_a_pipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(NAIVE))
    writer.start()
    assert run(["check", str(pipe)]) == 0
    writer.join()
    assert "naive: OK" in capsys.readouterr().out


def test_specs_pass_from_command_to_command() -> None:
    """``gemmgen new ... | gemmgen check -``, as in a shell."""
    python = [sys.executable, "-m", "gemmgen"]
    made = subprocess.run([*python, "new", "mine", "-o", "-"], capture_output=True, check=True).stdout
    done = subprocess.run([*python, "check", "-"], input=made, capture_output=True, check=True).stdout
    assert done.startswith(b"<stdin>: mine: OK")


def test_python_loads_a_rung_by_name_too() -> None:
    assert gemmgen.load("warptile") == gemmgen.load(ladder_path("warptile"))
    with pytest.raises(gemmgen.SpecError, match="did you mean 'warptile'"):
        gemmgen.load("warptil")
