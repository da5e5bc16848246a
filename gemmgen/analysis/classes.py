"""Which turns of a loop cost the same.

The cost of an access depends on which lanes are active and on its address modulo a cache line. Along one index the
active lanes change in a few places only (where a row reaches the edge of a matrix), which a binary search finds, and
between those the address repeats modulo a line after a few turns. So one turn of each kind, weighted by how often it
occurs, stands for all of them: exactly, whatever the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import TYPE_CHECKING

from gemmgen.analysis.accesses import Axis
from gemmgen.ir.expr import Bin, Const, Expr, Var, value_of
from gemmgen.ir.facts import variables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

DECISIONS = ("min", "<", "==", "!=")


@dataclass(frozen=True)
class Classes:
    """Values of one index that stand for all, and how many each stands for."""

    index: Var
    values: tuple[int, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True)
class Growth:
    """For every lane, the expression at ``v + period`` is the one at ``v`` plus ``step``."""

    period: int
    step: int


def evaluate(e: Expr, values: Mapping[str, Ints]) -> Ints:
    """The expression for arrays of index values, by name; they broadcast."""
    import numpy as np

    match e:
        case Const(value, _):
            return np.asarray(value, dtype=np.int64)
        case Var(name):
            return values[name]
        case Bin(op, a, b):
            result: Ints = _ARRAY[op](evaluate(a, values), evaluate(b, values))
            return result
        case _:
            raise TypeError(f"not an index expression: {e!r}")


def _minimum(a: Ints, b: Ints) -> Ints:
    import numpy as np

    smaller: Ints = np.minimum(a, b)
    return smaller


_ARRAY: Mapping[str, Callable[[Ints, Ints], Ints]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "<": lambda a, b: (a < b) * 1,
    "==": lambda a, b: (a == b) * 1,
    "!=": lambda a, b: (a != b) * 1,
    "&&": lambda a, b: ((a != 0) & (b != 0)) * 1,
    "min": _minimum,
}


def classify(axis: Axis, exprs: Sequence[Expr], axes: Sequence[Axis], lanes: Mapping[str, Ints], unit: int) -> Classes:
    """Classes of the axis' index for an access of these expressions (address first, then the condition), whose cost
    depends on the address modulo ``unit`` elements. ``axes`` are all the axes, ``lanes`` the thread numbers."""
    nodes = [d for d in dict.fromkeys(d for e in exprs for d in decisions(e)) if _mentions(d, axis.index)]
    if any(not _leads(axis, d, axes) or not _monotone(d, axis.index) for d in nodes):
        return Classes(axis.index, tuple(range(axis.count)), (1,) * axis.count)
    values: list[int] = []
    weights: list[int] = []
    for first, last, outcomes in _intervals(axis, nodes, axes, lanes):
        grown = growth(exprs[0], axis.index, outcomes)
        period = last - first + 1 if grown is None else grown.period * (unit // gcd(unit, grown.step))
        for value in range(first, min(last + 1, first + period)):
            values.append(value)
            weights.append((last - value) // period + 1)
    return Classes(axis.index, tuple(values), tuple(weights))


def decisions(e: Expr) -> Iterator[Bin]:
    """The comparisons and minima in an expression."""
    if isinstance(e, Bin):
        if e.op in DECISIONS:
            yield e
        yield from decisions(e.a)
        yield from decisions(e.b)


def _mentions(e: Expr, v: Var) -> bool:
    return any(x == v for x in variables(e))


def _leads(axis: Axis, node: Bin, axes: Sequence[Axis]) -> bool:
    """Whether the axis is the longest that the decision depends on; the others are then few, and gone through."""
    rank = {a.index: (a.count, a.index.name) for a in axes}
    return all(rank[v] <= rank[axis.index] for v in variables(node) if v in rank)


def _monotone(node: Bin, v: Var) -> bool:
    """Whether ``a - b`` only rises or only falls along v: then equal signs at two places mean equal signs between."""
    return _slope(Bin("-", node.a, node.b), v) is not None


def _slope(e: Expr, v: Var) -> int | None:
    """1 where the expression never falls along v, -1 where it never rises, 0 where neither; None where unknown."""
    if not _mentions(e, v):
        return 0
    match e:
        case Var():
            return 1
        case Bin("+" | "min", a, b):
            return _agreed(_slope(a, v), _slope(b, v))
        case Bin("-", a, b):
            falling = _slope(b, v)
            return _agreed(_slope(a, v), None if falling is None else -falling)
        case Bin("*", a, b):
            inner, factor = (a, b) if _mentions(a, v) else (b, a)
            slope, by = _slope(inner, v), value_of(factor)
            return None if slope is None or by is None else slope * (by > 0) - slope * (by < 0)
        case Bin("/", a, b):
            return _slope(a, v) if not _mentions(b, v) else None
        case _:
            return None


def _agreed(a: int | None, b: int | None) -> int | None:
    if a is None or b is None or a * b < 0:
        return None
    return a or b


Outcomes = Mapping[Bin, "Ints"]


def _intervals(
    axis: Axis, nodes: Sequence[Bin], axes: Sequence[Axis], lanes: Mapping[str, Ints]
) -> Iterator[tuple[int, int, Outcomes]]:
    """Stretches (first, last, outcomes) of the index in which every decision comes out alike, lane by lane."""
    first = 0
    while first < axis.count:
        outcomes = _outcomes(axis, first, nodes, axes, lanes)
        same, other = first, axis.count
        if nodes and not _alike(outcomes, _outcomes(axis, axis.count - 1, nodes, axes, lanes)):
            while other - same > 1:
                middle = (same + other) // 2
                if _alike(outcomes, _outcomes(axis, middle, nodes, axes, lanes)):
                    same = middle
                else:
                    other = middle
        else:
            same = axis.count - 1
        yield first, same, outcomes
        first = same + 1


def _outcomes(
    axis: Axis, value: int, nodes: Sequence[Bin], axes: Sequence[Axis], lanes: Mapping[str, Ints]
) -> dict[Bin, Ints]:
    """Sign of ``a - b`` of each decision at one value of the index, for all lanes and all values of other indices."""
    import numpy as np

    out: dict[Bin, Ints] = {}
    for node in nodes:
        names = {v.name for v in variables(node)}
        others = [a for a in axes if a.index.name in names and a.index != axis.index]
        grid = index_values([(a.index, range(a.count)) for a in others], lanes)
        grid[axis.index.name] = np.asarray(value, dtype=np.int64)
        out[node] = np.sign(evaluate(node.a, grid) - evaluate(node.b, grid))
    return out


def _alike(a: Outcomes, b: Outcomes) -> bool:
    return all(bool((a[node] == b[node]).all()) for node in a)


def index_values(axes: Sequence[tuple[Var, Sequence[int]]], lanes: Mapping[str, Ints]) -> dict[str, Ints]:
    """Arrays of index values that broadcast against each other: an axis each, then those of the lanes [warps, 32]."""
    import numpy as np

    out = dict(lanes)
    for position, (index, values) in enumerate(axes):
        after = len(axes) - position - 1 + 2
        out[index.name] = np.asarray(values, dtype=np.int64).reshape((-1,) + (1,) * after)
    return out


def growth(e: Expr, v: Var, outcomes: Outcomes) -> Growth | None:
    """How the expression grows along v where the decisions come out so; None where lanes differ in it."""
    if not _mentions(e, v):
        return Growth(1, 0)
    match e:
        case Var():
            return Growth(1, 1)
        case Bin("min", a, b) as node:
            return _min_growth(growth(a, v, outcomes), growth(b, v, outcomes), outcomes.get(node))
        case Bin("+" | "-" as op, a, b):
            x, y = growth(a, v, outcomes), growth(b, v, outcomes)
            if x is None or y is None:
                return None
            period = lcm(x.period, y.period)
            other = y.step * (period // y.period)
            return Growth(period, x.step * (period // x.period) + (other if op == "+" else -other))
        case Bin("<" | "==" | "!=") as node:
            return None if _decided(node, outcomes) is None else Growth(1, 0)
        case Bin("*", a, b):
            for condition, chosen in ((a, b), (b, a)):
                if (holds := _decided(condition, outcomes)) is not None:
                    return growth(chosen, v, outcomes) if holds else Growth(1, 0)
            inner, factor = (a, b) if _mentions(a, v) else (b, a)
            return _scaled(growth(inner, v, outcomes), None if _mentions(factor, v) else factor)
        case Bin("/" | "%" | "&" | "^" as op, a, b) if not _mentions(b, v):
            return _bitwise(op, growth(a, v, outcomes), b)
        case Bin("^", a, b) if not _mentions(a, v):
            return _bitwise("^", growth(b, v, outcomes), a)
        case _:
            return None


def _decided(e: Expr, outcomes: Outcomes) -> bool | None:
    """Whether a comparison holds, where it comes out alike for all lanes; None where it does not, or is none."""
    if not isinstance(e, Bin) or e.op not in ("<", "==", "!=") or e not in outcomes:
        return None
    sign = outcomes[e]
    holds = sign < 0 if e.op == "<" else (sign == 0) == (e.op == "==")
    return bool(holds.flat[0]) if holds.size and bool((holds == holds.flat[0]).all()) else None


def _min_growth(a: Growth | None, b: Growth | None, outcome: Ints | None) -> Growth | None:
    if a is not None and a == b:
        return a
    if outcome is None:
        return None
    if bool((outcome <= 0).all()):
        return a
    return b if bool((outcome >= 0).all()) else None


def _scaled(g: Growth | None, factor: Expr | None) -> Growth | None:
    if g is None or factor is None:
        return None
    by = value_of(factor)
    if by is None:
        return g if g.step == 0 else None
    return Growth(g.period, g.step * by)


def _bitwise(op: str, g: Growth | None, b: Expr) -> Growth | None:
    """Growth of ``a op b`` for a division, remainder, mask or exclusive or with a ``b`` that is the same all along."""
    if g is None:
        return None
    if op == "^":
        from gemmgen.ir.expr import bounds

        high = bounds(b)[1]
        if high is None:
            return None
        whole = 1 << high.bit_length()  # an exclusive or with less than this leaves multiples of it alone
    else:
        c = value_of(b)
        if c is None or c < 1:
            return None
        whole = 1 << c.bit_length() if op == "&" else c
    turns = whole // gcd(whole, g.step)
    step = g.step * turns
    match op:
        case "/":
            return Growth(g.period * turns, step // whole)
        case "^":
            return Growth(g.period * turns, step)
        case _:
            return Growth(g.period * turns, 0)
