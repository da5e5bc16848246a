"""The roofline: every rung at its intensity and speed, with an arrow to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import atan2, ceil, cos, degrees, floor, hypot, log10, radians, sin

from gemmgen.report.page.spread import APART, CLOSE, Box, Point, Room, crowd, passes, spread
from gemmgen.report.page.svg import Drawing

WIDTH, HEIGHT = 480.0, 400.0
ENLARGED = 400.0
"""Height of the enlarged part."""
CROWDED = 14.0
"""Points closer than this are too close for their numbers."""
LETTER = 6.4
"""Width of a letter of a label."""
LEFT, RIGHT, TOP, BOTTOM = 50.0, 12.0, 14.0, 46.0
BUBBLE = 9.5


@dataclass(frozen=True)
class Roof:
    """A bandwidth limit: speed is at most ``gb_s`` times the intensity."""

    name: str
    gb_s: float


@dataclass(frozen=True)
class Dot:
    """A rung: flop/byte, and in TFLOP/s the expected speed, the upper limit, and the measured speed.

    No arrow leads to a dot that is ``aside``.
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


@dataclass(frozen=True)
class Axes:
    """Logarithmic axes, from data to positions in the drawing. ``box`` is the panel; ``x`` and ``y`` are the smallest
    and the largest value of each axis."""

    box: Box
    x: Point
    y: Point

    def place(self, intensity: float, speed: float) -> Point:
        left, top, right, bottom = self.box
        across = log10(intensity / self.x[0]) / log10(self.x[1] / self.x[0])
        up = log10(speed / self.y[0]) / log10(self.y[1] / self.y[0])
        return left + across * (right - left), bottom - up * (bottom - top)

    def holds(self, intensity: float, speed: float) -> bool:
        return self.x[0] <= intensity <= self.x[1] and self.y[0] <= speed <= self.y[1]


def roofline(
    name: str, title: str, dots: Sequence[Dot], roofs: Sequence[Roof], peak: tuple[str, float], cublas: float | None
) -> str:
    """The chart as SVG, with the crowded part enlarged below where there is one. ``peak`` is the name and the speed of
    the highest roof in TFLOP/s; ``cublas`` a measured speed."""
    axes = _axes(dots, roofs, peak[1])
    points = [axes.place(dot.intensity, dot.speed) for dot in dots]
    inside = crowd(points, CROWDED, 4)
    d = Drawing(WIDTH, HEIGHT + (ENLARGED if inside else 0))
    d.arrow_head(f"{name}-head")
    _grid(d, axes)
    taken = [*_roofs(d, axes, roofs, peak, points), *_cublas(d, axes, cublas)]
    panels, texts = [axes] * len(dots), {axes: taken}
    if inside:
        inner = _enlarged_axes([dots[i] for i in sorted(inside)])
        _frame(d, axes, inner, [points[i] for i in sorted(inside)])
        _grid(d, inner)
        texts[inner] = [*_cublas(d, inner, cublas), *_peak(d, inner, peak)]
        panels = [inner if i in inside else axes for i in range(len(dots))]
    places = _places(dots, panels, texts)
    _marks(d, axes, dots, inside)
    _arrows(d, dots, points, places, inside, f"{name}-head")
    _bubbles(d, dots, panels, places)
    return d.render(name, title, _described(dots, roofs, peak), "roofline")


def above(dots: Sequence[Dot], roofs: Sequence[Roof]) -> list[tuple[Dot, list[str]]]:
    """The rungs that are faster than a memory could deliver what their threads request, with these memories."""
    found = ((dot, [r.name for r in roofs if dot.speed > dot.intensity * r.gb_s / 1000]) for dot in dots)
    return [(dot, names) for dot, names in found if names]


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
    return Axes(
        (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM), (low / 2.2, high * 5), (min([*speeds, peak / 10]) / 2.2, peak * 2)
    )


def _enlarged_axes(dots: Sequence[Dot]) -> Axes:
    """Axes of the crowded part, with room for numbers beside their points."""
    xs, ys = [dot.intensity for dot in dots], [dot.speed for dot in dots]
    box = (LEFT, HEIGHT + 26, WIDTH - RIGHT, HEIGHT + ENLARGED - BOTTOM)
    wide = max(1.25, (max(xs) / min(xs)) ** 0.18)
    tall = max(1.04, (max(ys) / min(ys)) ** 0.12)
    return Axes(box, (min(xs) / wide, max(xs) * wide), (min(ys) / tall, max(ys) * tall))


