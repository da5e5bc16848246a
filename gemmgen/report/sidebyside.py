"""Differences of two texts for a terminal: one below the other, or side by side."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from gemmgen.report.colour import Style, paint
from gemmgen.text.wrap import folded

CONTEXT = 2
NARROWEST = 40
WIDE = 140
"""Columns from which texts stand side by side."""
MARKS: dict[str, Style] = {"+": "green", "-": "red", "@": "blue"}


def differences(a: str, b: str, names: tuple[str, str], width: int, colour: bool) -> str:
    """Side by side where ``width`` has room for lines of code, else one below the other."""
    return (side_by_side if width >= WIDE else unified)(a, b, names, width=width, colour=colour)


def unified(a: str, b: str, names: tuple[str, str], colour: bool, width: int | None = None) -> str:
    """Changed lines one below the other, with context; empty where the texts are equal. Lines longer than ``width``
    (None: the terminal's) are folded."""
    lines = difflib.unified_diff(a.splitlines(), b.splitlines(), *names, lineterm="", n=CONTEXT)
    return "\n".join(_marked(line, colour, width) for line in lines)


def _marked(line: str, colour: bool, width: int | None) -> str:
    indent = len(line[1:]) - len(line[1:].lstrip())
    style, shown = MARKS.get(line[:1]), folded(line, width, line[:1] + " " * (indent + 4))
    return paint(shown, style, colour) if style else shown


def side_by_side(a: str, b: str, names: tuple[str, str], width: int, colour: bool) -> str:
    """Changed lines side by side in ``width`` columns, with context.

    ``|`` marks a changed line, ``<`` or ``>`` a line that only one side has. Empty where the texts are equal.
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
    """A line in pieces of at most ``width`` characters, then None without end."""
    if line is not None:
        yield line[:width]
        for start in range(width, len(line), width - 4):
            yield "    " + line[start : start + width - 4]
    while True:
        yield None


def body(cuda: str) -> str:
    """CUDA text without its header comment, which repeats the spec."""
    lines = cuda.splitlines()
    first = next((i for i, line in enumerate(lines) if line and not line.startswith("//")), 0)
    return "\n".join(lines[first:])
