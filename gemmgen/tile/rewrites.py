"""The rewrites: what each setting of a spec decides in the tile program.

They are applied in the order of REWRITES whatever the order in the spec, so toggles commute.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, Literal

from gemmgen.ir.types import VECTOR_BYTES, Dim, OperandName
from gemmgen.ir.verifier import enabled
from gemmgen.isa.epilogue import chain_of
from gemmgen.isa.table import Completion
from gemmgen.isa.wgmma import GROUP_THREADS, REGISTERS
from gemmgen.spec.model import SETTINGS
from gemmgen.spec.pipelines import swizzles
from gemmgen.tile.lane_sums import lane_sums
from gemmgen.tile.program import Buffer, Copy, Group, Layout, Level, Output, Product, TileProgram
from gemmgen.tile.storing import (
    atomics,
    cluster_reduce,
    dependent_launch,
    in_panels,
    run_of_c,
    split_k,
    stage_c,
    stored_type,
    tma_store,
)
from gemmgen.tile.transport import CpAsync, Tma, copy_width, transports, turned, widest
from gemmgen.tile.verifier import verify

if TYPE_CHECKING:
    from gemmgen.ir.variant import Variant
    from gemmgen.spec.model import Spec

Rewrite = Callable[[TileProgram, "Spec"], TileProgram]


def start(spec: Spec, variant: Variant) -> TileProgram:
    """One thread an output piece, straight from global memory, consecutive threads down a column of C."""
    (bm, bn, _), (tm, tn) = spec.block, spec.piece
    if spec.way.by_group:
        # The TMA engine alone brings tiles, so that the launch plan copies rows that it cannot address.
        variant = replace(variant, align=tuple((x, VECTOR_BYTES if x in "AB" else b) for x, b in variant.align))
    walk: Dim = "m" if spec.C.order == "row" else "n"
    levels = (Level("lane", bm // tm, bn // tn, walk), Level("thread", tm, tn))
    return TileProgram(
        spec.name,
        variant,
        spec.block,
        spec.multiplied,
        Product(levels),
        Output(),
        min_blocks=spec.min_blocks,
        summary=spec.comment,
        chain=chain_of(spec.epilogue),
        given=spec.matrices,
    )


def smem(p: TileProgram, spec: Spec) -> TileProgram:
    """Tiles of A and B pass through shared memory, each in the order of its matrix's rows."""
    (bm, bn, bk) = spec.block
    a_matrix, b_matrix = p.matrix("A"), p.matrix("B")
    a = Buffer("As", "A", Layout(("m", "k"), (bm, bk)), a_matrix.dtype, parts=a_matrix.parts)
    b = Buffer("Bs", "B", Layout(("k", "n"), (bk, bn)), b_matrix.dtype, parts=b_matrix.parts)
    copies = tuple(Copy(x.operand, x.name, 1, p.strided(x.operand)) for x in (a, b))
    return replace(p, buffers=(a, b), copies=copies)


def as_it_lies(p: TileProgram, spec: Spec) -> TileProgram:
    """Tensor cores take fragments from either order: a tile is stored as its matrix lies, and never transposed."""
    if spec.way.plain:
        return p
    flip = tuple(
        b if b.layout.contiguous == p.contiguous(b.operand) else replace(b, layout=b.layout.transposed)
        for b in p.buffers
    )
    return replace(p, buffers=flip)


def transpose_a(p: TileProgram, spec: Spec) -> TileProgram:
    """As is kept with k slowest: the rows that one thread needs at one k become neighbours."""
    why = "transposed, so that the rows a thread needs at one k are neighbours"
    flip = tuple(replace(b, layout=b.layout.transposed, why=why) if b.operand == "A" else b for b in p.buffers)
    return replace(p, buffers=flip)


def transpose_b(p: TileProgram, spec: Spec) -> TileProgram:
    """Bs is kept with n slowest: what is read along k is contiguous."""
    why = "by columns, so that neighbours along k are contiguous"
    flip = tuple(replace(b, layout=b.layout.transposed, why=why) if b.operand == "B" else b for b in p.buffers)
    return replace(p, buffers=flip)


