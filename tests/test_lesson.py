"""examples/lesson.md is true: every command and program in it runs, and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmgen.cli import run

ROOT = Path(__file__).resolve().parent.parent
LESSON = ROOT / "examples" / "lesson.md"

FLEXIBLE = {"…": ".*", "  ": " +", "--": "-+"}

FENCE = re.compile(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return [(m["kind"], m["body"]) for m in FENCE.finditer(LESSON.read_text(encoding="utf-8"))]


def commands() -> Iterator[tuple[str, str]]:
    """Each command of the console blocks, and what is said to come of it."""
    for kind, body in blocks():
        if kind == "console":
            assert body.startswith("$ ")
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, said = part.partition("\n")
                yield command, said


def programs() -> list[tuple[str, str]]:
    """Each Python block, and the output block after it."""
    found = blocks()
    return [
        (body, found[i + 1][1])
        for i, (kind, body) in enumerate(found)
        if kind == "python" and i + 1 < len(found) and found[i + 1][0] == "output"
    ]


def pattern(said: str) -> str:
    """A regular expression for an output in which ``...`` leaves out lines, and ``…`` part of one. Columns may be of
    another width, as a name elsewhere in the table makes them."""
    lines = said.rstrip("\n").split("\n")
    return "".join(r"(?:[^\n]*\n)*?" if line == "..." else f"{_line(line)}[ ]*\n" for line in lines)


def _line(line: str) -> str:
    parts = re.split("(…|  +|---+)", line)
    return "".join(FLEXIBLE.get(part[:2], re.escape(part)) for part in parts)


def check(said: str, printed: str) -> None:
    assert re.fullmatch(pattern(said), printed), f"said:\n{said}\nprinted:\n{printed}"


def test_there_is_enough() -> None:
    assert len(list(commands())) >= 9 and len(programs()) >= 4
    assert sum(kind == "python" for kind, _ in blocks()) == len(programs())


@pytest.mark.parametrize(("command", "said"), list(commands()), ids=[command for command, _ in commands()])
def test_command(command: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    assert program == "gemmgen" and run(arguments) == 0
    check(said, capsys.readouterr().out)


@pytest.mark.parametrize(("program", "said"), programs(), ids=range(len(programs())))
def test_program(program: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, str(LESSON), "exec"), {"__name__": "lesson"})
    check(said, printed.getvalue())


def test_the_comparison_sees_a_difference() -> None:
    with pytest.raises(AssertionError):
        check("a 1\n...\nc\n", "a 2\nb\nc\n")
    with pytest.raises(AssertionError):
        check("a\n", "a\nb\n")
    check("a …\n...\nc\n", "a 2\nb\nb\nc\n")
    check("a  b\n---  --\n", "a     b\n------  --\n")
