"""The roofline: every rung at its intensity and speed, with an arrow to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import atan2, ceil, cos, degrees, floor, hypot, log10, pi, sin

from gemmgen.report.page.svg import Drawing

WIDTH, HEIGHT = 480.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 12.0, 14.0, 46.0
BUBBLE = 9.5
Point = tuple[float, float]


@dataclass(frozen=True)
class Roof:
    """A bandwidth: speed is at most ``gb_s`` times the intensity."""

    name: str
    gb_s: float


@dataclass(frozen=True)
class Dot:
    """A rung: flop/byte, and in TFLOP/s the speed that the model expects, its upper limit, and the measured speed.

    No arrow leads to one ``aside``.
    """

    number: int
    name: str
    intensity: float
    expected: float
    limit: float
    measured: float | None = None
    aside: bool = False

    @property
    def speed(self) -> float:
        return self.expected if self.measured is None else self.measured


class Axes:
    """Both axes are logarithmic: from data to places in the drawing, and back."""

    def __init__(self, x: Point, y: Point) -> None:
        self.x, self.y = x, y

    def place(self, intensity: float, speed: float) -> Point:
        across = log10(intensity / self.x[0]) / log10(self.x[1] / self.x[0])
        up = log10(speed / self.y[0]) / log10(self.y[1] / self.y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def roofline(
    name: str, title: str, dots: Sequence[Dot], roofs: Sequence[Roof], peak: tuple[str, float], cublas: float | None
) -> str:
    """The chart as SVG. ``peak`` is the highest roof and its name, in TFLOP/s; ``cublas`` a measured speed."""
    axes = _axes(dots, roofs, peak[1])
    d = Drawing(WIDTH, HEIGHT)
    d.arrow_head(f"{name}-head")
    _grid(d, axes)
    _roofs(d, axes, roofs, peak, [axes.place(dot.intensity, dot.speed) for dot in dots])
    if cublas is not None:
        _, y = axes.place(axes.x[0], cublas)
        d.line((LEFT, y), (WIDTH - RIGHT, y), "cublas")
        d.text(LEFT + 5, y - 5, f"cuBLAS {cublas:.3g}, measured", "label")
    _dots(d, axes, dots, f"{name}-head")
    return d.render(name, title, _described(dots, roofs, peak), "roofline")


def _described(dots: Sequence[Dot], roofs: Sequence[Roof], peak: tuple[str, float]) -> str:
    tops = ", ".join(f"{roof.name} {roof.gb_s:,.0f} GB/s" for roof in roofs)
    places = "; ".join(
        f"rung {dot.number} {dot.name}: {dot.intensity:.3g} flop/byte, {dot.speed:.3g} TFLOP/s "
        f"{'modelled' if dot.measured is None else 'measured'}"
        for dot in dots
    )
    return f"Roofs: {peak[0]} {peak[1]:.3g} TFLOP/s, {tops}. {places}."


def _axes(dots: Sequence[Dot], roofs: Sequence[Roof], peak: float) -> Axes:
    ridges = [peak * 1000 / roof.gb_s for roof in roofs]
    low = min([dot.intensity for dot in dots], default=1.0)
    high = max([dot.intensity for dot in dots] + ridges)
    speeds = [s for dot in dots for s in (dot.speed, dot.limit)]
    return Axes((low / 2.2, high * 5), (min([*speeds, peak / 10]) / 2.2, peak * 2))


def _grid(d: Drawing, axes: Axes) -> None:
    x0, y0 = LEFT, HEIGHT - BOTTOM
    for exponent in range(floor(log10(axes.x[0])), ceil(log10(axes.x[1])) + 1):
        for step in (1, 2, 5):
            value = step * 10.0**exponent
            if axes.x[0] <= value <= axes.x[1]:
                x, _ = axes.place(value, axes.y[0])
                d.line((x, TOP), (x, y0), "grid" if step == 1 else "grid minor")
                if step == 1:
                    d.text(x, y0 + 15, f"{value:g}", "label mid")
    for exponent in range(floor(log10(axes.y[0])), ceil(log10(axes.y[1])) + 1):
        for step in (1, 2, 5):
            value = step * 10.0**exponent
            if axes.y[0] <= value <= axes.y[1]:
                _, y = axes.place(axes.x[0], value)
                d.line((x0, y), (WIDTH - RIGHT, y), "grid" if step == 1 else "grid minor")
                if step == 1:
                    d.text(x0 - 5, y + 4, f"{value:g}", "label end")
    d.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "intensity, flop/byte", "label mid")
    d.text(14, (TOP + HEIGHT - BOTTOM) / 2, "TFLOP/s", "label mid", turn=-90)


def _roofs(d: Drawing, axes: Axes, roofs: Sequence[Roof], peak: tuple[str, float], points: Sequence[Point]) -> None:
    right = axes.x[1]
    tallest = min(peak[1] * 1000 / roof.gb_s for roof in roofs)
    d.line(axes.place(max(tallest, axes.x[0]), peak[1]), axes.place(right, peak[1]), "roof")
    x, y = axes.place(right, peak[1])
    d.text(x - 4, y - 5, f"{peak[0]} {peak[1]:.3g}", "label end roof-text")
    for roof in roofs:
        first = max(axes.x[0], axes.y[0] * 1000 / roof.gb_s)
        a = axes.place(first, first * roof.gb_s / 1000)
        b = axes.place(peak[1] * 1000 / roof.gb_s, peak[1])
        d.line(a, b, "roof")
        slope = degrees(atan2(b[1] - a[1], b[0] - a[0]))
        text = f"{roof.name} {roof.gb_s / 1000:.3g} TB/s"
        at = _label_place(a, b, 6.4 * len(text), points)
        d.text(at[0] - 3, at[1] - 4, text, "label roof-text", turn=slope)


def _label_place(a: Point, b: Point, length: float, points: Sequence[Point]) -> Point:
    """Where along a roof its name starts: where it is furthest from the points."""
    whole = hypot(b[0] - a[0], b[1] - a[1])
    most = max(0.0, 1 - length / whole)
    starts = [(a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])) for t in (most * i / 10 for i in range(1, 7))]
    step = length / 2 / whole

    def room(start: Point) -> float:
        middle = start[0] + step * (b[0] - a[0]), start[1] + step * (b[1] - a[1])
        return min((hypot(middle[0] - x, middle[1] - y) for x, y in points), default=0.0)

    return max(starts, key=room)


def _dots(d: Drawing, axes: Axes, dots: Sequence[Dot], head: str) -> None:
    points = [axes.place(dot.intensity, dot.speed) for dot in dots]
    bubbles = list(_bubbles(points))
    for dot, point, bubble in zip(dots, points, bubbles, strict=True):
        x, y = axes.place(dot.intensity, dot.limit)
        d.line((x - 7, y), (x + 7, y), "limit")
        if bubble != point:
            d.line(point, bubble, "leader")
    for a, b in pairwise(bubble for dot, bubble in zip(dots, bubbles, strict=True) if not dot.aside):
        d.line(_toward(a, b, BUBBLE + 1), _toward(b, a, BUBBLE + 2), "arrow", end=head)
    for dot, point, bubble in zip(dots, points, bubbles, strict=True):
        kind = "measured" if dot.measured is not None else "modelled"
        said = f"{dot.name}: {dot.intensity:.3g} flop/byte, {dot.speed:.3g} TFLOP/s, {kind}"
        if bubble != point:
            d.circle(*point, 2.6, "dot")
        d.circle(*bubble, BUBBLE, f"bubble {kind}", said)
        d.text(bubble[0], bubble[1] + 4, str(dot.number), f"label mid bubble-text {kind}")


def _toward(a: Point, b: Point, distance: float) -> Point:
    length = hypot(b[0] - a[0], b[1] - a[1]) or 1.0
    part = min(distance, length / 2.2) / length
    return a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])


def _bubbles(points: Sequence[Point]) -> Iterator[Point]:
    """A place for each number: on its point, or as near as the numbers placed before leave room."""
    placed: list[Point] = []
    for point in points:
        best = next((c for c in _candidates(point) if _free(c, placed)), point)
        placed.append(best)
        yield best


def _candidates(point: Point) -> Iterator[Point]:
    """The point itself, then places around it, nearest first; those to the right and below come before the others,
    since roofs are above."""
    yield point
    around = [(ring + _UNLOVED[turn], ring, turn) for ring in range(1, 6) for turn in range(8)]
    for _, ring, turn in sorted(around):
        angle = turn * pi / 4
        yield point[0] + 27 * ring * cos(angle), point[1] + 27 * ring * sin(angle)


_UNLOVED = (0.0, 0.1, 0.3, 1.2, 1.5, 2.2, 2.5, 1.8)
"""By eighths of a turn, clockwise from the right."""


def _free(at: Point, placed: Sequence[Point]) -> bool:
    inside = LEFT + 10 < at[0] < WIDTH - RIGHT - 10 and TOP + 8 < at[1] < HEIGHT - BOTTOM - 10
    return inside and all(hypot(at[0] - x, at[1] - y) > 25 for x, y in placed)
