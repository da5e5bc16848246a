"""README and docs are held to the project: excerpts, tables, links, and every command in them."""

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
from gemmgen.spec.ladder import LADDER

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = r"\n```(?P<language>\w*)\n(?P<body>.*?)```\n"
EXCERPT = re.compile(
    r'<!-- excerpt: (?P<file>\S+)(?: from "(?P<start>[^"]+)" to "(?P<end>[^"]+)")? -->' + BLOCK, re.DOTALL
)
SETTINGS = re.compile(r"(?P<open><!-- settings -->\n).*?(?P<close>\n<!-- end of settings -->)", re.DOTALL)
WORDS = re.compile(r"(?P<open><!-- words -->\n).*?(?P<close>\n<!-- end of words -->)", re.DOTALL)
MEASURED = re.compile(r"(?P<open><!-- measured: (?P<file>\S+) -->\n).*?(?P<close><!-- end of measured -->)", re.DOTALL)


def text(page: Path = README) -> str:
    return page.read_text(encoding="utf-8")


def marked(mark: str) -> list[str]:
    """The bodies of the code blocks that follow ``<!-- mark -->``, in all pages."""
    found = re.compile(f"<!-- {re.escape(mark)} -->{BLOCK}", re.DOTALL)
    return [m["body"] for page in PAGES for m in found.finditer(text(page))]


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
    return f"{match['open']}\n{tables}\n\n{match['close']}"


def expected(page: Path) -> str:
    """A page with every excerpt and table made anew."""
    made = MEASURED.sub(measured, EXCERPT.sub(excerpt, text(page)))
    made = WORDS.sub(lambda m: f"{m['open']}\n{words_markdown()}\n{m['close']}", made)
    return SETTINGS.sub(lambda m: m["open"] + "\n" + settings_markdown() + "\n" + m["close"], made)


def test_the_pages_have_their_excerpts_and_tables() -> None:
    every = "".join(map(text, PAGES))
    assert len(EXCERPT.findall(every)) >= 2
    assert all(marks.search(every) for marks in (SETTINGS, WORDS, MEASURED))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_excerpts_and_tables_are_current(page: Path, refresh: bool) -> None:
    made = expected(page)
    if refresh:
        page.write_text(made, encoding="utf-8")
    assert text(page) == made, f"{page.name} has drifted; pytest tests/test_readme.py --refresh writes it anew"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text(page))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_the_table_of_kernels_names_every_rung() -> None:
    """Each rung of the ladder stands beside the worklog's kernel that it corresponds to, or beside none."""
    table = text()[text().index("| worklog kernel |") :]
    named = set(re.findall(r"`(\w+)`", table[: table.index("\n\n")]))
    assert set(LADDER) <= named


def written() -> list[list[str]]:
    """Every gemmgen command in a shell block of a page, comments left out."""
    blocks = [m["body"] for page in PAGES for m in re.finditer(BLOCK, text(page), re.DOTALL) if m["language"] == "sh"]
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("gemmgen ")]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("command", written(), ids=" ".join)
def test_every_command_has_options_that_exist(command: list[str]) -> None:
    """Also those that need a GPU: they are parsed, and answered with their help."""
    assert run_command([*command[1:], "--help"]) == 0
    assert run_command([*command[1:], "--no-such-option", "--help"]) == 2


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
    assert "registers" in out and "PASS:" in out
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
