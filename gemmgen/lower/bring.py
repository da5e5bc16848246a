"""Tiles on their way to shared memory: by all threads, or by the engine that one of them sets to work."""

from __future__ import annotations

from gemmgen.ir.expr import Expr, both, value_of
from gemmgen.ir.nodes import If, Stmt
from gemmgen.isa.lane_values import ELECT_ONE, WARP_INDEX
from gemmgen.lower.copy import TileCopy
from gemmgen.lower.engine import boxes
from gemmgen.lower.scope import let
from gemmgen.lower.syncs import At, Syncs
from gemmgen.lower.tiles import Turn
from gemmgen.tile.statements import Bring
from gemmgen.tile.syncs import Side, Sync


def bring(syncs: Syncs, turn: Turn, b: Bring) -> tuple[list[Stmt], Turn]:
    """Copies of the tiles ``ahead``, where there are such tiles."""
    out: list[Stmt] = []
    turn = turn.named(b.ahead, out)
    if not all(c.via.by_threads for c in b.copies):
        return [*out, *_by_one(syncs, turn, b)], turn
    stage, copies = turn.stage_of(b.ahead), copies_of(turn, b)
    if b.part == "put":
        moved = [x for c in copies for x in c.put(stage)]
    else:
        moved = turn.pointers(b.ahead, (c.c.operand for c in copies))
        for c in copies:
            come = turn.comes_from(c.c.operand, b.ahead)
            moved += c.fetch(come) if b.part == "fetch" else c.whole(come, stage)
    return out + _if(turn.exists(b.ahead), moved), turn


def copies_of(turn: Turn, b: Bring) -> list[TileCopy]:
    """The parts that all threads have in it."""
    return [turn.k.copies[c.operand] for c in b.copies]


def _by_one(syncs: Syncs, turn: Turn, b: Bring) -> list[Stmt]:
    """One thread waits for the stage, where others may still read it, announces the bytes and issues the copies."""
    s, stage = turn.k.s, turn.stage_of(b.ahead)
    body: list[Stmt] = []
    start = turn.starts(b.ahead, body)
    for x in b.first:
        body += syncs.lower(x, At(stage)) if x.side is Side.RELEASE else []
    body += boxes(s, turn.k.shared, start, stage, syncs.full)
    if s.p.producer is not None:  # a program of one thread
        return [*(y for x in b.first if x.side is Side.ACQUIRE for y in _free(syncs, turn, x)), *body]
    some, first = turn.exists(b.ahead), s.tid.eq(0)
    why = "one thread issues the TMA copies"
    if free := [y for x in b.first if x.side is Side.ACQUIRE for y in _free(syncs, turn, x)]:
        body = [*free, If(ELECT_ONE.var, tuple(body))]
        first = WARP_INDEX.var.eq(0)
        why = "warp 0 refills the stage after every warp has released it"
    return [If(first if some is None else both(first, some), tuple(body), why=why)]


def _free(syncs: Syncs, turn: Turn, x: Sync) -> list[Stmt]:
    """The turn waits for its own tile's stage in the turn's phase; ahead of the loop, for the previous tile of C's, in
    the phase before. If there was no such tile, a new mbarrier counts the phase before its first as completed."""
    out: list[Stmt] = []
    parity = turn.parity
    if x.ahead < turn.k.depth:
        parity = let(out, "lastPhase", parity ^ 1, "a new barrier counts as if this phase had completed")
    return [*out, *syncs.lower(x, At(turn.stage_of(x.ahead), parity))]


def _if(condition: Expr | None, body: list[Stmt]) -> list[Stmt]:
    if condition is None or value_of(condition) == 1:
        return body
    return [If(condition, tuple(body))] if body else []
