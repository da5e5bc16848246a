"""Values that go with a loop: printed as variables that each turn moves on, instead of being computed anew.

The program says what they are in every turn, which is what the simulator and the counts know of them. Compilers do not
always see that a remainder or a product can be kept by counting, and in the main loop it shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.cuda.terms import Env, Moving, expression, first_of, terms_of, total
from gemmgen.ir.expr import Bin, Const, Expr, Var, value_of
from gemmgen.ir.facts import substitute, variables
from gemmgen.ir.nodes import Array, For, Let, Load, Stmt, walk

OPERAND = {"As": "A", "Bs": "B"}


@dataclass(frozen=True)
class Offset:
    """How far into a shared array a thread's loads begin, in bytes: ``start`` before the loop, ``step`` more a turn.

    Where it is a pointer, both are in elements from the start of the array.
    """

    array: Array
    moving: Moving
    start: Expr
    step: Expr

    @property
    def kind(self) -> str:
        return "const float*" if self.moving.pointer else "int"

    def begins(self, env: Env) -> str:
        """Text of its value before the loop."""
        text = expression(self.start, env)
        if not self.moving.pointer:
            return text
        return first_of(self.array) + ("" if text == "0" else f" + {text}")

    def why(self) -> str:
        return f"where in {self.array.name} this thread reads{'' if self.moving.pointer else ', in bytes'}"


def offsets(s: For, pointers: bool = False) -> list[Offset]:
    """Of a loop that stays rolled, one for each shared array whose pinned loads all begin at the same place and are
    moved on by as much.

    ``pointers``: with the array's address in it, which compilers make anew in each turn where the loop is in that over
    tiles of C.
    """
    if s.unroll is not False:
        return []
    inner = frozenset(x.var for x in walk(s.body) if isinstance(x, For | Let))
    found: dict[Array, set[tuple[Expr, Expr | None]]] = {}
    for load in walk(s.body):
        if isinstance(load, Load) and load.pinned and load.src.array.name in OPERAND:
            unit = 1 if pointers else load.src.array.dtype.bytes
            found.setdefault(load.src.array, set()).add(_split(terms_of(load.src, unit), s.var, inner))
    out = []
    for array, places in sorted(found.items(), key=lambda row: row[0].name):
        (start, step), *more = places
        if step is not None and not more:
            name = Var(f"{'from' if pointers else 'at'}{OPERAND[array.name]}", 0, None)
            out.append(Offset(array, Moving(name, s.var, inner, pointers), start, step * s.step))
    return out


def _split(terms: list[Expr], loop: Var, inner: frozenset[Var]) -> tuple[Expr, Expr | None]:
    """What a sum of terms is where the loop begins, the loops inside it aside, and how much one more of the loop's
    variable adds (None: not always as much)."""
    fixed = [t for t in terms if not {loop, *inner} & set(variables(t))]
    varying = [t for t in terms if loop in variables(t)]
    if not all(_proportional(t, loop) for t in varying):
        return total(fixed), None
    return total(fixed), total(substitute(t, {loop: Const(1)}) for t in varying)


def _proportional(term: Expr, loop: Var) -> bool:
    zero, one, two = (value_of(substitute(term, {loop: Const(v)})) for v in (0, 1, 2))
    return zero == 0 and one is not None and two == 2 * one


@dataclass(frozen=True)
class Ring:
    """``stage`` goes round 0 .. ``size`` - 1; ``parity``, where it is kept, changes each time it has been round."""

    stage: Let
    size: Expr
    parity: Let | None

    @property
    def lets(self) -> tuple[Let, ...]:
        return (self.stage,) if self.parity is None else (self.stage, self.parity)

    def starts(self, of: Var) -> list[tuple[Let, Expr]]:
        """The values, and what they are before the first turn of the loop over ``of``."""
        return [(x, substitute(x.expr, {of: Const(0)})) for x in self.lets]

    def turn(self, env: Env) -> tuple[str, list[str]]:
        """The condition at the end of a turn under which the ring has been round, having moved on, and what is then."""
        names = [f"{self.stage.var.name} = 0;", *(f"{x.var.name} ^= 1;" for x in self.lets[1:])]
        return f"++{self.stage.var.name} == {expression(self.size, env)}", names


def _counts(e: Expr, of: Var) -> bool:
    """Whether the expression is one more whenever ``of`` is."""
    match e:
        case Bin("+", before, last):
            return last == of and of not in variables(before)
        case _:
            return e == of


def ring(body: tuple[Stmt, ...], of: Var) -> Ring | None:
    """The counted values of a loop over ``of``, which are ``of % size`` and ``of / size % 2``, ``of`` being counted
    from any value on (``before + of``)."""
    counted = [s for s in body if isinstance(s, Let) and s.counted]
    if not counted:
        return None
    stage, *parity = counted
    assert isinstance(stage.expr, Bin) and stage.expr.op == "%" and _counts(stage.expr.a, of), stage
    return Ring(stage, stage.expr.b, parity[0] if parity else None)
