"""C's tile on its way to the TMA engine: rounded, swizzled as the engine reads it, and stored 64 rows at a time."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Alloc, Call, For, If, MapRef, Ref, Stmt
from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.isa.bulk_store import tma_store
from gemmgen.isa.mma import EIGHT, QUAD
from gemmgen.isa.wgmma import ATOM, GROUP_THREADS
from gemmgen.lower.epilogue import epilogue
from gemmgen.lower.layout import tile_array
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.product import Fragments
from gemmgen.lower.scope import Scope
from gemmgen.tile.program import Buffer

ORIGIN = "use tmaStore"


class BoxedTile:
    """The shared array of C's tile, in rows of 128 bytes, and what is done with it."""

    def __init__(self, s: Scope, at: Place, f: Fragments, tile: Buffer) -> None:
        self.s, self.at, self.f, self.tile = s, at, f, tile
        self.array = tile_array(s, tile)

    def stage(self, guarded: bool) -> list[Stmt]:
        """Each thread leaves its part of C. Eight rows and four lanes of a store fall into different banks, since the
        swizzle moves each row's 16 bytes to another place."""
        first, *rest = epilogue(self.s, self.at, self.f, guarded, self._of)
        why = "this thread's part of C, where the engine reads it: pieces of 16 bytes are swizzled by the row's number"
        return [replace(first, why=why) if isinstance(first, For | Alloc) else first, *rest]

    def _of(self, p: Expr, q: Expr) -> Ref:
        """Where the two neighbours of piece (p, q) lie: row ``row + 8 p``, columns from ``col + 8 q`` on."""
        unit = self.tile.dtype.elements(VECTOR_BYTES)
        pieces = self.tile.dtype.elements(ATOM) // EIGHT  # of eight columns, in a row of 128 bytes
        row = self.at.row + p * self.at.sub_m
        per = EIGHT // unit  # pieces of 16 bytes in eight columns
        piece = q % pieces * per + (self.at.col // unit if per > 1 else Const(0))
        within = (piece ^ self.at.lane // QUAD) * unit + (self.at.col % unit if per > 1 else self.at.col)
        lead = (q // pieces,) if self.tile.layout.panels > 1 else ()
        return Ref(self.array, (*lead, row, within))

    def store(self) -> list[Stmt]:
        """One thread of each warp group has the engine store the group's 64 rows."""
        s, panels = self.s, self.tile.layout.panels
        row = tma_store(self.tile.dtype)

        def one(panel: Expr) -> list[Stmt]:
            lead = (panel,) if panels > 1 else ()
            box = Ref(self.array, (*lead, self.at.warp_row, Const(0)))
            x = s.origin("n") + panel * (self.array.shape or ())[-1] if panels > 1 else s.origin("n")
            return [Call(row, (MapRef("mapC"), x, s.origin("m") + self.at.warp_row, box), origin=ORIGIN)]

        stores = nest([("panel", Const(panels), 1)], one)
        why = "one thread of each warp group issues the TMA stores of its rows"
        return [If((s.tid % GROUP_THREADS).eq(0), tuple(stores), why=why)]
