"""Kernels beside the main one: they go over all of C line by line, and know no tiles."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.kernel import Constant
from gemmgen.ir.nodes import Array, Ref, Section, Stmt
from gemmgen.ir.types import F32, VECTOR_BYTES, DType
from gemmgen.ir.variant import Variant
from gemmgen.lower.scope import BLOCK_X, BLOCK_Y, BLOCK_Z, LDC, M, N, global_array, let, stride_of
from gemmgen.tile.program import TileProgram
from gemmgen.tile.transport import widest

THREADS = 256


@dataclass(frozen=True)
class Lines:
    """A block takes one of the ``lines`` of C: a row, or where C is stored by columns one of those. A thread has
    ``width`` neighbours in it from element ``at`` on, where they are ``inside``. ``batch``: where the C of the block's
    product begins."""

    threads: Constant
    placement: Section
    lines: Expr
    at: Expr
    width: int
    inside: Expr
    grid: tuple[Expr, Expr, Expr]
    dtype: DType
    batch: Expr = Const(0)  # noqa: RUF009

    def registers(self, name: str, dtype: DType = F32) -> Array:
        """One for each element of a thread."""
        return Array(name, "register", dtype, (Const(self.width),) if self.width > 1 else ())

    def each(self, array: Array, v: Expr) -> Ref:
        return Ref(array, (v,) if self.width > 1 else ())

    @property
    def target(self) -> Ref:
        """The first element of this thread in C."""
        return Ref(global_array("C", self.dtype), (self.batch + BLOCK_X * LDC + self.at,))


def lines_of(p: TileProgram) -> Lines:
    """How such a kernel goes over the C of a variant."""
    lines, along = (M, N) if p.contiguous("C") == "n" else (N, M)
    dtype = p.matrix("C").dtype
    width, run = _width(p.variant, dtype), elements_a_block(p.variant, dtype)
    out: list[Stmt] = []
    threads = Constant("THREADS", THREADS, str(THREADS), "threads in a block")
    thread = BLOCK_Y * threads.expr + Var("threadIdx.x", 0, THREADS - 1)
    at = let(out, "at", thread * width, "first element of this thread")
    placement = Section("Placement: a block works on one line of C", tuple(out))
    return Lines(
        threads, placement, lines, at, width, at.lt(along), (lines, (along + (run - 1)) // run, Const(1)), dtype,
        BLOCK_Z * stride_of(p.matrix("C")) if p.batched else Const(0),
    )  # fmt: skip


def elements_a_block(variant: Variant, dtype: DType) -> int:
    """Neighbouring elements of a line that a block of a variant's kernels beside the main one works on."""
    return THREADS * _width(variant, dtype)


def _width(variant: Variant, dtype: DType) -> int:
    """Neighbours of one thread: those of one access to C, and of one to float32 sums."""
    return min(widest(dtype, variant.bytes("C")), F32.elements(VECTOR_BYTES))


def launched_early(before: str) -> str:
    """How a kernel is launched that starts while the one before it runs."""
    return (
        f"Launched right behind {before} on its stream, with the launch attribute programmatic stream "
        f"serialization (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) set to 1: its blocks are put on the "
        f"GPU while the last blocks of {before} still run."
    )
