"""Colour on a terminal, by ANSI codes."""

from __future__ import annotations

import os
import sys
from typing import Literal

Style = Literal["red", "green", "yellow", "blue", "dim", "bold"]
_CODES: dict[str, str] = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}


def wanted() -> bool:
    """Whether stdout is a terminal with colour; NO_COLOR turns it off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: Style, on: bool) -> str:
    """The text in a style where colour is ``on``, else unchanged."""
    return f"\033[{_CODES[style]}m{text}\033[0m" if on else text
