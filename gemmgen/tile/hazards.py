"""Where barriers must stand: derived from what statements read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from gemmgen.isa.table import Completion
from gemmgen.tile.program import STAGED
from gemmgen.tile.statements import (
    Ahead,
    AllowNext,
    Arrived,
    AwaitPrevious,
    Barrier,
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

SUMS = "sums"
"""What the blocks of a cluster leave to one another, as a buffer."""
Tile = tuple[str, int]
"""A buffer, and which of its stages: the number of a tile relative to the turn, modulo the depth."""


@dataclass
class _Pending:
    """Tiles that threads have written or read since they last met. ``named`` are the buffers that are read at all;
    ``released`` are tiles whose copies wait for each warp's release by themselves."""

    named: frozenset[str] = frozenset()
    written: set[Tile] = field(default_factory=set)
    read: set[Tile] = field(default_factory=set)
    released: set[Tile] = field(default_factory=set)

    def met(self) -> None:
        self.written, self.read, self.released = set(), set(), set()

    def next_turn(self, depth: int) -> None:
        """One tile on: what lay one ahead is the turn's own."""
        self.written = {(name, (ahead - 1) % depth) for name, ahead in self.written}
        self.read = {(name, (ahead - 1) % depth) for name, ahead in self.read}
        self.released = {(name, (ahead - 1) % depth) for name, ahead in self.released}

    def any_stage(self, depth: int) -> _Pending:
        """The same where the next tiles may come to lie in any stage: one access of a buffer is as one of all its
        stages, and tiles are released only where all that were read are."""
        every = range(depth)
        late = {name for name, _ in self.read - self.released}
        return _Pending(
            self.named,
            {(name, stage) for name, _ in self.written for stage in every},
            {(name, stage) for name, _ in self.read for stage in every},
            {(name, stage) for name, _ in self.released if name not in late for stage in every},
        )


Three = tuple[tuple[TileStmt, ...], tuple[TileStmt, ...], tuple[TileStmt, ...]]


def with_barriers(
    prologue: tuple[TileStmt, ...],
    body: tuple[TileStmt, ...],
    tail: tuple[TileStmt, ...],
    depth: int,
    again: bool = False,
) -> Three:
    """The prologue, the loop's body and what follows it, with the barriers that their hazards need.

    The body's barriers are those of a turn in the middle of the loop, whose pending accesses are its predecessor's; the
    tail's pending accesses are those of the last turn (where there was none, there was no tile). ``again``: after the
    tail all begins anew, for the next tile of C, and what is pending at the end is pending at the beginning.
    """
    named = frozenset(name for s in (*prologue, *body) for name, _ in reads(s))
    steady = _Pending(named)
    placed = _settled(body, steady, depth)
    if isinstance(placed[0], Barrier):
        # The same at the end of a turn, where it reads as what it is: all are done with the tile.
        placed = (*placed[1:], Barrier(placed[0].hazard.replace("overwritten below", "overwritten by the next step")))
        steady.met()
    last = tuple(_tail(tail, steady, depth))
    start = steady.any_stage(depth) if again else _Pending(named)
    lead = _place(prologue, start, depth)
    needed = _first_hazard(placed, start, depth)
    lead = (*lead, *((Barrier(needed),) if needed else ()))
    if not again:
        return lead, placed, last
    match lead:
        case (Barrier(hazard), *rest):
            # At the end of a tile of C, as at the end of a turn.
            hazard = hazard.replace("overwritten below", "overwritten for the next tile of C")
            return tuple(rest), placed, (*last, Barrier(hazard))
        case _:
            return lead, placed, last


def _settled(body: tuple[TileStmt, ...], pending: _Pending, depth: int) -> tuple[TileStmt, ...]:
    """A turn's statements with its barriers once the pipeline is full: what is pending goes round the stages, so that
    turns are then alike. Raises AssertionError for a pipeline in which they are not, and which no one loop can be."""
    turns = [_place(body, pending, depth)]
    for _ in range(2 * depth):
        pending.next_turn(depth)
        turns.append(_place(body, pending, depth))
    if any(turn != turns[-1] for turn in turns[depth:]):
        raise AssertionError("the barriers that a loop over tiles needs differ from turn to turn")
    return turns[-1]


def _tail(tail: tuple[TileStmt, ...], pending: _Pending, depth: int) -> Iterator[TileStmt]:
    """What follows the loop: the last uses of a block's tiles, and what the blocks of a cluster do to one another."""
    for s in tail:
        among_blocks = any(name == SUMS for name, _ in (*reads(s), *overwrites(s)))
        for x in _one(s, pending, depth):
            yield _cluster_barrier(x.hazard) if isinstance(x, Barrier) and among_blocks else x


def _cluster_barrier(hazard: str) -> Barrier:
    """The same hazard between the threads of several blocks; what overwrites is a block that ends."""
    hazard = hazard.replace("all threads", "all blocks of the cluster")
    return Barrier(hazard.replace("overwritten below", "gone when one of them ends"), "cluster")


def _first_hazard(placed: tuple[TileStmt, ...], pending: _Pending, depth: int) -> str:
    """A hazard between the prologue and the first turn, up to the turn's first barrier."""
    for s in placed:
        if isinstance(s, Barrier):
            return ""
        found = _hazard(s, pending, depth)
        if found:
            return found
    return ""


