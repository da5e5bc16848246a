"""Tile program -> kernel IR: each tile statement becomes the loops and accesses of one thread.

One straight function of named parts: constants, placement, the walk along K, the epilogue.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from gemmgen.ir.kernel import ALONE, KernelIR, Param, Pipeline, Source
from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.ir.variant import EXACT, Variant
from gemmgen.ir.verifier import enabled, verify
from gemmgen.lower.asserts import assertions
from gemmgen.lower.chain import params, strides
from gemmgen.lower.engine import tensor_maps
from gemmgen.lower.kernel import kernel_body
from gemmgen.lower.layout import tile_array
from gemmgen.lower.lines import launched_early
from gemmgen.lower.order import RENUMBERED, grid_of_blocks
from gemmgen.lower.place import constants, place
from gemmgen.lower.program import program_of
from gemmgen.lower.reduce import reduction
from gemmgen.lower.scale import scaling
from gemmgen.lower.scope import Scope
from gemmgen.lower.speclines import commented_lines
from gemmgen.lower.tiles import tile_copies
from gemmgen.lower.walk import parts_of
from gemmgen.tile.program import TileProgram
from gemmgen.tile.rewrites import build
from gemmgen.tile.sums import InCluster, InMemory

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

__all__ = ["lower", "lower_program"]


def lower(spec: Spec, variant: Variant = EXACT) -> KernelIR:
    """The kernel IR of a checked spec."""
    return _lowered(spec, variant, spec.written)


@lru_cache(maxsize=256)
def _lowered(spec: Spec, variant: Variant, written: tuple[Hashable, ...]) -> KernelIR:
    """Remembered with where the spec was written: the text has its comment, and accesses have its lines."""
    ir = lower_program(build(spec, variant))
    source = Source(commented_lines(spec), _file(spec), _origins(spec))
    first, then = (x and replace(x, source=source) for x in (ir.first, ir.then))
    ir = replace(ir, source=source, first=first, then=then)
    if enabled():
        for made in ir.kernels:
            verify(made)
    return replace(ir, program=program_of(build(spec, EXACT), ir) if variant == EXACT else lower(spec).program)


def _origins(spec: Spec) -> tuple[tuple[str, int], ...]:
    return tuple((name, span.line) for name, span in spec.spans.items())


def _file(spec: Spec) -> str:
    """The spec's file, the same wherever the checkout lies: in its folder where that is ``specs``, else alone. A
    spec that was read from no file has the name that one would have."""
    file, mark, settings = spec.filename.partition(" --set ")
    path = PurePath(file)
    if file.startswith("<"):
        shown = f"{spec.name}.gemm"
    else:
        shown = f"specs/{path.name}" if path.parent.name == "specs" else path.name
    return f"{shown}{mark}{settings}"


def lower_program(p: TileProgram) -> KernelIR:
    """The kernel IR of a tile program."""
    s = Scope(p)
    constants(s)
    placement, at = place(s)
    shared = {b.name: tile_array(s, b) for b in p.buffers}
    copies = tile_copies(s, shared)
    w = parts_of(s, at)
    body = kernel_body(w, placement, shared, copies)
    maps = tensor_maps(p)
    beside = p.beside if p.applied else ()
    sums = tuple(x.array for x in (w.sums, w.staged, w.boxed) if x is not None)
    return KernelIR(
        name=p.name,
        variant=p.variant,
        summary=p.summary,
        constants=tuple(s.constants.values()),
        assertions=assertions(p, copies),
        params=(
            *_params(s),
            *_batch(p),
            *params(beside),
            *(Param(m.name, "tensormap") for m in maps),
        ),
        threads=p.threads,
        grid=grid_of_blocks(s),
        shared=(*shared.values(), *w.syncs.arrays, *sums),
        body=body,
        min_blocks=_min_blocks(p),
        tensor_maps=maps,
        first=scaling(p) if isinstance(p.sums, InMemory) else None,
        then=reduction(p) if p.second_kernel else None,
        notes=_notes(p),
        cluster=s.constants["SPLIT_K"].expr if w.sums is not None else ALONE,
        arriving=("C",) if p.sums.early and isinstance(p.sums, InMemory) else (),
        renumbered=RENUMBERED if p.group_m > 1 or p.persistent else (),
        matrices=tuple(replace(x, dtype=p.stored) if x.name == "C" else x for x in p.matrices),
        tile=p.block,
        main=p.name,
        pipeline=Pipeline(p.pipeline.depth - 1, p.pipeline.prefetch),
    )


def _batch(p: TileProgram) -> tuple[Param, ...]:
    """The strides of a batch; the sums that a second kernel adds up lie one behind another."""
    own = [x for x in p.matrices if not (x.name == "C" and p.second_kernel)]
    return tuple(strides(own)) if p.batched else ()


def _batch_note(p: TileProgram) -> tuple[str, ...]:
    if not p.batched:
        return ()
    parts = f"{p.sums.parts} blocks" if p.sums.parts > 1 else "a block"
    return (f"Launched with {parts} along z for each product of the batch.",)


def _notes(p: TileProgram) -> tuple[str, ...]:
    """How the kernel is launched, where that is not as its parameters say."""
    return (*_parts_note(p), *_persistent_note(p), *_split_note(p), *_batch_note(p))


def _parts_note(p: TileProgram) -> tuple[str, ...]:
    split = p.product.math.split
    if split is None:
        return ()
    return (
        f"A and B are copies of {split.whole} matrices, of which a pass before has split each element into "
        f"{split.parts} {split.part}: each row of A, and column of B, has the first parts of all its elements, then "
        "the second, and so on, K rounded up to whole BK of each.",
    )


def _persistent_note(p: TileProgram) -> tuple[str, ...]:
    if not p.persistent:
        return ()
    blocks = f"a block along x for each tile of C, but with no more than {p.persistent}"
    return (f"Launched with {blocks}: then a block goes on to the tile that is as many behind its last.",)


def _split_note(p: TileProgram) -> tuple[str, ...]:
    if p.sums.parts == 1:
        return ()
    if isinstance(p.sums, InCluster):
        blocks = f"Launched with {p.sums.parts} blocks along z for each tile of C, which are a thread-block cluster"
        return (f"{blocks}: each leaves its sums in shared memory, and adds up a share of all.",)
    if isinstance(p.sums, InMemory):
        return _atomics_notes(p)
    line = "row" if p.contiguous("C") == "n" else "column"
    lines = "M rows" if line == "row" else "N columns"
    early = ", and is launched while this kernel still runs" if p.sums.early else ""
    return (
        f"Launched with C pointing to a workspace: a matrix of {lines} for each blockIdx.z, ldc elements from one "
        f"{line} to the next, with alpha 1 and beta 0. {p.name}_reduce makes C of them{early}.",
    )


def _atomics_notes(p: TileProgram) -> tuple[str, ...]:
    first = f"{p.name}_scale"
    blocks = f"Launched with {p.sums.parts} blocks along z for each tile of C, each with a part of K, behind {first}"
    return (
        f"{blocks}, which makes C beta * C. They add to C in no fixed order, and a sum of floats depends on its order: "
        f"the last bits of a result may differ from run to run.",
        *((launched_early(first),) if p.sums.early else ()),
    )


def _min_blocks(p: TileProgram) -> int | None:
    """The wish for blocks on a multiprocessor, but for narrow copies: their addresses need registers of their own."""
    narrow = any(p.variant.bytes(c.operand) < VECTOR_BYTES for c in p.copies)
    return None if narrow or not p.min_blocks else p.min_blocks


def _params(s: Scope) -> tuple[Param, ...]:
    """What is added to C by atomics has nothing to do with beta."""
    return tuple(x for x in _all_params(s) if x.name != "beta" or not isinstance(s.p.sums, InMemory))


def _all_params(s: Scope) -> tuple[Param, ...]:
    return (
        Param("M", "int", why="rows of A and C"),
        Param("N", "int", why="columns of B and C"),
        Param("K", "int", why="columns of A, rows of B"),
        Param("alpha", "float", why="scale of A*B"),
        Param("A", "pointer", s.matrix("A")),
        Param("lda", "size", why=s.p.matrix("A").leading_counts),
        Param("B", "pointer", s.matrix("B")),
        Param("ldb", "size", why=s.p.matrix("B").leading_counts),
        Param("beta", "float", why="scale of C before A*B is added; if 0, C is not read"),
        Param("C", "pointer", s.matrix("C")),
        Param("ldc", "size", why=s.p.matrix("C").leading_counts),
    )
