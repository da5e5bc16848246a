"""The width of the terminal, and text wrapped to it."""

from __future__ import annotations

import shutil
import textwrap

UNKNOWN = 80
"""Columns where nothing says how many there are: in a pipe, or a file."""
LONGEST = 100
"""Prose is wrapped here on a wider terminal: longer lines are hard to read."""


def columns() -> int:
    """Columns of the terminal: COLUMNS, else what the terminal says, else 80."""
    return max(40, shutil.get_terminal_size((UNKNOWN, 24)).columns)


def wrapped(text: str, width: int | None = None, first: str = "", rest: str | None = None) -> str:
    """Text in lines no longer than ``width`` (None: the terminal's). ``first`` stands before the first line, ``rest``
    (by default the same) before the others."""
    at_most = min(columns(), LONGEST) if width is None else width
    following = first if rest is None else rest
    return textwrap.fill(
        text, at_most, initial_indent=first, subsequent_indent=following, break_on_hyphens=False, tabsize=4
    )


def folded(line: str, width: int | None = None, rest: str = "    ") -> str:
    """A line of code, broken at spaces where it is longer than ``width`` (None: the terminal's); what continues it is
    indented by ``rest``."""
    at_most = columns() if width is None else width
    if len(line) <= at_most:
        return line
    parts = textwrap.wrap(
        line, at_most, subsequent_indent=rest, replace_whitespace=False, expand_tabs=False, break_on_hyphens=False
    )
    return "\n".join(parts)
