"""Tables fit the terminal: no command prints a line that is longer than it is wide, and nothing is lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tunehelp import SPACE, FakeBackend

from gemmgen.cli import run
from gemmgen.report.ladder import RUNGS
from gemmgen.text.table import format_table
from gemmgen.text.wrap import columns, folded, wrapped
from gemmgen.tune import tuning

WIDTHS = (80, 100)
COMMANDS = (
    ["ladder", "--size", "64"],
    ["explain", "warptile"],
    ["explain", "skinny", "--size", "16x4096x4096"],
    ["ablate", "cpasync", "--size", "128"],
    ["diff", "regblock2d", "vectorized"],
    ["diff", "tma", "pipelined", "--size", "1024"],
    ["gpus"],
    ["gpus", "h200"],
    ["banks", "vectorized"],
    ["banks", "--pattern", "lane*8", "--bytes", "16"],
)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_line_is_longer_than_the_terminal_is_wide(
    command: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(capsys, *command).splitlines()
    assert len(lines) > 5 and max(map(len, lines)) <= width, max(lines, key=len)


@pytest.mark.parametrize("width", WIDTHS)
def test_records_fit_too(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("GEMMGEN_RECORDS", str(tmp_path / "records.sqlite"))
    backend = FakeBackend()
    monkeypatch.setattr(tuning, "_gpu_backend", lambda: backend)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tried.gemm").write_text(SPACE.split("tune")[0], encoding="utf-8")
    found = printed(capsys, "tune", "tried.gemm", "--set", "stages=1,2", "--set", "pad_a=0,4", "--size", "1024")
    table, _, spec = found.rpartition("\n\n")
    assert spec.startswith("kernel tried\n")  # the winner is printed as its file has it
    for out in (table, printed(capsys, "tune", "--show")):
        assert "1024x1024x1024" in out and max(map(len, out.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160, 400])
def test_a_table_keeps_every_word_at_any_width(width: int) -> None:
    headers = ["#", "kernel", "global sectors", "bytes used", "bottleneck fixed", "new bottleneck"]
    rows = [[i, rung.spec, 10**i, "100%", rung.fixes, rung.leaves] for i, rung in enumerate(RUNGS)]
    table = format_table(headers, rows, width=width, keys=2)
    assert max(map(len, table.splitlines())) <= width
    words = table.split()
    for row in rows:
        assert all(word in words for cell in row[3:] for word in str(cell).split())
        assert f"{row[2]:,}" in words and str(row[1]) in words


def test_a_table_that_fits_is_left_as_it_is() -> None:
    text = "name  count\n----  -----\na         1\nb     1,000"
    assert format_table(["name", "count"], [["a", 1], ["b", 1000]], width=80) == text
    assert format_table(["name", "count"], [["a", 1], ["b", 1000]], "  ", 80) == "  " + text.replace("\n", "\n  ")


def test_columns_that_do_not_fit_follow_in_a_second_table_with_the_key() -> None:
    table = format_table(["key", "one", "two"], [["a", "x" * 20, "y" * 20], ["b", None, "z"]], width=40)
    first, second = table.split("\n\n")
    assert first.splitlines()[0].split() == ["key", "one"] and second.splitlines()[0].split() == ["key", "two"]
    assert [line.split()[0] for line in second.splitlines()[2:]] == ["a", "b"]


def test_the_width_is_that_of_columns_or_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    assert columns() == 132 and max(map(len, wrapped("word " * 60).splitlines())) <= 100
    monkeypatch.delenv("COLUMNS")
    assert columns() >= 40


def test_long_lines_of_code_break_at_spaces_and_keep_every_word() -> None:
    line = "    float value = " + " + ".join(f"term{i}" for i in range(30)) + ";"
    parts = folded(line, 60, "        ").splitlines()
    assert max(map(len, parts)) <= 60 and parts[0].startswith("    float value") and parts[1].startswith("        ")
    assert " ".join(line.split()) == " ".join(" ".join(parts).split())
