"""The pool: specs of which a choice for any shape is made, by the layout of A and B.

A layout is two letters, of A and of B: ``n`` for a matrix stored by rows, ``t`` for one stored by columns (a transposed
view). A spec whose C is stored by columns computes C^T = B^T A^T: it is called with B^T, A^T and C^T.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gemmgen.ir.types import F32, VECTOR_BYTES, Order
from gemmgen.spec.model import ORDERS, Operand, Spec
from gemmgen.spec.replace import tried
from gemmgen.tune.tiles import COLUMN_TILES, COPIED_TILES, ENGINE, ENGINE_TILES, SKINNY_TILES, TRANSPOSED, Tile

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


def layout_of(shape: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int]) -> Layout:
    """How A and B with these strides, in elements, lie. A vector, which lies both ways, is read along itself; what has
    no stride of 1 is copied, into rows."""
    m, n, k = shape
    by_rows_a = a[1] == 1 and not (a[0] == 1 and k == 1 and m > 1)
    by_rows_b = b[1] == 1 and not (b[0] == 1 and n == 1 and k > 1)
    letters = ("n" if by_rows_a or a[0] != 1 else "t") + ("n" if by_rows_b or b[0] != 1 else "t")
    return next(x for x in LAYOUTS if x == letters)


def swaps(spec: Spec) -> bool:
    """Whether a spec of the pool is called with B^T, A^T and C^T in place of A, B and C."""
    return spec.C.order == COL


def pool(layout: Layout, name: str = "matmul") -> list[Spec]:
    """The specs of a layout, each once, in a fixed order."""
    orders = orders_of(layout)
    made: dict[Spec, None] = {}
    for changes in (*_tiles(orders), *_few_rows(orders), *_few_rows(orders.swapped)):
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


def _split(changes: Changes, parts: Iterable[int], how: str = "dependentLaunch") -> Iterator[Changes]:
    """K whole, and in so many parts."""
    for n in parts:
        yield changes if n == 1 else {**changes, "split_k": n, "use": changes["use"] | {how}}


# --- Tiles for middle and large sizes ---------------------------------------------------------------------------------


def _tiles(o: Orders) -> Iterator[Changes]:
    rows = Orders(ROW, ROW)
    match o.a, o.b:
        case ("row", "row"):
            yield from _lying(o, _engine())
        case ("col", "row"):
            yield from _lying(o, _columns_of_a())
        case ("row", "col"):  # B as it lies where K is shared by lanes; for large sizes a transposed copy pays
            yield from _lying(o, (x for block in LANE_BLOCKS for x in _along_k(o, *block, parts=(1, 2, 4))))
            yield from _lying(rows, _copies_of_b())
            yield from _lying(o, _beside())
        case _:  # the product of rows, with C by columns: lanes along N read B best
            for staged in ({"stageC"}, set()):
                yield from _lying(o.swapped, _engine(frozenset(staged), {"lane_walk": "n"}))
    o = o.swapped if (o.a, o.b) == (COL, COL) else o
    if o.b == ROW:
        yield from _lying(o, (x for block in LANE_BLOCKS[:3] for x in _along_k(o, *block, parts=(1, 2))))
    yield from _lying(o, _copied(o))
    yield from _lying(o, _shallow(o))
    yield from _lying(o, _small(o))


def _engine(more: frozenset[str] = frozenset(), how: Changes | None = None) -> Iterator[Changes]:
    """Tiles by the tensor memory accelerator, A read along K."""
    for tile in ENGINE_TILES:
        made = {**_made(tile), "use": ENGINE | more, **(how or {})}
        yield made
        match tile.block[:2], tile.warp:
            case ((128, 128) | (64, 128), (32, 128)):
                yield from _split(made, (2, 4, 8, 16))
            case ((64, 64) | (32, 64) | (128, 64), (32, 64)):
                yield from _split(made, (2, 4, 8))
                if not more:
                    yield from _split(made, (2, 4), "clusterReduce")


def _columns_of_a() -> Iterator[Changes]:
    """The same with A's rows side by side."""
    for tile in COLUMN_TILES:
        made = {**_made(tile), "use": ENGINE - {"alongK"} | {"transposeA"}}
        yield made
        if tile.block[2] == 32:
            yield from _split(made, (2, 4, 8) if tile.block[1] == 128 else (2, 4))


def _made(tile: Tile) -> Changes:
    """Two blocks per SM of 128 threads leave each thread all of its 255 registers."""
    least = 2 if tile.sums > 64 and tile.threads <= 128 else 0
    return {**tile.changes, "stages": 3, "unroll": 8, "min_blocks": least}


def _copies_of_b() -> Iterator[Changes]:
    for tile in ENGINE_TILES:
        if tile.warp in ((32, 128), (32, 96), (32, 160)) and tile.block[0] >= 64:
            yield from _split({**_made(tile), "use": ENGINE}, (1, 2, 4) if tile.block[1] == 128 else (1,))


def _beside() -> Iterator[Changes]:
    """A by the tensor memory accelerator, and B, transposed, by cp.async beside it."""
    for tile in ENGINE_TILES[:2]:
        made = {**_made(tile), "use": ENGINE | {"cpasync"}, "pad_b": 4}
        yield from _split(made, (1, 4))


def _copied(o: Orders) -> Iterator[Changes]:
    """Tiles by cp.async, transposed on their way where they do not lie as they are read."""
    use = TRANSPOSED | {"cpasync", "prefetch", "spread"}
    for tile in COPIED_TILES:
        if tile.block in ((128, 256, 8), (128, 128, 8), (64, 64, 16), (32, 32, 32)) and tile.warp[1] < 128:
            made = {**tile.changes, "use": use, "stages": 3, **_apart(o)}
            yield from _split(made, (1, 4, 8) if tile.block == (64, 64, 16) else (1,))


