"""The walk along K: each statement of ``sequence(p)`` becomes the loops and accesses of one thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from gemmgen.ir.expr import Const, Expr, Var, both, value_of
from gemmgen.ir.lane_values import ELECT_ONE, WARP_INDEX
from gemmgen.ir.nodes import Alloc, Array, Call, For, If, Let, LetPointer, Section, Stmt
from gemmgen.isa.async_copy import CP_ASYNC_COMMIT, cp_async_wait
from gemmgen.isa.dependent import ALLOW_NEXT_KERNEL, WAIT_FOR_PREVIOUS_KERNEL
from gemmgen.isa.table import Completion
from gemmgen.lower.cluster import ClusterSums
from gemmgen.lower.engine import Engine
from gemmgen.lower.epilogue import epilogue
from gemmgen.lower.inner import inner_steps
from gemmgen.lower.order import TILE, each_tile
from gemmgen.lower.place import Place, Placement
from gemmgen.lower.product import Fragments, Source
from gemmgen.lower.scope import GRID_X, Scope, let, loop
from gemmgen.lower.staged import StagedTile
from gemmgen.lower.tiles import Tiles
from gemmgen.tile.program import TileProgram
from gemmgen.tile.sequence import sequence
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
from gemmgen.tile.sums import InCluster, InMemory


class Walk(Tiles):
    """Lowers the statements of ``sequence(p)`` one by one."""

    def __init__(self, s: Scope, at: Place, f: Fragments, shared: dict[str, Array]) -> None:
        self.statements = sequence(s.p)
        super().__init__(s, at, shared, any(_looks_ahead(x) for x in self.statements))
        self.f = f
        self.fetched_from = [*self.copies, *self.direct]
        self.engine = Engine(s, shared) if s.p.landing(Completion.BARRIER) else None
        self.sums = ClusterSums(s, at, f) if isinstance(s.p.sums, InCluster) else None
        self.staged = None if s.p.output.tile is None else StagedTile(s, at, f, s.p.output.tile)
        # A thread that computes one element, with no barrier to keep, simply does nothing outside C.
        self.skips = not s.p.copies and not f.clamped and bool(s.p.output.guard)
        self.parity: Expr | None = None

    def kernel(self, placement: Placement) -> tuple[Stmt, ...]:
        """The whole body, in numbered parts."""
        opening = tuple(x for x in self.statements if isinstance(x, AllowNext))
        index = [x for c in self.copies.values() for x in c.index]
        start = [] if self.engine is None else self.engine.set_up()
        before = (*self.all(opening), Section("Placement: what this thread computes", (*placement.block, *index)))
        for each in self.statements:
            if isinstance(each, EachTile):
                return (*before, *self._each_tile(placement, start, each.body))
        return (*before, *self._tile_of_c(self.statements[len(opening) :], (*self.counting(), *start)))

    def _each_tile(self, placement: Placement, start: list[Stmt], body: tuple[TileStmt, ...]) -> tuple[Stmt, ...]:
        """What is done once for all tiles of C, and the loop over those of this block."""
        once = (*self.counting(), *start)
        title = "Pipeline: what all tiles of C have in common"
        which = Section("Which tile of C is next, and where it lies", (*placement.tile, *self._run_on()))
        loop_ = each_tile((which, *self._tile_of_c(body, ())))
        return (Section(title, once), loop_) if once else (loop_,)

    def _run_on(self) -> list[Stmt]:
        """Where in the stages, and in which phase of their barriers, a tile of C begins: where the one before ended.

        A stage and its phase come again after two rounds, so that nothing has to be counted beyond that.
        """
        if self.engine is None:
            return []
        out: list[Stmt] = []
        rounds = Const(2) * self.stages
        why = "steps along K before this tile of C, modulo two rounds of the stages, which run on, and so do phases"
        self.passed = let(out, "passed", TILE // GRID_X % rounds * (self.tiles % rounds) % rounds, why)
        return out

    def _tile_of_c(self, body: tuple[TileStmt, ...], start: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """One tile of C: the walk along K and the epilogue."""
        walk, last = _parts(body)
        main = Section("Walk along K", (*start, *self.all(walk)), _walk_why(self.s.p))
        title = f"Epilogue: {_epilogue_title(self.s.p)}"
        end = Section(title, tuple(self.all(last)), "" if self.staged is None else self.staged.tile.why)
        parts: tuple[Stmt, ...] = (main, end)
        if self.skips:
            left = both(self.at.row.lt(self.s.left("m")), self.at.col.lt(self.s.left("n")))
            parts = (If(left, parts, why="threads outside C have nothing to do"),)
        return parts

    def all(self, body: Iterable[TileStmt]) -> list[Stmt]:
        return list(_joined(x for s in body for x in self.one(s)))

    def one(self, t: TileStmt) -> list[Stmt]:
        match t:
            case AllowNext():
                return [Call(ALLOW_NEXT_KERNEL, (), origin="use dependentLaunch")]
            case AwaitPrevious():
                why = f"{self.s.p.name}_scale may still be writing C"
                return [Call(WAIT_FOR_PREVIOUS_KERNEL, (), why, origin="use dependentLaunch")]
            case EachTile():
                raise AssertionError("the tiles of C are gone through where the kernel is made")
            case Clear():
                return self.f.clear() + self.f.declare()
            case Steps(body):
                return self._turns(body) if self.counts_tiles else self._steps(body)
            case Inner(body, whole):
                return self._whole(body) if whole else inner_steps(self, t)
            case Bring():
                return self.bring(t)
            case Commit():
                return [Call(CP_ASYNC_COMMIT, (), origin="use cpasync")]
            case Landed(_, pending):
                return [Call(cp_async_wait(pending), (), origin="use cpasync")]
            case Arrived():
                assert self.engine is not None
                return self.engine.wait(self.stage_of(0, []), self._parity)
            case Release():
                assert self.engine is not None
                return self.engine.release(self.stage_of(0, []))
            case Ahead(count, body):
                return self._ahead(count, body)
            case Barrier(hazard, scope):
                return [self.s.sync(hazard, scope)]
            case Multiply():
                return self.f.multiply_last()
            case Fragment():
                raise AssertionError("fragments are fetched in steps")
            case Publish():
                assert self.sums is not None
                return self.sums.publish()
            case Gather():
                assert self.sums is not None
                return self.sums.gather()
            case Leave():
                assert self.staged is not None
                return self.staged.leave()
            case Finish():
                return self._finish(bool(self.s.p.output.guard) and not self.skips)
            case _:
                assert_never(t)

    def _finish(self, guarded: bool) -> list[Stmt]:
        if self.sums is not None:
            return self.sums.finish(guarded)
        own = epilogue(self.s, self.at, self.f, guarded) if self.staged is None else self.staged.finish(guarded)
        if not isinstance(self.s.p.sums, InMemory):
            return own
        # Adding zeros would only cost time, and alpha times zero need not be zero.
        return [If(Const(0).lt(self.s.depth), tuple(own), why="a block without a part of K has nothing to add")]

    # --- Loops -----------------------------------------------------------------------------------------------------

    def _steps(self, body: tuple[TileStmt, ...]) -> list[Stmt]:
        var, shape = loop("k0", self.s.depth, step=self.s.extent("k"), unroll=None)
        self.k0 = var
        tiles = [LetPointer(self.tile(x, var)) for x in self.fetched_from]
        return [For(var, shape.start, self.s.depth, shape.step, (*tiles, *self.all(body)))]

    def _turns(self, body: tuple[TileStmt, ...]) -> list[Stmt]:
        self.stage = {}  # the prologue's stages are numbers
        var = Var("t", 0, None, uniform=True)
        self.t = var
        out: list[Stmt] = []
        self.stage_of(0, out)
        if self.engine is not None and self.depth > 1:
            # Divisions by a number of stages that is no power of two are long, and every warp would wait for them.
            out = [replace(x, counted=True) if isinstance(x, Let) else x for x in out]
            self.parity = Var("parity", 0, 1, uniform=True)
            why = "flips when all stages were gone round: which phase is waited for"
            out.append(Let(self.parity, (self.passed + var) // self.stages % 2, why, True))
        if self.direct:
            k0 = self.starts(0, out)
            out += [LetPointer(self.tile(x, k0)) for x in self.direct]
        out += self._kept(body)
        return [For(var, Const(0), self.tiles, Const(1), (*out, *self.all(body)))]

    def _kept(self, body: tuple[TileStmt, ...]) -> list[Stmt]:
        """Registers that hold the next tile through the products of this one."""
        if not any(isinstance(x, Bring) and x.part == "fetch" for x in body):
            return []
        why = "this thread's part of the next tile of"
        return [Alloc(c.kept, None, f"{why} {x}, on its way") for x, c in self.copies.items()]

    def _ahead(self, count: int, body: tuple[TileStmt, ...]) -> list[Stmt]:
        """The first tiles, each into the stage of its number."""
        var = Var("t", 0, count - 1, uniform=True)
        self.t = var if count > 1 else Const(0)
        first: list[Stmt] = []
        self.stage = {0: let(first, "stage", (self.passed + self.t) % self.stages)} if self.depth > 1 else {}
        out = [*first, *self.all(body)]
        self.t = Const(0)
        self.stage = {0: Const(0)} if self.depth > 1 else {}
        if count == 1:
            return out
        return [For(var, Const(0), self.far(count), Const(1), tuple(out), None, "fill the pipeline")]

    def _whole(self, body: tuple[TileStmt, ...]) -> list[Stmt]:
        """No tiles: each step along K is fetched from global memory."""
        var, shape = loop("k", self.s.depth, unroll=None)
        out: list[Stmt] = []
        for x in body:
            if isinstance(x, Fragment):
                out += self.f.fetch(x.operand, Source(self.at.block[x.operand]), var, Const(0))
            else:
                out += self.f.multiply(var, Const(0))
        return [For(var, shape.start, self.s.depth, shape.step, tuple(out), None)]

    # --- Tiles -----------------------------------------------------------------------------------------------------

    def bring(self, b: Bring) -> list[Stmt]:
        out: list[Stmt] = []
        stage = self.stage_of(b.ahead, out)
        if self.engine is not None:
            k0: list[Stmt] = []
            start = self.starts(b.ahead, k0)
            body: list[Stmt] = [*k0, *self.engine.bring(start, stage, self.at)]
            some = self.exists(b.ahead)
            first: Expr = self.s.tid.eq(0)
            why = "one thread sets the engine to work"
            if free := self._free(b.ahead, stage):
                body = [*free, If(ELECT_ONE.var, tuple(body))]
                first = WARP_INDEX.var.eq(0)
                why = "the first warp has the stage filled again, once all released it"
            return [*out, If(first if some is None else both(first, some), tuple(body), why=why)]
        if b.part == "put":
            moved = [x for c in self.copies.values() for x in c.put(stage)]
        else:
            moved = self.pointers(b.ahead)
            for c in self.copies.values():
                come = self.comes_from(c.c.operand, b.ahead)
                moved += c.fetch(come) if b.part == "fetch" else c.whole(come, stage)
        return out + self._if(self.exists(b.ahead), moved)

    @property
    def _parity(self) -> Expr:
        """The phase that the barriers of the turn's tile are waited for in."""
        return (self.passed + self.t) // self.stages % 2 if self.parity is None else self.parity

    def _free(self, ahead: int, stage: Expr | None) -> list[Stmt]:
        """A tile may be overwritten once all warps have released it: the turn's own, or ahead of the loop one of the
        tile of C before. Where there was none, the barrier takes the phase before its first for one that is over."""
        if self.engine is None or not self.s.p.pipeline.release:
            return []
        if ahead >= self.depth:
            return self.engine.wait_free(stage, self._parity)
        if not self.s.p.persistent:
            return []
        out: list[Stmt] = []
        last = let(out, "lastPhase", self._parity ^ 1, "of a barrier that is new it counts as over")
        return [*out, *self.engine.wait_free(stage, last)]

    @staticmethod
    def _if(condition: Expr | None, body: list[Stmt]) -> list[Stmt]:
        if condition is None or value_of(condition) == 1:
            return body
        return [If(condition, tuple(body))] if body else []


