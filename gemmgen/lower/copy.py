"""Copies: all threads of a block move one tile from global to shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil

from gemmgen.ir.expr import Const, Expr, smaller, value_of
from gemmgen.ir.nodes import Alloc, Array, Call, For, If, Load, Pointer, Ref, Stmt, Store
from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.isa.async_copy import cp_async, cp_async_or_zero
from gemmgen.isa.table import Completion
from gemmgen.lower.layout import element_of, row_remainder
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import LEADING, Scope
from gemmgen.lower.spread import Along, Lanes, spread
from gemmgen.tile.program import Buffer, Copy


@dataclass(frozen=True)
class Access:
    """One access of a thread: ``line`` and ``run`` say where in the tile, ``number`` which of its accesses it is."""

    line: Expr
    run: Expr
    number: Expr


@dataclass(frozen=True)
class Origin:
    """Where a tile comes from: its first element in global memory, the k it starts at, and where K ends for it; None
    where that is surely not within the tile."""

    tile: Pointer
    k0: Expr
    end: Expr | None


_Body = Callable[[Access], list[Stmt]]

MANY_PASSES = 16
"""More copies than this are written a few at a time: all their addresses at once would fill the registers."""


@dataclass(frozen=True)
class TileCopy:
    """The lowered form of a Copy: index values found once (``index``), and the statements of each tile."""

    s: Scope
    c: Copy
    buffer: Buffer
    shared: Array
    lanes: Lanes
    index: tuple[Stmt, ...]
    kept: Array = field(init=False)

    def __post_init__(self) -> None:
        shape = (Const(self.passes), Const(self.c.width))
        kept = Array(
            f"kept{self.c.operand}", "register", self.buffer.dtype, shape=tuple(e for e in shape if e.value > 1)
        )
        object.__setattr__(self, "kept", kept)

    @property
    def passes(self) -> int:
        """Accesses of a thread for one tile."""
        return value_of(self.lanes.passes) or 1

    def whole(self, come: Origin, stage: Expr | None) -> list[Stmt]:
        """Bring in a tile: through registers at once, or started asynchronously."""

        asynchronous = self.c.via.lands is not Completion.NOW

        def one(at: Access) -> list[Stmt]:
            if asynchronous:
                return self._start(at, come, stage)
            staged = Array(
                "staged", "register", self.buffer.dtype, shape=(Const(self.c.width),) if self.c.width > 1 else ()
            )
            return [Alloc(staged), self._load(at, come, staged, ()), *self._put(at, stage, staged, ())]

        body = self._loops(one)
        return [_by_fours(x) for x in body] if asynchronous and self.passes > MANY_PASSES else body

    def fetch(self, come: Origin) -> list[Stmt]:
        """Only as far as the registers."""
        return self._loops(lambda at: [self._load(at, come, self.kept, self._slot(at))])

    def put(self, stage: Expr | None) -> list[Stmt]:
        """From the registers of ``fetch`` to shared memory."""
        return self._loops(lambda at: self._put(at, stage, self.kept, self._slot(at)))

    def sliced(self, k: Expr, steps: int, come: Origin, stage: Expr | None) -> list[Stmt]:
        """The accesses that belong to step ``k`` of ``steps``, so that all steps together copy the tile."""
        per = ceil(self.passes / steps)

        def one(i: Expr) -> list[Stmt]:
            number = k * per + i
            body = self._one(number, lambda at: self._start(at, come, stage))
            late = number.lt(self.lanes.passes) if per * steps > self.passes else Const(1)
            return body if value_of(late) == 1 else [If(late, tuple(body))]

        return nest([("pass", per, 1)], one)

    # --- One access ------------------------------------------------------------------------------------------------

    def _slot(self, at: Access) -> tuple[Expr, ...]:
        return (at.number,) if self.passes > 1 else ()

    def _loops(self, body: _Body) -> list[Stmt]:
        def access(slow: Expr, fast: Expr, number: Expr, condition: Expr | None) -> list[Stmt]:
            return _where(condition, body(self._access(slow, fast, number)))

        return self.lanes.loops(access)

    def _one(self, number: Expr, body: _Body) -> list[Stmt]:
        def access(slow: Expr, fast: Expr, number: Expr, condition: Expr | None) -> list[Stmt]:
            return _where(condition, body(self._access(slow, fast, number)))

        return self.lanes.one(number, access)

    def _access(self, slow: Expr, fast: Expr, number: Expr) -> Access:
        line, run = (slow, fast) if self.c.lanes == self.s.p.contiguous(self.c.operand) else (fast, slow)
        return Access(line, run * self.c.width, number)

    def _source(self, at: Access, come: Origin) -> tuple[Ref, Expr | None]:
        """Where an access reads, and the condition under which there is anything to read."""
        p, c = self.s.p, self.c
        along, across = p.contiguous(c.operand), p.strided(c.operand)
        place = {across: at.line, along: at.run}
        guard: Expr | None = None
        for dim in (across, along):
            if dim not in c.guard:
                continue
            if dim == "k":
                guard = None if come.end is None else (come.k0 + place[dim]).lt(come.end)
            else:
                # Past the edge the last line is read again: what it gives is never stored.
                place[dim] = smaller(place[dim], self.s.last(c.operand, dim, c.width if dim == along else 1))
        return Ref(come.tile, (place[across] * LEADING[c.operand] + place[along],)), guard

    def _target(self, at: Access, stage: Expr | None, v: Expr) -> Ref:
        p, c = self.s.p, self.c
        place = {p.strided(c.operand): at.line, p.contiguous(c.operand): at.run + v}
        layout, bits = self.buffer.layout, None
        if layout.swizzle and p.product.math.by_warp:
            bits = row_remainder(place[layout.dims[0]], layout.extents[1], self.buffer.dtype.elements(VECTOR_BYTES))
        return element_of(self.shared, layout, place, stage, bits)

    def _load(self, at: Access, come: Origin, to: Array, slot: tuple[Expr, ...]) -> Load:
        src, guard = self._source(at, come)
        first = (*slot, Const(0)) if self.c.width > 1 else slot
        return Load(Ref(to, first), src, self.c.width, guard, self._origin, self._edge)

    def _put(self, at: Access, stage: Expr | None, source: Array, slot: tuple[Expr, ...]) -> list[Stmt]:
        width = self.c.width
        if self.buffer.layout.contiguous == self.s.p.contiguous(self.c.operand):
            first = (*slot, Const(0)) if width > 1 else slot
            return [Store(self._target(at, stage, Const(0)), Ref(source, first), width, None, self._origin)]

        def scatter(v: Expr) -> list[Stmt]:
            element = (*slot, v) if width > 1 else slot
            return [Store(self._target(at, stage, v), Ref(source, element), 1, None, "use transposeA")]

        return nest([("v", width, 1)], scatter)

    def _start(self, at: Access, come: Origin, stage: Expr | None) -> list[Stmt]:
        src, guard = self._source(at, come)
        dst, nbytes = self._target(at, stage, Const(0)), self.buffer.dtype.bytes * self.c.width
        if guard is None:
            return [Call(cp_async(nbytes, self.buffer.dtype), (dst, src), self._edge, origin=self._origin)]
        return [Call(cp_async_or_zero(nbytes, self.buffer.dtype), (dst, src, guard), self._edge, origin=self._origin)]

    @property
    def _edge(self) -> str:
        """What happens past the matrix's edge, in words."""
        first = "m" if self.c.operand == "A" else "n"
        line = "row" if first == "m" else "column"
        return f"past the last {line}, that {line} again: its products are not stored" if first in self.c.guard else ""

    @property
    def _origin(self) -> str:
        return "use float4" if self.c.width > 1 else "use smem"


