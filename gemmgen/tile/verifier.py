"""Invariants of the tile program, checked after the rewrites: every decision fits the others."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.tile.program import Buffer, Copy, TileProgram


class InvalidProgram(AssertionError):
    """A tile program that breaks an invariant: a fault of a rewrite, never of a spec."""


def verify(p: TileProgram) -> TileProgram:
    """The program itself. Raises InvalidProgram where its decisions contradict one another."""
    problems = [*_split(p), *_buffers(p), *_copies(p), *_output(p)]
    if problems:
        raise InvalidProgram(f"{p.name} ({p.variant.label}): {problems[0]}")
    return p


def _split(p: TileProgram) -> Iterator[str]:
    """The levels split the block's tile without remainder."""
    for dim, extent in (("m", p.block[0]), ("n", p.block[1])):
        parts = prod(level.m if dim == "m" else level.n for level in p.product.levels)
        if parts != extent:
            yield f"the levels cover {parts} of {extent} along {dim}"
    thread = p.product.level("thread")
    for name, width, run in (("A", p.product.a_width, thread.m), ("B", p.product.b_width, thread.n)):
        of_lanes = p.product.lanes_k > 1
        if of_lanes and p.product.run % width:
            yield f"fragments of {name} are fetched {width} at a time, and a lane has runs of {p.product.run}"
        if not of_lanes and not (name == "A" and p.product.along_k) and run % width:
            yield f"fragments of {name} are fetched {width} at a time, and a thread has {run}"
    m, n, k = p.product.math.shape
    who, rows, cols = "thread", thread.m, thread.n
    if p.product.math.by_warp:
        who, (rows, cols) = "warp", p.warp_tile
    elif p.product.math.by_group:
        who, rows, cols = "block", p.block[0], p.block[1]
    if rows % m or cols % n or (p.copies and p.block[2] % k):
        yield f"{p.product.math.name} multiplies {m}x{n}x{k}, and a {who} has {rows}x{cols} of {p.block[2]}"
    if p.product.unroll and p.copies and p.block[2] % p.product.unroll:
        yield f"unroll {p.product.unroll} does not divide BK {p.block[2]}"


def _buffers(p: TileProgram) -> Iterator[str]:
    names = [b.name for b in p.buffers]
    if len(set(names)) < len(names):
        yield f"two buffers of one name among {', '.join(names)}"
    for b in p.buffers:
        if b.stages != p.pipeline.depth:
            yield f"{b.name} has {b.stages} stages, and the pipeline {p.pipeline.depth}"
        if set(b.layout.dims) != set(p.matrix(b.operand).dims):
            yield f"{b.name} has dimensions {b.layout.dims}, and {b.operand} {p.matrix(b.operand).dims}"
        for dim, extent in zip(b.layout.dims, b.layout.extents, strict=True):
            if extent != p.extent(dim):
                yield f"{b.name} has {extent} along {dim}, and the block {p.extent(dim)}"
        if b.dtype != p.matrix(b.operand).dtype:
            yield f"{b.name} is {b.dtype}, and {b.operand} {p.matrix(b.operand).dtype}"


def _copies(p: TileProgram) -> Iterator[str]:
    by_name: dict[str, Buffer] = {b.name: b for b in p.buffers}
    if sorted(c.buffer for c in p.copies) != sorted(by_name):
        yield f"copies fill {[c.buffer for c in p.copies]}, and the buffers are {list(by_name)}"
        return
    for c in p.copies:
        yield from _copy(p, c, by_name[c.buffer])


def _copy(p: TileProgram, c: Copy, b: Buffer) -> Iterator[str]:
    if c.operand != b.operand:
        yield f"{c.operand} is copied to {b.name}, which is of {b.operand}"
    if b.dtype.bytes * c.width > VECTOR_BYTES:
        yield f"{c.width} elements of {b.dtype} at a time are over {VECTOR_BYTES} bytes"
    if p.extent(p.contiguous(c.operand)) % c.width:
        yield f"{c.operand} is copied {c.width} at a time, and a line has {p.extent(p.contiguous(c.operand))}"
    if not c.guard <= set(p.matrix(c.operand).dims):
        yield f"{c.operand} is guarded in {sorted(c.guard)}"


def _output(p: TileProgram) -> Iterator[str]:
    if not p.output.guard <= {"m", "n"}:
        yield f"C is guarded in {sorted(p.output.guard)}"
    if p.stored.bytes * p.output.width > VECTOR_BYTES:
        yield f"{p.output.width} elements of {p.stored} at a time are over {VECTOR_BYTES} bytes"