def _parts(body: tuple[TileStmt, ...]) -> tuple[tuple[TileStmt, ...], tuple[TileStmt, ...]]:
    """The statements up to the last product, and those behind it."""
    product = max(i for i, x in enumerate(body) if isinstance(x, Steps | Inner | Multiply))
    return body[: product + 1], body[product + 1 :]


def _epilogue_title(p: TileProgram) -> str:
    staged = "" if p.output.tile is None else ", through shared memory"
    if isinstance(p.sums, InMemory):
        return f"C += alpha * A B of this block's part of K, in no fixed order of the blocks{staged}"
    whole = "C = alpha * A B + beta * C"
    among = ", A B being the sums of all blocks of the cluster in their order" if isinstance(p.sums, InCluster) else ""
    return f"{whole}{among}{staged}"


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


def _looks_ahead(s: TileStmt) -> bool:
    match s:
        case Bring(_, ahead) if ahead:
            return True
        case Ahead() | Arrived():
            return True
        case Steps(body) | EachTile(body):
            return any(_looks_ahead(x) for x in body)
        case Inner(_, _, brings):
            return any(_looks_ahead(x) for x in brings)
        case _:
            return False


def _walk_why(p: TileProgram) -> str:
    if not p.copies:
        return ""
    if len(p.copies) == 1:
        operand, other = ("A", "B") if p.copies[0].operand == "A" else ("B", "A")
        ahead = " while later ones are on their way" if p.pipeline.depth > 1 else ""
        return f"each turn multiplies one tile of {operand}{ahead} with {other} as it comes from global memory"
    if p.pipeline.depth > 1:
        return "each turn multiplies one tile of A with one of B while later ones are on their way"
    return "each step stages one tile of A and one of B, then multiplies them"
