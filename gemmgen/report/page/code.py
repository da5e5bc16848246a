"""Texts of a rung as highlighted lines; lines that the rung before lacks are marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from html import escape
from typing import Literal

Mark = Literal["same", "added", "removed"]
CONTEXT = 2
"""Unchanged lines shown around a change."""


@dataclass(frozen=True)
class Line:
    """One line: its number in its text, its HTML, and its mark relative to the rung before. ``gap``: unchanged lines
    before it are left out where only changes are shown, and ``far``: it is left out itself. ``sass``: the instructions
    made of it."""

    number: int
    html: str
    mark: Mark
    gap: bool = False
    far: bool = False
    sass: str = ""


def marked(text: str, before: str | None, highlight: Callable[[str], list[str]], names: tuple[str, str]) -> list[Line]:
    """All lines of ``text``, and the removed lines of ``before`` in their places. The ``names`` of the two kernels
    count as equal; so does white space of different length."""
    new_html = highlight(text)
    if before is None:
        return [Line(i, html, "same") for i, html in enumerate(new_html, 1)]
    old_html = highlight(before)
    old, new = (_plain(t, n) for t, n in zip((before, text), names, strict=True))
    lines: list[Line] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            lines += [Line(i + 1, old_html[i], "removed") for i in range(i1, i2)]
        lines += [Line(j + 1, new_html[j], "same" if tag == "equal" else "added") for j in range(j1, j2)]
    return lines


def _plain(text: str, name: str) -> list[str]:
    """Lines for the comparison. A toggle may have a kernel's name, so the name is replaced only where it names the
    kernel."""
    meant = rf"(?<=^kernel ){name}$|(?<=^//     kernel ){name}$|(?<=specs/){name}\b|^{name}(?=\()"
    replaced = re.sub(meant, "KERNEL", text, flags=re.MULTILINE)
    return [_no_remark(re.sub(r"\s+", " ", line).strip()) for line in replaced.splitlines()]


def _no_remark(line: str) -> str:
    """Comment lines of a spec count as equal: they describe the rung itself."""
    return "#" if line.startswith("# ") else line


def header(text: str) -> int:
    """The number of lines of a text's header comment."""
    lines = text.splitlines()
    return next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("//")), len(lines))


def near(lines: Sequence[Line], headers: tuple[int, int] = (0, 0)) -> set[int]:
    """The places in ``lines`` of those that differ, and of their context. ``headers`` are the numbers of lines to leave
    out at the start of the text before and of this one."""
    body = [i for i, line in enumerate(lines) if line.number > headers[line.mark != "removed"]]
    differ = [at for at, i in enumerate(body) if lines[i].mark != "same"]
    return {body[j] for at in differ for j in range(at - CONTEXT, at + CONTEXT + 1) if 0 <= j < len(body)}


def focused(lines: Sequence[Line], headers: tuple[int, int], sass: Mapping[int, str]) -> list[Line]:
    """All lines, those far from a change marked as such, with the instructions made of each. Removed lines that are
    far from what is shown are left out: no view has them."""
    kept = near(lines, headers)
    return [
        replace(
            line,
            gap=i in kept and i - 1 not in kept and i > 0,
            far=i not in kept,
            sass="" if line.mark == "removed" else sass.get(line.number, ""),
        )
        for i, line in enumerate(lines)
        if i in kept or line.mark != "removed"
    ]


def whole(lines: Sequence[Line]) -> list[Line]:
    """The text without removed lines."""
    return [line for line in lines if line.mark != "removed"]


# --- Highlighting -------------------------------------------------------------------------------------------------


PLAIN = re.compile(r'<span class="(n|nl|o|p|w|nt|kr)">([^<]*)</span>')
"""Words that look like the text around them, without further elements."""


def cuda_html(text: str) -> list[str]:
    """Lines of CUDA C++ as HTML, by Pygments."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name("cuda", stripnl=False)
    html: str = highlight(text, lexer, HtmlFormatter(nowrap=True))
    return _lines(PLAIN.sub(r"\2", html))


def _lines(html: str) -> list[str]:
    """Lines of HTML with complete elements: a span across a line's end is closed and opened again."""
    out = []
    open_span = ""
    for line in html.rstrip("\n").split("\n"):
        text = open_span + line
        opened = re.findall(r"<span[^>]*>|</span>", text)
        depth: list[str] = []
        for tag in opened:
            if tag == "</span>":
                depth.pop()
            else:
                depth.append(tag)
        open_span = "".join(depth)
        out.append(text + "</span>" * len(depth))
    return out


TILE_WORDS = re.compile(r"\b(for|in|step|copy|barrier|shared|registers|threads|wait|commit|start|TMA)\b")


def spec_html(text: str) -> list[str]:
    """Lines of a spec as HTML, by the lexer of the language."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter

    from gemmgen.report.lexer import SpecLexer

    html: str = highlight(text, SpecLexer(stripnl=False), HtmlFormatter(nowrap=True))
    return _lines(PLAIN.sub(r"\2", html))


def tile_html(text: str) -> list[str]:
    """Lines of a tile program as HTML, keywords and comments highlighted."""
    return list(_simple(text, TILE_WORDS))


def _simple(text: str, words: re.Pattern[str]) -> Iterator[str]:
    for line in text.rstrip("\n").split("\n"):
        code, hash_, comment = line.partition("#")
        shown = words.sub(lambda m: f'<span class="k">{m.group(0)}</span>', escape(code))
        yield shown + (f'<span class="c1">#{escape(comment)}</span>' if hash_ else "")
