"""The tile program as text: one screen, what a person would draw on a whiteboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from gemmgen.ir.types import F32
from gemmgen.isa.table import Completion
from gemmgen.tile.program import STAGED, Buffer, Copy, TileProgram
from gemmgen.tile.sequence import sequence
from gemmgen.tile.statements import (
    AddLanes,
    AddUp,
    Ahead,
    Bring,
    Clear,
    EachTile,
    Finish,
    Fragment,
    Gather,
    Inner,
    Issue,
    Leave,
    Multiply,
    Prepare,
    Programs,
    Promote,
    Publish,
    Stage,
    Steps,
    StoreBoxes,
    TileStmt,
)
from gemmgen.tile.sums import InCluster, InMemory
from gemmgen.tile.syncs import Kind, Side, Sync

_NAMED = {"m": "BM", "n": "BN", "k": "BK"}


def print_tile(p: TileProgram) -> str:
    """``sequence(p)`` and the decisions it reads, for ``--emit tile`` and for differences between two specs."""
    lines = ["block tile of C at (bm, bn)", f"  threads = {p.threads}: {_levels(p)}"]
    if p.persistent:
        parts = " for each part of K" if p.sums.parts > 1 else ""
        lines.append(f"  at most {p.persistent} blocks{parts}, of which each computes tile after tile of C")
    if p.sums.parts > 1:
        among = ", in a cluster" if isinstance(p.sums, InCluster) else ""
        lines.append(f"  {p.sums.parts} blocks for each tile{among}, each with a part of K")
    if p.group_m > 1:
        lines.append(f"  blocks go down {p.group_m} rows of tiles of C before the next column of tiles")
    if isinstance(p.sums, InMemory):
        first = "in a first kernel, during which this one starts" if p.sums.early else "in a first kernel"
        lines.append(f"  before, {first}: C = beta * C")
    if p.pipeline.ragged_first:
        lines.append("  the first tile along K is the short one, where BK does not divide K")
    staged = tuple(b for b in (p.output.tile, p.output.box) if b is not None)
    lines += [f"  {line}" for b in (*p.buffers, *staged) for line in _buffer(b)]
    for s in sequence(p):
        lines += [f"  {line}" for line in _stmt(p, s)]
    return "\n".join(lines) + "\n"


def _levels(p: TileProgram) -> str:
    warp, lane = p.product.level("warp"), p.product.level("lane")
    walk = f"consecutive lanes along {lane.walk}"
    if any(x.name == "warp" for x in p.product.levels):
        return f"{warp.m} x {warp.n} warps of {lane.m} x {lane.n} lanes, {walk}"
    if p.product.lanes_k > 1:
        return f"{lane.m} x {lane.n} groups of {p.product.lanes_k} lanes, which have parts of K each"
    return f"{lane.m} x {lane.n}, {walk.replace('lanes', 'threads')}"


def _buffer(b: Buffer) -> Iterator[str]:
    dims = ", ".join(f"{_NAMED[d]}={e}" for d, e in zip(b.layout.dims, b.layout.extents, strict=True))
    pad = f" + {b.layout.pad} pad" if b.layout.pad else ""
    text = f"{b.name} = shared {b.dtype} [{dims}{pad}]"
    yield f"{text:<40}# {b.why}" if b.why else text


def _stmt(p: TileProgram, s: TileStmt) -> Iterator[str]:
    match s:
        case Clear():
            thread, piece = p.product.level("thread"), p.product.level("piece")
            times = f" x ({piece.m}, {piece.n})" if piece.m * piece.n > 1 else ""
            yield f"acc = registers f32 [{thread.m}, {thread.n}]{times} = 0"
        case Programs(producer, consumers):
            for name, body in (("producer", producer), ("consumers", consumers)):
                yield f"{name}:"
                for x in body:
                    yield from (f"  {line}" for line in _stmt(p, x))
        case EachTile(body):
            yield "for each of this block's tiles of C at (bm, bn), one after another:"
            for x in body:
                yield from (f"  {line}" for line in _stmt(p, x))
        case Steps(body):
            yield "for k0 in 0..K step BK:" if p.sums.parts == 1 else "for k0 in this block's part of K step BK:"
            for x in body:
                yield from (f"  {line}" for line in _stmt(p, x))
        case Inner():
            yield from _inner(p, s)
        case Bring(copies, ahead, part, first):
            yield from (line for x in first if x.side is Side.ACQUIRE for line in _sync(x))
            yield from (_copy(p, c, ahead, part) for c in copies)
        case Ahead(count, body):
            yield f"for the first {count} tiles:" if count > 1 else "the first tile:"
            for x in body:
                yield from (f"  {line}" for line in _stmt(p, x))
        case Sync():
            yield from _sync(s)
        case Fragment():
            yield _fragment(p, s)
        case Multiply(behind):
            by = f"   by {p.product.math.name}" if p.product.math.by_warp else ""
            yield f"acc += a x b of the previous step{by}" if behind else f"acc += a x b{by}"
        case AddLanes():
            yield f"acc = the sums of acc over each {p.product.lanes_k} neighbouring lanes, of which each keeps a part"
        case Issue():
            sums = "part =" if p.product.promote else "acc +="
            yield f"{sums} a x b of the whole tile, started: {p.product.math.name} by each warp group"
        case Promote():
            yield "acc += part   in float32, rounded to nearest"
        case Publish():
            yield f"sums = acc   {_piece(p)} bytes per store, in the place of {_tiles(p)}"
        case Gather():
            yield f"parts = this block's share of the sums of every block   {_piece(p)} bytes"
        case Leave():
            yield f"Cs = acc   {F32.bytes * p.output.left} bytes per store, in the place of {_tiles(p)}"
        case Stage():
            yield "Cs = alpha * acc + beta * C, rounded"
        case StoreBoxes():
            yield "TMA Cs -> C[bm, bn], started by one thread of each warp group"
        case Finish(gathered, staged):
            yield from _finish(p, gathered, STAGED if staged else "acc")
        case Prepare() | AddUp():
            raise AssertionError("kernels beside the main one are not shown")
        case _:
            assert_never(s)


def _tiles(p: TileProgram) -> str:
    return ", ".join(b.name for b in p.buffers)


def _sync(s: Sync) -> Iterator[str]:
    """A wait or what ends one, and the hazard that it prevents."""
    match s.kind, s.side:
        case Kind.KERNEL, Side.RELEASE:
            yield f"{'allow the next kernel':<24}# on the GPU once all blocks have started; it waits for their end"
        case Kind.KERNEL, _:
            yield f"{'wait for the first kernel':<28}# C is beta * C once it has ended"
        case Kind.GROUP, Side.RELEASE:
            yield "commit these copies as a group"
        case Kind.GROUP, _:
            yield f"wait for tile {_tile(0)}: all groups but {s.pending}"
        case Kind.FULL, _:
            yield f"wait for tile {_tile(0)}"
        case Kind.EMPTY, Side.RELEASE:
            yield f"each warp releases tile {_tile(0)}"
        case Kind.EMPTY, _:
            yield f"wait until all warps released the stage of tile {_tile(s.ahead)}"
        case Kind.PROXY, _:
            yield f"{'fence':<24}# {s.hazard}"
        case Kind.HANDOVER, _:
            yield f"{'fence, then meet':<24}# {s.hazard}"
        case Kind.STORED, Side.RELEASE:
            yield "commit these stores as a group"
        case Kind.STORED, _:
            yield f"{'wait for the last stores':<24}# {s.hazard}"
        case Kind.PRODUCTS, Side.RELEASE:
            yield "commit these products as a group"
        case Kind.PRODUCTS, _:
            yield f"{'wait for the products':<24}# {s.hazard}"
        case Kind.REGISTERS, _:
            yield f"{'fence the registers':<24}# {s.hazard}"
        case Kind.SET_UP, _:
            yield f"{'set up a barrier per stage':<28}# {s.hazard}"
        case Kind.BLOCK | Kind.CLUSTER, _:
            yield f"{s.kind.value:<24}# {s.hazard}"


def _piece(p: TileProgram) -> int:
    """Bytes of one access to the sums of a cluster."""
    assert isinstance(p.sums, InCluster)
    return F32.bytes * p.sums.width


def _finish(p: TileProgram, gathered: bool, sums: str) -> Iterator[str]:
    edges = ", ".join(sorted(p.output.guard))
    note = f", inside {edges} only" if edges else ""
    lanes = f", consecutive threads along {p.contiguous('C')}" if p.output.tile is not None else ""
    size = p.stored.bytes * p.output.width
    stored = f"{size} bytes per store{lanes}{note}"
    if gathered:
        yield f"C[bm, bn], this block's share = alpha * (the parts, added up in their order) + beta * C   {stored}"
    elif isinstance(p.sums, InMemory):
        yield f"C[bm, bn] += alpha * {sums}   {size} bytes per atomic addition{note}, in no fixed order"
    elif p.sums.parts == 1:
        yield f"C[bm, bn] = alpha * {sums} + beta * C   {stored}"
    else:
        yield f"W[part, bm, bn] = {sums}   {stored}"
        second = "a second kernel, launched early" if p.sums.early else "a second kernel"
        yield f"then, in {second}: C = alpha * (the parts of W, added up in their order) + beta * C"


def _tile(ahead: int) -> str:
    return f"k0 + {ahead} BK" if ahead > 1 else "k0 + BK" if ahead else "k0"


def _inner(p: TileProgram, s: Inner) -> Iterator[str]:
    step = f" step {p.product.math.shape[2]}" if p.product.math.by_warp else ""
    yield f"for k in 0..{'K' if s.whole else 'BK'}{step}:"
    for x in (*s.brings, *s.body):
        spread = " spread over the steps" if isinstance(x, Bring) else ""
        yield from (f"  {line}{spread}" for line in _stmt(p, x))


def _copy(p: TileProgram, c: Copy, ahead: int, part: str) -> str:
    buffer = p.buffer(c.operand)
    assert buffer is not None
    k0 = _tile(ahead)
    where = f"A[bm, {k0}]" if c.operand == "A" else f"B[{k0}, bn]"
    if not c.via.by_threads:
        return f"TMA {where} -> {c.buffer}, one box"
    to = {"whole": c.buffer, "fetch": "registers", "put": c.buffer}[part]
    verb = "copy" if c.via.lands is Completion.NOW else "start to copy"
    text = f"{verb} {'registers' if part == 'put' else where} -> {to}"
    if part != "put":
        text += f"  {buffer.dtype.bytes * c.width} bytes per load"
    if buffer.layout.contiguous != p.contiguous(c.operand) and part != "fetch":
        text += f", {c.width} transposed stores" if c.width > 1 else ", transposed"
    text += f", consecutive threads along {c.lanes}"
    guard = c.guard - {"k"} if p.pipeline.ragged_first and ahead else c.guard
    return text + (f", guarded in {', '.join(sorted(guard))}" if guard else "")


def _by_warp(p: TileProgram, s: Fragment) -> str:
    """The fragments of a warp's tiles."""
    m, n, k = p.product.math.shape
    size, part = (f"{m}x{k}", "rows of this warp, k") if s.operand == "A" else (f"{k}x{n}", "k, columns of this warp")
    how = "by ldmatrix" if p.product.feed == "ldmatrix" else "by ordinary loads"
    return f"{s.operand.lower()} = {s.buffer}[{part}]   tiles of {size}, {how}"


def _fragment(p: TileProgram, s: Fragment) -> str:
    if p.product.math.by_warp:
        return _by_warp(p, s)
    width = p.product.a_width if s.operand == "A" else p.product.b_width
    part = "rows" if s.operand == "A" else "cols"
    source = s.buffer or s.operand
    buffer = p.buffer(s.operand)
    k_first = s.operand == "B" if buffer is None else buffer.layout.dims[0] == "k"
    index = f"k, {part} of this thread" if k_first else f"{part} of this thread, k"
    return f"{s.operand.lower()} = {source}[{index}]   {p.matrix(s.operand).dtype.bytes * width} bytes"
