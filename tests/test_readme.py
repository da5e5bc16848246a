"""The README is held to the project: excerpts, the table of settings, and every command in it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmgen.cli import run as run_command
from gemmgen.report.measured import measured_markdown
from gemmgen.report.page.glossary import words_markdown
from gemmgen.report.settings import settings_markdown

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = r"\n```(?P<language>\w*)\n(?P<body>.*?)```\n"
EXCERPT = re.compile(
    r'<!-- excerpt: (?P<file>\S+)(?: from "(?P<start>[^"]+)" to "(?P<end>[^"]+)")? -->' + BLOCK, re.DOTALL
)
SETTINGS = re.compile(r"(?P<open><!-- settings -->\n).*?(?P<close>\n<!-- end of settings -->)", re.DOTALL)
WORDS = re.compile(r"(?P<open><!-- words -->\n).*?(?P<close>\n<!-- end of words -->)", re.DOTALL)
MEASURED = re.compile(r"(?P<open><!-- measured: (?P<file>\S+) -->\n).*?(?P<close><!-- end of measured -->)", re.DOTALL)


def text() -> str:
    return README.read_text(encoding="utf-8")


def marked(mark: str) -> list[str]:
    """The bodies of the code blocks that follow ``<!-- mark -->``."""
    return [m["body"] for m in re.finditer(f"<!-- {re.escape(mark)} -->{BLOCK}", text(), re.DOTALL)]


def excerpt(match: re.Match[str]) -> str:
    """An excerpt as it should be: the file, or its lines from one to before another, without their indentation."""
    lines = (ROOT / match["file"]).read_text(encoding="utf-8").splitlines()
    if match["start"]:
        first = next(i for i, line in enumerate(lines) if match["start"] in line)
        last = next(i for i, line in enumerate(lines) if match["end"] in line)
        lines = [line.removeprefix("    ") for line in lines[first:last]]
    body = "\n".join(lines).strip("\n")
    return match[0][: match.start("body") - match.start()] + body + "\n```\n"


def measured(match: re.Match[str]) -> str:
    """The figures of a recorded run; nothing where none is recorded."""
    path = ROOT / match["file"]
    if not path.is_file():
        return match["open"] + match["close"]
    tables = measured_markdown(json.loads(path.read_text(encoding="utf-8")))
    heading = "## Measured\n\n" if match["file"].endswith("ladder.json") else ""
    return f"{match['open']}\n{heading}{tables}\n\n{match['close']}"


def expected() -> str:
    """The README with every excerpt and table made anew."""
    made = MEASURED.sub(measured, EXCERPT.sub(excerpt, text()))
    made = WORDS.sub(lambda m: f"{m['open']}\n{words_markdown()}\n{m['close']}", made)
    return SETTINGS.sub(lambda m: m["open"] + "\n" + settings_markdown() + "\n" + m["close"], made)


def test_excerpts_and_settings_are_current(refresh: bool) -> None:
    assert len(EXCERPT.findall(text())) >= 2
    assert all(marks.search(text()) for marks in (SETTINGS, WORDS, MEASURED))
    if refresh:
        README.write_text(expected(), encoding="utf-8")
    assert text() == expected(), "README.md has drifted; pytest tests/test_readme.py --refresh writes it anew"


def commands(mark: str) -> list[list[str]]:
    return [shlex.split(line) for block in marked(mark) for line in block.splitlines() if line.strip()]


def test_there_is_a_tour() -> None:
    assert len(commands("tour")) >= 5
    assert all(command[0] == "gemmgen" for command in commands("tour"))


@pytest.mark.parametrize("command", commands("tour"), ids=" ".join)
def test_tour(command: list[str], tmp_path: Path, in_checkout: Callable[[Path], None]) -> None:
    in_checkout(tmp_path)
    assert run_command(command[1:]) == 0


def test_command_1_runs_a_spec_to_a_checked_result(
    tmp_path: Path, in_checkout: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The part of it after the set-up; the whole is run by .ci/run in a fresh environment."""
    [command] = marked("command: run")
    program, *arguments = shlex.split(command.split("&&")[-1])
    assert Path(program).name == "gemmgen"
    in_checkout(tmp_path)
    assert run_command(arguments) == 0
    out = capsys.readouterr().out
    assert "registers" in out and "right:" in out
    assert (tmp_path / "generated" / "warptile.cu").is_file()


def test_command_2_runs_these_tests() -> None:
    [command] = marked("command: test")
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install")
    assert "-m pytest" in command and "[test]" in command


def test_the_set_ups_make_the_same_environment_again() -> None:
    """Both commands are one line, and may be given twice."""
    for mark in ("command: run", "command: test"):
        [command] = marked(mark)
        assert command.count("\n") == 1


def test_python_in_the_readme_runs() -> None:
    blocks = marked("python")
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a folder look like a checkout's top to a command, so that what it writes stays out of the real one."""

    def enter(folder: Path) -> None:
        (folder / "specs").symlink_to(ROOT / "specs")
        monkeypatch.chdir(folder)

    return enter
