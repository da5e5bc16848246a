"""Sums shared by the blocks of a cluster: left in shared memory, and added up there, always in the same order.

What a thread leaves is fetched by the threads of the same number, each a share of its pieces: so they lie by piece and
thread, and neighbouring threads' pieces are neighbours. No bank is then asked for twice by the threads that are served
together, whatever the tiles are, and a thread finds its place in C as it always does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmgen.ir.expr import Const, Expr, Var, value_of
from gemmgen.ir.nodes import Alloc, Array, Compute, FBin, For, If, Load, Read, Ref, Stmt, Store
from gemmgen.ir.types import F32
from gemmgen.lower.epilogue import inside, leave, store
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.product import Fragments, element, register_tile
from gemmgen.lower.scope import BLOCK_Z, LDC, Scope, let
from gemmgen.tile.sums import InCluster

ORIGIN = "use clusterReduce"


class ClusterSums:
    """The shared array of a block's sums, [pieces of a thread, threads, elements of a piece], and what is done with it.

    A piece is ``width`` neighbours along a line of C (a row, where C is stored by rows). ``per_run`` pieces are one
    contiguous run of a thread, ``per_line`` all that it has of a line.
    """

    def __init__(self, s: Scope, at: Place, f: Fragments) -> None:
        self.s, self.at, self.f = s, at, f
        assert isinstance(s.p.sums, InCluster)
        self.width = s.p.sums.width
        self.by_rows = s.p.contiguous("C") == "n"
        runs, run = (at.n_iter, at.tn) if self.by_rows else (at.m_iter, at.tm)
        self.per_run = Const(1) if value_of(run) == self.width else run // self.width
        self.per_line = runs * self.per_run
        total = (value_of(f.rows) or 1) * (value_of(f.cols) or 1) // self.width
        each = f" / {self.width}" if self.width > 1 else ""
        factors = [str(x) for x in (f.rows, f.cols) if value_of(x) != 1] or ["1"]
        piece = f"pieces of {F32.bytes * self.width} bytes in a thread's sums" if self.width > 1 else "sums of a thread"
        self.pieces = s.constant("PIECES", total, f"{' * '.join(factors)}{each}", piece)
        splits = s.p.sums.parts
        share = -(-total // splits)
        why = "of them, what one block of a cluster adds up"
        text = "PIECES / SPLIT_K" if total % splits == 0 else "(PIECES + SPLIT_K - 1) / SPLIT_K"
        self.share = s.constant("SHARE", share, text, why)
        self.splits = s.constants["SPLIT_K"].expr
        self.ragged = total % splits != 0
        shape: tuple[Expr, ...] = (self.pieces, s.constants["THREADS"].expr, Const(self.width))
        if self.width == 1:
            shape = shape[:2]
        names = tuple(b.name for b in s.p.buffers)
        self.array = Array("sums", "shared", shape=shape, align=F32.bytes * self.width, over=names)
        self.extents = (self.share, self.splits, Const(self.width))
        self.parts = register_tile("parts", *self.extents)

    # --- Leaving sums ----------------------------------------------------------------------------------------------

    def publish(self) -> list[Stmt]:
        """Each thread leaves its sums, unscaled."""
        at, steps = self.at, (1, self.width) if self.by_rows else (self.width, 1)

        def one(p: Expr, i: Expr, q: Expr, j: Expr) -> list[Stmt]:
            m, n = p * at.tm + i, q * at.tn + j
            line, run, v = (m, q, j) if self.by_rows else (n, p, i)
            number = line * self.per_line + run * self.per_run + v // self.width
            return leave(self.f, self._of(number), (m, n), self.width, self.by_rows, ORIGIN)

        each = (("p", at.m_iter, 1), ("i", at.tm, steps[0]), ("q", at.n_iter, 1), ("j", at.tn, steps[1]))
        first, *rest = nest(each, one)
        why = "neighbouring threads access neighbouring words: no bank conflicts"
        return [replace(first, why=why) if isinstance(first, For | Store) else first, *rest]

    def _of(self, number: Expr) -> Ref:
        """The first element of a piece of this thread."""
        return Ref(self.array, (number, self.s.tid, *((Const(0),) if self.width > 1 else ())))

    # --- Fetching and adding them ----------------------------------------------------------------------------------

    def gather(self) -> list[Stmt]:
        """All loads together: what they wait for is far away, and the sums' registers are free by now."""

        def one(own: Expr) -> list[Stmt]:
            out: list[Stmt] = []
            number = self._number(out, own)
            loads = nest([("z", self.splits, 1)], lambda z: [self._load(own, z, number)])
            return out + self._where(number, loads)

        kept = Alloc(self.parts, None, "what each block of the cluster has of them")
        return [kept, *nest([("own", self.share, 1)], one)]

    def finish(self, guarded: bool) -> list[Stmt]:
        """C = alpha * (the parts, added up in the order of the blocks) + beta * C, of this block's share."""

        def one(own: Expr) -> list[Stmt]:
            out: list[Stmt] = []
            number = self._number(out, own)
            return out + self._where(number, self._finish(own, number, guarded))

        return nest([("own", self.share, 1)], one)

    def _number(self, out: list[Stmt], own: Expr) -> Expr:
        """Which piece of each thread the ``own``-th of this block's share is."""
        last = self.s.p.sums.parts - 1
        rank = self.s.part if self.s.p.batched else Var(BLOCK_Z.name, 0, last, uniform=True)
        return let(out, "number", rank * self.share + own)

    def _where(self, number: Expr, body: list[Stmt]) -> list[Stmt]:
        return [If(number.lt(self.pieces), tuple(body))] if self.ragged else body

    def _load(self, own: Expr, z: Expr, number: Expr) -> Load:
        to = element(self.parts, self.extents, (own, z, Const(0)))
        return Load(to, self._of(number), self.width, None, ORIGIN, rank=z)

    def _finish(self, own: Expr, number: Expr, guarded: bool) -> list[Stmt]:
        width = self.width
        total = register_tile("total", Const(width))

        def of(v: Expr) -> Ref:
            return element(total, (Const(width),), (v,))

        def add(z: Expr, v: Expr) -> list[Stmt]:
            return [Compute(of(v), FBin("+", Read(of(v)), Read(element(self.parts, self.extents, (own, z, v)))))]

        out: list[Stmt] = [Alloc(total, 0.0), *nest([("z", self.splits, 1), ("v", width, 1)], add)]
        row = let(out, "outRow", self._where_in_tile(number, self.by_rows, "m"), "where in the block's tile that is")
        col = let(out, "outCol", self._where_in_tile(number, not self.by_rows, "n"))
        return out + self._stores(of, row, col, guarded)

    def _where_in_tile(self, number: Expr, across: bool, dim: str) -> Expr:
        """The row (dim "m") or column of the first element of a piece of this thread. ``across``: lines are counted."""
        at = self.at
        first, t, sub = (at.row, at.tm, at.sub_m) if dim == "m" else (at.col, at.tn, at.sub_n)
        if across:
            line = number // self.per_line
            return first + line // t * sub + line % t
        place = number % self.per_line
        return first + place // self.per_run * sub + place % self.per_run * self.width

    def _stores(self, of: Callable[[Expr], Ref], row: Expr, col: Expr, guarded: bool) -> list[Stmt]:
        """The piece in accesses as wide as C's rows allow."""

        def one(j: Expr) -> list[Stmt]:
            y, x = (row, col + j) if self.by_rows else (row + j, col)
            offset = y * LDC + x if self.by_rows else x * LDC + y
            target, width = Ref(self.at.block["C"], (offset,)), self.s.p.output.width
            stored = store(self.s, lambda v: of(j + v), target, (y, x), width)
            where = inside(self.s, y, x) if guarded else None
            return stored if where is None else [If(where, tuple(stored))]

        return nest([("j", self.width, self.s.p.output.width)], one)
