"""What the tile sizes must satisfy, said in the text beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gemmgen.ir.kernel import Assertion
from gemmgen.tile.program import TileProgram
from gemmgen.tile.sums import InCluster

if TYPE_CHECKING:
    from gemmgen.lower.copy import TileCopy


def assertions(p: TileProgram, copies: Mapping[str, TileCopy]) -> tuple[Assertion, ...]:
    """The conditions that a reader who edits the constants has to keep."""
    shapes = _shapes(p)
    said = {a.text for a in shapes}
    return (*shapes, *(a for a in (*_copies(copies), *_steps(p)) if a.text not in said))


def _copies(copies: Mapping[str, TileCopy]) -> Iterator[Assertion]:
    """The threads of a block copy every element of a tile."""
    for operand, copy in copies.items():
        if copy.lanes.holds:
            yield Assertion(copy.lanes.holds, f"{operand}'s tile must be whole passes of the block's threads")


def _steps(p: TileProgram) -> Iterator[Assertion]:
    """The steps that are unrolled take turns between registers."""
    unroll, lanes = p.product.unroll, p.product.lanes_k
    if not p.copies or not p.product.math.plain or lanes > 1:
        return
    name = "UNROLL" if unroll and unroll < p.extent("k") else "BK"
    run = p.product.a_width if p.product.along_k else p.product.run
    if p.pipeline.prefetch:
        yield Assertion(f"{name} % 2 == 0", f"{name} must be even: prefetch takes turns between two sets of registers")
    if run > 1:
        yield Assertion(
            f"{name} % {run} == 0", f"{name} must be a multiple of {run}: A is loaded {run} steps at a time"
        )


def _shapes(p: TileProgram) -> tuple[Assertion, ...]:
    found: list[Assertion] = []
    thread = p.product.level("thread")
    if p.product.math.by_warp:
        found += [
            Assertion("BM % WM == 0 && BN % WN == 0", "the block's tile is whole warp tiles"),
            Assertion("WM % MMA_M == 0 && WN % MMA_N == 0", "a warp's tile is whole tiles of mma"),
            Assertion("BK % MMA_K == 0", "a tile is whole steps of mma"),
        ]
    elif p.product.math.by_group:
        m, n, k = p.product.math.shape
        found += [
            Assertion(
                f"BM % {m} == 0 && BN == {n}", "each warp group computes 64 rows and all columns of the block's tile"
            ),
            Assertion(f"BK % {k} == 0", "a tile is whole steps of wgmma"),
        ]
        return tuple(found)
    elif any(x.name == "warp" for x in p.product.levels):
        found += [
            Assertion("BM % WM == 0 && BN % WN == 0", "BM must be a multiple of WM, and BN of WN"),
            Assertion("WM % M_ITER == 0 && WN % N_ITER == 0", "WM must be a multiple of M_ITER, and WN of N_ITER"),
            Assertion("(SUB_M / TM) * (SUB_N / TN) == WARP", "(SUB_M / TM) * (SUB_N / TN) must be WARP"),
        ]
    elif thread.m > 1 or thread.n > 1:
        found.append(Assertion("BM % TM == 0 && BN % TN == 0", "BM must be a multiple of TM, and BN of TN"))
    found += [_vector(c.operand, p, c.width) for c in p.copies if c.width > 1]
    if p.output.tile is not None and p.output.width > 1:
        found.append(_vector("C", p, p.output.width))
    if isinstance(p.sums, InCluster):
        found.append(_sums(p.sums.width))
    unroll = p.product.unroll
    if p.copies and unroll and unroll < p.extent("k"):
        found.append(Assertion("BK % UNROLL == 0", "BK must be a multiple of UNROLL"))
    return tuple(found)


def _sums(width: int) -> Assertion:
    each = f" * {width}" if width > 1 else ""
    product = f"PIECES * THREADS{each}"
    return Assertion(f"{product} == BM * BN", f"{product} must be BM * BN")


def _vector(operand: str, p: TileProgram, width: int) -> Assertion:
    along = {"m": "BM", "n": "BN", "k": "BK"}[p.contiguous(operand)]
    size = p.matrix(operand).dtype.bytes * width
    why = f"{operand} is {'stored' if operand == 'C' else 'copied'} {size} bytes at a time"
    return Assertion(f"{along} % {width} == 0", f"{along} must be a multiple of {width}: {why}")
