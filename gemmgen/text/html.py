"""HTML for notebooks: small pieces without colours, scripts or assets, so that they suit light and dark pages.

Text is escaped. What is HTML already is of type ``Html`` and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gemmgen.text.table import cell

CELL = "padding:0.15em 0.8em 0.15em 0;text-align:{};vertical-align:top;white-space:{}"
BAR = "display:inline-block;height:0.7em;background:currentColor;opacity:0.45;width:{:.1f}em;margin-right:0.5em"
WIDEST = 14.0
"""Width of a whole bar, in em."""


class Html(str):
    """A piece of HTML."""

    __slots__ = ()


def html(value: object) -> Html:
    """A value as HTML: numbers as in a table of plain text, text escaped."""
    return value if isinstance(value, Html) else Html(escape("" if value is None else cell(value)))


def joined(*pieces: Html) -> Html:
    """Pieces one after the other."""
    return Html("".join(pieces))


def heading(text: str) -> Html:
    return Html(f"<div><strong>{escape(text)}</strong></div>")


def pre(text: str) -> Html:
    """Text with its line breaks, in a fixed-width font."""
    style = "background:transparent;color:inherit;margin:0.3em 0;line-height:1.35;overflow-x:auto"
    return Html(f'<pre style="{style}">{escape(text)}</pre>')


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table; numbers are aligned right. Without ``headers`` the first cell of a row is its header."""
    head = "".join(_cell("th", html(h), False) for h in headers)
    body = "".join(f"<tr>{_row(row, header=not headers)}</tr>" for row in rows)
    start = f"<thead><tr>{head}</tr></thead>" if headers else ""
    style = "border-collapse:collapse;background:transparent;color:inherit"
    return Html(f'<table style="{style}">{start}<tbody>{body}</tbody></table>')


def _row(row: Sequence[object], header: bool) -> str:
    return "".join(
        _cell("th" if header and i == 0 else "td", html(value), isinstance(value, (int, float)))
        for i, value in enumerate(row)
    )


def _cell(element: str, value: Html, right: bool) -> str:
    style = CELL.format("right" if right else "left", "nowrap" if right else "normal")
    return f'<{element} style="{style}">{value}</{element}>'


def bar(part: float, text: str) -> Html:
    """A bar of a part (0 to 1) of the widest one, and the figure beside it."""
    return Html(f'<span style="{BAR.format(WIDEST * max(0.0, min(1.0, part)))}"></span>{escape(text)}')


def closed(summary: str, body: Html) -> Html:
    """A part that the reader opens."""
    return Html(f"<details><summary>{escape(summary)}</summary>{body}</details>")
