"""C's tile on its way through shared memory: each thread leaves its sums there, and then stores parts of whole lines.

A thread's own sums are a piece of C, a few elements wide: stored from the registers, a warp's store touches many lines
a little. From the tile, consecutive threads take what lies side by side, whatever the pieces are.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Alloc, Array, For, If, Load, Ref, Stmt
from gemmgen.isa.table import Completion
from gemmgen.lower.epilogue import add, inside, leave, store
from gemmgen.lower.layout import element_of, tile_array
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.product import Fragments
from gemmgen.lower.scope import LDC, Scope
from gemmgen.lower.spread import Along, spread
from gemmgen.tile.program import Buffer
from gemmgen.tile.sums import InMemory

ORIGIN = "use stageC"


class StagedTile:
    """The shared array of C's tile, and what is done with it. Its lines are rows of C, or columns where C is stored by
    columns."""

    def __init__(self, s: Scope, at: Place, f: Fragments, tile: Buffer) -> None:
        self.s, self.at, self.f, self.tile = s, at, f, tile
        self.by_rows = s.p.contiguous("C") == "n"
        self.array = tile_array(s, tile)

    def leave(self) -> list[Stmt]:
        """Each thread leaves its sums, unscaled, where they belong in the tile."""
        s, at, width = self.s, self.at, self.s.p.output.left
        steps = (1, width) if self.by_rows else (width, 1)

        def one(p: Expr, i: Expr, q: Expr, j: Expr) -> list[Stmt]:
            to = self._of(at.row + p * at.sub_m + i, at.col + q * at.sub_n + j)
            return leave(self.f, to, (p * at.tm + i, q * at.tn + j), width, self.by_rows, ORIGIN)

        each = (("p", at.m_iter, 1), ("i", at.tm, steps[0]), ("q", at.n_iter, 1), ("j", at.tn, steps[1]))
        first, *rest = nest(each, one)
        alone = (
            ""
            if all(c.via.lands is Completion.NOW for c in s.p.copies)
            else "; no copy that could overwrite them is in flight"
        )
        why = f"this thread's sums, where they lie in C's tile{alone}"
        return [replace(first, why=why) if isinstance(first, For | Alloc) else first, *rest]

    def finish(self, guarded: bool) -> list[Stmt]:
        """C = alpha * sum + beta * C, line by line."""
        s, width = self.s, self.s.p.output.width
        along, across = s.p.contiguous("C"), s.p.strided("C")
        names = {"m": ("innerRowC", "row"), "n": ("innerColC", "column")}
        lines = Along(s.extent(across), *names[across])
        name, noun = names[along]
        pieces = Along(s.extent(along) // width if width > 1 else s.extent(along), name, self._piece(noun))
        lanes = spread(s, "C", lines, pieces, "stores")

        def one(slow: Expr, fast: Expr, number: Expr, condition: Expr | None) -> list[Stmt]:
            body = self._store(slow, fast * width, guarded)
            return body if condition is None else [If(condition, tuple(body))]

        first, *rest = lanes.loops(one)
        why = f"consecutive threads store neighbours of a {'row' if self.by_rows else 'column'} of C"
        return [*lanes.index, replace(first, why=why) if isinstance(first, For | If | Alloc) else first, *rest]

    def _piece(self, noun: str) -> str:
        width = self.s.p.output.width
        return f"{width} {noun}s" if width > 1 else noun

    def _store(self, line: Expr, first: Expr, guarded: bool) -> list[Stmt]:
        """One access of a thread, from the ``first`` element on of a line of the tile."""
        s, width = self.s, self.s.p.output.width
        row, col = (line, first) if self.by_rows else (first, line)
        staged = Array("staged", "register", shape=(Const(width),) if width > 1 else ())

        def of(v: Expr) -> Ref:
            return Ref(staged, (v,) if width > 1 else ())

        target = Ref(self.at.block["C"], (line * LDC + first,))
        load = Load(of(Const(0)), self._of(row, col), width, None, ORIGIN)
        last = (
            add(of, target, width)
            if isinstance(self.s.p.sums, InMemory)
            else store(s, of, target, (row, col), width, ORIGIN)
        )
        body = [Alloc(staged), load, *last]
        where = inside(self.s, row, col) if guarded else None
        return body if where is None else [If(where, tuple(body))]

    def _of(self, row: Expr, col: Expr) -> Ref:
        return element_of(self.array, self.tile.layout, {"m": row, "n": col}, None)
