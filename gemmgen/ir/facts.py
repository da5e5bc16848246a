"""What can be asked of a finished index expression: its width, who agrees on it, and what it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gemmgen.ir.expr import Bin, Expr, Select, Var, build, select


def is_wide(e: Expr) -> bool:
    """Whether the expression is computed in 64 bits."""
    match e:
        case Var(dtype="i64"):
            return True
        case Bin(_, a, b) | Select(_, a, b):
            return is_wide(a) or is_wide(b)
        case _:
            return False


def is_uniform(e: Expr) -> bool:
    """Whether all threads of a block agree on the value."""
    match e:
        case Var(uniform=uniform):
            return uniform
        case Bin(_, a, b):
            return is_uniform(a) and is_uniform(b)
        case Select(cond, a, b):
            return is_uniform(cond) and is_uniform(a) and is_uniform(b)
        case _:
            return True


def variables(e: Expr) -> Iterator[Var]:
    """Every variable of an expression, left to right, as often as it stands there."""
    match e:
        case Var():
            yield e
        case Bin(_, a, b):
            yield from variables(a)
            yield from variables(b)
        case Select(cond, a, b):
            for part in (cond, a, b):
                yield from variables(part)


def substitute(e: Expr, values: Mapping[Var, Expr]) -> Expr:
    """The expression with variables replaced, simplified again."""
    match e:
        case Var():
            return values.get(e, e)
        case Bin(op, a, b):
            return build(op, substitute(a, values), substitute(b, values))
        case Select(cond, a, b):
            return select(substitute(cond, values), substitute(a, values), substitute(b, values))
        case _:
            return e
