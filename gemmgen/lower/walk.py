"""The walk along K and what follows it: each statement of ``sequence(p)`` becomes the loops and accesses of one thread.

A statement is lowered where the walk is, which its :class:`Turn` says; what it names is known to those behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.nodes import Alloc, For, If, Let, LetPointer, Stmt
from gemmgen.isa.table import Completion
from gemmgen.lower.boxed import BoxedTile
from gemmgen.lower.bring import bring
from gemmgen.lower.chain import pointers
from gemmgen.lower.cluster import ClusterSums
from gemmgen.lower.epilogue import epilogue
from gemmgen.lower.mma import WarpFragments
from gemmgen.lower.place import Place
from gemmgen.lower.product import Fragments, Source
from gemmgen.lower.scope import Scope, let, loop, stride_of
from gemmgen.lower.staged import StagedTile
from gemmgen.lower.steps import inner_steps
from gemmgen.lower.syncs import At, Syncs
from gemmgen.lower.tiles import Turn
from gemmgen.lower.wgmma import GroupSums, group_sums, issue, promote
from gemmgen.tile.lane_sums import LaneSums, lane_sums
from gemmgen.tile.statements import (
    AddLanes,
    AddUp,
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
    Prepare,
    Programs,
    Promote,
    Publish,
    Stage,
    Steps,
    StoreBoxes,
    TileStmt,
)
from gemmgen.tile.sums import InCluster, InMemory
from gemmgen.tile.syncs import Sync

Lowered = tuple[list[Stmt], Turn]


@dataclass(frozen=True)
class Parts:
    """What the statements of a kernel are lowered with: a thread's place and registers, and what is shared."""

    s: Scope
    at: Place
    f: Fragments
    syncs: Syncs
    sums: ClusterSums | None
    staged: StagedTile | None
    boxed: BoxedTile | None = None

    @property
    def skips(self) -> bool:
        """Whether a thread outside C does nothing at all: one that computes one element, and has no barrier to keep."""
        return not self.s.p.copies and not self.f.clamped and bool(self.s.p.output.guard)

    @property
    def guarded(self) -> bool:
        return bool(self.s.p.output.guard) and not self.skips


def parts_of(s: Scope, at: Place) -> Parts:
    f = fragments_of(s, at)
    sums = ClusterSums(s, at, f) if isinstance(s.p.sums, InCluster) else None
    staged = None if s.p.output.tile is None else StagedTile(s, at, f, s.p.output.tile)
    boxed = None if s.p.output.box is None else BoxedTile(s, at, f, s.p.output.box)
    return Parts(s, at, f, Syncs(s, group_sums(f) if s.p.asynchronous else ()), sums, staged, boxed)


def fragments_of(s: Scope, at: Place) -> Fragments:
    """The registers of a product, as the block multiplies."""
    if s.p.product.math.by_warp:
        return WarpFragments(s, at)
    return GroupSums(s, at) if s.p.product.math.by_group else Fragments(s, at)


def walk(w: Parts, turn: Turn, body: Iterable[TileStmt]) -> Lowered:
    """Statements in a row."""
    out: list[Stmt] = []
    for s in body:
        found, turn = one(w, turn, s)
        out += found
    return list(_joined(out)), turn


def one(w: Parts, turn: Turn, t: TileStmt) -> Lowered:
    """One statement, and where the walk is behind it."""
    match t:
        case Steps(body):
            return _turns(w, turn, body) if turn.k.counts else _steps(w, turn, body)
        case Inner(body, whole):
            return _whole(w, turn, body) if whole else inner_steps(w.f, turn, t)
        case Bring():
            return bring(w.syncs, turn, t)
        case Issue():
            return issue(w.f, turn, t), turn
        case Promote():
            return promote(w.f, turn), turn
        case Ahead(count, body):
            return _ahead(w, turn, count, body)
        case Sync(ahead=ahead):
            return w.syncs.lower(t, At(turn.stage_of(ahead), turn.parity)), turn
        case _:
            return _apart(w, t), turn


def _apart(w: Parts, t: TileStmt) -> list[Stmt]:
    """What is the same wherever the walk is."""
    match t:
        case Clear():
            return w.f.clear() + w.f.declare()
        case Multiply():
            return w.f.multiply_last()
        case AddLanes():
            return w.f.add_lanes()
        case Publish():
            assert w.sums is not None
            return w.sums.publish()
        case Gather():
            assert w.sums is not None
            return w.sums.gather()
        case Leave():
            assert w.staged is not None
            return w.staged.leave()
        case Stage():
            assert w.boxed is not None
            return [*_beside(w), *w.boxed.stage(w.guarded)]
        case StoreBoxes():
            assert w.boxed is not None
            return w.boxed.store()
        case Finish():
            return _finish(w)
        case EachTile() | Programs() | Fragment() | Prepare() | AddUp():
            raise AssertionError(f"{type(t).__name__} is lowered with what holds it")
        case Steps() | Inner() | Bring() | Ahead() | Issue() | Promote() | Sync():
            raise AssertionError("lowered where the walk is")
        case _:
            assert_never(t)


def _finish(w: Parts) -> list[Stmt]:
    if w.s.p.product.lanes_k == 1:
        return _store(w)
    out: list[Stmt] = []
    shared = lane_sums(w.s.p)
    stored = _store(replace(w, at=_kept(w, shared, out)))
    if shared.rest == 1:
        return out + stored
    first = (w.at.lane % shared.rest).eq(0)
    return [*out, If(first, tuple(stored), why="one of the lanes that have the same sums stores them")]


