"""The tile program as text: one screen, what a person would draw on a whiteboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from gemmgen.tile.program import Buffer, TileProgram
from gemmgen.tile.sequence import (
    Barrier,
    Clear,
    Finish,
    Fragment,
    Inner,
    Multiply,
    Stage,
    Steps,
    TileStmt,
    sequence,
)

_NAMED = {"m": "BM", "n": "BN", "k": "BK"}


def print_tile(p: TileProgram) -> str:
    """``sequence(p)`` and the decisions it reads, for ``--emit tile`` and for differences between two specs."""
    lines = ["block tile of C at (bm, bn)", f"  threads = {p.threads}: {_levels(p)}"]
    lines += [f"  {line}" for b in p.buffers for line in _buffer(b)]
    for s in sequence(p):
        lines += [f"  {line}" for line in _stmt(p, s)]
    return "\n".join(lines) + "\n"


def _levels(p: TileProgram) -> str:
    warp, lane = p.product.level("warp"), p.product.level("lane")
    walk = f"consecutive lanes along {lane.walk}"
    if any(x.name == "warp" for x in p.product.levels):
        return f"{warp.m} x {warp.n} warps of {lane.m} x {lane.n} lanes, {walk}"
    return f"{lane.m} x {lane.n}, {walk.replace('lanes', 'threads')}"


def _buffer(b: Buffer) -> Iterator[str]:
    dims = ", ".join(f"{_NAMED[d]}={e}" for d, e in zip(b.layout.dims, b.layout.extents, strict=True))
    pad = f" + {b.layout.pad} pad" if b.layout.pad else ""
    text = f"{b.name} = shared f32 [{dims}{pad}]"
    yield f"{text:<40}# {b.why}" if b.why else text


def _stmt(p: TileProgram, s: TileStmt) -> Iterator[str]:
    match s:
        case Clear():
            thread, piece = p.product.level("thread"), p.product.level("piece")
            times = f" x ({piece.m}, {piece.n})" if piece.m * piece.n > 1 else ""
            yield f"acc = registers f32 [{thread.m}, {thread.n}]{times} = 0"
        case Steps(body):
            yield "for k0 in 0..K step BK:"
            for x in body:
                yield from (f"  {line}" for line in _stmt(p, x))
        case Inner(body, whole):
            yield f"for k in 0..{'K' if whole else 'BK'}:"
            for x in body:
                yield from (f"  {line}" for line in _stmt(p, x))
        case Stage(c):
            yield _stage(p, s)
        case Barrier(hazard):
            yield f"{'barrier':<24}# {hazard}"
        case Fragment():
            yield _fragment(p, s)
        case Multiply():
            yield "acc += a x b"
        case Finish():
            edges = ", ".join(sorted(p.output.guard))
            note = f", inside {edges} only" if edges else ""
            yield f"C[bm, bn] = alpha * acc + beta * C   {4 * p.output.width} bytes a store{note}"
        case _:
            assert_never(s)


def _stage(p: TileProgram, s: Stage) -> str:
    c = s.copy
    buffer = p.buffer(c.operand)
    assert buffer is not None
    where = "A[bm, k0]" if c.operand == "A" else "B[k0, bn]"
    text = f"copy {where} -> {c.buffer:<4}{4 * c.width} bytes a load"
    if buffer.layout.contiguous != p.contiguous(c.operand) and c.width > 1:
        text += f", {c.width} transposed stores"
    text += f", consecutive threads along {c.lanes}"
    return text + (f", guarded in {', '.join(sorted(c.guard))}" if c.guard else "")


def _fragment(p: TileProgram, s: Fragment) -> str:
    width = p.product.a_width if s.operand == "A" else p.product.b_width
    part = "rows" if s.operand == "A" else "cols"
    source = s.buffer or s.operand
    buffer = p.buffer(s.operand)
    k_first = s.operand == "B" if buffer is None else buffer.layout.dims[0] == "k"
    index = f"k, {part} of this thread" if k_first else f"{part} of this thread, k"
    return f"{s.operand.lower()} = {source}[{index}]   {4 * width} bytes"
