"""The words of the CUDA: each is explained where a reader first meets it, and in docs/cuda_words.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmgen.cuda.first import FIRST
from gemmgen.report.ladder import LADDERS
from gemmgen.spec.ladder import EXAMPLES

ROOT = Path(__file__).resolve().parent.parent
TEXTS = sorted((ROOT / "generated").glob("*.cu"))
SIGNATURE = ("__launch_bounds__", "__grid_constant__")


def code(line: str) -> str:
    return line.partition("//")[0].rstrip()


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.stem)
def test_a_word_is_explained_above_its_first_use_and_nowhere_else(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line == "{" and lines[i - 1].endswith(")"))
    comments = [(i, line.strip()) for i, line in enumerate(lines) if line.strip().startswith("//")]
    for word, said in FIRST:
        used = [
            i
            for i, line in enumerate(lines)
            if i > start and f"{code(line).lstrip().removeprefix('__shared__ ')}\n".startswith(word)
        ]
        told = [i for i, line in comments if line.startswith(f"// {said[:30]}")]
        assert len(told) == bool(used), (word, told)
        if used:
            between = [line.strip() for line in lines[told[0] : used[0]]]
            assert all(line.startswith("//") for line in between)
    signature = " ".join(line[3:] for _, line in comments[: next(i for i, c in enumerate(comments) if c[0] > start)])
    head = " ".join(map(code, lines[: start + 1]))
    assert [f"{word}:" in signature for word in SIGNATURE] == [word in head for word in SIGNATURE]


# --- docs/cuda_words.md -----------------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "cuda_words.md"
RUNGS = [*(rung.spec for rungs in LADDERS.values() for rung in rungs), *EXAMPLES]
"""And the examples behind them."""
PTX = re.compile(r"^(?:[a-z_%=]+: )?(?:@!?\w+ )?([a-z]\w*(?:\.[\w:]+)+|bra)\b")
"""An instruction at the start of a line of PTX, behind its label and predicate."""


def rows() -> list[tuple[list[str], str]]:
    """The words of each row of the page, with the rung that it names."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if cells := re.match(r"\| (`.*?) \| .* \| `(\w+)` \|$", line):
            found.append((re.findall(r"`([^`]+)`", cells[1]), cells[2]))
    return found


def uncommented(path: Path) -> str:
    return "\n".join(code(line) for line in path.read_text(encoding="utf-8").splitlines())


def instructions(text: str) -> set[str]:
    """The mnemonics of all inline PTX."""
    found = set()
    for asm in re.findall(r"asm volatile\((.*?)\);\n", text, re.DOTALL):
        for string in re.findall(r'"((?:[^"\\]|\\.)*)"', asm):
            for part in re.split(r"\\n|;|\{|\}", string):
                if match := PTX.match(part.strip()):
                    found.add(match[1])
    return found


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.stem)
def test_every_instruction_and_builtin_has_an_entry(path: Path) -> None:
    text, words = uncommented(path), [word for of_row, _ in rows() for word in of_row]
    used = instructions(text) | set(re.findall(r"\b__[a-z]\w+", text))
    assert used
    assert [x for x in sorted(used) if not any(x.startswith(word) for word in words)] == []


@pytest.mark.parametrize(("words", "rung"), rows(), ids=lambda x: x if isinstance(x, str) else x[0])
def test_an_entry_names_the_first_rung_of_the_ladders_that_has_it(words: list[str], rung: str) -> None:
    starts = r"(?<![\w.])" + re.escape(words[0])
    has = [name for name in RUNGS if re.search(starts, uncommented(ROOT / "generated" / f"{name}.cu"))]
    assert has and has[0] == rung


def test_the_page_is_linked_from_the_readme() -> None:
    assert "(docs/cuda_words.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
