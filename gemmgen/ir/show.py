"""The text of index expressions: C, with no more parentheses than C needs."""

from __future__ import annotations

from gemmgen.ir.expr import Bin, Const, Expr, Select, Var

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