def pad(operand: Literal["A", "B"]) -> Rewrite:
    """Rows of a tile are set apart, so that what one warp touches falls into different banks."""

    def rewrite(p: TileProgram, spec: Spec) -> TileProgram:
        by = spec.pad_a if operand == "A" else spec.pad_b
        wider = tuple(replace(b, layout=replace(b.layout, pad=by)) if b.operand == operand else b for b in p.buffers)
        return replace(p, buffers=wider)

    return rewrite


def smem_swizzle(p: TileProgram, spec: Spec) -> TileProgram:
    """Pieces of A's rows are permuted, where a row is as long as the pattern needs; with tensor cores B's too."""
    both, engine = not spec.way.plain, spec.has("tma") and not spec.way.by_group
    swizzled = tuple(
        replace(b, layout=replace(b.layout, swizzle=swizzles(b.dtype.bytes * b.layout.extents[1], both and not engine)))
        if both or b.operand == "A"
        else b
        for b in p.buffers
    )
    if spec.way.by_group:
        swizzled = tuple(replace(b, layout=in_panels(b)) for b in swizzled)
    return replace(p, buffers=swizzled)


def warptile(p: TileProgram, spec: Spec) -> TileProgram:
    """A level between block and thread: each warp owns a WM x WN tile, in m_iter x n_iter pieces."""
    assert spec.warp is not None
    (wm, wn), (tm, tn), (mi, ni) = spec.warp, spec.piece, spec.warp_iterations
    walk = p.product.level("lane").walk
    levels = (
        Level("warp", spec.warps[0], spec.warps[1], "n"),
        Level("piece", mi, ni),
        Level("lane", wm // mi // tm, wn // ni // tn, walk),
        Level("thread", tm, tn),
    )
    return replace(p, product=replace(p.product, levels=levels))


def mma(p: TileProgram, spec: Spec) -> TileProgram:
    """The lanes of a warp multiply together: each has the sums that the instruction gives it, whatever C's order."""
    way = spec.way
    if way.plain:
        return p
    levels = tuple(replace(x, walk="n") if x.name == "lane" else x for x in p.product.levels)
    return replace(p, product=replace(p.product, levels=levels, math=way, promote=spec.promotes))


def ldmatrix(p: TileProgram, spec: Spec) -> TileProgram:
    """Fragments come from shared memory by ldmatrix, where an operand's elements lie as it needs them."""
    return replace(p, product=replace(p.product, feed="ldmatrix"))


def coalescing(p: TileProgram, spec: Spec) -> TileProgram:
    """Consecutive threads walk the dimension that is contiguous in memory, in every global access."""
    copies = tuple(replace(c, lanes=p.contiguous(c.operand)) for c in p.copies)
    along = p.contiguous("C")
    levels = tuple(replace(x, walk=along) if x.name == "lane" else x for x in p.product.levels)
    return replace(p, copies=copies, product=replace(p.product, levels=levels))


def lane_walk(p: TileProgram, spec: Spec) -> TileProgram:
    """Consecutive lanes go along one dimension of C, however C lies: what they read of shared memory depends on it."""
    along: Dim = "m" if spec.lane_walk == "m" else "n"
    levels = tuple(replace(x, walk=along) if x.name == "lane" else x for x in p.product.levels)
    return replace(p, product=replace(p.product, levels=levels))


def cpasync(p: TileProgram, spec: Spec) -> TileProgram:
    """Copies bypass registers, and threads wait for them later, where each moves enough bytes."""
    return replace(p, copies=transports(p, CpAsync(), spec.has("float4")))


def tma(p: TileProgram, spec: Spec) -> TileProgram:
    """One thread issues the TMA copies; rows that it cannot address are copied by cp.async instead, and beside it
    what is transposed, where the spec says so."""
    beside = turned(p) if spec.has("cpasync") else frozenset()
    copies = transports(p, Tma(), spec.has("float4"), beside)
    return replace(p, copies=tuple(replace(c, patches=c.operand in beside) for c in copies))


def float4(p: TileProgram, spec: Spec) -> TileProgram:
    """Every access moves as many elements as divide its row and as its alignment allows, up to 16 bytes."""
    copies = tuple(replace(c, width=copy_width(p, c, c.via)) for c in p.copies)
    thread = p.product.level("thread")
    product = replace(
        p.product,
        a_width=_fragment_width(p.buffer("A"), "m", thread.m),
        b_width=_fragment_width(p.buffer("B"), "n", thread.n),
    )
    output = replace(p.output, width=widest(stored_type(spec), p.variant.bytes("C"), run_of_c(p)))
    return replace(p, copies=copies, product=product, output=output)


def along_k(p: TileProgram, spec: Spec) -> TileProgram:
    """One fetch of A serves several steps along k."""
    buffer = p.buffer("A")
    assert buffer is not None
    width = widest(buffer.dtype, VECTOR_BYTES, p.extent("k"), buffer.layout.pitch)
    return replace(p, product=replace(p.product, along_k=width > 1, a_width=width))


def lanes_k(p: TileProgram, spec: Spec) -> TileProgram:
    """Lanes have a part of K each: what is contiguous along k is fetched in runs, as long as all can be."""
    wide = VECTOR_BYTES if spec.has("float4") else 0
    each = p.extent("k") // spec.lanes_k if p.buffers else VECTOR_BYTES
    runs = {x: widest(p.matrix(x).dtype, min(wide, fine), each, *pitch) for x, fine, *pitch in _read_along_k(p)}
    run = min(runs.values(), default=1)
    product = replace(
        p.product,
        lanes_k=spec.lanes_k,
        run=run,
        a_width=run if "A" in runs else 1,
        b_width=run if "B" in runs else 1,
    )
    block = p.block if p.buffers else (*p.block[:2], spec.lanes_k * run)
    made = replace(p, product=product, block=block)
    kept = lane_sums(made)
    most = kept.cols if p.contiguous("C") == "n" else kept.rows
    return replace(made, output=replace(p.output, width=gcd(p.output.width, most)))


def _read_along_k(p: TileProgram) -> Iterator[tuple[OperandName, int, *tuple[int, ...]]]:
    """The operands whose fragments are contiguous along k: with their alignment and, in shared memory, their pitch."""
    names: tuple[OperandName, ...] = ("A", "B")
    for x in names:
        buffer = p.buffer(x)
        if buffer is not None and buffer.layout.contiguous == "k":
            yield x, VECTOR_BYTES, buffer.layout.pitch
        elif buffer is None and p.contiguous(x) == "k":
            yield x, p.variant.bytes(x)


def stages(p: TileProgram, spec: Spec) -> TileProgram:
    """Several tiles of K are in shared memory at a time."""
    buffers = tuple(replace(b, stages=spec.stages) for b in p.buffers)
    return replace(p, buffers=buffers, pipeline=replace(p.pipeline, depth=spec.stages))


def prefetch(p: TileProgram, spec: Spec) -> TileProgram:
    """Fragments are fetched a step ahead of their use."""
    return replace(p, pipeline=replace(p.pipeline, prefetch=True))


def spread(p: TileProgram, spec: Spec) -> TileProgram:
    """Copies are started between the products."""
    return replace(p, pipeline=replace(p.pipeline, spread=bool(p.landing(Completion.GROUP))))


def release(p: TileProgram, spec: Spec) -> TileProgram:
    """Warps release tiles one by one, where the TMA engine is what overwrites them."""
    return replace(p, pipeline=replace(p.pipeline, release=bool(p.landing(Completion.BARRIER))))


def ragged_first(p: TileProgram, spec: Spec) -> TileProgram:
    """The short tile is the first, where threads copy tiles and check where K ends. Rows with zeros behind them, up to
    whole accesses, keep it last: those zeros are read with it."""
    along_k = {c.operand for c in p.copies if p.contiguous(c.operand) == "k"}
    checked = "k" in p.variant.guard and all(c.via.by_threads for c in p.copies) and not along_k & p.variant.padded
    return replace(p, pipeline=replace(p.pipeline, ragged_first=checked))


def snake(p: TileProgram, spec: Spec) -> TileProgram:
    """Every other row of the outer product is walked backwards."""
    return replace(p, product=replace(p.product, snake=True))


def separators(p: TileProgram, spec: Spec) -> TileProgram:
    """Each step along k is a block of its own for the compiler."""
    return replace(p, product=replace(p.product, pinned=True))


def direct_b(p: TileProgram, spec: Spec) -> TileProgram:
    """B passes by shared memory: each of its elements is wanted by one thread of the block, or by few."""
    thread = p.product.level("thread")
    width = p.product.b_width
    if spec.has("float4"):
        width = widest(p.matrix("B").dtype, p.variant.bytes("B"), thread.n) if p.contiguous("B") == "n" else 1
    return replace(
        p,
        buffers=tuple(b for b in p.buffers if b.operand != "B"),
        copies=tuple(c for c in p.copies if c.operand != "B"),
        product=replace(p.product, b_width=width),
    )


def roles(p: TileProgram, spec: Spec) -> TileProgram:
    """A warp group of its own brings tiles, and gives registers that it does not need to those that multiply."""
    if spec.roles is None:
        return p
    kept, taken = REGISTERS[p.consumers // GROUP_THREADS]
    return replace(p, producer=Group("producer", GROUP_THREADS, kept or None), consumer_registers=taken)


def cta_swizzle(p: TileProgram, spec: Spec) -> TileProgram:
    """Blocks that run at one time compute tiles of few rows and few columns, not of one long row."""
    return replace(p, group_m=spec.cta_swizzle)


def persistent(p: TileProgram, spec: Spec) -> TileProgram:
    """As many blocks as the spec says compute all tiles of C between them."""
    return replace(p, persistent=spec.persistent)


def unroll(p: TileProgram, spec: Spec) -> TileProgram:
    """Some steps along k make the text of the loop, not all of a tile."""
    return replace(p, product=replace(p.product, unroll=spec.unroll))


def guards(p: TileProgram, spec: Spec) -> TileProgram:
    """Ragged sizes: accesses along these dimensions may reach past the matrix."""
    ragged: frozenset[Dim] = frozenset(d for d in ("m", "n", "k") if d in p.variant.guard)
    copies = tuple(replace(c, guard=ragged & {p.strided(c.operand), p.contiguous(c.operand)}) for c in p.copies)
    return replace(p, copies=copies, output=replace(p.output, guard=ragged - {"k"}))


def _fragment_width(buffer: Buffer | None, dim: Dim, run: int) -> int:
    """Elements of one shared load: a thread's run of ``dim`` must be contiguous in the buffer."""
    if buffer is None or buffer.layout.contiguous != dim:
        return 1
    return widest(buffer.dtype, VECTOR_BYTES, run, buffer.layout.pitch)


# By the toggle, or by the setting that differs from its default; None is always applied. The order is that of
# dependence: what makes buffers and levels comes before what edits them, and what a width depends on before widths.
REWRITES: tuple[tuple[str | None, Rewrite], ...] = (
    ("smem", smem),
    (None, as_it_lies),
    ("transposeA", transpose_a),
    ("transposeB", transpose_b),
    ("pad_a", pad("A")),
    ("pad_b", pad("B")),
    ("smemSwizzle", smem_swizzle),
    ("warptile", warptile),
    ("coalescing", coalescing),
    ("lane_walk", lane_walk),
    (None, mma),
    ("ldmatrix", ldmatrix),
    ("cpasync", cpasync),
    ("tma", tma),
    ("float4", float4),
    ("directB", direct_b),
    ("alongK", along_k),
    ("lanes_k", lanes_k),
    ("stages", stages),
    ("prefetch", prefetch),
    ("spread", spread),
    ("raggedFirst", ragged_first),
    ("release", release),
    ("snake", snake),
    ("separators", separators),
    ("unroll", unroll),
    ("split_k", split_k),
    ("stageC", stage_c),
    ("clusterReduce", cluster_reduce),
    ("atomics", atomics),
    ("dependentLaunch", dependent_launch),
    ("cta_swizzle", cta_swizzle),
    ("persistent", persistent),
    ("tmaStore", tma_store),
    (None, roles),
    (None, guards),
)

_DEFAULTS = {row.name: row.default for row in SETTINGS if row.form in ("number", "word")}


def build(spec: Spec, variant: Variant) -> TileProgram:
    """The tile program of a checked spec."""
    return _built(spec, variant, spec.written)


@lru_cache(maxsize=256)
def _built(spec: Spec, variant: Variant, written: tuple[Hashable, ...]) -> TileProgram:
    """Remembered with where the spec was written, since the program has the spec's comment in it."""
    p = start(spec, variant)
    for name, rewrite in REWRITES:
        if name is None or _is_on(spec, name):
            p = rewrite(p, spec)
    return verify(p) if enabled() else p


def _is_on(spec: Spec, name: str) -> bool:
    return bool(getattr(spec, name) != _DEFAULTS[name]) if name in _DEFAULTS else spec.has(name)
