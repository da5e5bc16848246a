"""What every part of the lowering needs: the program, the constants in use, and names for index values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmgen.ir.expr import Const, Expr, Var, bounds, divisor_of, lift, value_of
from gemmgen.ir.facts import is_uniform
from gemmgen.ir.kernel import Constant
from gemmgen.ir.nodes import Array, For, Let, Pointer, Stmt
from gemmgen.ir.types import Dim, DType, EpilogueOperand, Matrix
from gemmgen.tile.program import TileProgram

# Sizes are below 2^31 by the launch plan; leading dimensions are 64-bit, and so is every offset made with one.
BIGGEST = 2**31 - 1
M = Var("M", 0, BIGGEST, uniform=True)
N = Var("N", 0, BIGGEST, uniform=True)
K = Var("K", 0, BIGGEST, uniform=True)
LDA = Var("lda", 0, None, uniform=True, dtype="i64")
LDB = Var("ldb", 0, None, uniform=True, dtype="i64")
LDC = Var("ldc", 0, None, uniform=True, dtype="i64")
BETA = Var("beta", 0, None, uniform=True, dtype="f32")
BLOCK_X = Var("blockIdx.x", 0, BIGGEST, uniform=True)
BLOCK_Y = Var("blockIdx.y", 0, 65534, uniform=True)
BLOCK_Z = Var("blockIdx.z", 0, 65534, uniform=True)
GRID_X = Var("gridDim.x", 1, BIGGEST, uniform=True)
GRID_Y = Var("gridDim.y", 1, 65535, uniform=True)

SIZES: dict[str, Var] = {"m": M, "n": N, "k": K}
LEADING: dict[str, Var] = {"A": LDA, "B": LDB, "C": LDC}


def stride_of(x: Matrix | EpilogueOperand) -> Var:
    """The kernel's parameter that says how many elements apart neighbours in a batch are."""
    return Var(x.stride, 0, None, uniform=True, dtype="i64")


def global_array(name: str, dtype: DType) -> Array:
    """A matrix in global memory: A and B are only read."""
    return Array(name, "global", dtype, None, const=name != "C")


@dataclass
class Scope:
    """State of one lowering. ``constants`` grow as they are asked for; names of values are given once.

    ``depth`` is how far along K a block sums, from ``first_k`` on: all of it, unless blocks share it. ``tile_row`` and
    ``tile_col`` are which tile of C a block computes: its place in the grid, unless blocks go another way over C.
    ``part`` is which part of K the block has, ``batch`` which product of a batch. ``beside`` is where the tile's parts
    of the epilogue's operands begin, once that is known.
    """

    p: TileProgram
    constants: dict[str, Constant] = field(default_factory=dict)
    threads: int = 0
    tid: Expr = field(default_factory=lambda: Const(0))
    first_k: Expr = field(default_factory=lambda: Const(0))
    depth: Expr = K
    tile_row: Expr = BLOCK_Y
    tile_col: Expr = BLOCK_X
    beside: Mapping[str, Array | Pointer] = field(default_factory=dict)
    part: Expr = BLOCK_Z
    batch: Expr = Const(0)  # noqa: RUF009

    def __post_init__(self) -> None:
        self.threads = self.p.threads
        self.tid = Var("threadIdx.x", 0, self.threads - 1)

    def constant(self, name: str, value: int, text: str, why: str) -> Expr:
        """A named constant; the same name always means the same value."""
        found = self.constants.setdefault(name, Constant(name, value, text, why))
        assert found.value == value, f"{name} is {found.value} and {value}"
        return found.expr

    def matrix(self, name: str) -> Array:
        """A, B or C as the main kernel's parameter: C may be a workspace of sums."""
        return global_array(name, self.p.stored if name == "C" else self.p.matrix(name).dtype)

    def extent(self, dim: Dim) -> Expr:
        """BM, BN or BK."""
        return self.constants[{"m": "BM", "n": "BN", "k": "BK"}[dim]].expr

    def origin(self, dim: Dim) -> Expr:
        """The first row or column of C that this block computes."""
        return (self.tile_row if dim == "m" else self.tile_col) * self.extent(dim)

    def left(self, dim: Dim) -> Expr:
        """Rows or columns from the block's first to the matrix's last: at least 1."""
        return Var("rowsLeft" if dim == "m" else "colsLeft", 1, BIGGEST, uniform=True)

    def last(self, operand: str, dim: Dim, width: int) -> Expr:
        """The first of the last ``width`` rows or columns that an access along ``dim`` may reach."""
        left = self.left(dim)
        if operand in self.p.variant.padded and width > 1:
            return (left + (width - 1)) // width * width - width  # up to the zeros behind the line
        return left - width


def let(out: list[Stmt], name: str, value: Expr | int, why: str = "") -> Expr:
    """Names a value, unless it is a constant or has a name already."""
    e = lift(value)
    if isinstance(e, (Const, Var)) and not (isinstance(e, Var) and "." in e.name):
        return e
    if value_of(e) is not None:
        return e
    lo, hi = bounds(e)
    var = Var(name, lo, hi, max(1, divisor_of(e)), is_uniform(e))
    out.append(Let(var, e, why))
    return var


def loop(
    name: str, stop: Expr | int, body: list[Stmt] | None = None, step: Expr | int = 1, unroll: bool | None = True
) -> tuple[Var, For]:
    """A counted loop ``for (int name = 0; name < stop; name += step)`` and its variable; fill ``body`` afterwards."""
    stop, step = lift(stop), lift(step)
    hi, by = value_of(stop), value_of(step)
    top = None if hi is None or by is None else (hi - 1) // by * by
    var = Var(name, 0, top, by or 1, uniform=True)
    return var, For(var, Const(0), stop, step, tuple(body or ()), unroll)


def trips(stop: Expr | int, step: Expr | int = 1) -> int | None:
    """How often a loop from 0 runs, where that is known."""
    hi, by = value_of(lift(stop)), value_of(lift(step))
    return None if hi is None or by is None else -(-hi // by)


def pointer(name: str, base: Array | Pointer, offset: Expr) -> Pointer:
    return Pointer(name, base, offset)