def _kept(w: Parts, shared: LaneSums, out: list[Stmt]) -> Place:
    """Where in C the sums lie that a lane has kept."""
    row, col = w.at.row, w.at.col
    for x in shared.halvings:
        offset = w.at.lane // x.apart % 2 * x.half
        row, col = (row + offset, col) if x.dim == "m" else (row, col + offset)
    row = let(out, "keptRow", row, "first row of the sums that this lane has kept")
    col = let(out, "keptCol", col, "and their first column")
    return replace(w.at, row=row, col=col, tm=Const(shared.rows), tn=Const(shared.cols))


def _beside(w: Parts) -> list[Stmt]:
    """Where the tile's parts of the epilogue's operands begin, known from now on."""
    beside = w.s.p.beside if w.s.p.applied else ()
    batch = {x.name: w.s.batch * stride_of(x) for x in beside} if w.s.p.batched else {}
    begin, w.s.beside = pointers(beside, w.s.origin("m"), w.s.origin("n"), batch)
    return begin


def _store(w: Parts) -> list[Stmt]:
    begin = _beside(w)
    if w.sums is not None:
        return [*begin, *w.sums.finish(w.guarded)]
    own = epilogue(w.s, w.at, w.f, w.guarded) if w.staged is None else w.staged.finish(w.guarded)
    if not isinstance(w.s.p.sums, InMemory):
        return [*begin, *own]
    # Adding zeros would only cost time, and alpha times zero need not be zero.
    return [If(Const(0).lt(w.s.depth), tuple(own), why="a block without a part of K has nothing to add")]


# --- Loops ------------------------------------------------------------------------------------------------------------


def _steps(w: Parts, turn: Turn, body: tuple[TileStmt, ...]) -> Lowered:
    """The loop over steps of K, each of which brings its own tile."""
    var, shape = loop("k0", w.s.depth, step=w.s.extent("k"), unroll=None)
    tiles = [LetPointer(turn.k.tile(x, var)) for x in (*turn.k.copies, *turn.k.direct)]
    inner, _ = walk(w, replace(turn, k0=var), body)
    return [For(var, shape.start, w.s.depth, shape.step, (*tiles, *inner))], turn


def _turns(w: Parts, turn: Turn, body: tuple[TileStmt, ...]) -> Lowered:
    """The loop over tiles of K, of which some are brought ahead."""
    k, var = turn.k, Var("t", 0, None, uniform=True)
    out: list[Stmt] = []
    here = replace(turn, t=var, stage={}).named(0, out)  # the prologue's stages are numbers
    if w.s.p.landing(Completion.BARRIER) and k.depth > 1:
        # Divisions by a number of stages that is no power of two are long, and every warp would wait for them.
        out = [replace(x, counted=True) if isinstance(x, Let) else x for x in out]
        parity = Var("parity", 0, 1, uniform=True)
        why = "the phase to wait for; flips each time the ring of stages wraps"
        out.append(Let(parity, (turn.passed + var) // k.stages % 2, why, True))
        here = replace(here, named_parity=parity)
    if k.direct:
        k0 = here.starts(0, out)
        out += [LetPointer(k.tile(x, k0)) for x in k.direct]
    out += _registers(here, body)
    inner, _ = walk(w, here, body)
    return [For(var, Const(0), k.number, Const(1), (*out, *inner))], turn


def _registers(turn: Turn, body: tuple[TileStmt, ...]) -> list[Stmt]:
    """Registers that hold the next tile through the products of this one."""
    held = [c.operand for x in body if isinstance(x, Bring) and x.part == "fetch" for c in x.copies]
    return [
        Alloc(turn.k.copies[x].kept, None, f"this thread's elements of the next tile of {x}, in flight") for x in held
    ]


def _ahead(w: Parts, turn: Turn, count: int, body: tuple[TileStmt, ...]) -> Lowered:
    """The first tiles, each into the stage of its number."""
    k, var = turn.k, Var("t", 0, count - 1, uniform=True)
    t: Expr = var if count > 1 else Const(0)
    first: list[Stmt] = []
    stage = {0: let(first, "stage", (turn.passed + t) % k.stages)} if k.depth > 1 else {}
    inner, _ = walk(w, replace(turn, t=t, stage=stage), body)
    out = [*first, *inner]
    behind = replace(turn, t=Const(0), stage={0: Const(0)} if k.depth > 1 else {})
    if count == 1:
        return out, behind
    return [For(var, Const(0), k.far(count), Const(1), tuple(out), None, "fill the pipeline")], behind


def _whole(w: Parts, turn: Turn, body: tuple[TileStmt, ...]) -> Lowered:
    """No tiles: each step along K is fetched from global memory."""
    product = w.s.p.product
    together = w.s.constants["STEP_K"].expr if product.lanes_k > 1 else Const(1)
    turns = (product.unroll or 0) // (product.lanes_k * product.run) if product.lanes_k > 1 else 0
    var, shape = loop("k", w.s.depth, step=together, unroll=None)
    out: list[Stmt] = []
    for x in body:
        if isinstance(x, Fragment):
            start = Const(0) if product.lanes_k > 1 else None  # lanes may reach past K, and ask
            out += w.f.fetch(x.operand, Source(w.at.block[x.operand], None, start), var, Const(0))
        else:
            out += w.f.multiply(var, Const(0))
    return [For(var, shape.start, w.s.depth, shape.step, tuple(out), turns if turns > 1 else None)], turn


def _joined(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Neighbours under one condition are one ``if``."""
    last: Stmt | None = None
    for s in body:
        if isinstance(s, If) and isinstance(last, If) and last == If(s.cond, last.then):
            last = If(s.cond, (*last.then, *s.then), s.orelse, s.why) if not (s.orelse or s.why) else s
            continue
        if last is not None:
            yield last
        last = s
    if last is not None:
        yield last
