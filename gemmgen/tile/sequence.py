"""From decisions to order: the only maker of loops and prologues.

The statements are put in a row here without any synchronisation; what each reads and writes says where it must wait,
and :func:`gemmgen.tile.order.order` puts that in.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.isa.table import Completion
from gemmgen.tile.order import order
from gemmgen.tile.program import Copy, TileProgram
from gemmgen.tile.statements import (
    AddLanes,
    Ahead,
    Bring,
    Clear,
    EachTile,
    Finish,
    Fragment,
    Gather,
    Inner,
    Issue,
    Leave,
    Multiply,
    Programs,
    Promote,
    Publish,
    Stage,
    Steps,
    StoreBoxes,
    TileStmt,
)
from gemmgen.tile.sums import InCluster

Statements = tuple[TileStmt, ...]


def sequence(p: TileProgram) -> Statements:
    """The statements of one block, in order, with all synchronisation."""
    return order(p, unordered(p))


def unordered(p: TileProgram) -> Statements:
    """The same without any synchronisation."""
    if p.producer is not None:
        return (_programs(p),)
    return (EachTile(_tile_of_c(p)),) if p.persistent else _tile_of_c(p)


def _programs(p: TileProgram) -> Programs:
    """One group brings tile after tile, as stages become free; the others multiply them."""
    each = (lambda body: (EachTile(body),)) if p.persistent else (lambda body: body)
    bring = Bring(p.landing(Completion.BARRIER), 0)
    return Programs(each((Steps((bring,)),)), each((Clear(), Steps(_issued(p)), *_tail(p))))


def _issued(p: TileProgram) -> Statements:
    """A tile's products, and what becomes of them."""
    issued = Issue(tuple(b.name for b in p.buffers))
    return (issued, Promote()) if p.product.promote else (issued,)


def _tile_of_c(p: TileProgram) -> Statements:
    """What a block does for one tile of C."""
    if not p.copies:
        return (Clear(), Inner((*_fragments(p), Multiply()), whole=True), *_tail(p))
    found = _arrivals(p)
    if p.asynchronous:
        return (Clear(), *found.before, Steps((*found.early, *_issued(p), *found.late)), *_tail(p))
    steps = Inner((*_fragments(p), Multiply(behind=p.pipeline.prefetch)), brings=found.inside)
    return (Clear(), *found.before, Steps((*found.early, steps, *found.late)), *_tail(p))


def _tail(p: TileProgram) -> Statements:
    """What comes after the loop over tiles of K."""
    # Products a step behind their fragments: the first step multiplies zeros, and one product is left.
    left: Statements = (Multiply(behind=True),) if p.pipeline.prefetch else ()
    if p.product.lanes_k > 1:
        left = (*left, AddLanes())
    if p.output.box is not None:
        return (*left, Stage(), StoreBoxes())
    if p.output.tile is not None:
        return (*left, Leave(), Finish(staged=True))
    if isinstance(p.sums, InCluster):
        return (*left, Publish(), Gather(), Finish(gathered=True))
    return (*left, Finish())


def _fragments(p: TileProgram) -> tuple[Fragment, ...]:
    found: list[Fragment] = []
    for operand in ("A", "B"):
        buffer = p.buffer(operand)
        found.append(Fragment("A" if operand == "A" else "B", buffer.name if buffer else None))
    return tuple(found)


@dataclass(frozen=True)
class _Arrivals:
    """How tiles come: statements at the start of a turn, inside its products, at its end; and before the loop."""

    early: Statements = ()
    inside: tuple[Bring, ...] = ()
    late: Statements = ()
    before: Statements = ()

    def __add__(self, other: _Arrivals) -> _Arrivals:
        return _Arrivals(
            self.early + other.early, self.inside + other.inside, self.late + other.late, self.before + other.before
        )


def _arrivals(p: TileProgram) -> _Arrivals:
    """Operands whose copies land alike are brought together."""
    found = _Arrivals()
    for when, come in ((Completion.NOW, _at_once), (Completion.GROUP, _in_groups), (Completion.BARRIER, _by_engine)):
        copies = p.landing(when)
        found += come(p, copies) if copies else _Arrivals()
    return found


def _at_once(p: TileProgram, copies: tuple[Copy, ...]) -> _Arrivals:
    """Through registers, which hold the next tile while this one is used."""
    if p.pipeline.depth == 1:
        return _Arrivals(early=(Bring(copies, 0),))
    fetch, put = Bring(copies, 1, "fetch"), Bring(copies, 1, "put")
    return _Arrivals((fetch,), (), (put,), (Bring(copies, 0),))


def _in_groups(p: TileProgram, copies: tuple[Copy, ...]) -> _Arrivals:
    """Into the stage that was read in the last turn."""
    depth = p.pipeline.depth
    bring = Bring(copies, depth - 1)
    filled = (Ahead(depth - 1, (Bring(copies, 0),)),) if depth > 1 else ()
    return _Arrivals(inside=(bring,), before=filled) if p.pipeline.spread else _Arrivals((bring,), before=filled)


def _by_engine(p: TileProgram, copies: tuple[Copy, ...]) -> _Arrivals:
    """Into the turn's own stage, once it is read."""
    depth = p.pipeline.depth
    return _Arrivals(late=(Bring(copies, depth),), before=(Ahead(depth, (Bring(copies, 0),)),))
