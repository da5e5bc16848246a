"""Rules on how tiles are brought: which instructions an architecture has, and what they can copy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem
from gemmgen.ir.types import F32, VECTOR_BYTES
from gemmgen.isa.cluster import PORTABLE_SIZE
from gemmgen.spec.architecture import (
    ELEMENT_TYPE,
    INSTRUCTIONS,
    architecture_problem,
    capability,
    unknown_architecture,
)
from gemmgen.spec.model import ARCH_FORM, SETTINGS, Spec
from gemmgen.spec.suggest import dependents, either, multiples_around

if TYPE_CHECKING:
    from gemmgen.spec.subject import Subject

MAX_STAGES = max(next(row.choices for row in SETTINGS if row.name == "stages"))
MAX_BOX = 256
"""Elements of one dimension of a box (CUDA driver API, cuTensorMapEncodeTiled)."""
BOX_ALIGN = 128
"""Bytes to which a box in shared memory must be aligned (PTX ISA, "cp.async.bulk.tensor")."""
SWIZZLED = (32, 64, 128)
"""Bytes of a row that a swizzle permutes."""
SWIZZLED_ROWS = 8
"""Rows after which a swizzle repeats."""


def swizzles(row_bytes: int, long_rows: bool) -> bool:
    """Whether rows of this length can be swizzled. ``long_rows``: whoever copies them takes them apart into 128 bytes,
    as the TMA engine does not."""
    return row_bytes in SWIZZLED or (long_rows and row_bytes % SWIZZLED[-1] == 0)


def idle_swizzle(spec: Spec) -> Iterator[str]:
    """A swizzle that is asked for and has no effect."""
    item = spec.matrices[0].dtype.bytes
    if not spec.way.plain:
        if spec.way.by_warp:
            yield from _idle_beside_tma(spec)
        return
    if spec.has("smemSwizzle") and item * spec.block[2] not in SWIZZLED:
        can = _or([nbytes // item for nbytes in SWIZZLED])
        yield f"smemSwizzle has no effect on rows of BK {spec.block[2]}; BK {can} can be swizzled"


def _idle_beside_tma(spec: Spec) -> Iterator[str]:
    """Rows of a tile that are too long for the TMA engine to swizzle, as cp.async does."""
    bm, bn, bk = spec.block
    rows = ("A", bk if spec.A.order == "row" else bm), ("B", bn if spec.B.order == "row" else bk)
    for x, extent in rows if spec.has("smemSwizzle") and spec.has("tma") else ():
        item = spec.matrices[0].dtype.bytes
        if item * extent not in SWIZZLED:
            most = SWIZZLED[-1] // item
            yield f"smemSwizzle has no effect on {x}: TMA swizzles rows of {most} elements at most, not {extent}"


def pipeline_problems(s: Subject) -> Iterator[Problem]:
    """Ways to bring tiles that contradict each other, the architecture, or the tiles."""
    if not s.good("use"):
        return
    yield from _architecture(s)
    if s.spec.has("cpasync") and s.spec.has("tma") and len(beside_tma(s.spec)) != 1:
        message = "tma and cpasync are two ways to bring the same tiles"
        hint = _one(s, "tma", "cpasync", also="tma falls back on cp.async by itself for rows that it cannot address")
        yield Problem(message, hint, s.span("use tma"))
    if s.good("stages") and 2 < s.spec.stages <= MAX_STAGES and not s.spec.has("cpasync") and not s.spec.has("tma"):
        message = f"stages {s.spec.stages} needs cpasync or tma: through registers one tile is on its way at a time"
        hint = "stages 2 needs neither" if s.mends(stages=2) else _also(s, "cpasync")
        yield Problem(message, hint or "take fewer stages", s.span("stages"))
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
        hint = _one(s, "persistent", "clusterReduce", also="without clusterReduce a second kernel adds up")
        message = f"clusterReduce leaves sums in the place of tiles until a block ends, and {ends}"
        yield Problem(message, hint, s.span("persistent", "use clusterReduce"))
    if s.spec.has("tma"):
        yield from _tma(s)
        if s.spec.has("batched"):
            message = "batched moves from matrix to matrix by strides, and a tensor map of tma is of one matrix"
            hint = either(_instead(s, "tma", "cpasync"), s.leaving("batched")) or "leave one of the two out"
            yield Problem(message, hint, s.span("use batched", "use tma"))


def beside_tma(spec: Spec) -> frozenset[str]:
    """The operands that cp.async brings beside the tensor memory accelerator, which cannot transpose them."""
    if not spec.has("cpasync") or not spec.has("tma") or spec.way.by_warp:
        return frozenset()
    turned = {"A"} if (spec.A.order == "row") == spec.has("transposeA") else set()
    b_turned = (spec.B.order == "col") != spec.has("transposeB") and not spec.has("directB")
    return frozenset(turned | ({"B"} if b_turned else set()))


def _ragged_first(s: Subject) -> Iterator[Problem]:
    """The first tile is copied before the loop, and nothing in the loop looks at where K ends."""
    if s.good("stages") and s.spec.stages < 2:
        message = f"raggedFirst takes checks along K out of the loop, and stages {s.spec.stages} copies all tiles there"
        hint = either(s.at_least("stages", 2), s.leaving("raggedFirst")) or "give it stages"
        yield Problem(message, hint, s.span("use raggedFirst"))
    if s.spec.has("directB"):
        message = "raggedFirst takes checks along K out of the loop, and directB fetches all of B there"
        yield Problem(message, _one(s, "raggedFirst", "directB"), s.span("use raggedFirst"))


def _stage_c(s: Subject) -> Iterator[Problem]:
    """Nothing else comes to lie where the sums do."""
    if s.spec.has("clusterReduce"):
        message = "stageC and clusterReduce both leave a block's sums in the place of its tiles, each in its own order"
        yield Problem(message, _one(s, "stageC", "clusterReduce"), s.span("use stageC"))
    if s.spec.has("tma") and s.good("persistent") and s.spec.persistent > 0:
        message = "stageC leaves sums by ordinary stores where tma would bring the next tile of C's first tiles, and"
        hint = either(_one(s, "persistent", "stageC"), _instead(s, "tma", "cpasync"))
        message = f"{message} persistent {s.spec.persistent} asks for both"
        yield Problem(message, hint, s.span("persistent", "use stageC"))


def _cluster(s: Subject) -> Iterator[Problem]:
    """The blocks that share a sum are a cluster, of no more blocks than every GPU that has clusters can run."""
    split, where = s.spec.split_k, s.span("split_k", "use clusterReduce")
    if split < 2:
        message = f"clusterReduce adds up what several blocks have of a sum, and split_k is {split}"
        most = f"write 'split_k 2', up to {PORTABLE_SIZE}" if s.mends(split_k=2) else ""
        yield Problem(message, either(most, s.leaving("clusterReduce")) or "split the sum", where)
    elif split > PORTABLE_SIZE:
        message = f"clusterReduce makes the blocks that share a sum a cluster, and split_k {split} is over its limit of"
        most = f"'split_k {PORTABLE_SIZE}' is the most" if s.mends(split_k=PORTABLE_SIZE) else ""
        hint = most or s.leaving("clusterReduce") or "split the sum into fewer parts"
        hint = f"{hint}; without clusterReduce a second kernel adds up any number"
        yield Problem(f"{message} {PORTABLE_SIZE}", hint, where)


def _atomics(s: Subject) -> Iterator[Problem]:
    """Several blocks have a part of each sum, and nothing else adds them up."""
    split = s.spec.split_k
    if s.spec.has("clusterReduce"):
        message = "atomics and clusterReduce are two ways to add up what several blocks have of a sum"
        hint = _one(s, "atomics", "clusterReduce", also="clusterReduce adds in a fixed order, and its bits repeat")
        yield Problem(message, hint, s.span("use atomics"))
    elif s.spec.C.dtype != F32.name:
        message = f"atomics adds to C in float32, and C is {s.spec.C.dtype}"
        yield Problem(message, "write C f32, or leave atomics out", s.span("operands C", "use atomics"))
    elif s.good("split_k") and split < 2:
        message = f"atomics adds up what several blocks have of a sum, and split_k is {split}"
        hint = either(s.at_least("split_k", 2), s.leaving("atomics")) or "split the sum"
        yield Problem(message, hint, s.span("split_k", "use atomics"))


def _dependent(s: Subject) -> Iterator[Problem]:
    """There is a second kernel, whose launch can overlap the first."""
    split, where = s.spec.split_k, s.span("use dependentLaunch")
    if s.spec.has("clusterReduce"):
        message = "dependentLaunch launches a second kernel early, and with clusterReduce there is none"
        yield Problem(message, _one(s, "dependentLaunch", "clusterReduce"), where)
    elif s.good("split_k") and split < 2:
        message = f"dependentLaunch launches the second kernel of split_k early, and split_k {split} has none"
        hint = either(s.at_least("split_k", 2), s.leaving("dependentLaunch")) or "split the sum"
        yield Problem(message, hint, s.span("split_k", "use dependentLaunch"))


def _architecture(s: Subject) -> Iterator[Problem]:
    arch = s.spec.arch
    if arch is None or not s.good("arch") or not re.fullmatch(ARCH_FORM, arch):  # then said by its own rule
        return
    if problem := architecture_problem(s.spec, arch):
        there = capability(arch) or 0
        missing = [t for t, row in INSTRUCTIONS.items() if s.spec.has(t) and row.arch.min > there]
        hint = "leave 'arch' out" if s.mends(arch=None) else "take a newer architecture"
        typed = "take f32" if problem.startswith(ELEMENT_TYPE) else ""
        yield Problem(problem, either(hint, typed or s.leaving(*missing)), s.span("arch"))
    elif problem := unknown_architecture(arch):
        what, _, known = problem.partition("; ")
        yield Problem(what, known, s.span("arch"))


# --- TMA: the engine copies rows as they are --------------------------------------------------------------------------


def _tma(s: Subject) -> Iterator[Problem]:
    if s.spec.way.plain:
        yield from _tma_order(s)
    for name, operand in (("pad_a", "A"), ("pad_b", "B")):
        if s.good(name) and operand not in beside_tma(s.spec) and (pad := getattr(s.spec, name)) > 0:
            message = f"tma writes a tile's rows one behind another, and {name} {pad} sets them apart"
            hint = either(f"leave {name} out" if s.mends(**{name: 0}) else "", _instead(s, "tma", "cpasync"))
            hint = f"{hint or 'tma needs rows without padding'}; smemSwizzle is TMA's way round bank conflicts"
            yield Problem(message, hint, s.span(name))
    if s.good("BM", "BN", "BK") and not s.no_bk and not s.spec.way.by_group:
        yield from _tma_boxes(s)
        yield from _tma_alignment(s)


def _tma_order(s: Subject) -> Iterator[Problem]:
    """What is contiguous in memory is contiguous in the tile."""
    spec, beside = s.spec, beside_tma(s.spec)
    if len(beside) == 1 or spec.way.by_warp:  # tensor cores read tiles as their matrices lie
        return
    if s.good("A") and spec.A.order == "row" and spec.has("transposeA"):
        message = "tma cannot transpose, and transposeA stores A's rows as columns"
        hint = either(s.leaving("transposeA"), _instead(s, "tma", "cpasync")) or "transpose in memory"
        yield Problem(message, hint, s.span("use transposeA", "use tma"))
    if s.good("A") and spec.A.order == "col" and not spec.has("transposeA"):
        message = "tma cannot transpose, and without transposeA the tile of a column-major A is stored by rows"
        hint = either(_also(s, "transposeA"), _instead(s, "tma", "cpasync")) or "take A in row order"
        yield Problem(message, hint, s.span("operands A", "use tma"))
    if s.good("B") and spec.B.order == "row" and spec.has("transposeB") and not spec.has("directB"):
        message = "tma cannot transpose, and transposeB stores B's rows as columns"
        hint = either(s.leaving("transposeB"), _instead(s, "tma", "cpasync")) or "transpose in memory"
        yield Problem(message, hint, s.span("use transposeB", "use tma"))
    if s.good("B") and spec.B.order == "col" and not spec.has("directB") and not spec.has("transposeB"):
        message = "tma cannot transpose, and the tile of a column-major B is stored by rows"
        rows = "take B in row order" if s.mends(B=replace(spec.B, order="row")) else ""
        added = "add cpasync, which brings B beside tma" if _also(s, "cpasync") else ""
        hint = either(added, rows, _instead(s, "tma", "cpasync")) or "use smaller tiles"
        yield Problem(message, hint, s.span("operands B", "use tma"))


def _tma_boxes(s: Subject) -> Iterator[Problem]:
    bm, bn, bk = s.spec.block
    beside = beside_tma(s.spec)
    past = s.spec.has("directB") or "B" in beside  # B does not come by TMA
    for name, extent in (*(() if "A" in beside else (("BM", bm),)), *(() if past else (("BN", bn),)), ("BK", bk)):
        if extent > MAX_BOX:
            message = f"tma copies at most {MAX_BOX} elements of a dimension at once: {name} {extent} > {MAX_BOX}"
            found = s.values(name, [n for n in range(MAX_BOX, 0, -1) if n % 8 == 0])
            hint = f"{name} {found[0]} {'is the most' if found == [MAX_BOX] else 'would do'}" if found else ""
            yield Problem(message, hint or _instead(s, "tma", "cpasync"), s.span(name, "tile block"))
    inner = ("BM", bm) if s.spec.A.order == "col" else ("BK", bk)
    inner_b = ("BK", bk) if s.spec.B.order == "col" else ("BN", bn)
    for x, (name, extent) in zip(s.spec.matrices, (inner, inner_b), strict=False):
        unit, row = x.dtype.elements(VECTOR_BYTES), x.dtype.bytes * extent
        if extent % unit and not (past and x.name == "B") and x.name not in beside:
            whole = f"tma copies rows of whole {VECTOR_BYTES} bytes"
            message = f"{whole}, and {name} {extent} makes a row of {x.name} {row}"
            yield Problem(message, _multiples(s, name, extent, unit), s.span(name, "tile block"))


def _tma_alignment(s: Subject) -> Iterator[Problem]:
    bm, bn, bk = s.spec.block
    for x, name, extent in zip(s.spec.matrices, ("BM", "BN"), (bm, bn), strict=False):
        item, unit = x.dtype.bytes, x.dtype.elements(VECTOR_BYTES)
        step = BOX_ALIGN // gcd(BOX_ALIGN, item * bk)
        inner = bk if x.contiguous == "k" else extent
        if extent % step and inner % unit == 0 and not (x.name == "B" and s.spec.has("directB")):
            if x.name in beside_tma(s.spec):
                continue
            size = item * extent * bk
            message = f"tma needs tiles of whole {BOX_ALIGN} bytes, and {name} {extent} by BK {bk} is {size}"
            yield Problem(message, _multiples(s, name, extent, step), s.span(name, "tile block"))
    if s.spec.has("smemSwizzle") and s.spec.matrices[0].dtype.bytes * bk in SWIZZLED and bm % SWIZZLED_ROWS:
        message = f"tma swizzles {SWIZZLED_ROWS} rows at a time, and BM {bm} is not a multiple of {SWIZZLED_ROWS}"
        yield Problem(message, _multiples(s, "BM", bm, SWIZZLED_ROWS), s.span("BM", "tile block"))


# --- Hints: what mends a spec, and says so ----------------------------------------------------------------------------


def _one(s: Subject, *names: str, also: str = "") -> str:
    """A hint to leave one of two settings out, and what ``also`` is worth saying."""
    toggles = [name for name in names if s.spec.has(name)]
    settings = [f"leave {name} out" for name in names if name not in toggles and s.mends(**{name: 0})]
    found = either(*settings, s.leaving(*toggles))
    if found == either(*(f"leave {name} out" for name in names)):
        found = "use one of them" if toggles == list(names) else "leave one of the two out"
    return "; ".join(part for part in (found, also) if part)


def _also(s: Subject, toggle: str) -> str:
    """A hint to add a toggle; empty where that does not mend the spec."""
    return f"add {toggle}" if s.mends(use=s.spec.use | {toggle}) else ""


def _instead(s: Subject, toggle: str, other: str) -> str:
    """A hint to use a toggle in place of another; empty where that does not mend the spec."""
    gone = dependents(s.spec.use, toggle)
    fine = s.mends(use=s.spec.use.difference(gone) | {other})
    return f"use {other} in place of {' and '.join(gone)}" if fine else ""


def _multiples(s: Subject, name: str, extent: int, step: int) -> str:
    """A hint of the multiples next to a size."""
    near = s.beside(name, *multiples_around(extent, step))
    if near:
        return f"{name} {near.replace(' and ', ' or ')} is right"
    return _instead(s, "tma", "cpasync") or f"{name} must be a multiple of {step}"


def _or(values: Sequence[int]) -> str:
    *first, last = [str(v) for v in values]
    return f"{', '.join(first)} or {last}" if first else last
