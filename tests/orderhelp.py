"""The order in which tiles of C are computed: what it should be, and what a kernel's own lines say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gemmgen.analysis.classes import evaluate
from gemmgen.ir.nodes import Let, Stmt


def numbered(body: Sequence[Stmt], known: Mapping[str, Any]) -> list[tuple[int, int]]:
    """(row, column) of tiles as the values of a kernel say, from ``known`` ones on; each lies within its bounds."""
    values = dict(known)
    lets = [s for s in body if isinstance(s, Let)]
    for s in lets[: 1 + [s.var.name for s in lets].index("tileCol")]:
        values[s.var.name] = evaluate(s.expr, values)
        assert s.var.lo <= values[s.var.name].min() and values[s.var.name].max() <= (s.var.hi or 0)
    return list(zip(values["tileRow"].tolist(), values["tileCol"].tolist(), strict=True))


def grouped(columns: int, rows: int, group: int) -> Iterator[tuple[int, int]]:
    """Down the columns of ``group`` rows of tiles, then on to the next rows; along rows where a group is one row."""
    for first in range(0, rows, group):
        for column in range(columns):
            yield from ((row, column) for row in range(first, min(first + group, rows)))
