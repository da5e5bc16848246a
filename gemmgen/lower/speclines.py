"""The lines of a spec as the header of its CUDA shows them: canonical settings, with the comments that stood behind
them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from gemmgen.spec.model import Spec

WIDTH = 103
"""Columns of a line: those of the CUDA text without what leads a line of the header."""
LEAST = 24
"""Columns that a comment gets beside its line; where there are fewer it goes to the next."""


def commented_lines(spec: Spec) -> tuple[str, ...]:
    lines = spec.to_text(comment=False).splitlines()
    comments = [_comment(spec, line) for line in lines]
    room = WIDTH - LEAST
    column = max((len(x) for x, c in zip(lines, comments, strict=True) if c and len(x) <= room), default=0) + 2
    return tuple(y for x, c in zip(lines, comments, strict=True) for y in _joined(x, c, column))


def _comment(spec: Spec, line: str) -> str:
    """The comment behind the line that gave a setting."""
    words = line.split()
    name = " ".join(words[:2]) if words[0] == "tile" else words[0]
    if words[0] == "tune":
        name = " ".join(words[: words.index("in")]).replace("tune tile", "tune")
    span = spec.spans.get(name)
    return "" if span is None else span.source.line(span.line).partition("#")[2].strip()


def _joined(line: str, comment: str, column: int) -> Iterator[str]:
    """The line, with its comment beside or below it."""
    if not comment:
        yield line
        return
    at = column if len(line) + 2 <= column else 4
    first, *rest = textwrap.wrap(comment, WIDTH - at - 2) or [""]
    if at == column:
        yield f"{line.ljust(at)}# {first}"
    else:
        yield line
        yield f"{' ' * at}# {first}"
    yield from (f"{' ' * at}# {more}" for more in rest)
