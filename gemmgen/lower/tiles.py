"""The tiles along K: how many there are, in which stage of shared memory one lies, where in K it begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gemmgen.ir.expr import Const, Expr, Select, Var, value_of
from gemmgen.ir.nodes import Array, Let, LetPointer, Pointer, Stmt
from gemmgen.lower.copy import Origin, TileCopy, tile_copy
from gemmgen.lower.place import Place
from gemmgen.lower.product import Source
from gemmgen.lower.scope import LEADING, Scope, let

FREE_STAGE = "freeStage", "read in the previous iteration, refilled in this one"


@dataclass(frozen=True)
class Tiles:
    """What is the same for all tiles of a kernel.

    Where tiles are brought ahead of their use (``counts``), the loop along K counts tiles; else it counts steps of K.
    ``direct`` are the operands that are fetched from where they lie. ``first`` is how long the first tile is, where it
    is the short one.
    """

    s: Scope
    at: Place
    shared: Mapping[str, Array]
    counts: bool
    copies: Mapping[str, TileCopy]
    direct: tuple[str, ...]
    depth: int
    stages: Expr = Const(1)  # noqa: RUF009
    number: Expr = Const(1)  # noqa: RUF009
    first: Var | None = None

    def tile(self, operand: str, k0: Expr) -> Pointer:
        """Where the tile of an operand that starts at ``k0`` begins."""
        offset = k0 if self.s.p.contiguous(operand) == "k" else k0 * LEADING[operand]
        return Pointer(f"tile{operand}", self.at.block[operand], offset)

    def far(self, ahead: int) -> Expr:
        """``ahead``, by the number of stages where it is that or one less (and not simply the next)."""
        if self.depth < 2 or ahead < self.depth - 1 or ahead == 1:
            return Const(ahead)
        return self.stages - (self.depth - ahead)


def tile_copies(s: Scope, shared: Mapping[str, Array]) -> dict[str, TileCopy]:
    """The parts that each thread has in bringing tiles, by operand."""
    return {c.operand: tile_copy(s, c, shared[c.buffer]) for c in s.p.copies if c.via.by_threads}


def tiles_of(
    s: Scope, at: Place, shared: Mapping[str, Array], copies: Mapping[str, TileCopy], counts: bool
) -> tuple[Tiles, list[Stmt]]:
    """The tiles of a kernel, and the statements that count them."""
    direct = tuple(x for x in ("A", "B") if s.p.copies and s.p.buffer(x) is None)
    tiles = Tiles(s, at, shared, counts, copies, direct, s.p.pipeline.depth)
    if not counts:
        return tiles, []
    out: list[Stmt] = []
    depth, bk = s.depth, s.extent("k")
    stages: Expr = s.constants["STAGES"].expr if tiles.depth > 1 else Const(1)
    whole = "k" not in s.p.variant.guard
    number = let(out, "tiles", depth // bk if whole else (depth + (bk - 1)) // bk, "steps of BK along K")
    first: Var | None = None
    if s.p.pipeline.ragged_first:
        first = Var("firstTile", 1, s.p.extent("k"), uniform=True)
        why = "the K remainder, or a whole step if there is none: the first tile has this length"
        out.append(Let(first, depth - (number - 1) * bk, why))
    return replace(tiles, stages=stages, number=number, first=first), out


@dataclass(frozen=True)
class Turn:
    """Where the walk along K is: in the turn ``t`` (or at ``k0``). ``ahead`` counts tiles from the turn's own.

    ``passed`` are the steps along K in tiles of C before, where stages and phases run on from those. ``stage`` are the
    stages that have a name by now, ``named_parity`` the phase of the turn's own where that has one.
    """

    k: Tiles
    t: Expr = Const(0)  # noqa: RUF009
    k0: Expr = Const(0)  # noqa: RUF009
    passed: Expr = Const(0)  # noqa: RUF009
    stage: Mapping[int, Expr] = field(default_factory=dict)
    named_parity: Expr | None = None

    def named(self, ahead: int, out: list[Stmt]) -> Turn:
        """The same with a name for the stage of the tile ``ahead``, which is given where it has none."""
        key = ahead % self.k.depth
        if self.k.depth == 1 or key in self.stage:
            return self
        names = {self.k.depth - 1: FREE_STAGE, 0: ("stage", ""), 1: ("nextStage", "")}
        name, why = names.get(key, (f"stage{key}", ""))
        given = let(out, name, (self.passed + self.t + self.k.far(key)) % self.k.stages, why)
        return replace(self, stage={**self.stage, key: given})

    def stage_of(self, ahead: int) -> Expr | None:
        """The stage of the tile ``ahead``; None where a buffer holds one tile."""
        return None if self.k.depth == 1 else self.named(ahead, []).stage[ahead % self.k.depth]

    @property
    def parity(self) -> Expr:
        """The phase of the mbarriers that this turn waits for."""
        return (self.passed + self.t) // self.k.stages % 2 if self.named_parity is None else self.named_parity

    @property
    def looping(self) -> bool:
        """Whether this is a turn of the loop, and not ahead of it."""
        return isinstance(self.t, Var) and self.t.hi is None

    def source(self, operand: str, buffer: str | None) -> Source:
        """Where the fragments of the turn's own tile come from."""
        if buffer is None:
            start = self.starts(0, [])
            return Source(self.k.tile(operand, start), None, start)
        return Source(self.k.shared[buffer], self.stage_of(0))

    def starts(self, ahead: int, out: list[Stmt]) -> Expr:
        """The first k of the tile ``ahead``."""
        k = self.k
        if not k.counts:
            return self.k0
        # A tile that is on its way, beside one that is fetched from where it lies, has a start of its own.
        name = "laterK0" if k.direct and ahead else "k0"
        number = self.t + k.far(ahead)
        if k.first is None:
            return let(out, name, number * k.s.extent("k"))
        if value_of(number) == 0:
            return Const(0)
        before = self.t + ahead - 1 if isinstance(k.far(ahead), Const) else self.t + (k.stages - (k.depth - ahead + 1))
        later = k.first + before * k.s.extent("k")
        return let(out, name, later if ahead > 0 and self.looping else Select(number.eq(0), Const(0), later))

    def ends(self, ahead: int, out: list[Stmt]) -> Expr | None:
        """Where K ends for the tile ``ahead``; None where that is surely not within the tile."""
        k = self.k
        if k.first is None:
            return k.s.depth
        if ahead > 0 and self.looping:
            return None
        end = k.first + (self.t + k.far(ahead)) * k.s.extent("k")
        return let(out, "endK", end, "end of this tile; elements beyond it are zeros")

    def comes_from(self, operand: str, ahead: int) -> Origin:
        """Where the tile ``ahead`` of an operand comes from."""
        start = self.starts(ahead, [])
        return Origin(self.k.tile(operand, start), start, self.ends(ahead, []))

    def exists(self, ahead: int) -> Expr | None:
        """The condition that there is a tile ``ahead``; None where there surely is."""
        if not self.k.counts or (ahead == 0 and self.looping):
            return None
        return (self.t + self.k.far(ahead)).lt(self.k.number)

    def pointers(self, ahead: int, operands: Iterable[str]) -> list[Stmt]:
        """Where the tiles ``ahead`` begin; in the loop over steps they are known already."""
        if not self.k.counts:
            return []
        out: list[Stmt] = []
        start = self.starts(ahead, out)
        self.ends(ahead, out)
        return [*out, *(LetPointer(self.k.tile(x, start)) for x in operands)]
