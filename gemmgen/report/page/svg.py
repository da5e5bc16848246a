"""A small SVG writer: shapes with classes that the style sheet colours, in light and dark mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


def number(value: float) -> str:
    """A coordinate, to a tenth of a unit."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


PITCH = 17.0
"""From a cell of a row to the next."""


@dataclass(frozen=True)
class Cell:
    """A cell of a row, or ``span`` equal neighbours as one: its place in the row, its text, and the lanes that it
    stands for, with spaces."""

    x: float
    text: str
    lanes: str
    span: int = 1


def _wide(c: Cell) -> str:
    return f' style="width:{number(c.span * PITCH - 1)}px"' if c.span > 1 else ""


class Drawing:
    """A picture of ``width`` x ``height`` units; shapes are added one by one.

    ``render`` gives the element, with a title and a description for screen readers.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        cls: str,
        title: str = "",
        radius: float = 0,
        data: str = "",
    ) -> None:
        at = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"{data}'
        rounded = f' rx="{number(radius)}"' if radius else ""
        self._add("rect", f'{at}{rounded} class="{cls}"', title)

    def cells(self, x: float, y: float, cls: str, cells: Sequence[Cell]) -> None:
        """A row of cells, whose size the style sheet gives; each with its text in its middle."""
        at = f"{number(x)} {number(y)}"
        drawn = "".join(f'<rect x="{number(c.x)}"{_wide(c)} data-l="{c.lanes}"/>' for c in cells)
        texts = "".join(f'<text x="{number(c.x + (c.span - 1) * PITCH / 2)}">{escape(c.text)}</text>' for c in cells)
        self._parts.append(f'<g class="cells {cls}" transform="translate({at})">{drawn}<g>{texts}</g></g>')

    def blocks(self, places: Sequence[tuple[float, float]], width: float, height: float, cls: str) -> None:
        """Many rectangles of one size as one path."""
        w, h = number(width), number(height)
        path = "".join(f"M{number(x)} {number(y)}h{w}v{h}h-{w}z" for x, y in places)
        self._parts.append(f'<path d="{path}" class="{cls}"/>')

    def circle(self, x: float, y: float, r: float, cls: str, title: str = "") -> None:
        self._add("circle", f'cx="{number(x)}" cy="{number(y)}" r="{number(r)}" class="{cls}"', title)

    def line(self, a: tuple[float, float], b: tuple[float, float], cls: str, end: str = "") -> None:
        """From ``a`` to ``b``; ``end`` names a marker for its end."""
        marker = f' marker-end="url(#{end})"' if end else ""
        at = f'x1="{number(a[0])}" y1="{number(a[1])}" x2="{number(b[0])}" y2="{number(b[1])}"'
        self._parts.append(f'<line {at} class="{cls}"{marker}/>')

    def polyline(self, points: Sequence[tuple[float, float]], cls: str) -> None:
        joined = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{joined}" class="{cls}"/>')

    def text(self, x: float, y: float, text: str, cls: str = "", turn: float = 0) -> None:
        """Text whose baseline starts at (x, y), rotated by ``turn`` degrees around that point."""
        turned = f' transform="rotate({number(turn)} {number(x)} {number(y)})"' if turn else ""
        named = f' class="{cls}"' if cls else ""
        self._parts.append(f'<text x="{number(x)}" y="{number(y)}"{named}{turned}>{escape(text)}</text>')

    def texts(self, x: float, y: float, cls: str, step: float, texts: Sequence[str]) -> None:
        """Texts in a row, ``step`` apart, which share their class."""
        drawn = "".join(f'<text x="{number(i * step)}">{escape(text)}</text>' for i, text in enumerate(texts))
        self._parts.append(f'<g class="{cls}" transform="translate({number(x)} {number(y)})">{drawn}</g>')

    def arrow_head(self, name: str) -> None:
        """A marker for the end of a line; its name must be unique on the page."""
        self._parts.append(
            f'<defs><marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0.5 8 4 0 7.5z" class="arrow-head"/></marker></defs>'
        )

    def render(self, name: str, title: str, description: str, cls: str = "") -> str:
        """The ``svg`` element; ``name`` is its id, which must be unique on the page."""
        size = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        drawn = f'width="{number(self.width)}" height="{number(self.height)}"'
        labels = f'role="img" aria-labelledby="{name}-title {name}-desc"'
        head = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
        body = "".join(self._parts)
        return f'<svg id="{name}" class="{cls}" {size} {drawn} {labels}>{head}{body}</svg>'

    def _add(self, element: str, attributes: str, title: str) -> None:
        inner = f"><title>{escape(title)}</title></{element}>" if title else "/>"
        self._parts.append(f"<{element} {attributes}{inner}")
