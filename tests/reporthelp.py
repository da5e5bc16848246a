"""What the report knows of each rung, worked out once for all tests of a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from gemmgen.report.ladder import RUNGS
from gemmgen.report.page import modelled_gpu
from gemmgen.report.page.facts import RungFacts, facts_of

Size = tuple[int, int, int]


@cache
def rung_at(number: int, size: Size) -> RungFacts:
    """A rung for a product of this size on the GPU that is modelled where there is none."""
    return facts_of(number, RUNGS[number], size, modelled_gpu(None))


def rungs_at(size: Size) -> tuple[RungFacts, ...]:
    """Every rung; the compiler makes all of them, which takes about a minute where nothing is cached."""
    return tuple(rung_at(number, size) for number in range(len(RUNGS)))


def some_at(size: Size, names: Sequence[str]) -> list[RungFacts]:
    """The rungs of these names as a ladder of their own, numbered from 0."""
    numbers = [i for i, rung in enumerate(RUNGS) if rung.spec in names]
    return [replace(rung_at(n, size), number=i) for i, n in enumerate(numbers)]
