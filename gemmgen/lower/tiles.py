"""The tiles along K: how many there are, in which stage of shared memory one lies, where in K it begins and ends."""

from __future__ import annotations

from gemmgen.ir.expr import Const, Expr, Select, Var, value_of
from gemmgen.ir.nodes import Array, Let, LetPointer, Pointer, Stmt
from gemmgen.lower.copy import Origin, TileCopy, tile_copy
from gemmgen.lower.place import Place
from gemmgen.lower.product import Source
from gemmgen.lower.scope import LEADING, Scope, let

FREE_STAGE = "freeStage", "read in the last turn, filled again in this"


class Tiles:
    """Where the walk along K is, and the tiles from there on.

    Where tiles are brought ahead of their use, the loop counts tiles (``t``); else it counts steps of K (``k0``).
    ``ahead`` counts tiles from the turn's own.
    """

    def __init__(self, s: Scope, at: Place, shared: dict[str, Array], counts_tiles: bool) -> None:
        self.s, self.at, self.shared, self.counts_tiles = s, at, shared, counts_tiles
        self.copies: dict[str, TileCopy] = {
            c.operand: tile_copy(s, c, shared[c.buffer]) for c in s.p.copies if c.via.by_threads
        }
        self.direct = [x for x in ("A", "B") if s.p.copies and s.p.buffer(x) is None]
        self.depth = s.p.pipeline.depth
        self.stages: Expr = Const(1)
        self.tiles: Expr = Const(1)
        self.t: Expr = Const(0)
        self.k0: Expr = Const(0)
        self.first: Var | None = None  # how long the first tile is, where it is the short one
        self.stage: dict[int, Expr] = {}
        self.passed: Expr = Const(0)  # steps along K in tiles of C before, where stages and phases run on from those

    def counting(self) -> list[Stmt]:
        """How many tiles there are along K."""
        if not self.counts_tiles:
            return []
        if self.depth > 1:
            self.stages = self.s.constants["STAGES"].expr
        out: list[Stmt] = []
        depth = self.s.depth
        whole = "k" not in self.s.p.variant.guard
        bk = self.s.extent("k")
        self.tiles = let(out, "tiles", depth // bk if whole else (depth + (bk - 1)) // bk, "steps of BK along K")
        if self.s.p.pipeline.ragged_first:
            self.first = Var("firstTile", 1, self.s.p.extent("k"), uniform=True)
            why = "how much of K the first of them takes: what whole ones leave, or a whole one"
            out.append(Let(self.first, depth - (self.tiles - 1) * bk, why))
        return out

    def stage_of(self, ahead: int, out: list[Stmt]) -> Expr | None:
        """The stage of the tile ``ahead``; None where a buffer holds one tile."""
        if self.depth == 1:
            return None
        key = ahead % self.depth
        if key not in self.stage:
            names = {self.depth - 1: FREE_STAGE, 0: ("stage", ""), 1: ("nextStage", "")}
            name, why = names.get(key, (f"stage{key}", ""))
            self.stage[key] = let(out, name, (self.passed + self.t + self.far(key)) % self.stages, why)
        return self.stage[key]

    def source(self, operand: str, buffer: str | None) -> Source:
        """Where the fragments of the turn's own tile come from."""
        if buffer is None:
            start = self.starts(0, [])
            return Source(self.tile(operand, start), None, start)
        return Source(self.shared[buffer], self.stage_of(0, []))

    def tile(self, operand: str, k0: Expr) -> Pointer:
        """Where the tile of an operand that starts at ``k0`` begins."""
        offset = k0 if self.s.p.contiguous(operand) == "k" else k0 * LEADING[operand]
        return Pointer(f"tile{operand}", self.at.block[operand], offset)

    def starts(self, ahead: int, out: list[Stmt]) -> Expr:
        """The first k of the tile ``ahead``."""
        if not self.counts_tiles:
            return self.k0
        # A tile that is on its way, beside one that is fetched from where it lies, has a start of its own.
        name = "laterK0" if self.direct and ahead else "k0"
        number = self.t + self.far(ahead)
        if self.first is None:
            return let(out, name, number * self.s.extent("k"))
        if value_of(number) == 0:
            return Const(0)
        named = not isinstance(self.far(ahead), Const)
        before = self.t + (self.stages - (self.depth - ahead + 1)) if named else self.t + ahead - 1
        later = self.first + before * self.s.extent("k")
        return let(out, name, later if self._in_turns(ahead) else Select(number.eq(0), Const(0), later))

    def ends(self, ahead: int, out: list[Stmt]) -> Expr | None:
        """Where K ends for the tile ``ahead``; None where that is surely not within the tile."""
        if self.first is None:
            return self.s.depth
        if self._in_turns(ahead):
            return None
        end = self.first + (self.t + self.far(ahead)) * self.s.extent("k")
        return let(out, "endK", end, "where this tile ends: past it, zeros")

    def comes_from(self, operand: str, ahead: int) -> Origin:
        """Where the tile ``ahead`` of an operand comes from."""
        start = self.starts(ahead, [])
        return Origin(self.tile(operand, start), start, self.ends(ahead, []))

    def _in_turns(self, ahead: int) -> bool:
        """Whether the tile ``ahead`` is brought in a turn of the loop, and so is not the first."""
        return ahead > 0 and isinstance(self.t, Var) and self.t.hi is None

    def far(self, ahead: int) -> Expr:
        """``ahead``, by the number of stages where it is that or one less (and not simply the next)."""
        if self.depth < 2 or ahead < self.depth - 1 or ahead == 1:
            return Const(ahead)
        return self.stages - (self.depth - ahead)

    def exists(self, ahead: int) -> Expr | None:
        """The condition that there is a tile ``ahead``; None where there surely is."""
        if not self.counts_tiles or (ahead == 0 and isinstance(self.t, Var) and self.t.hi is None):
            return None
        return (self.t + self.far(ahead)).lt(self.tiles)

    def pointers(self, ahead: int) -> list[Stmt]:
        """Where the tiles ``ahead`` begin; in the loop over steps they are known already."""
        if not self.counts_tiles:
            return []
        out: list[Stmt] = []
        start = self.starts(ahead, out)
        self.ends(ahead, out)
        return [*out, *(LetPointer(self.tile(x, start)) for x in self.copies)]
