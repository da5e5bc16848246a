"""Lines of CUDA text: indentation, trailing comments set in columns, long lines and comments broken."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 110
INDENT = "    "
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Line:
    """One line to print: code, a comment behind it (before it where there is no room), or a comment alone.

    ``accesses`` are the numbers of the memory accesses that the line holds. ``tail`` is the rest of a statement that
    goes to lines of its own where the whole does not fit. ``declares`` is the name that the line brings in, where it
    does nothing else.
    """

    depth: int
    code: str = ""
    comment: str = ""
    accesses: tuple[int, ...] = ()
    tail: tuple[str, ...] = ()
    declares: str = ""

    @property
    def whole(self) -> str:
        """The code on one line, indented."""
        return INDENT * self.depth + " ".join((self.code, *self.tail))


@dataclass(frozen=True, slots=True)
class Printed:
    """A finished line of text, and the accesses it holds."""

    text: str
    accesses: tuple[int, ...] = ()


def wrap_comment(text: str, depth: int = 0) -> list[str]:
    """``// text`` as lines of at most WIDTH columns, as far as its words allow."""
    lead = INDENT * depth + "// "
    if len(lead) + len(text) <= WIDTH:
        return [lead + text]
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=lead, break_long_words=False)


def sanitised(text: str) -> str:
    """One line of somebody's text, made unable to leave a ``//`` comment or to hide in it.

    A backslash at the end would join the next line to the comment, a trigraph can spell that backslash, control
    and direction characters can end a line or show it in another order, and ``*/`` closes a comment around it.
    """
    text = "".join(c if c.isprintable() else " " for c in text).rstrip()
    text = text.replace("??", "? ?").replace("*/", "* /").replace("/*", "/ *")
    return text + " ." if text.endswith("\\") else text


def used(lines: Sequence[Line]) -> tuple[list[Line], set[str]]:
    """The lines without declarations that nothing below refers to, and every name that the rest mentions."""
    kept: list[Line] = []
    names: set[str] = set()
    for line in reversed(lines):
        if not line.declares or line.declares in names:
            kept.append(line)
            names.update(mentioned(line.code))
            for part in line.tail:
                names.update(mentioned(part))
    return kept[::-1], names


def mentioned(code: str) -> list[str]:
    """The identifiers in a piece of code."""
    return _NAME.findall(code)


def arranged(lines: Sequence[Line]) -> list[Printed]:
    """The lines as text: comments of neighbouring lines start in one column, what is too long is broken."""
    out: list[Printed] = []
    at = 0
    while at < len(lines):
        end = at + 1
        if _takes_comment(lines[at]):
            while end < len(lines) and lines[end].depth == lines[at].depth and _takes_comment(lines[end]):
                end += 1
        out.extend(_run(lines[at:end]))
        at = end
    return out


def _takes_comment(line: Line) -> bool:
    """Whether the comment has room behind the code."""
    return bool(line.code and line.comment) and len(line.whole) + len(line.comment) + 5 <= WIDTH


def _run(lines: Sequence[Line]) -> Iterable[Printed]:
    """Neighbours whose comments have room, in one column as far as that has room too; or a single other line."""
    if not _takes_comment(lines[0]):
        yield from _single(lines[0])
        return
    wholes = [line.whole for line in lines]
    ends = [(len(whole), len(whole) + len(line.comment) + 5) for whole, line in zip(wholes, lines, strict=True)]
    # The last column that leaves room for the comment of every line which ends before it; the shortest's always does.
    column = max(c for c, _ in ends if all(end + c - width <= WIDTH for width, end in ends if width <= c))
    for whole, line in zip(wholes, lines, strict=True):
        yield Printed(f"{whole.ljust(column)}  // {line.comment}", line.accesses)


def broken(text: str, width: int) -> list[str]:
    """Code in lines of at most ``width`` columns, broken behind an argument or ahead of a term: the last place in the
    fewest brackets."""
    if len(text) <= width:
        return [text]
    best, at, depth = len(text), 0, 0
    for i, c in enumerate(text[:width]):
        depth += (c in "([{") - (c in ")]}")
        here = i + 1 if text.startswith(", ", i) else i if text.startswith(" + ", i) else 0
        if here and depth <= best:
            best, at = depth, here
    return [text[:at], *broken(text[at:].lstrip(), width - len(INDENT))] if at else [text]


def _single(line: Line) -> Iterable[Printed]:
    if line.comment:
        for text in wrap_comment(line.comment, line.depth):
            yield Printed(text)
    if not line.code:
        if not line.comment:
            yield Printed("")
    elif line.tail and len(line.whole) > WIDTH:
        # What is accessed first stands behind a condition, so in the tail; a copy's target before it.
        yield Printed(INDENT * line.depth + line.code, line.accesses[1:])
        for at, part in enumerate(line.tail):
            first, *rest = broken(part, WIDTH - len(INDENT) * (line.depth + 1))
            yield Printed(INDENT * (line.depth + 1) + first, line.accesses[:1] if at == 0 else ())
            yield from (Printed(INDENT * (line.depth + 2) + more) for more in rest)
    else:
        yield Printed(line.whole, line.accesses)
