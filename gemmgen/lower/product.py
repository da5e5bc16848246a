"""The product: a thread's fragments of A and B, and their outer product into its accumulators."""

from __future__ import annotations

from gemmgen.ir.expr import Expr, smaller, value_of
from gemmgen.ir.nodes import Alloc, Array, Fma, Load, Pointer, Ref, Stmt
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.scope import LEADING, Scope
from gemmgen.tile.program import Dim


def register_tile(name: str, *extents: Expr) -> Array:
    """A register array; dimensions of one element are left out."""
    return Array(name, "register", shape=tuple(e for e in extents if value_of(e) != 1))


def element(array: Array, extents: tuple[Expr, ...], index: tuple[Expr, ...]) -> Ref:
    """An element of a register tile, by the indices of all its dimensions, those of one element included."""
    return Ref(array, tuple(i for e, i in zip(extents, index, strict=True) if value_of(e) != 1))


class Fragments:
    """The registers of the product and the statements that fill and use them."""

    def __init__(self, s: Scope, at: Place) -> None:
        self.s = s
        self.at = at
        self.rows = at.m_iter * at.tm
        self.cols = at.n_iter * at.tn
        single = value_of(self.rows) == 1 and value_of(self.cols) == 1
        self.acc = register_tile("acc" if single else "threadResults", self.rows, self.cols)
        self.a = register_tile("a" if single else "regM", self.rows)
        self.b = register_tile("b" if single else "regN", self.cols)

    def clear(self) -> list[Stmt]:
        scalar = not self.acc.shape
        why = "this thread's element of C" if scalar else "this thread's elements of C, in registers throughout"
        return [Alloc(self.acc, 0.0, why)]

    def declare(self) -> list[Stmt]:
        """The fragments, where they are arrays; scalar ones are declared where they are loaded."""
        out: list[Stmt] = []
        if self.a.shape:
            out.append(Alloc(self.a, None, "its rows of A at one k"))
        if self.b.shape:
            out.append(Alloc(self.b, None, "its columns of B at one k"))
        return out

    def fetch(self, operand: str, source: Array | Pointer, k: Expr) -> list[Stmt]:
        """Loads the fragment of one operand at ``k``, from a shared buffer or from the block's global pointer."""
        at, is_a = self.at, operand == "A"
        dim: Dim = "m" if is_a else "n"
        array, total = (self.a, self.rows) if is_a else (self.b, self.cols)
        pieces, run, first = (at.m_iter, at.tm, at.row) if is_a else (at.n_iter, at.tn, at.col)
        spacing = at.sub_m if is_a else at.sub_n
        p = self.s.p
        width = (p.product.a_width if is_a else p.product.b_width) if isinstance(source, Array) else 1
        prefix: list[Stmt] = [] if array.shape else [Alloc(array)]

        def load(piece: Expr, i: Expr) -> list[Stmt]:
            dst = element(array, (total,), (piece * run + i,))
            where = first + piece * spacing + i
            return [Load(dst, self._source(operand, source, dim, where, k), width, None, self._origin(operand, width))]

        piece_name, name = ("p", "i") if is_a else ("q", "j")
        return prefix + nest([(piece_name, pieces, 1), (name, run, width)], load)

    def _origin(self, operand: str, width: int) -> str:
        if width > 1:
            return "use float4"
        return "tile thread" if self.s.p.copies else "tile block"

    def _source(self, operand: str, source: Array | Pointer, dim: Dim, where: Expr, k: Expr) -> Ref:
        p = self.s.p
        if isinstance(source, Array):
            buffer = p.buffer(operand)
            assert buffer is not None
            at: dict[str, Expr] = {dim: where, "k": k}
            return Ref(source, tuple(at[d] for d in buffer.layout.dims))
        if dim in p.variant.guard and self.clamped:
            where = smaller(where, self.s.left(dim) - 1)
        at = {dim: where, "k": k}
        leading = at[p.strided(operand)] * LEADING[operand]
        return Ref(source, (leading + at[p.contiguous(operand)],))

    @property
    def clamped(self) -> bool:
        """Whether loads straight from global memory stay inside by repeating the last row or column.

        A thread of one element outside C skips all its work instead.
        """
        return bool(self.acc.shape)

    def multiply(self) -> list[Stmt]:
        def fma(m: Expr, n: Expr) -> list[Stmt]:
            return [
                Fma(
                    element(self.acc, (self.rows, self.cols), (m, n)),
                    element(self.a, (self.rows,), (m,)),
                    element(self.b, (self.cols,), (n,)),
                )
            ]

        return nest([("m", self.rows, 1), ("n", self.cols, 1)], fma)

