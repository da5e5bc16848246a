"""Differences of texts for a terminal: line under line, or side by side."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from gemmgen.report.colour import Style, paint

CONTEXT = 2
NARROWEST = 40
MARKS: dict[str, Style] = {"+": "green", "-": "red", "@": "blue"}


def unified(a: str, b: str, names: tuple[str, str], colour: bool) -> str:
    """Lines that differ, one under the other, with the lines around them; empty where the texts are equal."""
    lines = difflib.unified_diff(a.splitlines(), b.splitlines(), *names, lineterm="", n=CONTEXT)
    return "\n".join(_marked(line, colour) for line in lines)


def _marked(line: str, colour: bool) -> str:
    style = MARKS.get(line[:1])
    return paint(line, style, colour) if style else line


def side_by_side(a: str, b: str, names: tuple[str, str], width: int, colour: bool) -> str:
    """Lines that differ beside one another, ``width`` columns in all, with the lines around them.

    Between the two stands ``|`` where a line was changed, ``<`` or ``>`` where only one side has it. Empty where the
    texts are equal.
    """
    left, right = a.splitlines(), b.splitlines()
    each = max(NARROWEST, (width - 3) // 2)
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    out: list[str] = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        _, first, _, second, _ = group[0]
        title = f"{names[0]} from line {first + 1}"
        out.append(paint(f"{title:<{each}}   {names[1]} from line {second + 1}", "blue", colour))
        for tag, i1, i2, j1, j2 in group:
            out.extend(_rows(tag, left[i1:i2], right[j1:j2], each, colour))
    return "\n".join(line.rstrip() for line in out)


def _rows(tag: str, left: Sequence[str], right: Sequence[str], each: int, colour: bool) -> Iterator[str]:
    for i in range(max(len(left), len(right))):
        one, two = (side[i] if i < len(side) else None for side in (left, right))
        mark = " " if tag == "equal" else "<" if two is None else ">" if one is None else "|"
        for n, (x, y) in enumerate(zip(_folded(one, each), _folded(two, each), strict=False)):
            if x is None and y is None:
                break
            styled = (
                (x or "", y or "") if tag == "equal" else (_painted(x, "red", colour), _painted(y, "green", colour))
            )
            pad = " " * (each - len(x or ""))
            yield f"{styled[0]}{pad} {mark if n == 0 else ' '} {styled[1]}"


def _painted(text: str | None, style: Style, colour: bool) -> str:
    return paint(text, style, colour) if text else ""


def _folded(line: str | None, width: int) -> Iterator[str | None]:
    """A line in pieces of a width, then None for ever."""
    if line is not None:
        yield line[:width]
        for start in range(width, len(line), width - 4):
            yield "    " + line[start : start + width - 4]
    while True:
        yield None


def body(cuda: str) -> str:
    """CUDA text without the comment at its head, which repeats the spec."""
    lines = cuda.splitlines()
    first = next((i for i, line in enumerate(lines) if line and not line.startswith("//")), 0)
    return "\n".join(lines[first:])
