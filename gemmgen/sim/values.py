"""Evaluating forms over the lanes of a batch, remembering what does not change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np

from gemmgen.ir.expr import Bin, Expr
from gemmgen.sim.index import Atom, Form, Scope, add, form_of, scale
from gemmgen.sim.lanes import Batch, Bools, Ints, Mask, Truth, as_truth

T = TypeVar("T")
REMEMBERED_BYTES = 32 << 20
"""Most bytes of one expression's values for different loop variables that are kept."""


class Part:
    """The lane part of an index: one integer a lane, with its range, and what was found out about it."""

    __slots__ = ("_index", "array", "hi", "lo", "memo")

    def __init__(self, array: Ints) -> None:
        self.array = array
        self.lo = int(array.min())
        self.hi = int(array.max())
        self.memo: dict[Hashable, Any] = {}
        self._index: dict[tuple[int, int, int | None], Ints] = {}

    def range(self, active: Mask | None) -> tuple[int, int]:
        """Smallest and largest value over the active lanes."""
        if active is None or not active.lasting:
            return self.lo, self.hi
        found: tuple[int, int] | None = self.memo.get(active)
        if found is None:
            values = self.array[active.array]
            found = self.memo[active] = int(values.min()), int(values.max())
        return found

    def residue(self, width: int) -> int:
        """The remainder modulo ``width`` that all lanes share, -1 where they differ."""
        key = ("residue", width)
        found: int | None = self.memo.get(key)
        if found is None:
            first = int(self.array[0]) % width
            found = self.memo[key] = first if bool((self.array % width == first).all()) else -1
        return found

    def index(self, width: int, block: Ints, block_words: int, rank: int | None = None) -> Ints:
        """Positions relative to the smallest, [width, lanes], each block ``block_words`` after the one before: those of
        ``rank`` in the lanes' clusters, or the lanes' own."""
        key = (width, block_words, rank)
        found = self._index.get(key)
        if found is None:
            base = self.array - self.lo + block * block_words if block_words else self.array - self.lo
            found = self._index[key] = base[None, :] + np.arange(width, dtype=np.int64)[:, None]
        return found

    def compare(self, op: str, offset: int) -> Truth:
        """``value + offset op 0`` in each lane."""
        lo, hi = self.lo + offset, self.hi + offset
        if op == "<":
            if hi < 0 or lo >= 0:
                return hi < 0
        elif lo == hi or lo > 0 or hi < 0:
            return (lo == 0 == hi) == (op == "==")
        key = (op, offset)
        found: Truth | None = self.memo.get(key)
        if found is None:
            values = self.array + offset
            array: Bools = values < 0 if op == "<" else values == 0 if op == "==" else values != 0
            lasting = len(self.memo) < 256
            found = as_truth(array, lasting)
            if lasting:
                self.memo[key] = found
        return found


class Remembered(Generic[T]):
    """A value that depends on a few loop variables, made once a batch for each of their values."""

    def __init__(self, values: Values, deps: frozenset[int], make: Callable[[], T]) -> None:
        self._values = values
        self._deps = tuple(sorted(deps))
        self._make = make
        self._batch: Batch | None = None
        self._single: T | None = None
        self._many: dict[tuple[int, ...], T] = {}

    def __call__(self) -> T:
        if self._batch is not self._values.batch:
            self._batch, self._single = self._values.batch, None
            self._many.clear()
        if not self._deps:
            if self._single is None:
                self._single = self._make()
            return self._single
        e = self._values.env
        key = tuple([e[d] for d in self._deps])
        found = self._many.get(key)
        if found is None:
            if len(self._many) * self._values.batch.lanes * 16 > REMEMBERED_BYTES:
                self._many.clear()
            found = self._many[key] = self._make()
        return found


class Values:
    """The loop variables (``env``) and the batch that forms are evaluated over."""

    def __init__(self) -> None:
        self.env: list[int] = []
        self.batch: Batch = Batch(0, 1, 1, (1, 1, 1))
        self._parts: dict[tuple[tuple[Atom, int], ...], Remembered[Part]] = {}
        self._atoms: dict[Atom, Remembered[Ints]] = {}

    def slot(self) -> int:
        """A place for one more loop variable."""
        self.env.append(0)
        return len(self.env) - 1

    def uniform(self, form: Form) -> Callable[[], int]:
        """The part of a form that all lanes share, as a function of the current loop variables."""
        text = form.source
        if not form.uniform:
            value = int(form.const)
            return lambda: value
        made: Callable[[], int] = eval(f"lambda: {text}", {"e": self.env, "min": min})
        return made

    def part(self, form: Form) -> Remembered[Part]:
        """The part of a form that differs between lanes."""
        terms = form.terms
        found = self._parts.get(terms)
        if found is None:
            deps = frozenset[int]().union(*(a.deps for a, _ in terms))
            found = self._parts[terms] = Remembered(self, deps, lambda: Part(self._sum(terms)))
        return found

    def array(self, form: Form) -> Callable[[], Ints]:
        """A form's value in every lane."""
        part, offset = self.part(form), self.uniform(form)
        return lambda: part().array + offset()

    def truth(self, e: Expr, scope: Scope) -> Callable[[], Truth]:
        """A condition."""
        match e:
            case Bin("&&", a, b):
                first, second = self.truth(a, scope), self.truth(b, scope)
                return lambda: _and(first(), second)
            case Bin(("<" | "==" | "!=") as op, a, b):
                x, y = form_of(a, scope), form_of(b, scope)
                return self._comparison(op, x, y)
            case _:
                return self._comparison("!=", form_of(e, scope), Form())

    def _comparison(self, op: str, x: Form, y: Form) -> Callable[[], Truth]:
        if x.is_constant and y.is_constant:
            holds = {"<": x.const < y.const, "==": x.const == y.const, "!=": x.const != y.const}[op]
            return lambda: holds
        difference = add(x, scale(y, -1))
        offset = self.uniform(difference)
        if not difference.terms:
            uniform: dict[str, Callable[[], Truth]] = {
                "<": lambda: offset() < 0,
                "==": lambda: offset() == 0,
                "!=": lambda: offset() != 0,
            }
            return uniform[op]
        part = self.part(difference)
        return lambda: part().compare(op, offset())

    def _sum(self, terms: tuple[tuple[Atom, int], ...]) -> Ints:
        total = np.zeros(self.batch.lanes, np.int64)
        for atom, k in terms:
            total += self._atom(atom)() * k
        return total

    def _atom(self, atom: Atom) -> Remembered[Ints]:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = Remembered(self, atom.deps, self._atom_maker(atom))
        return found

    def _atom_maker(self, atom: Atom) -> Callable[[], Ints]:
        if atom.op == "var":
            return lambda: self.batch.builtin[atom.name]
        a, b, meaning = self.array(atom.a), self.array(atom.b), _MEANING[atom.op]
        return lambda: np.asarray(meaning(a(), b()), dtype=np.int64)


def _and(first: Truth, second: Callable[[], Truth]) -> Truth:
    if first is False:
        return False
    other = second()
    if first is True or other is False:
        return other
    if other is True:
        return first
    assert isinstance(first, Mask) and isinstance(other, Mask)
    mask = first.both(other)
    return mask if mask.count else False


_MEANING: dict[str, Callable[[Ints, Ints], Any]] = {
    "*": np.multiply,
    "/": np.floor_divide,
    "%": np.remainder,
    "^": np.bitwise_xor,
    "&": np.bitwise_and,
    "min": np.minimum,
    "<": np.less,
    "==": np.equal,
    "!=": np.not_equal,
    "&&": np.logical_and,
}
