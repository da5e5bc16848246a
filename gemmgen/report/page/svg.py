"""A small SVG writer: shapes with classes that the style sheet colours, in light and dark mode."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def number(value: float) -> str:
    """A coordinate, to a tenth of a unit."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


class Drawing:
    """A picture of ``width`` x ``height`` units; shapes are added one by one.

    ``render`` gives the element, with a title and a description for screen readers.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, cls: str, title: str = "", radius: float = 0
    ) -> None:
        at = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        rounded = f' rx="{number(radius)}"' if radius else ""
        self._add("rect", f'{at}{rounded} class="{cls}"', title)

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
