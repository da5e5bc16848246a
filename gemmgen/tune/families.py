"""The candidates for a shape where nobody says what to try: families of kernels that are known to be fast."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import ceil
from typing import Any

from gemmgen.diagnostics import SpecError
from gemmgen.isa.cluster import PORTABLE_SIZE
from gemmgen.spec.model import F32_ROW, Spec
from gemmgen.spec.replace import tried
from gemmgen.tune.features import layout_of as spec_layout
from gemmgen.tune.pool import LAYOUTS as LAYOUTS
from gemmgen.tune.pool import Layout as Layout
from gemmgen.tune.pool import layout_of as layout_of
from gemmgen.tune.pool import pool as pool
from gemmgen.tune.pool import swaps as swaps
from gemmgen.tune.shapes import SKINNY, Shape
from gemmgen.tune.tiles import COPIED_TILES, ENGINE, ENGINE_TILES, ENGINES, SKINNY_TILES, TRANSPOSED

BLOCKS_WANTED = 132
"""Blocks that fill a large GPU once: with fewer, K is split among more of them."""
IDLE = 1.1
"""Rounds of two blocks per SM by what they would be if all were full, from which the last one is worth filling."""
TINY_OUTPUTS, TINY_DEPTH = 256 * 256, 256
"""Elements of C, and of K, up to which a product is over before much of the GPU has started."""
TINY_BLOCKS = ((16, 16), (16, 32), (32, 16), (32, 32), (8, 32))


def default_specs(
    shape: Shape, name: str = "tuned", unordered: bool = False, like: Spec | None = None
) -> tuple[Spec, ...]:
    """Legal specs for a shape, most of them fast somewhere: hundreds to a few thousand, each once, in a fixed order.

    ``name`` is what the kernels are called; what the GPU cannot run is left to the model to leave out. ``unordered``:
    also those that add up in no fixed order, whose results do not repeat bit by bit. ``like``: they compute what
    that spec does: A, B and C lie as its own, with its epilogue, and batches.
    """
    base = Spec(name=name, block=(64, 64, 8), thread=(1, 1))
    if like is None:
        return _legal(base, _all(shape, unordered))
    kept = like.use & {"batched"}
    base = replace(base, A=like.A, B=like.B, C=like.C, epilogue=like.epilogue)
    found = _legal(base, (c | {"use": c["use"] | kept} for c in _all(shape, unordered)))
    if (like.A, like.B, like.C) == (F32_ROW, F32_ROW, F32_ROW):
        return found
    others = [s for s in pool(spec_layout(like), name) if (s.A, s.B, s.C) == (like.A, like.B, like.C)]
    more = (_legal(s, [{"epilogue": like.epilogue, "use": s.use | kept}]) for s in others)
    return tuple(dict.fromkeys([*found, *itertools.chain.from_iterable(more)]))


def plain_specs(name: str = "tuned") -> tuple[Spec, ...]:
    """Those that bring their tiles through registers, and run on every GPU."""
    return _legal(Spec(name=name, block=(64, 64, 8), thread=(1, 1)), _plain())


def _legal(base: Spec, changes_of_all: Iterable[dict[str, Any]]) -> tuple[Spec, ...]:
    made: dict[Spec, None] = {}
    for changes in changes_of_all:
        try:
            made.setdefault(tried(base, **changes))
        except SpecError:
            continue
    return tuple(made)


def _all(shape: Shape, unordered: bool) -> Iterator[dict[str, Any]]:
    yield from _tiny(shape)
    for family in (_skinny(shape), _engine(), _copied(), ((changes, ()) for changes in _plain())):
        for changes, waves in family:
            for parts, how in splits(shape, changes["block"], waves, unordered):
                if parts > 1 and not how and "tma" in changes["use"]:
                    continue  # where there is an engine, second kernels can be launched early
                yield changes | {"split_k": parts, "use": changes["use"] | how}


WHOLE: frozenset[str] = frozenset()
SECOND = frozenset({"dependentLaunch"})
CLUSTER = frozenset({"clusterReduce"})
IN_MEMORY = frozenset({"atomics"})


def splits(
    shape: Shape, block: tuple[int, int, int], waves: Iterable[int], unordered: bool = False
) -> Iterator[tuple[int, frozenset[str]]]:
    """Parts of K, and how they are added up: K whole, and in as many parts as make so many blocks for each SM where C
    has few tiles. Clusters also of the sizes that pack best. ``unordered``: also by additions to C in memory."""
    yield 1, WHOLE
    (m, n, k), (bm, bn, bk) = shape, block
    tiles = -(-m // bm) * -(-n // bn)
    wanted = [w * BLOCKS_WANTED // tiles for w in waves]
    for parts in dict.fromkeys(p for w in wanted for p in (w, w // 8 * 8)):  # eighths of K have even numbers of tiles
        if parts > 1 and parts * 2 * bk <= k:
            yield from ((parts, SECOND), (parts, WHOLE))
            if unordered:
                yield from ((parts, IN_MEMORY | SECOND), (parts, IN_MEMORY))
    rounds = tiles / (2 * BLOCKS_WANTED)
    if wanted and 1 < rounds < ceil(rounds) / IDLE:  # halves fill the last round better
        yield 2, CLUSTER
    most = max(wanted, default=1)
    for parts in sorted({2, 4, PORTABLE_SIZE, *wanted}):
        if 1 < parts <= min(most, PORTABLE_SIZE) and parts * 2 * bk <= k:
            yield parts, CLUSTER


def _tiny(shape: Shape) -> Iterator[dict[str, Any]]:
    """Hardly any work: what counts is one wait for memory, so all of K is one tile, and blocks are small."""
    m, n, k = shape
    if m * n > TINY_OUTPUTS or k > TINY_DEPTH:
        return
    plain = frozenset({"coalescing", "smem", "transposeA", "float4"})
    ways: tuple[tuple[frozenset[str], int], ...] = ((plain | {"cpasync"}, 1), (plain, 1))
    for (bm, bn), thread, parts in itertools.product(TINY_BLOCKS, ((2, 2), (1, 4), (2, 4), (1, 2)), (1, 4, 2)):
        deep = -(-k // (4 * parts)) * 4
        for use, stages in (*ways, (plain | {"cpasync", "prefetch"}, 2)):
            block = (bm, bn, deep if stages == 1 else deep // 2)
            made = {"block": block, "thread": thread, "stages": stages, "pad_a": 4}
            yield made | {"split_k": parts, "use": use | CLUSTER if parts > 1 else use}


Tried = tuple[dict[str, Any], tuple[int, ...]]
"""Changes to a spec, and for how many blocks per SM K is split too."""


def _engine() -> Iterator[Tried]:
    """Tiles by the tensor memory accelerator."""
    for tile, stages, unroll in itertools.product(ENGINE_TILES, (3, 2, 4), (8, 4)):
        # Two blocks per SM of 128 threads leave each thread all of its 255 registers.
        blocks = (0, 2) if tile.sums > 64 and tile.threads <= 128 else (0,)
        for use, least in itertools.product(ENGINES, blocks):
            if unroll == 8 or use is ENGINE:
                usual = unroll == 8 and stages < 4 and use in ENGINES[::2]
                changes = {"use": use, "stages": stages, "unroll": unroll, "min_blocks": least}
                yield tile.changes | changes, (1, 2, 4) if usual else ()


def _copied() -> Iterator[Tried]:
    """Tiles by cp.async, A transposed on its way."""
    ways = (("cpasync", "prefetch", "spread"), ("cpasync", "prefetch"), ("cpasync",))
    for tile, stages, how in itertools.product(COPIED_TILES, (2, 3, 4), ways):
        made = tile.changes | {"use": TRANSPOSED | set(how), "stages": stages, "pad_a": 4}
        yield made, (1, 2) if "prefetch" in how and stages == 3 else ()
        if "prefetch" in how and stages == 3:
            yield made | {"use": TRANSPOSED | {*how, "snake"}}, (1, 2)
        if tile.block[2] > 8:  # all steps of a long tile are more text than the instruction cache holds
            yield made | {"unroll": 8}, ()


def _plain() -> Iterator[dict[str, Any]]:
    """Tiles through registers: what every GPU can do."""
    for tile, (stages, prefetch) in itertools.product(COPIED_TILES, ((1, False), (2, False), (2, True))):
        use = TRANSPOSED | ({"prefetch"} if prefetch else set())
        yield tile.changes | {"use": use, "stages": stages, "pad_a": 4}


def _skinny(shape: Shape) -> Iterator[Tried]:
    """Few rows or columns: kernels that read B once, past shared memory, and narrow tiles."""
    if min(shape[:2]) > SKINNY:
        return
    if shape[0] <= SKINNY:
        for changes in _streaming(shape):
            yield changes, (1, 2, 4, 8)
    for tile, stages in itertools.product(SKINNY_TILES, (3, 4)):
        for use in ({"cpasync", "prefetch"}, {"cpasync"}):
            pad = 4 if tile.block[0] > 1 else 0
            yield tile.changes | {"use": TRANSPOSED | use, "stages": stages, "pad_a": pad}, (1, 2, 4, 8)


def _streaming(shape: Shape) -> Iterator[dict[str, Any]]:
    """B straight into registers, each element wanted by one thread, or a few where M is larger; A is kept on chip."""
    rows = next(r for r in (1, 2, 4, 8, 16, 32, 64) if r >= shape[0])
    plain = frozenset({"coalescing", "smem", "transposeA", "float4", "directB"})
    pipelines: tuple[dict[str, Any], ...] = ({"use": plain}, {"use": plain | {"cpasync"}, "stages": 2})
    for columns, deep, unroll, how in itertools.product((256, 512, 128), (32, 64, 16), (8, 16, 4), pipelines):
        for tm in sorted({min(rows, 32), min(rows, 16), min(rows, 8)}, reverse=True):
            if unroll <= deep:
                yield {"block": (rows, columns, deep), "thread": (tm, 4), "unroll": unroll, **how}
