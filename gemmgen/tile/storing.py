"""The rewrites about the way of sums to C: who adds them up, and how they are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gemmgen.ir.types import F32, VECTOR_BYTES, DType
from gemmgen.isa.wgmma import ATOM
from gemmgen.spec.architecture import adds_vectors
from gemmgen.tile.program import STAGED, Buffer, Layout, TileProgram
from gemmgen.tile.staging import tile_of_c
from gemmgen.tile.sums import InCluster, InMemory, SecondKernel
from gemmgen.tile.transport import widest

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec


def split_k(p: TileProgram, spec: Spec) -> TileProgram:
    """Several blocks share the sum over K of one tile of C."""
    return replace(p, sums=SecondKernel(spec.split_k))


def cluster_reduce(p: TileProgram, spec: Spec) -> TileProgram:
    """The blocks that share a sum leave their parts to one another in shared memory, however C is aligned."""
    width = widest(F32, VECTOR_BYTES, run_of_c(p)) if spec.has("float4") else 1
    return replace(p, sums=InCluster(p.sums.parts, width), output=replace(p.output, width=min(p.output.width, width)))


def stage_c(p: TileProgram, spec: Spec) -> TileProgram:
    """Threads leave their sums as C's tile lies, and store lines of it: in accesses as wide as a line and C allow."""
    along, dtype = p.contiguous("C"), F32
    wide = VECTOR_BYTES if spec.has("float4") else dtype.bytes
    left = widest(dtype, wide, run_of_c(p))
    full = widest(dtype, wide, p.extent(along))
    width = min(full, widest(stored_type(spec), min(wide, p.variant.bytes("C")), p.extent(along)))
    tile = tile_of_c(p, left, full, width)
    return replace(p, output=replace(p.output, width=width, tile=tile, left=left))


def atomics(p: TileProgram, spec: Spec) -> TileProgram:
    """The blocks that share a sum add their parts to C where it lies: as widely as it would be stored, or one element
    at a time where the spec's architecture cannot add more."""
    width = p.output.width if adds_vectors(spec) else 1
    return replace(p, output=replace(p.output, width=width), sums=InMemory(p.sums.parts))


def dependent_launch(p: TileProgram, spec: Spec) -> TileProgram:
    """The second kernel is launched before what the first makes is there."""
    assert isinstance(p.sums, SecondKernel | InMemory)
    return replace(p, sums=replace(p.sums, early=True))


def tma_store(p: TileProgram, spec: Spec) -> TileProgram:
    """C's tile is left in shared memory and stored by the TMA engine, where that can address C's rows."""
    if p.variant.bytes("C") < VECTOR_BYTES:
        return p
    dtype, (bm, bn, _) = stored_type(spec), spec.block
    layout = Layout(("m", "n"), (bm, bn), swizzle=True)
    box = Buffer(STAGED, "C", layout, dtype, why="on its way to C, apart from A and B, whose next tiles may come")
    return replace(p, output=replace(p.output, box=replace(box, layout=in_panels(box))))


def in_panels(b: Buffer) -> Layout:
    """Rows in parts of as many bytes as the swizzle permutes: what tensor cores read at a time."""
    atom = b.dtype.elements(ATOM)
    return b.layout if b.layout.extents[1] <= atom else replace(b.layout, panel=atom)


def stored_type(spec: Spec) -> DType:
    """The type of what the main kernel stores: C's own, or that of sums which a second kernel adds up."""
    sums = spec.split_k > 1 and not spec.has("clusterReduce") and not spec.has("atomics")
    return F32 if sums else spec.matrices[2].dtype


def run_of_c(p: TileProgram) -> int:
    """Neighbours along a line of C that a thread computes at a time."""
    thread = p.product.level("thread")
    return thread.n if p.contiguous("C") == "n" else thread.m
