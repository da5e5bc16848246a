"""Where text comes from, and every error gemmgen raises.

An error a person can cause is one of the types below. Each prints as one clear line (with a source line and a
caret where there is one): what is wrong, the numbers, and what to do.
"""

from __future__ import annotations

import operator
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmgen.sim.faults import Fault

MAX_SHOWN = 20  # problems that an error prints; .errors has all
MAX_PROBLEMS = 200  # problems after which a spec is read no further
MAX_WIDTH = 120  # characters of a source line that an error prints


@dataclass(frozen=True)
class Source:
    """A spec's text, with lines normalised to \\n and no byte order mark."""

    filename: str
    text: str

    def line(self, number: int) -> str:
        """Line ``number``, from 1; empty where there is none."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")


@dataclass(frozen=True)
class Span:
    """A stretch of one line of a source: line and column count from 1, ``length`` in characters."""

    source: Source
    line: int
    column: int
    length: int = 1

    def render(self) -> str:
        """The line with carets under the stretch, two lines of text; a long line is cut to what is near them."""
        text = self.source.line(self.line)
        first = self.column - 1
        start = max(0, min(first - MAX_WIDTH // 2, len(text) - MAX_WIDTH))
        shown = text[start : start + MAX_WIDTH]
        pad = "".join(_blank(c) for c in text[start:first])
        under = sum(_width(c) for c in text[first : min(first + self.length, start + MAX_WIDTH)])
        return f"  {''.join(_visible(c) for c in shown)}\n  {pad}{'^' * max(1, under)}"


def _width(c: str) -> int:
    """Columns that a character takes on a terminal."""
    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def _visible(c: str) -> str:
    """The character, or a mark for one that could move the cursor or cannot be encoded."""
    return c if c == "\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _blank(c: str) -> str:
    return "\t" if c == "\t" else " " * _width(c)


def escaped(text: str, keep: str = "") -> str:
    """Text that gemmgen did not write (a file's name, a word of a spec, what a driver calls its GPU), safe to print:
    control characters, lone surrogates and all else that does not print are escaped, but for those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


LAYOUT = "\n\t"
"""What a message of several lines keeps as it is."""


def quoted(word: str, limit: int = 60) -> str:
    """A word from a person in quotation marks, safe to print; long text is cut."""
    return f"'{escaped(word if len(word) <= limit else word[:limit] + '...')}'"


@dataclass(frozen=True)
class Problem:
    """One mistake in a spec: what, what to do about it, and where (None where the spec has no text)."""

    message: str
    hint: str = ""
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", escaped(self.message))
        object.__setattr__(self, "hint", escaped(self.hint))

    def render(self, filename: str) -> str:
        """``file:line:column: error: message; hint``, then the line and a caret."""
        filename = escaped(filename)
        at = f"{filename}:{self.span.line}:{self.span.column}" if self.span else filename
        text = f"{at}: error: {self.message}" + (f"; {self.hint}" if self.hint else "")
        return f"{text}\n{self.span.render()}" if self.span else text


class GemmgenError(Exception):
    """Anything gemmgen refuses or fails to do. Its text can be printed anywhere: what could move a cursor or cannot be
    encoded is escaped."""

    def __str__(self) -> str:
        return escaped(super().__str__(), LAYOUT)


class SpecError(GemmgenError):
    """Mistakes in a spec, all of them. The fields are those of the first; ``line`` and ``column`` count from 1 and
    are None where the spec has no text (``replace``). ``note`` says where reading stopped, if it did not reach the end.
    """

    def __init__(self, problems: Sequence[Problem], filename: str = "<spec>", note: str = "") -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        self.filename = filename
        self.note = note
        self.line = first.span.line if first.span else None
        self.column = first.span.column if first.span else None
        self.message = first.message
        self.hint = first.hint
        shown = [p.render(filename) for p in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            shown.append(f"{escaped(filename)}: and {len(self.problems) - MAX_SHOWN} more errors")
        if len(self.problems) >= MAX_PROBLEMS and not note:
            note = f"no more than {MAX_PROBLEMS} errors are looked for"
        if note:
            shown.append(f"{escaped(filename)}: {note}")
        super().__init__("\n".join(shown))

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Problem, ...], str, str]]:
        return type(self), (self.problems, self.filename, self.note)

    @property
    def errors(self) -> tuple[SpecError, ...]:
        """Each mistake as an error of its own."""
        return tuple(SpecError([p], self.filename) for p in self.problems)


class ArgumentError(GemmgenError, ValueError):
    """An argument of a call that cannot be used: which, given, wanted."""


class CompileError(GemmgenError):
    """NVRTC refused the program, or cannot be had. The message holds the options and the log."""


class LaunchError(GemmgenError):
    """A kernel cannot be launched: no GPU, or a resource over its limit (need and limit in the message)."""


class TuneError(GemmgenError):
    """No kernel can be chosen: none is left to try, or every one that was tried failed. The message says of what."""


class SimulationFault(GemmgenError):
    """The simulated kernel did something illegal; ``faults`` lists each."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(str(f) for f in self.faults)


def whole_number(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """An argument that is a whole number, Python's or NumPy's. Raises ArgumentError for anything else: no text, no
    float that happens to be whole, no bool."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        bounds = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise ArgumentError(f"{name} is {shown(value)}; it must be a whole number {bounds}")
    return number


def one_of(name: str, value: object, known: Collection[str]) -> str:
    """An argument that is one of some words. Raises ArgumentError for anything else."""
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(f"{name} is {shown(value)}; it is one of {', '.join(known)}")
    return value


def flag(name: str, value: object) -> bool:
    """An argument that is True or False, Python's or NumPy's. Raises ArgumentError for anything else."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise ArgumentError(f"{name} is {shown(value)}; it is True or False")


def shown(value: object) -> str:
    """A value as a message shows it: its text where that is short, else its type."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int) and value.bit_length() > 128:
        return "far too large" if value > 0 else "far too small"
    return str(value) if isinstance(value, (int, float, type(None))) else f"a {type(value).__name__}"
