"""The pool: specs of which a choice for any shape is made, by the layout of A and B.

A layout is two letters, of A and of B: ``n`` for a matrix stored by rows, ``t`` for one stored by columns (a transposed
view). A spec whose C is stored by columns computes C^T = B^T A^T: it is called with B^T, A^T and C^T.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gemmgen.ir.types import Order
from gemmgen.spec.model import ORDERS, Operand, Spec
from gemmgen.spec.replace import tried
from gemmgen.tune.tiles import COLUMN_TILES, COPIED_TILES, ENGINE, ENGINE_TILES, SKINNY_TILES, TRANSPOSED

Layout: TypeAlias = Literal["nn", "nt", "tn", "tt"]
LAYOUTS: tuple[Layout, ...] = ("nn", "nt", "tn", "tt")
ROW, COL = ORDERS

Changes: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Orders:
    """How the operands of a kernel lie."""

    a: Order
    b: Order
    c: Order = "row"

    @property
    def swapped(self) -> Orders:
        """Those of C^T = B^T A^T."""
        return Orders(_other(self.b), _other(self.a), _other(self.c))


def orders_of(layout: Layout) -> Orders:
    """How A, B and C of a layout lie."""
    a, b = (ROW if letter == "n" else COL for letter in layout)
    return Orders(a, b)


def swaps(spec: Spec) -> bool:
    """Whether a spec of the pool is called with B^T, A^T and C^T in place of A, B and C."""
    return spec.C.order == COL


def pool(layout: Layout, name: str = "matmul") -> list[Spec]:
    """The specs of a layout, each once, in a fixed order."""
    orders = orders_of(layout)
    made: dict[Spec, None] = {}
    # Of both operands by columns the product is that of rows, with C by columns.
    main = orders.swapped if layout == "tt" else orders
    for changes in (*_tiles(main), *_few_rows(orders), *_few_rows(orders.swapped)):
        made.setdefault(tried(Spec(name=name, block=(64, 64, 8)), **changes))
    return list(made)


def _other(order: Order) -> Order:
    return COL if order == ROW else ROW


def _lying(orders: Orders, all_changes: Iterable[Changes]) -> Iterator[Changes]:
    lie = {x: Operand(order=y) for x, y in zip("ABC", (orders.a, orders.b, orders.c), strict=True)}
    return ({**changes, **lie} for changes in all_changes)


def _apart(o: Orders) -> Changes:
    """What is transposed on its way falls into different banks."""
    return {"pad_a": 4 if o.a == ROW else 0, "pad_b": 4 if o.b == COL else 0}


def _split(changes: Changes, *parts: int, how: str = "dependentLaunch") -> Iterator[Changes]:
    """K split into so many parts; up to 8 of clusterReduce."""
    for n in parts:
        yield {**changes, "split_k": n, "use": changes["use"] | {how}}


# --- Tiles for middle and large sizes ---------------------------------------------------------------------------------


def _tiles(o: Orders) -> Iterator[Changes]:
    yield from _lying(o, _engine(o))
    yield from _lying(o, _copied(o))
    yield from _lying(o, _shallow(o))
    yield from _lying(o, _small(o))


def _engine(o: Orders) -> Iterator[Changes]:
    """Tiles by the tensor memory accelerator, as they lie."""
    use = ENGINE if o.a == ROW else ENGINE - {"alongK"} | {"transposeA"}
    apart = {"pad_b": 4} if o.b == COL else {}
    if o.b == COL:
        use = use | {"cpasync", "spread"}
    if o.c == COL:
        use = use | {"stageC"}
    tiles = ENGINE_TILES if o.a == ROW else ENGINE_TILES[:6] + COLUMN_TILES
    for tile in tiles:
        least = 2 if tile.sums > 64 and tile.threads <= 128 else 0
        made = {**tile.changes, "use": use, "stages": 3, "unroll": 8, "min_blocks": least, **apart}
        yield made
        if o.b == COL and tile.block[:2] in ((128, 128), (64, 128), (64, 64)) and tile.sums >= 64:
            yield {**made, "use": use - {"spread"}}
            for bk, stages in ((16, 4), (8, 4)):
                yield {**made, "block": (*tile.block[:2], bk), "stages": stages}
        if tile.block[:2] in ((128, 128), (64, 128), (64, 64), (32, 128), (128, 64), (32, 64)) and tile.sums >= 64:
            if o.c == ROW:
                yield from _split(made, 2, 4, 8, how="clusterReduce")
            yield from _split(made, 2, 4, 8, 16)


def _copied(o: Orders) -> Iterator[Changes]:
    """Tiles by cp.async, transposed on their way where they do not lie as they are read."""
    for tile in COPIED_TILES:
        use = TRANSPOSED | {"cpasync", "prefetch", "spread"}
        made = {**tile.changes, "use": use, "stages": 3, **_apart(o)}
        yield made
        yield {**made, "use": use | {"snake"}}
        if tile.block[:2] in ((128, 128), (64, 64)) and o.b == COL:
            yield from _split(made, 2, 4, 8)


def _shallow(o: Orders) -> Iterator[Changes]:
    """K up to 32 as one tile: no ring, and whole lines of C at a time."""
    use = frozenset({"coalescing", "smem", "transposeA", "float4"})
    for (bm, bn), thread in (((32, 128), (4, 4)), ((64, 128), (8, 4)), ((32, 128), (16, 1)), ((16, 256), (16, 1))):
        lying = {"block": (bm, bn), "thread": thread} if o.c == ROW else {"block": (bn, bm), "thread": thread[::-1]}
        for bk in (4, 8, 16, 32):
            yield {**lying, "block": (*lying["block"], bk), "use": use, **_apart(o)}


def _small(o: Orders) -> Iterator[Changes]:
    """Hardly any work, in one launch: small tiles, and a cluster along K."""
    use = frozenset({"coalescing", "smem", "transposeA", "float4", "cpasync", "prefetch"})
    for block, thread in (
        ((16, 16, 32), (2, 2)),
        ((32, 32, 32), (2, 4)),
        ((32, 32, 64), (2, 4)),
        ((16, 32, 64), (2, 2)),
    ):
        made = {"block": block, "thread": thread, "use": use, "stages": 3, **_apart(o)}
        yield made
        yield from _split(made, 2, 4, 8, how="clusterReduce")


# --- Few rows, and by swapping few columns ----------------------------------------------------------------------------


def _few_rows(o: Orders) -> Iterator[Changes]:
    if o.b == ROW:
        yield from _lying(o, _streamed(o))
        yield from _lying(o, _narrow(o))
    else:
        yield from _lying(o, _shared_sums())


def _streamed(o: Orders) -> Iterator[Changes]:
    """B straight into registers, A through shared memory."""
    use = frozenset({"coalescing", "smem", "transposeA", "float4", "directB", "cpasync"})
    for rows, columns, tm in ((1, 256, 1), (4, 256, 4), (8, 256, 8), (16, 256, 16)):
        made = {"block": (rows, columns, 32), "thread": (tm, 4), "unroll": 8, "use": use, "stages": 2}
        yield made
        yield from _split(made, 4, 16)


def _shared_sums() -> Iterator[Changes]:
    """Lanes along K, several columns of B each: A through shared memory, or few rows straight into registers."""
    use = frozenset({"coalescing", "float4"})
    for tm, tn, groups, lanes, unroll in (
        (1, 4, 4, 32, 512), (1, 2, 8, 32, 512), (1, 1, 8, 32, 1024), (1, 4, 8, 16, 256),
        (2, 4, 4, 32, 256), (4, 4, 4, 32, 256), (4, 2, 8, 32, 256), (8, 2, 4, 32, 256),
    ):  # fmt: skip
        made = {"block": (tm, tn * groups, 1), "thread": (tm, tn), "lanes_k": lanes, "unroll": unroll, "use": use}
        yield made
        yield from _split(made, 4)
    staged = use | {"smem", "directB", "cpasync"}
    for bm, bn, bk, (tm, tn), lanes, unroll in (
        (1, 32, 512, (1, 4), 32, 0), (4, 32, 256, (4, 4), 32, 0), (8, 32, 256, (8, 4), 32, 0),
        (8, 64, 128, (8, 4), 8, 0), (8, 32, 128, (8, 2), 8, 0), (16, 32, 256, (16, 4), 32, 0),
        (16, 64, 128, (16, 4), 8, 64), (16, 32, 128, (16, 2), 8, 64), (16, 64, 128, (8, 4), 8, 64),
        (16, 64, 128, (16, 4), 16, 64), (32, 64, 64, (16, 4), 8, 32), (32, 64, 64, (8, 8), 8, 32),
        (64, 64, 64, (16, 4), 8, 32), (64, 64, 64, (8, 8), 8, 32), (64, 64, 64, (8, 8), 4, 32),
        (64, 128, 64, (16, 8), 8, 32),
    ):  # fmt: skip
        made = {"block": (bm, bn, bk), "thread": (tm, tn), "lanes_k": lanes, "unroll": unroll, "use": staged}
        made |= {"stages": 2}
        yield made
        yield from _split(made, 2, 4, 8)


def _narrow(o: Orders) -> Iterator[Changes]:
    """Narrow tiles by cp.async."""
    for tile in SKINNY_TILES:
        if tile.block[0] > 16:
            continue
        pad = 4 if tile.block[0] > 1 and o.a == ROW else 0
        use = TRANSPOSED | {"cpasync", "prefetch"}
        made = {**tile.changes, "use": use, "stages": 3, "pad_a": pad}
        yield made
        yield from _split(made, 4, 8)