def _shallow(o: Orders) -> Iterator[Changes]:
    """K up to 32 as one tile: no ring, and whole lines of C at a time."""
    use = frozenset({"coalescing", "smem", "transposeA", "float4"})
    for (bm, bn), (tm, tn) in (((32, 128), (4, 4)), ((64, 128), (8, 4)), ((32, 128), (16, 1)), ((16, 256), (16, 1))):
        block, thread = ((bm, bn), (tm, tn)) if o.c == ROW else ((bn, bm), (tn, tm))
        for bk in (4, 8, 16, 32):
            yield {"block": (*block, bk), "thread": thread, "use": use, **_apart(o)}


def _small(o: Orders) -> Iterator[Changes]:
    """Hardly any work, in one launch: small tiles, and a cluster along K."""
    use = frozenset({"coalescing", "smem", "transposeA", "float4", "cpasync", "prefetch"})
    for block, thread in (((16, 16, 32), (2, 2)), ((32, 32, 32), (2, 4)), ((16, 32, 64), (2, 2))):
        made = {"block": block, "thread": thread, "use": use, "stages": 3, **_apart(o)}
        yield from _split(made, (1, 2, 4, 8), "clusterReduce")


# --- Few rows, and by swapping few columns ----------------------------------------------------------------------------


Block: TypeAlias = tuple[tuple[int, int, int], tuple[int, int], int, int]
"""Block and thread tiles, lanes along K, and stages."""

LANE_BLOCKS: tuple[Block, ...] = (
    ((32, 32, 64), (8, 8), 8, 4), ((32, 64, 32), (8, 8), 8, 4), ((64, 32, 64), (8, 8), 8, 3),
    ((64, 64, 32), (8, 8), 8, 4), ((64, 32, 32), (8, 8), 8, 4), ((32, 64, 64), (16, 4), 8, 3),
)  # fmt: skip
FEW_ROWS: tuple[Block, ...] = (
    ((4, 64, 64), (4, 4), 8, 4), ((8, 32, 128), (8, 4), 16, 3), ((8, 128, 32), (8, 4), 8, 4),
    ((8, 64, 64), (8, 4), 8, 4), ((16, 32, 128), (8, 4), 16, 3), ((16, 64, 32), (8, 8), 8, 4),
    ((16, 64, 64), (8, 4), 8, 4),
)  # fmt: skip


def _few_rows(o: Orders) -> Iterator[Changes]:
    if o.b == ROW:
        yield from _lying(o, _streamed())
        yield from _lying(o, _narrow(o))
    else:
        yield from _lying(o, _one_row())
        yield from _lying(o, (x for block in FEW_ROWS for x in _along_k(o, *block, parts=(1, 2, 4, 8))))
        if o.a == COL:
            yield from _lying(o, (x for block in LANE_BLOCKS[:3] for x in _along_k(o, *block, parts=(1, 2, 4))))


def _along_k(
    o: Orders, block: tuple[int, int, int], thread: tuple[int, int], lanes: int, stages: int, parts: Iterable[int]
) -> Iterator[Changes]:
    """Lanes along K; tiles by the tensor memory accelerator, and what is not contiguous along K by cp.async."""
    ways = {0: {"tma", "release"}, 1: {"tma", "release", "cpasync"}, 2: {"cpasync"}}
    use = frozenset({"coalescing", "smem", "float4", "transposeB"}) | ways[(o.a == COL) + (o.b == ROW)]
    made = {
        "block": block,
        "thread": thread,
        "lanes_k": lanes,
        "stages": stages,
        "unroll": lanes * F32.elements(VECTOR_BYTES),
    }
    apart = {"pad_a": 4 if o.a == COL else 0, "pad_b": 4 if o.b == ROW else 0}
    yield from _split({**made, **apart, "use": use}, parts)


def _one_row() -> Iterator[Changes]:
    """Few rows straight into registers."""
    use = frozenset({"coalescing", "float4"})
    for tm, tn, groups, unroll in ((1, 1, 8, 1024), (1, 2, 8, 512), (1, 4, 4, 512), (2, 4, 4, 256), (4, 4, 4, 256)):
        made = {"block": (tm, tn * groups, 1), "thread": (tm, tn), "lanes_k": 32, "unroll": unroll, "use": use}
        yield from _split(made, (1, 4, 16))


def _streamed() -> Iterator[Changes]:
    """B straight into registers, A through shared memory."""
    use = frozenset({"coalescing", "smem", "transposeA", "float4", "directB", "cpasync"})
    for rows, columns in ((1, 256), (4, 256), (8, 256), (16, 256)):
        made = {"block": (rows, columns, 32), "thread": (rows, 4), "unroll": 8, "use": use, "stages": 2}
        yield from _split(made, (1, 4, 16))


def _narrow(o: Orders) -> Iterator[Changes]:
    """Narrow tiles by cp.async."""
    use = TRANSPOSED | {"cpasync", "prefetch"}
    for tile in SKINNY_TILES:
        if tile.block in ((1, 256, 32), (8, 128, 32), (8, 256, 16), (16, 64, 32), (16, 128, 32), (32, 64, 32)):
            pad = 4 if tile.block[0] > 1 and o.a == ROW else 0
            yield from _split({**tile.changes, "use": use, "stages": 3, "pad_a": pad}, (1, 4, 8))
