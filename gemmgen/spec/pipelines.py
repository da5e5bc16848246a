"""Rules on how tiles are brought: which instructions an architecture has, and what they can copy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import gcd
from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem
from gemmgen.ir.types import F32, VECTOR_BYTES
from gemmgen.isa.cluster import PORTABLE_SIZE
from gemmgen.spec.architecture import ELEMENT_TYPE, architecture_problem, unknown_architecture
from gemmgen.spec.model import ARCH_FORM, Spec
from gemmgen.spec.suggest import multiples_near

if TYPE_CHECKING:
    from gemmgen.spec.check import Subject

MAX_BOX = 256
"""Elements of one dimension of a box (CUDA driver API, cuTensorMapEncodeTiled)."""
BOX_ALIGN = 128
"""Bytes to which a box in shared memory must be aligned (PTX ISA, "cp.async.bulk.tensor")."""
SWIZZLED = (32, 64, 128)
"""Bytes of a row that a swizzle permutes."""
SWIZZLED_ROWS = 8
"""Rows after which a swizzle repeats."""


def idle_swizzle(spec: Spec) -> Iterator[str]:
    """A swizzle that is asked for and has no effect."""
    item = spec.matrices[0].dtype.bytes
    if spec.has("smemSwizzle") and item * spec.block[2] not in SWIZZLED:
        can = _or([nbytes // item for nbytes in SWIZZLED])
        yield f"smemSwizzle has no effect on rows of BK {spec.block[2]}; BK {can} can be swizzled"


def pipeline_problems(s: Subject) -> Iterator[Problem]:
    """Ways to bring tiles that contradict each other, the architecture, or the tiles."""
    if not s.good("use"):
        return
    yield from _architecture(s)
    if s.spec.has("cpasync") and s.spec.has("tma"):
        message = "tma and cpasync are two ways to bring the same tiles"
        hint = "use one of them; tma falls back on cp.async by itself for rows that it cannot address"
        yield Problem(message, hint, s.span("use tma"))
    if s.good("stages") and s.spec.stages > 2 and not s.spec.has("cpasync") and not s.spec.has("tma"):
        message = f"stages {s.spec.stages} needs cpasync or tma: through registers one tile is on its way at a time"
        yield Problem(message, "stages 2 needs neither", s.span("stages"))
    if s.spec.has("clusterReduce") and s.good("split_k"):
        yield from _cluster(s)
    if s.spec.has("stageC"):
        yield from _stage_c(s)
    if s.spec.has("raggedFirst"):
        yield from _ragged_first(s)
    if s.spec.has("atomics"):
        yield from _atomics(s)
    if s.spec.has("dependentLaunch"):
        yield from _dependent(s)
    if s.spec.has("clusterReduce") and s.good("persistent") and s.spec.persistent > 0:
        ends = f"with persistent {s.spec.persistent} a block goes on to other tiles of C"
        hint = "leave one of the two out; without clusterReduce a second kernel adds up"
        message = f"clusterReduce leaves sums in the place of tiles until a block ends, and {ends}"
        yield Problem(message, hint, s.span("persistent", "use clusterReduce"))
    if s.spec.has("tma"):
        yield from _tma(s)


def _ragged_first(s: Subject) -> Iterator[Problem]:
    """The first tile is copied before the loop, and nothing in the loop looks at where K ends."""
    if s.good("stages") and s.spec.stages < 2:
        message = f"raggedFirst takes checks along K out of the loop, and stages {s.spec.stages} copies all tiles there"
        hint = "write 'stages 2' or more, or leave raggedFirst out"
        yield Problem(message, hint, s.span("use raggedFirst"))
    if s.spec.has("directB"):
        message = "raggedFirst takes checks along K out of the loop, and directB fetches all of B there"
        yield Problem(message, "use one of them", s.span("use raggedFirst"))


def _stage_c(s: Subject) -> Iterator[Problem]:
    """Nothing else comes to lie where the sums do."""
    if s.spec.has("clusterReduce"):
        message = "stageC and clusterReduce both leave a block's sums in the place of its tiles, each in its own order"
        yield Problem(message, "use one of them", s.span("use stageC"))
    if s.spec.has("tma") and s.good("persistent") and s.spec.persistent > 0:
        message = "stageC leaves sums by ordinary stores where tma would bring the next tile of C's first tiles, and"
        hint = "leave persistent or stageC out, or use cpasync"
        message = f"{message} persistent {s.spec.persistent} asks for both"
        yield Problem(message, hint, s.span("persistent", "use stageC"))


def _cluster(s: Subject) -> Iterator[Problem]:
    """The blocks that share a sum are a cluster, of no more blocks than every GPU that has clusters can run."""
    split, where = s.spec.split_k, s.span("split_k", "use clusterReduce")
    if split < 2:
        message = f"clusterReduce adds up what several blocks have of a sum, and split_k is {split}"
        yield Problem(message, f"write 'split_k 2', up to {PORTABLE_SIZE}, or leave clusterReduce out", where)
    elif split > PORTABLE_SIZE:
        message = f"clusterReduce makes the blocks that share a sum a cluster, and split_k {split} is over its limit of"
        hint = f"'split_k {PORTABLE_SIZE}' is the most; without clusterReduce a second kernel adds up any number"
        yield Problem(f"{message} {PORTABLE_SIZE}", hint, where)


def _atomics(s: Subject) -> Iterator[Problem]:
    """Several blocks have a part of each sum, and nothing else adds them up."""
    split = s.spec.split_k
    if s.spec.has("clusterReduce"):
        message = "atomics and clusterReduce are two ways to add up what several blocks have of a sum"
        hint = "use one of them; clusterReduce adds in a fixed order, and its bits repeat"
        yield Problem(message, hint, s.span("use atomics"))
    elif s.spec.C.dtype != F32.name:
        message = f"atomics adds to C in float32, and C is {s.spec.C.dtype}"
        yield Problem(message, "write C f32, or leave atomics out", s.span("operands C", "use atomics"))
    elif s.good("split_k") and split < 2:
        message = f"atomics adds up what several blocks have of a sum, and split_k is {split}"
        yield Problem(message, "write 'split_k 2' or more, or leave atomics out", s.span("split_k", "use atomics"))


def _dependent(s: Subject) -> Iterator[Problem]:
    """There is a second kernel, whose launch can overlap the first."""
    split, where = s.spec.split_k, s.span("use dependentLaunch")
    if s.spec.has("clusterReduce"):
        message = "dependentLaunch launches a second kernel early, and with clusterReduce there is none"
        yield Problem(message, "use one of them", where)
    elif s.good("split_k") and split < 2:
        message = f"dependentLaunch launches the second kernel of split_k early, and split_k {split} has none"
        hint = "write 'split_k 2' or more, or leave dependentLaunch out"
        yield Problem(message, hint, s.span("split_k", "use dependentLaunch"))


def _architecture(s: Subject) -> Iterator[Problem]:
    arch = s.spec.arch
    if arch is None or not s.good("arch") or not re.fullmatch(ARCH_FORM, arch):  # then said by its own rule
        return
    if problem := architecture_problem(s.spec, arch):
        typed = problem.startswith(ELEMENT_TYPE)
        hint = "leave 'arch' out, or take f32" if typed else "leave 'arch' out, or the toggle"
        yield Problem(problem, hint, s.span("arch"))
    elif problem := unknown_architecture(arch):
        what, _, known = problem.partition("; ")
        yield Problem(what, known, s.span("arch"))


# --- TMA: the engine copies rows as they are --------------------------------------------------------------------------


def _tma(s: Subject) -> Iterator[Problem]:
    yield from _tma_order(s)
    for name in ("pad_a", "pad_b"):
        if s.good(name) and (pad := getattr(s.spec, name)) > 0:
            message = f"tma writes a tile's rows one behind another, and {name} {pad} sets them apart"
            hint = f"leave {name} out; smemSwizzle is TMA's way round bank conflicts"
            yield Problem(message, hint, s.span(name))
    if s.good("BM", "BN", "BK") and not s.no_bk:
        yield from _tma_boxes(s)
        yield from _tma_alignment(s)


def _tma_order(s: Subject) -> Iterator[Problem]:
    """What is contiguous in memory is contiguous in the tile."""
    spec = s.spec
    if s.good("A") and spec.A.order == "row" and spec.has("transposeA"):
        message = "tma cannot transpose, and transposeA stores A's rows as columns"
        yield Problem(message, "leave transposeA out, or use cpasync", s.span("use transposeA", "use tma"))
    if s.good("A") and spec.A.order == "col" and not spec.has("transposeA"):
        message = "tma cannot transpose, and without transposeA the tile of a column-major A is stored by rows"
        yield Problem(message, "add transposeA, or use cpasync", s.span("operands A", "use tma"))
    if s.good("B") and spec.B.order == "col" and not spec.has("directB"):
        message = "tma cannot transpose, and the tile of a column-major B is stored by rows"
        yield Problem(message, "take B in row order, or use cpasync", s.span("operands B", "use tma"))


def _tma_boxes(s: Subject) -> Iterator[Problem]:
    bm, bn, bk = s.spec.block
    past = s.spec.has("directB")  # B does not come by TMA
    for name, extent in (("BM", bm), *(() if past else (("BN", bn),)), ("BK", bk)):
        if extent > MAX_BOX:
            message = f"tma copies at most {MAX_BOX} elements of a dimension at once: {name} {extent} > {MAX_BOX}"
            yield Problem(message, f"{name} {MAX_BOX} is the most", s.span(name, "tile block"))
    inner = ("BM", bm) if s.spec.A.order == "col" else ("BK", bk)
    for x, (name, extent) in zip(s.spec.matrices, (inner, ("BN", bn)), strict=False):
        unit, row = x.dtype.elements(VECTOR_BYTES), x.dtype.bytes * extent
        if extent % unit and not (past and x.name == "B"):
            message = (
                f"tma copies rows of whole {VECTOR_BYTES} bytes, and {name} {extent} makes a row of {x.name} {row}"
            )
            yield Problem(message, f"{name} {_or(multiples_near(extent, unit))} is right", s.span(name, "tile block"))


def _tma_alignment(s: Subject) -> Iterator[Problem]:
    bm, bn, bk = s.spec.block
    for x, name, extent in zip(s.spec.matrices, ("BM", "BN"), (bm, bn), strict=False):
        item, unit = x.dtype.bytes, x.dtype.elements(VECTOR_BYTES)
        step = BOX_ALIGN // gcd(BOX_ALIGN, item * bk)
        inner = bk if x.name == "A" and s.spec.A.order == "row" else extent
        if extent % step and inner % unit == 0 and not (x.name == "B" and s.spec.has("directB")):
            size = item * extent * bk
            message = f"tma needs tiles of whole {BOX_ALIGN} bytes, and {name} {extent} by BK {bk} is {size}"
            yield Problem(message, f"{name} {_or(multiples_near(extent, step))} is right", s.span(name, "tile block"))
    if s.spec.has("smemSwizzle") and s.spec.matrices[0].dtype.bytes * bk in SWIZZLED and bm % SWIZZLED_ROWS:
        message = f"tma swizzles {SWIZZLED_ROWS} rows at a time, and BM {bm} is not a multiple of {SWIZZLED_ROWS}"
        near = multiples_near(bm, SWIZZLED_ROWS)
        yield Problem(message, f"BM {_or(near)} is right", s.span("BM", "tile block"))


def _or(values: Sequence[int]) -> str:
    *first, last = [str(v) for v in values]
    return f"{', '.join(first)} or {last}" if first else last