def _place(body: tuple[TileStmt, ...], pending: _Pending, depth: int) -> tuple[TileStmt, ...]:
    """The statements with a barrier before each that has a hazard with what is pending."""
    out: list[TileStmt] = []
    for i, s in enumerate(body):
        out += _one(s, pending, depth, body[i + 1 :])
    return tuple(out)


def _one(s: TileStmt, pending: _Pending, depth: int, later: tuple[TileStmt, ...] = ()) -> list[TileStmt]:
    hazard = _hazard(s, pending, depth, later)
    if hazard:
        pending.met()
    pending.written |= {(name, ahead % depth) for name, ahead in lands(s)}
    pending.read |= {(name, ahead % depth) for name, ahead in reads(s)}
    if isinstance(s, Release):
        pending.released |= {(name, ahead) for name, ahead in pending.read if ahead == 0}
    return [Barrier(hazard), s] if hazard else [s]


def _hazard(s: TileStmt, pending: _Pending, depth: int, later: tuple[TileStmt, ...] = ()) -> str:
    """What would go wrong without a barrier before a statement, in words; empty where nothing would. What the barrier
    orders for the ``later`` statements is told with it."""
    late, soon = _late(s, pending, depth), _soon(s, pending, depth)
    if not late and not soon:
        return ""
    for x in later:
        late, soon = late | _late(x, pending, depth), soon | _soon(x, pending, depth)
    # What came with it is read later, and is seen by then thanks to the same barrier.
    stages = {ahead for _, ahead in late}
    late |= {(name, ahead) for name, ahead in pending.written if name in pending.named and ahead in stages}
    if late and soon:
        return f"{_names(late | soon)}: a stage written by all is read below; one read by all is overwritten below"
    if late:
        return f"{_names(late)}: written by all threads above, read by all below"
    return f"{_names(soon)}: read by all threads above, overwritten below"


def _late(s: TileStmt, pending: _Pending, depth: int) -> set[Tile]:
    """Tiles that a statement reads and that other threads have written."""
    return {(name, ahead % depth) for name, ahead in reads(s)} & pending.written


def _soon(s: TileStmt, pending: _Pending, depth: int) -> set[Tile]:
    """Tiles that a statement overwrites and that other threads have read."""
    reading = pending.read - pending.released if isinstance(s, Bring | Ahead) else pending.read
    return {(name, ahead % depth) for name, ahead in overwrites(s)} & reading


def _names(tiles: Iterable[Tile]) -> str:
    return ", ".join(sorted({name for name, _ in tiles}))


def reads(s: TileStmt) -> frozenset[Tile]:
    """Tiles in shared memory that a statement reads."""
    match s:
        case Fragment(_, str(name)):
            return frozenset({(name, 0)})
        case Inner(body):
            return frozenset().union(*(reads(x) for x in body))
        case Gather():
            return frozenset({(SUMS, 0)})
        case Finish(staged=True):
            return frozenset({(STAGED, 0)})
        case Fragment() | Finish() | Bring() | Ahead() | Publish() | Leave() | Landed() | Arrived() | Release():
            return frozenset()
        case AllowNext() | AwaitPrevious() | Clear() | Commit() | Multiply() | Barrier() | Steps() | EachTile():
            return frozenset()
        case _:
            assert_never(s)


def overwrites(s: TileStmt) -> frozenset[Tile]:
    """Tiles that a statement overwrites, or has an engine overwrite from now on."""
    match s:
        case Bring(_, ahead, part):
            # C's tile lies in the same place.
            return frozenset() if part == "fetch" else _targets(s) | {(STAGED, ahead)}
        case Inner(brings=brings):
            return frozenset().union(*(overwrites(x) for x in brings))
        case Ahead(count, body):
            return _turns(frozenset[Tile]().union(*(overwrites(x) for x in body)), count)
        case Publish(tiles, stages) | Leave(tiles, stages):
            return frozenset((name, stage) for name in tiles for stage in range(stages))
        case Finish(gathered=True):
            return frozenset({(SUMS, 0)})  # as the block ends
        case Fragment() | Finish() | Gather() | Landed() | Arrived() | Release():
            return frozenset()
        case AllowNext() | AwaitPrevious() | Clear() | Commit() | Multiply() | Barrier() | Steps() | EachTile():
            return frozenset()
        case _:
            assert_never(s)


def lands(s: TileStmt) -> frozenset[Tile]:
    """Tiles whose new values are there after a statement, for the thread that copied them alone. What an mbarrier says
    has arrived is there for all who wait for it."""
    match s:
        case Bring(copies, _, part):
            there = part != "fetch" and all(c.via.lands is Completion.NOW for c in copies)
            return _targets(s) if there else frozenset()
        case Ahead(count, body):
            return _turns(frozenset[Tile]().union(*(lands(x) for x in body)), count)
        case Landed(buffers):
            return frozenset((name, 0) for name in buffers)
        case Publish():
            return frozenset({(SUMS, 0)})
        case Leave():
            return frozenset({(STAGED, 0)})
        case Inner() | Fragment() | Finish() | Gather() | Arrived() | Release():
            return frozenset()
        case AllowNext() | AwaitPrevious() | Clear() | Commit() | Multiply() | Barrier() | Steps() | EachTile():
            return frozenset()
        case _:
            assert_never(s)


def _targets(s: Bring) -> frozenset[Tile]:
    return frozenset((c.buffer, s.ahead) for c in s.copies)


def _turns(tiles: frozenset[Tile], count: int) -> frozenset[Tile]:
    """Tiles of each of the first ``count`` turns."""
    return frozenset((name, ahead + turn) for name, ahead in tiles for turn in range(count))
