"""All legal combinations of some choices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from gemmgen.diagnostics import Problem, SpecError, shown
from gemmgen.spec.model import Spec
from gemmgen.spec.replace import legal, settled


def variants(spec: Spec, **choices: Iterable[Any]) -> Iterator[Spec]:
    """The legal specs among all combinations of the choices, each once, the last choice varying fastest.

    ``variants(spec, block=[(64, 64, 8), (128, 128, 8)], thread=[(4, 4), (8, 8)])``. Combinations that break a rule
    are left out; an unknown setting or a value of the wrong kind raises SpecError at once.
    """
    columns: list[list[tuple[str, Any]]] = []
    for name, values in choices.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise SpecError([Problem(f"{name} takes a list of values to choose from, not {shown(values)}")])
        try:
            given = list(values)
        except TypeError:  # an iterable only in name, such as an array of no dimensions
            raise SpecError([Problem(f"{name} takes a list of values to choose from, not {shown(values)}")]) from None
        columns.append([(name, settled({name: value})[name]) for value in given])
    return _legal(spec, columns)


def _legal(spec: Spec, columns: list[list[tuple[str, Any]]]) -> Iterator[Spec]:
    seen: set[Spec] = set()
    for combination in itertools.product(*columns):
        try:
            variant = legal(spec, dict(combination), hints=False)
        except SpecError:
            continue
        if variant not in seen:
            seen.add(variant)
            yield variant
