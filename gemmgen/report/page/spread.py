"""Positions of the numbers of a chart: none covers another, and the arrows between them stay visible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import cos, hypot, pi, sin

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""

PASSES = 4
"""Passes in which each number moves to a better position, given those of the others."""
CLOSE = 2.4
"""Distance in radii at which numbers do not overlap."""
APART = 4.2
"""Distance in radii at which an arrow between two numbers is visible."""
UPRIGHT = 2.5
"""Cost of a vertical step relative to a horizontal one: readers read the height of a number."""
_TOUCHING, _COVERED, _CROSSED = 10_000.0, 400.0, 120.0
"""Costs of numbers that overlap, of an arrow under a third number, and of a leader under one."""


@dataclass(frozen=True)
class Room:
    """Room for numbers: the panel's ``box``, the ``radius`` of a number, the distance ``apart`` in radii, and the boxes
    of texts, which are ``taken``."""

    box: Box
    radius: float
    apart: float = CLOSE
    taken: Sequence[Box] = ()


def spread(points: Sequence[Point], room: Room, aside: Sequence[bool]) -> list[Point]:
    """A position for the number of each point, on it or near it. Arrows lead from each to the next, except those
    ``aside``."""
    arrows = list(pairwise(i for i, apart in enumerate(aside) if not apart))
    places = list(points)
    for _ in range(PASSES):
        for i, point in enumerate(points):
            tried = {at: [*places[:i], at, *places[i + 1 :]] for at in _candidates(point, room)}
            costs = {at: _cost(i, found, points, arrows, room) for at, found in tried.items()}
            places[i] = min(costs, key=costs.__getitem__)
    return places


def _cost(
    i: int, places: Sequence[Point], points: Sequence[Point], arrows: Sequence[tuple[int, int]], room: Room
) -> float:
    """The cost of the position of number ``i``, with all numbers at ``places``."""
    at, own, radius = places[i], points[i], room.radius
    others = [place for j, place in enumerate(places) if j != i]
    cost = hypot(at[0] - own[0], UPRIGHT * (at[1] - own[1]))
    cost += sum(_TOUCHING for place in others if distance(at, place) < room.apart * radius)
    cost += sum(_COVERED for box in room.taken if _within(at, box, radius))
    cost += sum(_CROSSED for place in others if at != own and passes(own, at, place, 1.2 * radius))
    for a, b in arrows:
        if i in (a, b):
            third = [p for j, p in enumerate(places) if j not in (a, b)]
            cost += sum(_COVERED for p in third if passes(places[a], places[b], p, 1.3 * radius))
            cost += 0.15 * distance(places[a], places[b])
        else:
            cost += _COVERED * passes(places[a], places[b], at, 1.3 * radius)
    return cost


def _candidates(point: Point, room: Room) -> Iterator[Point]:
    """The point itself, then positions around it, nearest first."""
    yield point
    for ring in range(2, 13):
        for turn in range(16):
            angle = turn * pi / 8
            at = point[0] + 13 * ring * cos(angle), point[1] + 13 * ring * sin(angle)
            if _inside(at, room.box, room.radius):
                yield at


def _inside(at: Point, box: Box, radius: float) -> bool:
    left, top, right, bottom = box
    return left + radius < at[0] < right - radius and top + radius < at[1] < bottom - radius


def _within(at: Point, box: Box, radius: float) -> bool:
    left, top, right, bottom = box
    return left - radius < at[0] < right + radius and top - radius < at[1] < bottom + radius


def distance(a: Point, b: Point) -> float:
    return hypot(b[0] - a[0], b[1] - a[1])


def passes(a: Point, b: Point, at: Point, near: float) -> bool:
    """Whether the line from ``a`` to ``b`` comes within ``near`` of a point."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = dx * dx + dy * dy
    t = 0.0 if not length else min(1.0, max(0.0, ((at[0] - a[0]) * dx + (at[1] - a[1]) * dy) / length))
    return hypot(a[0] + t * dx - at[0], a[1] + t * dy - at[1]) < near


def crowd(points: Sequence[Point], near: float, least: int) -> set[int]:
    """The largest group of points that each have another within ``near``; empty where it has fewer than ``least``."""
    groups: list[set[int]] = []
    for i, point in enumerate(points):
        joined = [g for g in groups if any(distance(point, points[j]) < near for j in g)]
        groups = [g for g in groups if g not in joined] + [{i}.union(*joined)]
    largest = max(groups, key=len, default=set())
    return largest if len(largest) >= least else set()
