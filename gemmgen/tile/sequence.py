"""From decisions to order: the only maker of loops, prologues, waits and barriers.

A barrier is never placed by hand. Each statement says which tiles in shared memory it reads and writes; a barrier
stands where a tile was written (or read) by all threads and is then read (or overwritten) by others, also around the
back of the loop over K, and of that over tiles of C. That hazard is the barrier's comment in the CUDA.
"""

from __future__ import annotations

from gemmgen.isa.table import Completion
from gemmgen.tile.hazards import with_barriers
from gemmgen.tile.program import TileProgram
from gemmgen.tile.statements import (
    Ahead,
    AllowNext,
    Arrived,
    AwaitPrevious,
    Bring,
    Clear,
    Commit,
    EachTile,
    Finish,
    Fragment,
    Gather,
    Inner,
    Landed,
    Leave,
    Multiply,
    Publish,
    Release,
    Steps,
    TileStmt,
)
from gemmgen.tile.sums import InCluster, InMemory


def sequence(p: TileProgram) -> tuple[TileStmt, ...]:
    """The statements of one block, in order, barriers included."""
    start = (AllowNext(),) if p.sums.early and not isinstance(p.sums, InMemory) else ()
    return (*start, EachTile(_tile_of_c(p))) if p.persistent else (*start, *_tile_of_c(p))


def _tile_of_c(p: TileProgram) -> tuple[TileStmt, ...]:
    """What a block does for one tile of C."""
    if not p.copies:
        inner = Inner((*_fragments(p), Multiply()), whole=True)
        return (Clear(), inner, *_finish(p))
    prologue, body = _pipeline(p)
    tail = _tail(p)
    before, turn, after = with_barriers(prologue, body, tail, p.pipeline.depth, again=bool(p.persistent))
    return (Clear(), *before, Steps(turn), *after)


def _tail(p: TileProgram) -> tuple[TileStmt, ...]:
    """What comes after the loop over tiles of K."""
    # Products a step behind their fragments: the first step multiplies zeros, and one product is left.
    left = (Multiply(behind=True),) if p.pipeline.prefetch else ()
    tiles, depth = tuple(b.name for b in p.buffers), p.pipeline.depth
    if p.output.tile is not None:
        return (*left, Leave(tiles, depth), *_finish(p, staged=True))
    if not isinstance(p.sums, InCluster):
        return (*left, *_finish(p))
    return (*left, Publish(tiles, depth), Gather(), Finish(gathered=True))


def _finish(p: TileProgram, staged: bool = False) -> tuple[TileStmt, ...]:
    """What a block does with sums of its own. It may have begun before C is ready to be added to."""
    finish = Finish(staged=staged)
    return (AwaitPrevious(), finish) if p.sums.early and isinstance(p.sums, InMemory) else (finish,)


def _fragments(p: TileProgram) -> tuple[Fragment, ...]:
    found: list[Fragment] = []
    for operand in ("A", "B"):
        buffer = p.buffer(operand)
        found.append(Fragment("A" if operand == "A" else "B", buffer.name if buffer else None))
    return tuple(found)


def _pipeline(p: TileProgram) -> tuple[tuple[TileStmt, ...], tuple[TileStmt, ...]]:
    """What comes before the loop over tiles of K, and the loop's body for tile t, without barriers."""
    early, inside, late, before = _arrivals(p)
    behind = p.pipeline.prefetch
    steps = Inner((*_fragments(p), Multiply(behind)), brings=inside)
    return before, (*early, steps, *late)


Four = tuple[tuple[TileStmt, ...], tuple[Bring, ...], tuple[TileStmt, ...], tuple[TileStmt, ...]]


def _arrivals(p: TileProgram) -> Four:
    """How tiles come: statements at the start of a turn, inside its products, at its end; and before the loop."""
    depth, copies = p.pipeline.depth, p.copies
    if p.landing(Completion.NOW):
        if depth == 1:
            return (Bring(copies, 0),), (), (), ()
        fetch, put = Bring(copies, 1, "fetch"), Bring(copies, 1, "put")
        return (fetch,), (), (put,), (Bring(copies, 0),)
    if p.landing(Completion.BARRIER):
        done = (Release(),) if p.pipeline.release else ()
        return (Arrived(),), (), (*done, Bring(copies, depth)), (Ahead(depth, (Bring(copies, 0),)),)
    return _groups(p)


def _groups(p: TileProgram) -> Four:
    """cp.async: copies in groups, of which the oldest is waited for."""
    depth, copies = p.pipeline.depth, p.copies
    bring, buffers = Bring(copies, depth - 1), tuple(c.buffer for c in copies)
    filled = (Ahead(depth - 1, (Bring(copies, 0), Commit())),) if depth > 1 else ()
    if p.pipeline.spread:
        return (Landed(buffers, depth - 2),), (bring,), (Commit(),), filled
    if depth == 1:
        return (bring, Commit(), Landed(buffers, 0)), (), (), ()
    return (Landed(buffers, depth - 2), bring, Commit()), (), (), filled
