"""Products that a warp group starts together: the tensor cores read both tiles from shared memory."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Alloc, Array, Call, Compute, FBin, For, If, Read, Ref, Stmt
from gemmgen.ir.split import Split
from gemmgen.isa.split import ADD_FINITE
from gemmgen.isa.wgmma import Major, wgmma
from gemmgen.lower.layout import start_of
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.product import Fragments
from gemmgen.lower.scope import Scope, let
from gemmgen.lower.tiles import Turn
from gemmgen.tile.program import Buffer, TileProgram
from gemmgen.tile.statements import Issue

NTH = ("first", "second", "third")
SMALL_K = 1024
"""Elements along K whose small products the tensor cores add up."""


class GroupSums(Fragments):
    """The registers of a warp group's product: sums alone, in two rows of a thread. With promotion also what the tensor
    cores have added up of one tile: ``part``; where elements are split, that of their first parts, and ``small`` of the
    others."""

    def __init__(self, s: Scope, at: Place) -> None:
        super().__init__(s, at)
        shape = (self.rows, self.cols)
        self.acc = Array("acc", "register", shape=shape)
        self.part = Array("part", "register", shape=shape) if s.p.product.promote else self.acc
        self.small = Array("small", "register", shape=shape) if s.p.product.math.split else None

    @property
    def added(self) -> tuple[Ref, ...]:
        """A thread's sums that the tensor cores add to, each by the first of them."""
        return tuple(Ref(x, (Const(0), Const(0))) for x in (self.part, self.small) if x is not None)

    def clear(self) -> list[Stmt]:
        out: list[Stmt] = [Alloc(self.acc, 0.0, "this thread's elements of C, in registers throughout")]
        if self.part is not self.acc:
            of = "one tile, in fewer bits than float32 has" if self.small is None else "one tile's first parts"
            out.append(Alloc(self.part, 0.0, f"what the tensor cores add up of {of}"))
        if self.small is not None:
            out.append(Alloc(self.small, 0.0, "and of some tiles' other pairs of parts"))
        return out

    def declare(self) -> list[Stmt]:
        return []


def group_sums(f: Fragments) -> tuple[Ref, ...]:
    """A thread's sums that the tensor cores add to, each array by its first."""
    return f.added if isinstance(f, GroupSums) else (Ref(f.acc, (Const(0), Const(0))),)


def promote(f: Fragments, turn: Turn) -> list[Stmt]:
    """Threads add what the tensor cores have added up of a tile to their sums; the small products of a split once in
    so many tiles, and behind the last."""
    assert isinstance(f, GroupSums)
    own, part, small = f.acc, f.part, f.small

    def one(i: Expr, j: Expr) -> list[Stmt]:
        return [Compute(Ref(own, (i, j)), FBin("+", Read(Ref(own, (i, j))), Read(Ref(part, (i, j)))))]

    def other(i: Expr, j: Expr) -> list[Stmt]:
        assert small is not None
        return [Call(ADD_FINITE, (Ref(own, (i, j)), Ref(small, (i, j))), origin="math")]

    each = [("p", f.rows, 1), ("j", f.cols, 1)]
    first, *rest = nest(each, one)
    why = "promotion: rounded to nearest in float32, which the tensor cores' own sums are not"
    out = [replace(first, why=why) if isinstance(first, For) else first, *rest]
    if small is None:
        return out
    added = tuple(nest(each, other))
    left = tiles_left(turn)
    if left is None:
        return [*out, *added]
    count = let(out, "left", left, "further tiles until the small products of all up to then are added")
    return [*out, If(count.eq(0), added)]


def tiles_left(turn: Turn) -> Expr | None:
    """Further tiles until small products are added to the threads' sums: what the tensor cores cut off of small ones is
    below what threads round off of the others. None where tiles are not counted, and it is done with each."""
    if not turn.looping:
        return None
    s = turn.k.s
    count = SMALL_K // s.p.block[2]
    why = "tiles whose small products the tensor cores add up, which are 2^-8 of the others at most"
    return (turn.k.number - 1 - turn.t) % s.constant("SMALL_TILES", count, str(count), why)


def issue(f: Fragments, turn: Turn, t: Issue) -> list[Stmt]:
    """The products of the turn's tile, step by step along k."""
    s = turn.k.s
    tiles = [_buffer(s.p, x) for x in ("A", "B")]
    arrays = [turn.k.shared[b.name] for b in tiles]
    rows = (tiles[0].layout.extents[0], tiles[1].layout.extents[0])
    row = wgmma(s.p.block[1], tiles[0].dtype, (major(tiles[0]), major(tiles[1])), rows, s.p.product.promote)
    stage = turn.stage_of(0)
    lead = () if stage is None else (stage,)

    def products(sums: Ref, parts: tuple[Expr, Expr] | None, begins: Expr | None) -> list[Stmt]:
        """``begins``: what is 0 where the sums begin anew; None where products are added to them."""
        of_a, of_b = ((parts[0],), (parts[1],)) if parts else ((), ())

        def step(k: Expr) -> list[Stmt]:
            a = start_of(arrays[0], tiles[0].layout, {"m": f.at.warp_row, "k": k}, *lead, *of_a)
            b = start_of(arrays[1], tiles[1].layout, {"n": Const(0), "k": k}, *lead, *of_b)
            add = (Const(1) if begins is None else begins + k,) if s.p.product.promote else ()
            return [Call(row, (sums, a, b, *add), origin="math")]

        return nest([("k", s.extent("k"), s.p.product.math.shape[2])], step)

    split = s.p.product.math.split
    if split is None:
        return products(group_sums(f)[0], None, Const(0))
    out: list[Stmt] = []
    large, small = group_sums(f)
    for i, (part_a, part_b) in enumerate(split.terms):
        both = (part_a, part_b) == (0, 0)
        begins = Const(0) if both else _since_added(turn) if i == 0 else None
        loops = products(large if both else small, (Const(part_a), Const(part_b)), begins)
        out += [replace(x, why=_why(i, split)) if isinstance(x, For) else x for x in loops]
    return out


def _since_added(turn: Turn) -> Expr:
    """0 behind a tile whose small products were added."""
    left = tiles_left(turn)
    return Const(0) if left is None else (turn.k.number - turn.t) % turn.k.s.constants["SMALL_TILES"].expr


def _why(number: int, split: Split) -> str:
    """What the products of one pair of parts are."""
    a, b = (NTH[x] for x in split.terms[number])
    small = ": small ones first, since the tensor cores cut off what is below the sum's last bit" if not number else ""
    return f"{a} part of A by {b} of B{small}"


def major(b: Buffer) -> Major:
    """The dimension along which a tile's elements are neighbours."""
    return "k" if b.layout.contiguous == "k" else "mn"


def _buffer(p: TileProgram, operand: str) -> Buffer:
    found = p.buffer(operand)
    assert found is not None
    return found
