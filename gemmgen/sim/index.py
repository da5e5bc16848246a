"""Index expressions, split into what differs between lanes and what does not.

A :class:`Form` is ``const + uniform + sum(coefficient * atom)``: a number known at launch (sizes and strides are
folded in), Python text over the loop variables, and lane atoms (threadIdx.x, blockIdx, and what cannot be split:
quotients, remainders, minima). The lane part of an access is then computed once a batch, and a trip of a loop
costs one small integer sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gemmgen.ir.expr import Bin, Const, Select, Var
from gemmgen.ir.integers import apply

if TYPE_CHECKING:
    from gemmgen.ir.expr import Expr

Scope = Mapping[str, "Form"]


@dataclass(frozen=True)
class Form:
    """``const + uniform + sum(coefficient * atom)``; ``uniform`` is Python text over ``e``, ``deps`` its slots."""

    const: int | float = 0
    uniform: str = ""
    deps: frozenset[int] = frozenset()
    terms: tuple[tuple[Atom, int], ...] = ()

    @property
    def source(self) -> str:
        """Python text of the part that is the same for all lanes."""
        if not self.uniform:
            return str(self.const)
        return f"({self.const} + {self.uniform})" if self.const else self.uniform

    @property
    def all_deps(self) -> frozenset[int]:
        """Loop variables that the value depends on."""
        return self.deps.union(*(a.deps for a, _ in self.terms))

    @property
    def is_constant(self) -> bool:
        return not self.uniform and not self.terms


@dataclass(frozen=True)
class Atom:
    """A value that differs between lanes: a built-in variable (op "var"), or ``a op b``."""

    op: str
    name: str = ""
    a: Form = Form()
    b: Form = Form()
    deps: frozenset[int] = field(default=frozenset(), compare=False)


def variable(slot: int) -> Form:
    """A loop variable kept in ``e[slot]``."""
    return Form(uniform=f"e[{slot}]", deps=frozenset({slot}))


def builtin(name: str) -> Form:
    """threadIdx.x, blockIdx.x, blockIdx.y or blockIdx.z."""
    return Form(terms=((Atom("var", name), 1),))


def form_of(e: Expr, scope: Scope) -> Form:
    """The form of an expression. Raises ValueError for a variable that nothing in ``scope`` defines."""
    match e:
        case Const(value):
            return Form(value)
        case Var(name):
            if name not in scope:
                raise ValueError(f"the kernel uses {name}, which nothing defines")
            return scope[name]
        case Select():
            return form_of(e.arithmetic, scope)
        case Bin(op, a, b):
            return combine(op, form_of(a, scope), form_of(b, scope))
        case _:
            raise TypeError(f"not an index expression: {e!r}")


def combine(op: str, a: Form, b: Form) -> Form:
    """``a op b``."""
    if a.is_constant and b.is_constant:
        return Form(_exact(op, a.const, b.const))
    match op:
        case "+":
            return add(a, b)
        case "-":
            return add(a, scale(b, -1))
        case "*":
            return _product(a, b)
        case _ if not a.terms and not b.terms:
            return Form(uniform=_TEXT[op].format(a.source, b.source), deps=a.deps | b.deps)
        case _:
            return _atom(op, a, b)


def add(a: Form, b: Form) -> Form:
    terms = dict(a.terms)
    for atom, k in b.terms:
        terms[atom] = terms.get(atom, 0) + k
    uniform = f"{a.uniform} + {b.uniform}" if a.uniform and b.uniform else a.uniform or b.uniform
    return Form(
        a.const + b.const,
        f"({uniform})" if a.uniform and b.uniform else uniform,
        a.deps | b.deps,
        tuple((atom, k) for atom, k in terms.items() if k),
    )


def scale(a: Form, k: int | float) -> Form:
    if k == 1:
        return a
    if k == 0:
        return Form()
    uniform = f"{a.uniform} * {k}" if a.uniform else ""
    return Form(a.const * k, uniform, a.deps, tuple((atom, int(c * k)) for atom, c in a.terms))


def _exact(op: str, x: int | float, y: int | float) -> int | float:
    return apply(op, x, y)  # type: ignore[arg-type]  # the scalars alpha and beta may stand in a condition


def _product(a: Form, b: Form) -> Form:
    if a.is_constant:
        return scale(b, a.const)
    if b.is_constant:
        return scale(a, b.const)
    if not a.terms and not b.terms:
        return Form(uniform=f"{a.source} * {b.source}", deps=a.deps | b.deps)
    if a.terms and b.terms:
        return _atom("*", a, b)
    lanes, factor = (a, b) if a.terms else (b, a)
    flat = Form(lanes.const, lanes.uniform, lanes.deps)
    return add(_product(flat, factor), _atom("*", Form(terms=lanes.terms), factor))


def _atom(op: str, a: Form, b: Form) -> Form:
    return Form(terms=((Atom(op, "", a, b, a.all_deps | b.all_deps), 1),))


_TEXT: Mapping[str, str] = {
    "/": "({} // {})",
    "%": "({} % {})",
    "^": "({} ^ {})",
    "&": "({} & {})",
    "min": "min({}, {})",
    "<": "int({} < {})",
    "==": "int({} == {})",
    "!=": "int({} != {})",
    "&&": "int(bool({}) and bool({}))",
}
