"""Completion of settings and toggles, from the table of the language."""

from __future__ import annotations

import re

from gemmgen.ir.types import ELEMENT_TYPES
from gemmgen.spec.model import SETTINGS, TOGGLES

MOST = 12
WORD = re.compile(r"\w*$")


def edited(before: str, after: str) -> int:
    """Where the last edit ended in the text after it."""
    shorter = min(len(before), len(after))
    end = next((i for i in range(shorter) if before[-1 - i] != after[-1 - i]), shorter)
    first = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    return max(len(after) - end, first if len(after) > len(before) else 0)


def completions(text: str, at: int) -> list[str]:
    """Words that complete the one that ends at ``at``, by the line that it stands in; those already there left out."""
    line = text[text.rfind("\n", 0, at) + 1 : at].partition("#")[0]
    if "#" in text[text.rfind("\n", 0, at) + 1 : at]:
        return []
    found = WORD.search(line)
    word = found[0] if found else ""
    rest = line[: len(line) - len(word)]
    return [name for name in _known(rest, text) if name.startswith(word) and name != word][:MOST]


def _known(before: str, text: str) -> list[str]:
    head = before.split()
    if not head:
        starts = [s.name for s in SETTINGS]
        return [name for name in starts if not re.search(rf"^{re.escape(name)}\b", text, re.MULTILINE)]
    match head[0]:
        case "use":
            there = set(re.findall(r"\w+", " ".join(re.findall(r"^use(.*)$", text, re.MULTILINE))))
            return [t.name for t in TOGGLES if t.name not in there]
        case "tile" if len(head) == 1:
            return ["block", "warp", "thread"]
        case "operands":
            return [*ELEMENT_TYPES, "row", "col", "accumulate"]
        case name:
            row = next((s for s in SETTINGS if s.name == name), None)
            return [str(c) for c in row.choices] if row and len(head) == 1 else []


def completed(text: str, at: int, word: str) -> str:
    """The text with the word at ``at`` completed."""
    found = WORD.search(text[:at])
    start = found.start() if found else at
    return text[:start] + word + text[at:]
