"""A spec while it is read, and the whole numbers in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from gemmgen.diagnostics import Problem, Source, Span, quoted
from gemmgen.spec.lines import report
from gemmgen.spec.setting import Setting
from gemmgen.spec.steps import most_hint

MAX_DIGITS = 9  # of a number; more cannot be meant

INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass
class Draft:
    """A spec while it is read: values by field, where each setting stands, and the mistakes so far."""

    source: Source
    values: dict[str, Any] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, span: Span, message: str, hint: str = "") -> None:
        report(self.problems, Problem(message, hint, span))

    def spoil(self, row: Setting) -> None:
        """Rules that need this setting are not to be checked."""
        self.bad.update(row.fields, row.parts)


def integer_of(draft: Draft, text: str, span: Span, what: str, most: int | None = None) -> int | None:
    """The number that a word is; None where it is no whole number, or too long a one, which the draft then notes."""
    if not INTEGER.fullmatch(text):
        hint = "write it with the digits 0 to 9" if any(c.isdigit() and not c.isascii() for c in text) else ""
        draft.wrong(span, f"{what} takes a whole number, not {quoted(text)}", hint)
        return None
    if len(text) > MAX_DIGITS:
        hint = "" if most is None else most_hint(what, most)
        draft.wrong(span, f"{what} is a number of {len(text.lstrip('+-'))} digits, which is far too large", hint)
        return None
    return int(text)
