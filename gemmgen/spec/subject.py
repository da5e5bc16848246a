"""A spec under check, and what would mend it: hints are tried before they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any

from gemmgen.diagnostics import Problem, Span
from gemmgen.spec.model import PARTS, TOGGLES, Spec
from gemmgen.spec.suggest import dependents, either

UNFIT = 0.5
"""How many mistakes a legal spec has that does not fit: fewer than any that is not legal."""
TRIED = 32
"""Changes that are tried at most for one hint."""


@dataclass(frozen=True)
class Subject:
    """A spec to check. ``bad`` are fields and sizes ("name", "BM") with a mistake already reported or left out by
    mistake: rules that need them are skipped. ``no_bk``: the block's BK was never given.

    A hint gives only what mends the spec, also by every other rule and by ``fits`` (whether a GPU has what a legal spec
    needs): rules ask ``mends``, ``first`` and ``leaving``. ``trying``: that is being
    found out, and needs no hints; ``find`` finds the mistakes of what is tried.
    """

    spec: Spec
    bad: frozenset[str] = frozenset()
    no_bk: bool = False
    fits: Callable[[Spec], bool] = lambda _: True
    trying: bool = False
    find: Callable[[Subject], list[Problem]] = lambda _: []

    def good(self, *names: str) -> bool:
        return self.bad.isdisjoint(names)

    def left(self, changes: Mapping[str, Any]) -> float:
        """Mistakes that are left after changes to fields of the spec."""
        no_bk = self.no_bk and "block" not in changes
        changed = replace(self, spec=replace(self.spec, **changes), no_bk=no_bk, trying=True)
        return len(self.find(changed)) or (0 if self.fits(changed.spec) else UNFIT)

    @cached_property
    def mistakes(self) -> float:
        return self.left({"block": self.spec.block} if not self.no_bk else {})

    def mends(self, **changes: Any) -> bool:
        """Whether changes lead to a legal spec that fits, or at least to one with fewer mistakes."""
        return not self.trying and self.left(changes) < self.mistakes and self.left(changes) != UNFIT

    def best(self, changes: Iterable[Mapping[str, Any]], most: int) -> tuple[float, list[Mapping[str, Any]]]:
        """The first changes that lead to a legal spec; if none does, of those that leave fewest mistakes; and how
        many those are."""
        found: dict[float, list[Mapping[str, Any]]] = {}
        for change in islice(changes, 0 if self.trying else TRIED):
            left = self.left(change)
            found.setdefault(left, []).append(change)
            if left == 0 and len(found[0]) == most:
                break
        fewest = min(found, default=inf)
        return (fewest, found[fewest][:most]) if found and fewest < self.mistakes else (inf, [])

    def first(self, changes: Iterable[Mapping[str, Any]], most: int = 1) -> list[Mapping[str, Any]]:
        """The first changes that mend the spec."""
        return self.best(changes, most)[1]

    def values(self, name: str, values: Iterable[Any], most: int = 1) -> list[Any]:
        """The first values of a field, or of a size of one ("BM"), that mend the spec."""
        return [self._value(name, change) for change in self.first(self._set(name, values), most)]

    def beside(self, name: str, below: Iterable[int], above: Iterable[int]) -> str:
        """The values next to a wrong one that mend the spec, for a sentence; empty where none does."""
        sides = [self.best(self._set(name, values), 1) for values in (below, above)]
        fewest = min(left for left, _ in sides)
        return " and ".join(str(self._value(name, c)) for left, changes in sides if left == fewest for c in changes)

    def _set(self, name: str, values: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        if name not in PARTS:
            return ({name: value} for value in values)
        field, i = PARTS[name]
        tile = getattr(self.spec, field)
        return ({field: (*tile[:i], value, *tile[i + 1 :])} for value in values)

    def _value(self, name: str, change: Mapping[str, Any]) -> Any:
        if name not in PARTS:
            return change[name]
        field, i = PARTS[name]
        return change[field][i]

    def at_least(self, name: str, number: int) -> str:
        """A hint to give a setting a number or more; empty where that does not mend the spec."""
        return f"write '{name} {number}' or more" if self.mends(**{name: number}) else ""

    def leaving(self, *toggles: str) -> str:
        """Which of the toggles to leave out, each with those that need it; empty where that does not mend the spec."""
        if self.trying:
            return ""
        groups = [dependents(self.spec.use, toggle) for toggle in toggles]
        options = {t.name: t.options for t in TOGGLES}
        found = [
            " and ".join(group)
            for group in groups
            if self.mends(use=self.spec.use - set(group), **dict.fromkeys((o for t in group for o in options[t]), None))
        ]
        return either(*(f"leave {group} out" for group in dict.fromkeys(found)))

    def span(self, *keys: str) -> Span | None:
        """Where the first of the settings that is written stands."""
        return next((self.spec.spans[k] for k in keys if k in self.spec.spans), None)
