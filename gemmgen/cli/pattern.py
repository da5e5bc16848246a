"""Word addresses of a warp's lanes, as typed on the command line."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from gemmgen.cli.exits import UsageError
from gemmgen.ir.types import WARP

INACTIVE = "-"

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}


def words_of(text: str) -> list[int | None]:
    """The word of each lane: up to 32 numbers separated by commas, ``-`` for an inactive lane; or an expression of
    ``lane`` with + - * / % ^ & | and parentheses, in whole numbers. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1:
        if len(parts) > WARP:
            raise UsageError(f"--pattern has {len(parts)} addresses; a warp has {WARP} lanes")
        return [None if part == INACTIVE else _number(part) for part in parts]
    tree = _parsed(text)
    words = [_value(tree, lane, text) for lane in range(WARP)]
    for lane, word in enumerate(words):
        if word < 0:
            raise UsageError(f"--pattern {text!r}: lane {lane} has address {word}, which is negative")
    return list(words)


def _number(part: str) -> int:
    if not (part.isascii() and part.isdigit()):
        raise UsageError(f"--pattern: {part!r} is not a word address; write a whole number, or {INACTIVE}")
    return int(part)


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UsageError(f"--pattern {text!r} is not an expression of lane, like 'lane*2'") from None


def _value(e: ast.expr, lane: int, text: str) -> int:
    match e:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id="lane"):
            return lane
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left, lane, text), _value(right, lane, text)
            if b == 0 and isinstance(op, ast.Div | ast.FloorDiv | ast.Mod):
                raise UsageError(f"--pattern {text!r} divides by zero at lane {lane}")
            return _OPERATORS[type(op)](a, b)
        case _:
            raise UsageError(
                f"--pattern {text!r}: only whole numbers, lane, + - * / % ^ & | and parentheses are understood"
            )
