"""Tables of plain text that fit the terminal.

``format_table`` decides from the width. A table that fits stays as it is. One that is too wide first folds its headers,
then wraps its columns of prose, then moves them to notes below, and at last splits its columns into several tables.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmgen.text.wrap import columns, wrapped

MISSING = "-"
GAP = 2
"""Spaces between columns."""
PROSE = 24
"""A column with a longer cell of several words is prose: it may be wrapped, or moved below the table."""
LEAST = 20
"""Prose is wrapped inside the table where every such column gets this many characters, else it moves below."""


def cell(value: object) -> str:
    """A value as a person reads it: thousands separators from four digits on, None as a dash."""
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


@dataclass(frozen=True)
class Column:
    """A header, the cells under it as text, and whether they are aligned right."""

    header: str
    cells: tuple[str, ...]
    right: bool

    @property
    def width(self) -> int:
        """Width of the widest cell or header, on one line."""
        return max(map(len, (self.header, *self.cells)))

    @property
    def least(self) -> int:
        """Width with the header folded at its spaces."""
        return max(map(len, (*self.header.split(), *self.cells)), default=0)

    @property
    def prose(self) -> bool:
        return any(len(c) > PROSE and " " in c for c in self.cells)


def format_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    indent: str = "",
    width: int | None = None,
    keys: int = 1,
) -> str:
    """Rows under headers, no line longer than ``width`` (None: the terminal's). Columns of numbers align right.

    The first ``keys`` columns name a row: they are repeated where columns are split into several tables, and name the
    row of a note below.
    """
    room = (columns() if width is None else width) - len(indent)
    table = [_column(headers, rows, i) for i in range(len(headers))]
    return textwrap.indent(_fitted(table, room, keys), indent)


def _column(headers: Sequence[str], rows: Sequence[Sequence[object]], i: int) -> Column:
    values = [row[i] for row in rows]
    right = bool(rows) and all(isinstance(value, int | float | None) for value in values)
    return Column(headers[i], tuple(map(cell, values)), right)


def _fitted(table: Sequence[Column], room: int, keys: int) -> str:
    """The first layout that fits: plain, headers folded, prose wrapped, prose below, columns split."""
    if _total(c.width for c in table) <= room:
        return _drawn(table, [c.width for c in table])
    if _total(c.least for c in table) <= room:
        return _drawn(table, _grown(table, room))
    prose = [i for i, c in enumerate(table) if c.prose]
    free = room - _total(0 if c.prose else c.least for c in table)
    if prose and free >= LEAST * len(prose):
        shares = _shared([table[i].width for i in prose], free)
        given = dict(zip(prose, shares, strict=True))
        return _drawn(table, [given.get(i, c.least) for i, c in enumerate(table)])
    kept = [c for i, c in enumerate(table) if i < keys or not c.prose]
    blocks = [_drawn(block, _grown(block, room)) for block in _split(kept, room, keys)]
    return "\n\n".join([*blocks, *_notes(table, room, keys)])


def _total(widths: Iterator[int]) -> int:
    found = list(widths)
    return sum(found) + GAP * (len(found) - 1)


def _grown(table: Sequence[Column], room: int) -> list[int]:
    """Widths of columns whose headers fold only where there is no room for them on one line."""
    widths = [_least(c, room) for c in table]
    free = room - _total(iter(widths))
    for i, c in enumerate(table):
        more = max(0, min(c.width - widths[i], free))
        widths[i] += more
        free -= more
    return widths


def _least(c: Column, room: int) -> int:
    """Width of a column that is not to be wrapped; one that takes more than half of the room is."""
    return min(c.least, room // 2)


def _shared(wanted: Sequence[int], free: int) -> list[int]:
    """``free`` characters shared out, none more than is wanted."""
    shares: list[int] = []
    for done, width in enumerate(wanted):
        shares.append(min(width, (free - sum(shares)) // (len(wanted) - done)))
    return shares


def _split(table: Sequence[Column], room: int, keys: int) -> Iterator[list[Column]]:
    """Groups of columns that fit, each with the key columns before it."""
    block = list(table[:keys])
    for column in table[keys:]:
        if len(block) > keys and _total(_least(c, room) for c in (*block, column)) > room:
            yield block
            block = list(table[:keys])
        block.append(column)
    yield block


def _notes(table: Sequence[Column], room: int, keys: int) -> Iterator[str]:
    """The cells of prose columns, row by row: the row's keys, then each cell after its header."""
    prose = [c for c in table[keys:] if c.prose]
    if not prose:
        return
    lines: list[str] = []
    for at in range(len(table[0].cells)):
        told = [(c.header, c.cells[at]) for c in prose if c.cells[at] not in (MISSING, "")]
        if told:
            lines.append(" ".join(c.cells[at] for c in table[:keys] if c.cells[at] != MISSING))
            lines += (wrapped(f"{header}: {text}" if header else text, room, "  ", "    ") for header, text in told)
    if lines:
        yield "\n".join(lines)


def _drawn(table: Sequence[Column], widths: Sequence[int]) -> str:
    """Header, rule and rows; what is wider than its column is folded."""
    rows = [[c.cells[at] for c in table] for at in range(len(table[0].cells))]
    rule = (" " * GAP).join("-" * w for w in widths)
    return "\n".join([*_lines([c.header for c in table], table, widths), rule, *_body(rows, table, widths)])


def _body(rows: Sequence[Sequence[str]], table: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    for row in rows:
        yield from _lines(row, table, widths)


def _lines(cells: Sequence[str], table: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    folded = [textwrap.wrap(c, w) if len(c) > w else [c] for c, w in zip(cells, widths, strict=True)]
    for n in range(max(map(len, folded))):
        parts = [part[n] if n < len(part) else "" for part in folded]
        padded = [p.rjust(w) if c.right else p.ljust(w) for p, w, c in zip(parts, widths, table, strict=True)]
        yield (" " * GAP).join(padded).rstrip()
