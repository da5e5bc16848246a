"""What the operators of index expressions mean for integers, and for ranges of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def apply(op: str, x: int, y: int) -> int:
    """The meaning of an operator on integers. Works on NumPy arrays too, except for ``min`` and ``&&``."""
    return _MEANING[op](x, y)


_MEANING: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "^": lambda x, y: x ^ y,
    "&": lambda x, y: x & y,
    "<": lambda x, y: int(x < y),
    "==": lambda x, y: int(x == y),
    "!=": lambda x, y: int(x != y),
    "&&": lambda x, y: int(bool(x) and bool(y)),
    "min": min,
}


def bounds_of(op: str, a: tuple[int, int | None], b: tuple[int, int | None]) -> tuple[int, int | None]:
    """Inclusive range of an operator's values for operands in these ranges; None where an upper end is not known."""
    (alo, ahi), (blo, bhi) = a, b
    both_known = ahi is not None and bhi is not None
    match op:
        case "+":
            return alo + blo, ahi + bhi if ahi is not None and bhi is not None else None
        case "-":
            low = alo - bhi if bhi is not None else -(1 << 62)
            return low, ahi - blo if ahi is not None else None
        case "*" if alo >= 0 and blo >= 0:
            return alo * blo, ahi * bhi if ahi is not None and bhi is not None else None
        case "/" if alo >= 0 and blo >= 1:
            return (alo // bhi if bhi is not None else 0), (ahi // blo if ahi is not None else None)
        case "/" if blo >= 1:  # towards zero in C, and down in Python
            return alo // blo, (max(0, ahi // blo) if ahi is not None else None)
        case "%" if alo >= 0 and bhi is not None:
            return 0, min(bhi - 1, ahi) if ahi is not None else bhi - 1
        case "min":
            highs = [h for h in (ahi, bhi) if h is not None]
            return min(alo, blo), min(highs) if highs else None
        case "^" if both_known and alo >= 0 and blo >= 0:
            assert ahi is not None and bhi is not None
            return 0, (1 << max(ahi, bhi).bit_length()) - 1
        case "&" if alo >= 0 and blo >= 0:
            highs = [h for h in (ahi, bhi) if h is not None]
            return 0, min(highs) if highs else None
        case "<" | "==" | "!=" | "&&":
            return 0, 1
        case _:
            return -(1 << 62), None
