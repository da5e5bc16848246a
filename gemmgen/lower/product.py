"""The product: a thread's fragments of A and B, and their outer product into its accumulators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gemmgen.ir.expr import Const, Expr, Var, select, smaller, value_of
from gemmgen.ir.nodes import Alloc, Array, Call, Fma, For, If, Let, Load, Pointer, Ref, Stmt
from gemmgen.ir.types import F32, VECTOR_BYTES, Dim, DType
from gemmgen.isa.lane_sums import add_lanes, share_lanes
from gemmgen.isa.registers import own_register
from gemmgen.lower.layout import element_of, split_bits
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.scope import LEADING, Scope
from gemmgen.tile.lane_sums import Halving, lane_sums

SNAKE = "snake order: a row starts with the column of the previous FMA and reuses it (worth 3% on an H200)"


def register_tile(name: str, *extents: Expr, dtype: DType = F32) -> Array:
    """A register array; dimensions of one element are left out."""
    return Array(name, "register", dtype, tuple(e for e in extents if value_of(e) != 1))


def element(array: Array, extents: tuple[Expr, ...], index: tuple[Expr, ...]) -> Ref:
    """An element of a register tile, by the indices of all its dimensions, those of one element included."""
    return Ref(array, tuple(i for e, i in zip(extents, index, strict=True) if value_of(e) != 1))


@dataclass(frozen=True)
class Source:
    """Where fragments come from: shared memory in one ``stage`` (None: the only one), or global memory by pointer,
    which points to the tile that begins at ``k0`` (None: to all of K)."""

    memory: Array | Pointer
    stage: Expr | None = None
    k0: Expr | None = None


@dataclass(frozen=True)
class Renewal:
    """Rows of A at the steps from ``start`` on are loaded where ``due``."""

    source: Source
    start: Expr
    due: Expr


class Fragments:
    """The registers of the product and the statements that fill and use them.

    With prefetch there are two sets of each, used in turn: that of step k has the parity of k; the first step
    multiplies zeros. Along k, A has one set of several steps, of which each row is replaced after its last use.
    """

    def __init__(self, s: Scope, at: Place) -> None:
        self.s = s
        self.at = at
        self.rows = at.m_iter * at.tm
        self.cols = at.n_iter * at.tn
        product = s.p.product
        single = value_of(self.rows) == 1 and value_of(self.cols) == 1
        self.sets: Expr = Const(2 if s.p.pipeline.prefetch else 1)
        self.run: Expr = Const(product.a_width if product.along_k else product.run)
        self.b_run: Expr = Const(product.run)
        a_sets: Expr = Const(1) if product.along_k else self.sets
        self.acc = register_tile("acc" if single else "threadResults", self.rows, self.cols)
        self.a_extents: tuple[Expr, ...] = (a_sets, self.rows, self.run)
        self.b_extents: tuple[Expr, ...] = (self.sets, self.cols, self.b_run)
        self.a = register_tile("a" if single else "regM", *self.a_extents, dtype=s.p.matrix("A").dtype)
        self.b = register_tile("b" if single else "regN", *self.b_extents, dtype=s.p.matrix("B").dtype)

    def clear(self) -> list[Stmt]:
        scalar = not self.acc.shape
        why = "this thread's element of C" if scalar else "this thread's elements of C, in registers throughout"
        return [Alloc(self.acc, 0.0, why)]

    def declare(self) -> list[Stmt]:
        """The fragments, where they are arrays; scalar ones are declared where they are loaded."""
        steps = f"{self.run} steps" if value_of(self.run) != 1 else "one k"
        behind = value_of(self.sets) != 1
        twice = ", and of the one before" if behind else ""
        first = 0.0 if behind else None  # what the first step multiplies, having nothing before it
        out: list[Stmt] = []
        if self.a.shape:
            out.append(Alloc(self.a, first, f"its rows of A at {steps}{'' if value_of(self.run) != 1 else twice}"))
        if self.b.shape:
            b_steps = f"{self.b_run} steps" if value_of(self.b_run) != 1 else "one k"
            out.append(Alloc(self.b, first, f"its columns of B at {b_steps}{twice}"))
        return out

    # --- Fetching --------------------------------------------------------------------------------------------------

    def fetch(self, operand: str, source: Source, k: Expr, parity: Expr) -> list[Stmt]:
        """Loads the fragment of one operand at step ``k`` into the set of that parity."""
        is_a = operand == "A"
        array = self.a if is_a else self.b
        if self.s.p.product.lanes_k > 1:
            return self._of_lane(operand, source, k)
        if is_a and value_of(self.run) != 1:
            return nest([("p", self.at.m_iter, 1), ("i", self.at.tm, 1)], lambda p, i: self.row(source, p, i, k))
        prefix: list[Stmt] = [] if array.shape else [Alloc(array)]
        dim: Dim = "m" if is_a else "n"
        at, product = self.at, self.s.p.product
        pieces, run, first = (at.m_iter, at.tm, at.row) if is_a else (at.n_iter, at.tn, at.col)
        spacing = at.sub_m if is_a else at.sub_n
        staged = isinstance(source.memory, Array)
        width = product.a_width if is_a else product.b_width

        def load(piece: Expr, i: Expr) -> list[Stmt]:
            if is_a:
                dst = element(array, self.a_extents, (parity, piece * run + i, Const(0)))
            else:
                dst = element(array, self.b_extents, (parity, piece * run + i, Const(0)))
            where = first + piece * spacing + i
            return [self._load(dst, self._source(operand, source, dim, where, k, None, width), width, staged, guard)]

        guard = self._guard(source, k)
        names = ("p", "i") if is_a else ("q", "j")
        return prefix + nest([(names[0], pieces, 1), (names[1], run, width)], load)

    def _of_lane(self, operand: str, source: Source, k: Expr) -> list[Stmt]:
        """Loads what this lane has of the steps from ``k`` on: a run along k of each of its rows or columns."""
        is_a, at, product = operand == "A", self.at, self.s.p.product
        array, extents = (self.a, self.a_extents) if is_a else (self.b, self.b_extents)
        dim: Dim = "m" if is_a else "n"
        count, first = (at.tm, at.row) if is_a else (at.tn, at.col)
        width, staged = product.a_width if is_a else product.b_width, isinstance(source.memory, Array)

        def load(i: Expr, c: Expr) -> list[Stmt]:
            step = k + at.first_k + c
            src = self._source(operand, source, dim, first + i, step)
            dst = element(array, extents, (Const(0), i, c))
            return [self._load(dst, src, width, staged, self._guard(source, step))]

        prefix: list[Stmt] = [] if array.shape else [Alloc(array)]
        return prefix + nest([("i" if is_a else "j", count, 1), ("v", product.run, width)], load)

    def row(self, source: Source, piece: Expr, i: Expr, k: Expr) -> list[Stmt]:
        """Loads one row of A at the steps from ``k`` on."""
        dst = element(self.a, self.a_extents, (Const(0), piece * self.at.tm + i, Const(0)))
        if self._swizzled:
            k = k // self.run * self.run  # as it is, but now known to be whole runs
        where = self.at.row + piece * self.at.sub_m + i
        src = self._source("A", source, "m", where, k, self._bits(piece, i))
        return [self._load(dst, src, value_of(self.run) or 1, True)]

    def _bits(self, piece: Expr, i: Expr) -> Expr | None:
        """The bits of a row's number that A's swizzle uses, in parts of which unrolling makes one a number."""
        buffer = self.s.p.buffer("A")
        if buffer is None or not self._swizzled or self.at.low is None:
            return None
        return split_bits(
            self.at.low + i, piece * self.at.sub_m, buffer.layout.extents[1], buffer.dtype.elements(VECTOR_BYTES)
        )

    @property
    def _swizzled(self) -> bool:
        """Whether pieces of A's rows are permuted in shared memory."""
        buffer = self.s.p.buffer("A")
        return buffer is not None and buffer.layout.swizzle

    def _guard(self, source: Source, k: Expr) -> Expr | None:
        """The condition that there is anything at step ``k`` of a tile fetched straight from global memory."""
        if source.k0 is None or "k" not in self.s.p.variant.guard:
            return None
        return (source.k0 + k).lt(self.s.depth)

    def _load(self, dst: Ref, src: Ref, width: int, staged: bool, guard: Expr | None = None) -> Load:
        origin = "use float4" if width > 1 else "tile thread" if staged else "tile block"
        return Load(dst, src, width, guard, origin, pinned=self.s.p.product.pinned and staged)

    def _source(
        self,
        operand: str,
        source: Source,
        dim: Dim,
        where: Expr,
        k: Expr,
        bits: Expr | None = None,
        width: int = 1,
    ) -> Ref:
        p = self.s.p
        at: dict[Dim, Expr] = {dim: where, "k": k}
        if isinstance(source.memory, Array):
            buffer = p.buffer(operand)
            assert buffer is not None
            return element_of(source.memory, buffer.layout, at, source.stage, bits)
        if dim in p.variant.guard and self.clamped:
            at[dim] = smaller(where, self.s.last(operand, dim, width if p.contiguous(operand) == dim else 1))
        leading = at[p.strided(operand)] * LEADING[operand]
        return Ref(source.memory, (leading + at[p.contiguous(operand)],))

    @property
    def clamped(self) -> bool:
        """Whether loads straight from global memory stay inside by repeating the last row or column.

        Where nothing is copied for the whole block, a thread of one element outside C skips all its work instead.
        """
        return bool(self.acc.shape or self.s.p.copies or self.s.p.product.lanes_k > 1)

    # --- Multiplying -----------------------------------------------------------------------------------------------

    def multiply(self, k: Expr, parity: Expr, renew: Renewal | None = None, columns: Array | None = None) -> list[Stmt]:
        """The outer product at step ``k``. ``renew``: how each row of A is loaded anew after its last use. ``columns``:
        where the columns of B are, if not in their set of that parity."""
        product = self.s.p.product
        if product.lanes_k > 1 and product.run > 1:
            return nest([("v", product.run, 1)], lambda v: self._multiply(v, parity))
        return self._multiply(k, parity, renew, columns)

    def _multiply(
        self, k: Expr, parity: Expr, renew: Renewal | None = None, columns: Array | None = None
    ) -> list[Stmt]:
        product = self.s.p.product

        def line(piece: Expr, i: Expr) -> list[Stmt]:
            m = piece * self.at.tm + i

            def fma(n: Expr) -> list[Stmt]:
                column: list[Stmt] = []
                if product.snake:
                    n = self._snake(column, m, n, k)
                return [
                    *column,
                    Fma(
                        element(self.acc, (self.rows, self.cols), (m, n)),
                        element(self.a, self.a_extents, (parity, m, k % self.run)),
                        self._column(parity, n, k) if columns is None else Ref(columns, (n,)),
                        fused=product.pinned,
                    ),
                ]

            out = nest([("n", self.cols, 1)], fma)
            if renew is not None:
                out += _when(renew.due, self.row(renew.source, piece, i, renew.start))
            return out

        return nest([("p", self.at.m_iter, 1), ("m", self.at.tm, 1)], line)

    def multiply_last(self) -> list[Stmt]:
        """The outer product that is left after the last step, where products are a step behind.

        Where steps are closed, it takes B's columns from registers of their own: else the assembler has those of the
        loop change places once a turn, to suit what comes after it.
        """
        k, parity = self.run - 1, self.sets - 1
        if not self.s.p.product.pinned or not self.b.shape or value_of(self.cols) == 1:
            return because("FMAs of the last step", self.multiply(k, parity))
        last = Array("lastN", "register", self.b.dtype, (self.cols,))

        def copy(n: Expr) -> list[Stmt]:
            return [Call(own_register(self.b.dtype), (Ref(last, (n,)), self._column(parity, n, k)))]

        why = "the columns of B at the last k, apart from the loop's registers"
        products = because("FMAs of the last step", self.multiply(k, parity, None, last))
        return [Alloc(last, None, why), *nest([("n", self.cols, 1)], copy), *products]

    def _column(self, parity: Expr, n: Expr, k: Expr) -> Ref:
        return element(self.b, self.b_extents, (parity, n, k % self.b_run))

    def add_lanes(self) -> list[Stmt]:
        """The sums of all lanes that share them, of which each keeps a part."""
        found, out = lane_sums(self.s.p), []
        left: dict[Dim, int] = {"m": value_of(self.rows) or 1, "n": value_of(self.cols) or 1}
        for x in found.halvings:
            left[x.dim] = x.half
            out += self._over(left, partial(self._shared, x))
        if found.rest > 1:
            row = add_lanes(found.rest)
            out += self._over(left, lambda m, n: [Call(row, (self._sum(m, n),), origin="lanes_k")])
        return because("the lanes add up their parts of K, and each keeps some of the sums", out)

    def _shared(self, x: Halving, m: Expr, n: Expr) -> list[Stmt]:
        other = self._sum(m + x.half, n) if x.dim == "m" else self._sum(m, n + x.half)
        return [Call(share_lanes(x.apart), (self._sum(m, n), other), origin="lanes_k")]

    def _sum(self, m: Expr, n: Expr) -> Ref:
        return element(self.acc, (self.rows, self.cols), (m, n))

    def _over(self, left: dict[Dim, int], body: Callable[[Expr, Expr], list[Stmt]]) -> list[Stmt]:
        return nest([("m", left["m"], 1), ("n", left["n"], 1)], body)

    def _snake(self, out: list[Stmt], m: Expr, n: Expr, k: Expr) -> Expr:
        """Forwards in one row and backwards in the next, so that each starts with the column the last one ended with.

        There, where A's register changes, B's is still the operand of the previous product, and A's and the
        accumulator's are read: best from different banks, which are the even and the odd registers. An accumulator is
        in the other bank than its column's register of B. So a row should begin and end with columns of the parity of
        A's register: with rows of A side by side that is the row's, as it is; along k it is that of k, for which the
        columns are taken in pairs turned round, in one half of the row or in the other.
        """
        count = value_of(self.cols) or 1
        if count == 1:
            return n
        var = Var("column", 0, count - 1, uniform=True)
        at = select((m % 2).eq(0), n, self.cols - 1 - n)
        if value_of(self.run) == 1 or count % 4:
            out.append(Let(var, at, SNAKE))
            return var
        place, turned = Var("snakeAt", 0, count - 1, uniform=True), Var("turned", 0, 1, uniform=True)
        out.append(Let(place, at, SNAKE))
        why = (
            "1 swaps two neighbours: A and the sum are in different register banks where a row ends (worth 1.5% on an "
            "H200)"
        )
        out.append(Let(turned, (place // (self.cols // 2) + k) % 2, why))
        out.append(Let(var, place ^ turned))
        return var


def because(why: str, body: list[Stmt]) -> list[Stmt]:
    """The statements with a reason above the loop that they begin with."""
    first, *rest = body
    return [replace(first, why=why), *rest] if isinstance(first, For) else body


def _when(condition: Expr, body: list[Stmt]) -> list[Stmt]:
    known = value_of(condition)
    if known is not None:
        return body if known else []
    return [If(condition, tuple(body))]
