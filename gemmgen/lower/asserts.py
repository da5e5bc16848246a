"""What the tile sizes must satisfy, said in the text beside them."""

from __future__ import annotations

from gemmgen.ir.kernel import Assertion
from gemmgen.tile.program import TileProgram
from gemmgen.tile.sums import InCluster


def assertions(p: TileProgram) -> tuple[Assertion, ...]:
    """The conditions that a reader who edits the constants has to keep."""
    found: list[Assertion] = []
    thread = p.product.level("thread")
    if p.product.math.by_warp:
        found += [
            Assertion("BM % WM == 0 && BN % WN == 0", "the block's tile is whole warp tiles"),
            Assertion("WM % MMA_M == 0 && WN % MMA_N == 0", "a warp's tile is whole tiles of mma"),
            Assertion("BK % MMA_K == 0", "a tile is whole steps of mma"),
        ]
    elif any(x.name == "warp" for x in p.product.levels):
        found += [
            Assertion("BM % WM == 0 && BN % WN == 0", "the block's tile is whole warp tiles"),
            Assertion("WM % M_ITER == 0 && WN % N_ITER == 0", "a warp's tile is whole pieces"),
            Assertion("(SUB_M / TM) * (SUB_N / TN) == 32", "32 lanes cover one piece of a warp's tile"),
        ]
    elif thread.m > 1 or thread.n > 1:
        found.append(Assertion("BM % TM == 0 && BN % TN == 0", "the block's tile is whole pieces of a thread"))
    found += [_vector(c.operand, p, c.width) for c in p.copies if c.width > 1]
    if p.output.tile is not None and p.output.width > 1:
        found.append(_vector("C", p, p.output.width))
    if isinstance(p.sums, InCluster):
        found.append(_sums(p.sums.width))
    unroll = p.product.unroll
    if p.copies and unroll and unroll < p.extent("k"):
        found.append(Assertion("BK % UNROLL == 0", "a tile is whole runs of unrolled steps"))
    return tuple(found)


def _sums(width: int) -> Assertion:
    each = f" * {width}" if width > 1 else ""
    return Assertion(f"PIECES * THREADS{each} == BM * BN", "the pieces of all threads are the block's tile")


def _vector(operand: str, p: TileProgram, width: int) -> Assertion:
    along = {"m": "BM", "n": "BN", "k": "BK"}[p.contiguous(operand)]
    message = f"a line of the tile of {operand} is whole accesses of {p.matrix(operand).dtype.bytes * width} bytes"
    return Assertion(f"{along} % {width} == 0", message)