def _grid(d: Drawing, axes: Axes) -> None:
    left, top, right, bottom = axes.box
    for value, named in _ticks(axes.x):
        x, _ = axes.place(value, axes.y[0])
        d.line((x, top), (x, bottom), "grid" if named else "grid minor")
        if named:
            d.text(x, bottom + 15, f"{value:g}", "label mid")
    for value, named in _ticks(axes.y):
        _, y = axes.place(axes.x[0], value)
        d.line((left, y), (right, y), "grid" if named else "grid minor")
        if named:
            d.text(left - 5, y + 4, f"{value:g}", "label end")
    d.text((left + right) / 2, bottom + 38, "intensity, flop/byte", "label mid")
    d.text(14, (top + bottom) / 2, "TFLOP/s", "label mid", turn=-90)


def _ticks(ends: Point) -> Iterator[tuple[float, bool]]:
    """Values of an axis with a grid line, and whether they have a label: decades and values between them; round steps
    on an axis shorter than a decade."""
    low, high = ends
    if high / low < 8:
        step = next(s for s in _STEPS if (high - low) / s <= 6)
        yield from ((step * i, True) for i in range(ceil(low / step), floor(high / step) + 1))
        return
    for exponent in range(floor(log10(low)), ceil(log10(high)) + 1):
        for part in (1, 2, 5):
            if low <= part * 10.0**exponent <= high:
                yield part * 10.0**exponent, part == 1


_STEPS = tuple(part * 10.0**exponent for exponent in range(-4, 6) for part in (1, 2, 5))


def _roofs(
    d: Drawing, axes: Axes, roofs: Sequence[Roof], peak: tuple[str, float], points: Sequence[Point]
) -> Iterator[Box]:
    """Draws the roofs and their names; gives the boxes of the horizontal texts."""
    right = axes.x[1]
    tallest = min(peak[1] * 1000 / roof.gb_s for roof in roofs)
    d.line(axes.place(max(tallest, axes.x[0]), peak[1]), axes.place(right, peak[1]), "roof")
    for roof in roofs:
        first = max(axes.x[0], axes.y[0] * 1000 / roof.gb_s)
        a = axes.place(first, first * roof.gb_s / 1000)
        b = axes.place(peak[1] * 1000 / roof.gb_s, peak[1])
        d.line(a, b, "roof")
        slope = degrees(atan2(b[1] - a[1], b[0] - a[0]))
        text = f"{roof.name} {roof.gb_s / 1000:.3g} TB/s"
        at = _label_place(a, b, LETTER * len(text), points)
        off = 4 if _free(at, slope, LETTER * len(text), points) else 18
        lean = radians(slope)
        d.text(at[0] + off * sin(lean), at[1] - off * cos(lean), text, "label roof-text", turn=slope)
    x, y = axes.place(right, peak[1])
    text = f"{peak[0]} {peak[1]:.3g}"
    d.text(x - 4, y - 5, text, "label end roof-text")
    yield x - 4 - LETTER * len(text), y - 16, x, y


def _free(at: Point, slope: float, length: float, points: Sequence[Point]) -> bool:
    """Whether a text along a roof is clear of the numbers on it."""
    end = at[0] + length * cos(radians(slope)), at[1] + length * sin(radians(slope))
    return not any(passes(at, end, point, 2 * BUBBLE) for point in points)


def _peak(d: Drawing, axes: Axes, peak: tuple[str, float]) -> Iterator[Box]:
    """The highest roof in the enlarged part, where it is inside."""
    if axes.holds(axes.x[0], peak[1]):
        a, b = (axes.place(x, peak[1]) for x in axes.x)
        d.line(a, b, "roof")
        d.text(b[0] - 4, b[1] - 5, f"{peak[0]} {peak[1]:.3g}", "label end roof-text")
        yield b[0] - 140, b[1] - 16, b[0], b[1]


def _cublas(d: Drawing, axes: Axes, speed: float | None) -> Iterator[Box]:
    """The speed of cuBLAS as a line; the enlarged part has a style class of its own."""
    if speed is None or not axes.holds(axes.x[0], speed):
        return
    a, b = (axes.place(x, speed) for x in axes.x)
    whole = axes.box[1] == TOP
    text = f"cuBLAS {speed:.3g}, measured"
    d.line(a, b, "cublas" if whole else "cublas-again")
    d.text(a[0] + 5, a[1] - 5, text, "label")
    yield a[0], a[1] - 16, a[0] + 5 + LETTER * len(text), a[1]


