"""From decisions to order: the only maker of loops, prologues, waits and barriers.

A barrier is never placed by hand. Each statement says which tiles in shared memory it reads and writes; a barrier
stands where a tile was written (or read) by all threads and is then read (or overwritten) by others, also around the
back of the loop. That hazard is the barrier's comment in the CUDA.
"""

from __future__ import annotations

from gemmgen.tile.hazards import with_barriers
from gemmgen.tile.program import TileProgram
from gemmgen.tile.statements import (
    Ahead,
    Arrived,
    Bring,
    Clear,
    Commit,
    Finish,
    Fragment,
    Gather,
    Inner,
    Landed,
    Multiply,
    Publish,
    Steps,
    TileStmt,
)


def sequence(p: TileProgram) -> tuple[TileStmt, ...]:
    """The statements of one block, in order, barriers included."""
    if not p.copies:
        inner = Inner((*_fragments(p), Multiply()), whole=True)
        return (Clear(), inner, Finish())
    prologue, body = _pipeline(p)
    tail = _tail(p)
    before, turn, after = with_barriers(prologue, body, tail, p.pipeline.depth)
    return (Clear(), *before, Steps(turn), *after)


def _tail(p: TileProgram) -> tuple[TileStmt, ...]:
    """What comes after the loop over tiles of K."""
    if not p.cluster_sums:
        return (Finish(),)
    return (Publish(tuple(b.name for b in p.buffers), p.pipeline.depth), Gather(), Finish(gathered=True))


def _fragments(p: TileProgram, ahead: int = 0) -> tuple[Fragment, ...]:
    found: list[Fragment] = []
    for operand in ("A", "B"):
        buffer = p.buffer(operand)
        found.append(Fragment("A" if operand == "A" else "B", buffer.name if buffer else None, ahead))
    return tuple(found)


def _pipeline(p: TileProgram) -> tuple[tuple[TileStmt, ...], tuple[TileStmt, ...]]:
    """What comes before the loop over tiles of K, and the loop's body for tile t, without barriers."""
    prefetch = p.pipeline.prefetch
    first = _fragments(p) if prefetch else ()
    early, inside, late, before = _arrivals(p)
    body: tuple[TileStmt, ...]
    if prefetch:
        # The last step's products run while the next tile's first fragments are on their way.
        inner = Inner((*_fragments(p), Multiply()), brings=inside, boundary=(*late, *_fragments(p, ahead=1)))
        body = (*early, inner)
    else:
        body = (*early, Inner((*_fragments(p), Multiply()), brings=inside), *late)
    return (*before, *first), body


Four = tuple[tuple[TileStmt, ...], tuple[Bring, ...], tuple[TileStmt, ...], tuple[TileStmt, ...]]


def _arrivals(p: TileProgram) -> Four:
    """How tiles come: statements at the start of a turn, inside its products, at its end; and before the loop."""
    depth, prefetch, how = p.pipeline.depth, p.pipeline.prefetch, p.how
    copies = p.copies
    if how == "plain":
        if depth == 1:
            return ((), (), (Bring(copies, 1),), (Bring(copies, 0),)) if prefetch else ((Bring(copies, 0),), (), (), ())
        fetch, put = Bring(copies, 1, "fetch"), Bring(copies, 1, "put")
        return (fetch,), (), (put,), (Bring(copies, 0),)
    if how == "tma":
        refill = Bring(copies, depth)
        before = (Ahead(depth, (Bring(copies, 0),)), *((Arrived(0),) if prefetch else ()))
        return ((), (), (refill, Arrived(1)), before) if prefetch else ((Arrived(0),), (), (refill,), before)
    return _groups(p)


def _groups(p: TileProgram) -> Four:
    """cp.async: copies in groups, of which the oldest is waited for."""
    depth, prefetch, copies = p.pipeline.depth, p.pipeline.prefetch, p.copies
    # A tile can be overwritten once all its fragments are fetched: with prefetch a step before the turn ends.
    at_once = prefetch and not p.pipeline.spread
    ahead = depth if at_once else depth - 1
    filled = (Ahead(ahead, (Bring(copies, 0), Commit())),) if ahead else ()
    bring = Bring(copies, ahead)
    if p.pipeline.spread:
        if prefetch:
            return (), (bring,), (Commit(), Landed(1, depth - 2)), (*filled, Landed(0, depth - 2))
        return (Landed(0, depth - 2),), (bring,), (Commit(),), filled
    if prefetch and depth == 1:
        return (), (), (bring, Commit(), Landed(1, 0)), (*filled, Landed(0, 0))
    if prefetch:
        return (), (), (Landed(1, depth - 2), bring, Commit()), (*filled, Landed(0, depth - 1))
    if depth == 1:
        return (bring, Commit(), Landed(0, 0)), (), (), ()
    return (Landed(0, depth - 2), bring, Commit()), (), (), filled
