"""Products of tensor cores: a warp's fragments of A and B, and the tiles of mma that it multiplies them in."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.expr import Const, Expr, value_of
from gemmgen.ir.nodes import Alloc, Array, Call, Load, Ref, Stmt
from gemmgen.ir.types import VECTOR_BYTES, Dim
from gemmgen.isa.math import Math
from gemmgen.isa.mma import EIGHT, QUAD, ldmatrix, per_register
from gemmgen.lower.layout import BANK_UNITS, element_of
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.product import Fragments, Source, because, element, register_tile
from gemmgen.lower.scope import Scope
from gemmgen.tile.program import Buffer

BEHIND = "products of the previous step, whose fragments have arrived (zeros in the first step)"


class WarpFragments(Fragments):
    """The registers of a warp's product: its sums, and the fragments of one step along k, tile by tile of mma.

    With prefetch there are two sets of each, used in turn; the first step multiplies zeros.
    """

    def __init__(self, s: Scope, at: Place) -> None:
        super().__init__(s, at)
        math = s.p.product.math
        assert math.inst is not None and math.a is not None and math.b is not None
        self.math: Math = math
        self.m_tiles, self.n_tiles = s.constants["M_TILES"].expr, s.constants["N_TILES"].expr
        self.step = s.constants["MMA_K"].expr
        self.acc = Array("acc", "register", shape=(self.rows, self.cols), align=8)
        a, b = Const(math.a.elements), Const(math.b.elements)
        self.a_extents: tuple[Expr, ...] = (self.sets, self.m_tiles, a)
        self.b_extents: tuple[Expr, ...] = (self.sets, self.n_tiles, b)
        self.a, self.b = (
            replace(register_tile(f"frag{x}", *extents, dtype=s.p.matrix(x).dtype), align=VECTOR_BYTES)
            for x, extents in (("A", self.a_extents), ("B", self.b_extents))
        )

    def clear(self) -> list[Stmt]:
        return [Alloc(self.acc, 0.0, "this lane's elements of C, in registers throughout")]

    def declare(self) -> list[Stmt]:
        behind = value_of(self.sets) != 1
        twice = ", and of the one before" if behind else ""
        first = 0.0 if behind else None
        m, n, k = self.math.shape
        return [
            Alloc(self.a, first, f"its part of the {m}x{k} tiles of A at one step{twice}"),
            Alloc(self.b, first, f"its part of the {k}x{n} tiles of B at one step{twice}"),
        ]

    # --- Fetching --------------------------------------------------------------------------------------------------

    def fetch(self, operand: str, source: Source, k: Expr, parity: Expr) -> list[Stmt]:
        """Loads the fragments of one operand at the step from ``k`` on into the set of that parity."""
        buffer = self.s.p.buffer(operand)
        assert buffer is not None and isinstance(source.memory, Array)
        if self.s.p.product.feed == "ldmatrix" and self._by_matrices(buffer):
            return self._matrices(buffer, source, k, parity)
        return self._elements(buffer, source, k, parity)

    def _by_matrices(self, b: Buffer) -> bool:
        """Whether ldmatrix gives the operand's fragments: it moves rows of 16 bytes, and transposes 16-bit elements."""
        rows = b.layout.pitch * b.dtype.bytes % VECTOR_BYTES == 0
        return rows and (b.layout.contiguous == "k" or per_register(b.dtype) == 2)

    def _elements(self, b: Buffer, source: Source, k: Expr, parity: Expr) -> list[Stmt]:
        """By ordinary loads, of the elements of a register together where they are neighbours."""
        is_a, along = b.operand == "A", b.layout.contiguous == "k"
        fragment = self.math.a if is_a else self.math.b
        assert fragment is not None and isinstance(source.memory, Array)
        width = per_register(b.dtype) if along and b.layout.pitch % per_register(b.dtype) == 0 else 1
        tiles, unit = (self.m_tiles, self._mma("m")) if is_a else (self.n_tiles, self._mma("n"))

        def load(tile: Expr, e: Expr) -> list[Stmt]:
            row, col = fragment.at(self.at.lane, e)
            place: dict[Dim, Expr] = {"k": k + (col if is_a else row)}
            first = self.at.warp_row if is_a else self.at.warp_col
            place["m" if is_a else "n"] = first + tile * unit + (row if is_a else col)
            assert isinstance(source.memory, Array)
            src = element_of(source.memory, b.layout, place, source.stage)
            return [Load(self._register(b.operand, parity, tile, e), src, width, None, "math")]

        return nest([("i" if is_a else "j", tiles, 1), ("e", fragment.elements, width)], load)

    def _matrices(self, b: Buffer, source: Source, k: Expr, parity: Expr) -> list[Stmt]:
        """By ldmatrix: the four 8x8 matrices of a tile of A, or of two tiles of B side by side."""
        is_a, along = b.operand == "A", b.layout.contiguous == "k"
        memory = source.memory
        assert isinstance(memory, Array)
        pair = not is_a and (value_of(self.n_tiles) or 1) % 2 == 0
        count = QUAD if is_a or pair else 2
        row = ldmatrix(count, b.dtype, trans=not along)
        unit = b.dtype.elements(VECTOR_BYTES)
        # Which 8 rows and which 16 bytes of the tile's rows a lane names: matrices follow one another as registers do.
        lane, one, two = self.at.lane, self.at.lane // EIGHT % 2, self.at.lane // (2 * EIGHT)
        by_lines = is_a == along if count == QUAD else not along
        line = lane % (2 * EIGHT) if by_lines else lane % EIGHT + (two * EIGHT if count == QUAD else Const(0))
        piece = (two if by_lines else one) * unit
        if count < QUAD and by_lines:
            piece = Const(0)
        tiles, size = (self.m_tiles, self._mma("m")) if is_a else (self.n_tiles, self._mma("n"))

        def load(tile: Expr) -> list[Stmt]:
            start = (self.at.warp_row if is_a else self.at.warp_col) + tile * size
            place: dict[Dim, Expr] = {"k": k + (piece if along else line)}
            place["m" if is_a else "n"] = start + (line if along else piece)
            bits = self._swizzle(b, lane)
            src = element_of(memory, b.layout, place, source.stage, bits)
            return [Call(row, (self._register(b.operand, parity, tile, Const(0)), src), origin="use ldmatrix")]

        return nest([("i" if is_a else "j", tiles, 2 if pair else 1)], load)

    def _swizzle(self, b: Buffer, lane: Expr) -> Expr | None:
        """The bits of a row's number that a swizzle uses, which are the lane's: all else is whole eights."""
        if not b.layout.swizzle:
            return None
        pieces = min(b.layout.extents[1] // b.dtype.elements(VECTOR_BYTES), BANK_UNITS)
        return lane % BANK_UNITS // (BANK_UNITS // pieces)

    def _mma(self, dim: Dim) -> Expr:
        return self.s.constants[f"MMA_{dim.upper()}"].expr

    def _register(self, operand: str, parity: Expr, tile: Expr, e: Expr) -> Ref:
        """An element of a fragment."""
        if operand == "A":
            return element(self.a, self.a_extents, (parity, tile, e))
        return element(self.b, self.b_extents, (parity, tile, e))

    # --- Multiplying -----------------------------------------------------------------------------------------------

    def products(self, parity: Expr) -> list[Stmt]:
        """All tiles of the warp at one step."""
        row = self.math.inst
        assert row is not None

        def one(i: Expr, j: Expr) -> list[Stmt]:
            upper, lower = (Ref(self.acc, (i * 2 + half, j * 2)) for half in (0, 1))
            a, b = (self._register(x, parity, tile, Const(0)) for x, tile in (("A", i), ("B", j)))
            return [Call(row, (upper, lower, a, b), origin="math")]

        return nest([("i", self.m_tiles, 1), ("j", self.n_tiles, 1)], one)

    def multiply_last(self) -> list[Stmt]:
        """The products that are left after the last step, where they are a step behind."""
        return because("products of the last step", self.products(self.sets - 1))

    def behind(self, parity: Expr) -> list[Stmt]:
        return because(BEHIND, self.products(parity))
