"""The stages of a pipeline drawn as a few lines of text: which tile is multiplied and which is brought, over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gemmgen.isa.table import Completion
from gemmgen.tile.program import TileProgram
from gemmgen.tile.statements import Bring, EachTile, Inner, Steps, TileStmt

SHOWN = 8
"""Iterations that are drawn at most."""


def stages_picture(p: TileProgram, statements: Iterable[TileStmt]) -> tuple[str, ...]:
    """The lines, from the statements of a tile of C; none where there is one stage, or nothing is brought ahead. Of
    persistent blocks it is the first tile of C."""
    depth = p.pipeline.depth
    ahead = max((b.ahead for x in statements if isinstance(x, Steps) for b in _brings(x.body)), default=0)
    if depth == 1 or not ahead:
        return ()
    turns = range(min(SHOWN, 2 * depth + 1))
    rows = [("iteration t", list(turns)), ("multiplies stage", [t % depth for t in turns])]
    if p.landing(Completion.BARRIER):
        rows.append(("waits for parity", [t // depth % 2 for t in turns]))
    if ahead == depth:
        rows.append(("refills it with tile", [t + ahead for t in turns]))
    else:
        rows.append(("starts tile", [t + ahead for t in turns]))
        rows.append(("in stage", [(t + ahead) % depth for t in turns]))
    return tuple(_row(name, cells) for name, cells in rows)


def _brings(body: Iterable[TileStmt]) -> Iterator[Bring]:
    """Every copy of a loop over tiles of K."""
    for s in body:
        match s:
            case Bring():
                yield s
            case Inner(inner, _, brings):
                yield from (*brings, *_brings(inner))
            case Steps(inner) | EachTile(inner):
                yield from _brings(inner)
            case _:
                pass


def _row(name: str, cells: Sequence[int]) -> str:
    return f"    {name:<20}" + "".join(f"{cell:>4}" for cell in cells) + "  ..."
