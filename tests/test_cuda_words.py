"""The words of the CUDA: each is explained where a reader first meets it, and in docs/cuda_words.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen.cuda.first import FIRST

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