def _frame(d: Drawing, axes: Axes, inner: Axes, points: Sequence[Point]) -> None:
    """The frame of the enlarged part in the whole chart, and the frame of its panel."""
    left, right = min(x for x, _ in points) - 8, max(x for x, _ in points) + 8
    top, bottom = min(y for _, y in points) - 8, max(y for _, y in points) + 8
    d.rect(left, top, right - left, bottom - top, "zoom", radius=4)
    low = axes.box[3] - 12
    d.line(((left + right) / 2, bottom), ((left + right) / 2, low - 12), "leader")
    d.text((left + right) / 2, low, "enlarged below", "label mid")
    x0, y0, x1, y1 = inner.box
    d.rect(x0, y0, x1 - x0, y1 - y0, "zoom", radius=4)
    for point in points:
        d.circle(*point, 2.6, "dot")


def _label_place(a: Point, b: Point, length: float, points: Sequence[Point]) -> Point:
    """Where along a roof its name starts: as far from the points as possible."""
    whole = hypot(b[0] - a[0], b[1] - a[1])
    most = max(0.0, 1 - length / whole)
    starts = [(a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])) for t in (most * i / 10 for i in range(1, 7))]
    step = length / 2 / whole

    def room(start: Point) -> float:
        middle = start[0] + step * (b[0] - a[0]), start[1] + step * (b[1] - a[1])
        return min((hypot(middle[0] - x, middle[1] - y) for x, y in points), default=0.0)

    return max(starts, key=room)


def _places(dots: Sequence[Dot], panels: Sequence[Axes], texts: Mapping[Axes, Sequence[Box]]) -> list[Point]:
    """The position of each rung's number in its panel."""
    found: dict[int, Point] = {}
    for axes, taken in texts.items():
        own = [i for i, panel in enumerate(panels) if panel is axes]
        points = [axes.place(dots[i].intensity, dots[i].speed) for i in own]
        room = Room(axes.box, BUBBLE, CLOSE if axes.box[1] == TOP else APART, taken)
        placed = spread(points, room, [dots[i].aside for i in own])
        found |= dict(zip(own, placed, strict=True))
    return [found[i] for i in range(len(dots))]


def _marks(d: Drawing, axes: Axes, dots: Sequence[Dot], inside: set[int]) -> None:
    """The modelled upper limits of the rungs that are not enlarged."""
    for i, dot in enumerate(dots):
        if i not in inside:
            x, y = axes.place(dot.intensity, dot.limit)
            d.line((x - 7, y), (x + 7, y), "limit")


def _arrows(
    d: Drawing, dots: Sequence[Dot], points: Sequence[Point], places: Sequence[Point], inside: set[int], head: str
) -> None:
    """Arrows from each rung to the next: in the enlarged part where both are there, else in the whole chart."""
    order = [i for i, dot in enumerate(dots) if not dot.aside]
    for i, j in pairwise(order):
        both = i in inside and j in inside
        a, b = (places[k] if both or k not in inside else points[k] for k in (i, j))
        short = 4 if not both and j in inside else BUBBLE + 2
        d.line(_toward(a, b, 4 if not both and i in inside else BUBBLE + 1), _toward(b, a, short), "arrow", end=head)


def _bubbles(d: Drawing, dots: Sequence[Dot], panels: Sequence[Axes], places: Sequence[Point]) -> None:
    for dot, axes, place in zip(dots, panels, places, strict=True):
        point = axes.place(dot.intensity, dot.speed)
        if place != point:
            d.line(point, place, "leader")
            d.circle(*point, 2.6, "dot")
    for dot, place in zip(dots, places, strict=True):
        kind = "measured" if dot.measured is not None else "modelled"
        said = f"{dot.name}: {dot.intensity:.3g} flop/byte, {dot.speed:.3g} TFLOP/s, {kind}"
        d.circle(*place, BUBBLE, f"bubble {kind}", said)
        d.text(place[0], place[1] + 4, str(dot.number), f"label mid bubble-text {kind}")


def _toward(a: Point, b: Point, distance: float) -> Point:
    length = hypot(b[0] - a[0], b[1] - a[1]) or 1.0
    part = min(distance, length / 2.2) / length
    return a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])
