"""Loops that disappear where they would run once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gemmgen.ir.expr import Const, Expr, lift
from gemmgen.ir.nodes import For, Stmt
from gemmgen.lower.scope import loop, trips


def nest(
    ranges: Sequence[tuple[str, Expr | int, Expr | int]],
    body: Callable[..., list[Stmt]],
    unroll: bool | None = True,
) -> list[Stmt]:
    """``for`` loops (name, stop, step), outermost first, around ``body(*variables)``.

    A loop of one trip is left out and its variable is 0, so that the text holds no loop that does not loop.
    """
    return _nest(list(ranges), [], body, unroll)


def _nest(
    ranges: list[tuple[str, Expr | int, Expr | int]],
    values: list[Expr],
    body: Callable[..., list[Stmt]],
    unroll: bool | None,
) -> list[Stmt]:
    if not ranges:
        return body(*values)
    (name, stop, step), rest = ranges[0], ranges[1:]
    if trips(stop, step) == 1:
        return _nest(rest, [*values, Const(0)], body, unroll)
    var, shape = loop(name, lift(stop), step=step, unroll=unroll)
    inner = _nest(rest, [*values, var], body, unroll)
    return [For(var, shape.start, shape.stop, shape.step, tuple(inner), unroll)]
