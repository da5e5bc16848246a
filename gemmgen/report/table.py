"""Tables of plain text: the same on a terminal, in a pipe and in a file."""

from __future__ import annotations

from collections.abc import Sequence

MISSING = "-"


def cell(value: object) -> str:
    """A value as a person reads it: numbers of four digits or more with thousands separators, None as a dash."""
    match value:
        case None:
            return MISSING
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        case _:
            return str(value)


def format_table(headers: Sequence[str], rows: Sequence[Sequence[object]], indent: str = "") -> str:
    """Rows under headers, columns as wide as their widest cell; a column of numbers only is aligned right."""
    texts = [[cell(value) for value in row] for row in rows]
    widths = [max(len(headers[i]), *(len(row[i]) for row in texts), 0) for i in range(len(headers))]
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
        return (indent + "  ".join(padded)).rstrip()

    rule = indent + "  ".join("-" * w for w in widths)
    return "\n".join([line(list(headers)), rule, *(line(row) for row in texts)])


def duration(seconds: float) -> str:
    """A time with three digits and the unit that suits it: s, ms or us."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError("unreachable")
