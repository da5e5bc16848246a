"""Index expressions: small, immutable, and simplified as they are built.

An expression stands for a non-negative integer (or a truth value) of one thread. Every variable carries its
range, so that building ``x // 8`` from an ``x`` known to lie in 0..7 gives the constant 0 rather than text
that a reader has to see through. Constants may carry a name (``BM``): arithmetic knows the value, and the text
shows the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Literal

from gemmgen.ir.integers import apply, bounds_of

DType = Literal["i32", "i64", "f32", "bool"]
Operand = "Expr | int"


class Expr:
    """A value of one thread, built with Python's operators (``//`` is the division of non-negative integers)."""

    __slots__ = ()

    def __add__(self, other: Expr | int) -> Expr:
        return add(self, lift(other))

    def __radd__(self, other: int) -> Expr:
        return add(lift(other), self)

    def __sub__(self, other: Expr | int) -> Expr:
        return sub(self, lift(other))

    def __rsub__(self, other: int) -> Expr:
        return sub(lift(other), self)

    def __mul__(self, other: Expr | int) -> Expr:
        return mul(self, lift(other))

    def __rmul__(self, other: int) -> Expr:
        return mul(lift(other), self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return div(self, lift(other))

    def __mod__(self, other: Expr | int) -> Expr:
        return mod(self, lift(other))

    def __xor__(self, other: Expr | int) -> Expr:
        return xor(self, lift(other))

    def __and__(self, other: Expr | int) -> Expr:
        """Bitwise and of two integers; use :func:`both` for conditions."""
        return bit_and(self, lift(other))

    def lt(self, other: Expr | int) -> Expr:
        return compare("<", self, lift(other))

    def eq(self, other: Expr | int) -> Expr:
        return compare("==", self, lift(other))

    def ne(self, other: Expr | int) -> Expr:
        return compare("!=", self, lift(other))

    def __str__(self) -> str:
        return show(self)


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """An integer; with a name, the text shows the name (``BM``)."""

    value: int
    name: str | None = None

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A variable: built in (``threadIdx.x``), a kernel argument (``M``), a loop's or a Let's.

    ``lo`` and ``hi`` are inclusive; ``hi`` None is unknown. ``divisor`` divides every value it takes.
    ``uniform`` says that all threads of a block agree on it. ``dtype`` i64 makes arithmetic with it 64-bit.
    """

    name: str
    lo: int = 0
    hi: int | None = None
    divisor: int = 1
    uniform: bool = False
    dtype: DType = "i32"

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Bin(Expr):
    """``a op b``; op is one of + - * / % ^ & < == != && min. ``/`` and ``%`` are of non-negative integers."""

    op: str
    a: Expr
    b: Expr

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """``cond ? a : b``."""

    cond: Expr
    a: Expr
    b: Expr

    __str__ = Expr.__str__

    @property
    def arithmetic(self) -> Expr:
        """The same value from sums and products alone."""
        return add(self.b, mul(self.cond, sub(self.a, self.b)))


TRUE = Const(1)
FALSE = Const(0)


def lift(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else Const(value)


def value_of(e: Expr) -> int | None:
    """The value of a constant expression, named or computed from named ones; None if it varies."""
    match e:
        case Const(value, _):
            return value
        case Bin(op, a, b):
            x, y = value_of(a), value_of(b)
            return None if x is None or y is None else apply(op, x, y)
        case _:
            return None


def bounds(e: Expr) -> tuple[int, int | None]:
    """Inclusive range of an expression's values; the upper end None where it is not known."""
    match e:
        case Const(value, _):
            return value, value
        case Var(_, lo, hi):
            return lo, hi
        case Bin(op, a, b):
            return bounds_of(op, bounds(a), bounds(b))
        case Select(_, a, b):
            (alo, ahi), (blo, bhi) = bounds(a), bounds(b)
            return min(alo, blo), None if ahi is None or bhi is None else max(ahi, bhi)
        case _:
            raise TypeError(f"not an index expression: {e!r}")


def divisor_of(e: Expr) -> int:
    """A number that divides every value of the expression; 0 for the constant 0."""
    match e:
        case Const(value, _):
            return abs(value)
        case Var(_, _, _, divisor):
            return divisor
        case Bin("+" | "-" | "%", a, b):
            return gcd(divisor_of(a), divisor_of(b))
        case Bin("*", a, b):
            return divisor_of(a) * divisor_of(b)
        case Bin("min", a, b) | Select(_, a, b):
            return gcd(divisor_of(a), divisor_of(b))
        case _:
            return 1


# --- Building, with simplification -----------------------------------------------------------------------------


def build(op: str, a: Expr, b: Expr) -> Expr:
    return _BUILD[op](a, b)


def _fold(op: str, a: Expr, b: Expr) -> Expr:
    """Plain numbers are computed; named constants stay visible."""
    if isinstance(a, Const) and isinstance(b, Const) and a.name is None and b.name is None:
        return Const(apply(op, a.value, b.value))
    return Bin(op, a, b)


def add(a: Expr, b: Expr) -> Expr:
    if value_of(a) == 0:
        return b
    if value_of(b) == 0:
        return a
    return _fold("+", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    if value_of(b) == 0:
        return a
    if a == b:
        return Const(0)
    return _fold("-", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    x, y = value_of(a), value_of(b)
    if x == 0 or y == 0:
        return Const(0)
    if x == 1:
        return b
    if y == 1:
        return a
    return _fold("*", a, b)


def div(a: Expr, b: Expr) -> Expr:
    c = value_of(b)
    if c == 1:
        return a
    lo, hi = bounds(a)
    if c is not None and lo >= 0 and hi is not None and hi < c:
        return Const(0)
    if c is not None and isinstance(a, Bin) and a.op == "+":
        # (x * c' + y) / c == x * (c' / c) + y / c  when c divides c'
        for multiple, rest in ((a.a, a.b), (a.b, a.a)):
            quotient = _exact_quotient(multiple, b, c)
            if quotient is not None and bounds(rest)[0] >= 0:
                return add(quotient, div(rest, b)) if multiple is a.a else add(div(rest, b), quotient)
    if c is not None:
        quotient = _exact_quotient(a, b, c)
        if quotient is not None:
            return quotient
    return _fold("/", a, b)


def _exact_quotient(e: Expr, b: Expr, c: int) -> Expr | None:
    """``e / c`` without a division, where ``e`` is a product with a constant that ``c`` divides."""
    if isinstance(e, Bin) and e.op == "*":
        for factor, other in ((e.a, e.b), (e.b, e.a)):
            v = value_of(factor)
            if v is not None and v % c == 0:
                return mul(other, Const(1) if v == c else _fold("/", factor, b))
    return None


def mod(a: Expr, b: Expr) -> Expr:
    c = value_of(b)
    if c == 1 or (c is not None and divisor_of(a) % c == 0):
        return Const(0)
    lo, hi = bounds(a)
    if c is not None and lo >= 0 and hi is not None and hi < c:
        return a
    if c is not None and isinstance(a, Bin) and a.op == "+":
        for multiple, rest in ((a.a, a.b), (a.b, a.a)):
            if divisor_of(multiple) % c == 0 and bounds(rest)[0] >= 0:
                return mod(rest, b)
    return _fold("%", a, b)


def xor(a: Expr, b: Expr) -> Expr:
    if value_of(a) == 0:
        return b
    if value_of(b) == 0:
        return a
    return _fold("^", a, b)


def bit_and(a: Expr, b: Expr) -> Expr:
    if value_of(a) == 0 or value_of(b) == 0:
        return Const(0)
    return _fold("&", a, b)


def smaller(a: Expr | int, b: Expr | int) -> Expr:
    """The smaller of two values."""
    a, b = lift(a), lift(b)
    (alo, ahi), (blo, bhi) = bounds(a), bounds(b)
    if ahi is not None and ahi <= blo:
        return a
    if bhi is not None and bhi <= alo:
        return b
    return _fold("min", a, b)


def both(a: Expr, b: Expr) -> Expr:
    """The conjunction of two conditions."""
    x, y = value_of(a), value_of(b)
    if x == 0 or y == 0:
        return FALSE
    if x is not None:
        return b
    if y is not None:
        return a
    return Bin("&&", a, b)


def select(cond: Expr, a: Expr | int, b: Expr | int) -> Expr:
    """``cond ? a : b``."""
    a, b = lift(a), lift(b)
    known = value_of(cond)
    if known is not None:
        return a if known else b
    return a if a == b else Select(cond, a, b)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    x, y = value_of(a), value_of(b)
    if x is not None and y is not None:
        return Const(apply(op, x, y))
    (alo, ahi), (blo, bhi) = bounds(a), bounds(b)
    if op == "<":
        if ahi is not None and ahi < blo:
            return TRUE
        if bhi is not None and alo >= bhi:
            return FALSE
    return Bin(op, a, b)


_BUILD: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": div,
    "%": mod,
    "^": xor,
    "&": bit_and,
    "min": smaller,
    "&&": both,
    "<": lambda a, b: compare("<", a, b),
    "==": lambda a, b: compare("==", a, b),
    "!=": lambda a, b: compare("!=", a, b),
}


_LEVEL = {"&&": 1, "^": 2, "&": 3, "==": 4, "!=": 4, "<": 5, "+": 6, "-": 6, "*": 7, "/": 7, "%": 7}


def show(e: Expr, level: int = 0) -> str:
    """C text of an expression. ``level`` is the binding strength of what surrounds it."""
    match e:
        case Const(value, name):
            return name or str(value)
        case Var(name):
            return name
        case Bin("min", a, b):
            return f"min({show(a)}, {show(b)})"
        case Bin(op, a, b):
            own = _LEVEL[op]
            # C warns about, and readers stumble over, bare mixes of bitwise and arithmetic operators.
            left = max(own, 8) if op in "^&" and op != "&&" else own
            right = max(own + 1, left) if op not in ("+", "&&") else left
            text = f"{show(a, left)} {op} {show(b, right)}"
            return f"({text})" if own < level else text
        case Select(cond, a, b):
            text = f"{show(cond, 1)} ? {show(a, 1)} : {show(b, 1)}"
            return f"({text})" if level else text
        case _:
            raise TypeError(f"not an index expression: {e!r}")