def _by_fours(s: Stmt) -> Stmt:
    return replace(s, unroll=4) if isinstance(s, For) else s


def _where(condition: Expr | None, body: list[Stmt]) -> list[Stmt]:
    return body if condition is None else [If(condition, tuple(body))]


def tile_copy(s: Scope, c: Copy, shared: Array) -> TileCopy:
    """Lowers one copy."""
    p = s.p
    along, across = p.contiguous(c.operand), p.strided(c.operand)
    runs = s.extent(along) // c.width if c.width > 1 else s.extent(along)
    first = "m" if c.operand == "A" else "k"
    names = {d: f"inner{'Row' if d == first else 'Col'}{c.operand}" for d in (along, across)}
    nouns = {d: "row" if d == first else "column" for d in (along, across)}
    piece = f"{c.width} {nouns[along]}s" if c.width > 1 else nouns[along]
    lines, pieces = Along(s.extent(across), names[across], nouns[across]), Along(runs, names[along], piece)
    if c.lanes == along:
        lanes = spread(s, c.operand, lines, pieces, patches=c.patches)
    else:
        lanes = spread(s, c.operand, pieces, lines)
    buffer = p.buffer(c.operand)
    assert buffer is not None
    return TileCopy(s, c, buffer, shared, lanes, lanes.index)
