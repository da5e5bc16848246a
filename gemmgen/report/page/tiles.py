"""Pictures of the block, warp and thread tiles, drawn from the tile program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.ir.types import WARP
from gemmgen.report.page.split import areas, owners, pieces
from gemmgen.report.page.svg import Drawing

if TYPE_CHECKING:
    from gemmgen.tile.program import TileProgram

SIDE = 190.0
"""Length of the longer side of the C tile."""
THINNEST = 9.0
MOST_CELLS = 128
"""Cells of a warp that are drawn each by itself; of more, those of further pieces are one shape."""
COLOURS = 6
"""The number of warp colours in the style sheet."""


@dataclass(frozen=True)
class Picture:
    """A drawing with its title, and a caption that states the same as text."""

    title: str
    caption: str
    svg: str


def pictures(p: TileProgram, name: str) -> list[Picture]:
    """The three pictures of a kernel; ``name`` starts their ids."""
    return [block_picture(p, name), warp_picture(p, name), thread_picture(p, name)]


# --- Block --------------------------------------------------------------------------------------------------------


def block_picture(p: TileProgram, name: str) -> Picture:
    """C's tile coloured by warp, A's tile on its left, B's above it, and what thread 0 reads of them."""
    (bm, bn, bk), level = p.block, p.product.level("thread")
    scale = SIDE / max(bm, bn)
    depth = min(SIDE / 2, max(24.0, bk * scale)) if p.buffers else 46.0
    left, top = 58 + depth + 8, 20 + depth + 8
    d = Drawing(left + bn * scale + 8, top + bm * scale + _drop(bm * scale) + 10)
    cell = level.m * scale, level.n * scale
    for area in areas(p):
        x, y, width, height = area.col * cell[1], area.row * cell[0], area.cols * cell[1], area.rows * cell[0]
        title = f"warp {area.warp}"
        d.rect(left + x, top + y, width, height, f"warp warp-{area.warp % COLOURS}", title)
        if width >= 18 and height >= 11:
            d.text(left + x + width - 4, top + y + height / 2 + 3.5, str(area.warp), "label end")
    d.rect(left, top, bn * scale, bm * scale, "frame")
    _operands(d, p, (left, top), (bn * scale, bm * scale), depth)
    own = [(piece.col * scale, piece.row * scale) for piece in pieces(p, 0)]
    width, height = max(3.0, level.n * scale), max(3.0, level.m * scale)
    d.blocks([(left - depth - 8, top + y) for y in sorted({y for _, y in own})], depth, height, "mine-a")
    d.blocks([(left + x, top - depth - 8) for x in sorted({x for x, _ in own})], width, depth, "mine-b")
    d.blocks([(left + x, top + y) for x, y in own], width, height, "mine")
    caption = (
        f"A block computes {bm} x {bn} elements of C with {p.threads} threads, {p.threads / WARP:g} "
        f"warp{'s' if p.threads > WARP else ''} (numbered, one colour each). {_staged(p)} "
        "Strong colours: the elements that thread 0 computes, and the rows of A and columns of B that it reads."
    )
    return Picture("Block tile", caption, d.render(f"{name}-block", f"Block tile of {p.name}", caption, "tile"))


def _operands(d: Drawing, p: TileProgram, at: tuple[float, float], size: tuple[float, float], depth: float) -> None:
    (left, top), (width, height) = at, size
    kind = "staged" if p.buffers else "direct"
    d.rect(left - depth - 8, top, depth, height, kind, "A")
    d.rect(left, top - depth - 8, width, depth, kind, "B")
    bm, bn, bk = p.block
    along_k = f"BK={bk}" if p.buffers else "K"
    d.text(left - depth - 12, top + height / 2, "A", "name end")
    d.text(left - depth - 12, top + height / 2 + 14, f"BM={bm}", "label end")
    d.text(left - 8 - depth / 2, top + height + _drop(height), along_k, "label mid")
    d.text(left + width / 2, top - depth - 13, f"B   BN={bn}", "name mid")
    d.text(left - 12 - depth, top - 8 - depth / 2 + 4, along_k, "label end")
    d.text(left + width / 2, top + height + 16, "C", "name mid")


def _drop(height: float) -> float:
    """Distance of the label BK below the A tile: larger for a flat tile, whose label BM needs the room."""
    return 14 if height >= 30 else 28


def _staged(p: TileProgram) -> str:
    if not p.buffers:
        return "Each thread reads its rows of A and columns of B from global memory, for every k."
    bm, bn, bk = p.block
    times = f", {p.pipeline.depth} tiles in flight" if p.pipeline.depth > 1 else ""
    shapes = {"A": f"{bm} x {bk} of A", "B": f"{bk} x {bn} of B"}
    staged = " and ".join(shapes[b.operand] for b in p.buffers)
    rest = [f"{shapes[x]} are loaded directly into registers" for x in shapes if p.buffer(x) is None]
    said = f"Each iteration over K stages {staged} in shared memory, {p.tile_bytes:,} bytes{times}"
    return "; ".join((said, *rest)) + "."


# --- Warp ---------------------------------------------------------------------------------------------------------


def warp_picture(p: TileProgram, name: str) -> Picture:
    """The pieces of warp 0, each with its lane, and a line through consecutive lanes."""
    mine = {at: thread for at, thread in owners(p).items() if thread < WARP}
    level = p.product.level("thread")
    rows, cols = sorted({at[0] for at in mine}), sorted({at[1] for at in mine})
    width, height = min(34.0, 268 / len(cols)), min(22.0, 208 / len(rows))
    wide = len(cols) * width + 4
    numbered = width >= 14 and height >= 9
    d = Drawing(max(150.0, wide + (0 if numbered or width < 14 else 50)), len(rows) * height + (4 if numbered else 18))
    first: dict[int, tuple[float, float]] = {}
    places = {at: (2 + cols.index(at[1]) * width, 2 + rows.index(at[0]) * height) for at in sorted(mine)}
    pale: list[tuple[float, float]] = []
    for at, (x, y) in places.items():
        again = mine[at] in first
        if again and mine[at] and len(places) > MOST_CELLS:
            pale.append((x, y))
            continue
        kind = "lane lane-0" if mine[at] == 0 else "lane again" if again else "lane"
        d.rect(x, y, width, height, kind, data=f' data-l="{mine[at]}" data-c="{at[0] * level.m} {at[1] * level.n}"')
        first.setdefault(mine[at], (x + width / 2, y + height / 2))
    if pale:
        d.blocks(pale, width, height, "lane again")
    d.polyline([first[lane] for lane in sorted(first)], "way")
    for at, (x, y) in places.items():
        lane = mine[at]
        if numbered:
            d.text(x + width / 2, y + height / 2 + 3.2, str(lane), "tiny mid on-lane-0" if lane == 0 else "tiny mid")
        elif width >= 14 and lane in (0, len(first) - 1):
            d.text(x + width + 4, y + (8 if lane == 0 else height), f"lane {lane}", "tiny")
    if width < 14 and len(rows) < 3:
        d.text(2, len(rows) * height + 14, "lane 0", "tiny")
        d.text(wide - 2, len(rows) * height + 14, f"lane {len(first) - 1}", "tiny end")
    times = len(pieces(p, 0))
    said = "with the number of its lane" if numbered else "lane 0 in a strong colour"
    pieces_text = f"{times} pieces" if times > 1 else "one piece"
    caption = (
        f"Warp 0: its {min(WARP, p.threads)} lanes compute {len(rows) * level.m} x {len(cols) * level.n} elements of "
        f"C. Each lane has {pieces_text} of {level.m} x {level.n}, drawn as a cell ({said}). The line connects the "
        "lanes in order" + ("; paler cells are further pieces of the same lanes." if times > 1 else ".")
    )
    return Picture("Warp tile", caption, d.render(f"{name}-warp", f"Warp tile of {p.name}", caption, "tile"))


# --- Thread -------------------------------------------------------------------------------------------------------


def thread_picture(p: TileProgram, name: str) -> Picture:
    """A thread's outer product: its values of A on the left, of B above, and its accumulators."""
    own = pieces(p, 0)
    rows = sorted({row for piece in own for row in range(piece.row, piece.row + piece.rows)})
    cols = sorted({col for piece in own for col in range(piece.col, piece.col + piece.cols)})
    cell = min(20.0, 200 / max(len(rows), len(cols)))
    ys, xs = (_places(values, cell) for values in (rows, cols))
    left, top = 40.0, 34.0
    d = Drawing(max(150.0, left + xs[-1] + cell + 6), top + ys[-1] + cell + 6)
    d.text(left + xs[0], 11, "B: regN" if len(cols) > 1 else "B", "label")
    d.text(2, top + ys[0] + min(cell, 14) - 2, "A", "label")
    for y in ys:
        d.rect(left - cell - 6, top + y, cell - 1, cell - 1, "mine-a", "a value of A")
    for x in xs:
        d.rect(left + x, top - cell - 2 if cell < 16 else 15, cell - 1, min(cell - 1, 15), "mine-b", "a value of B")
    d.blocks([(left + x, top + y) for y in ys for x in xs], cell - 1, cell - 1, "sum")
    sums = len(rows) * len(cols)
    source = "shared memory" if p.buffers else "global memory"
    s = "s" if sums > 1 else ""
    caption = (
        f"One thread has {sums} accumulator{s} in registers ({len(rows)} x {len(cols)}). At each k it reads "
        f"{len(rows)} + {len(cols)} values from {source} for {sums} FMA{s}: "
        f"{sums / (len(rows) + len(cols)):.2g} FMAs per value."
    )
    return Picture("Thread tile", caption, d.render(f"{name}-thread", f"Thread tile of {p.name}", caption, "tile"))


def _places(values: list[int], cell: float) -> list[float]:
    """Positions of indices: side by side, with a gap between indices that are not neighbours."""
    out, at = [], 0.0
    for i, value in enumerate(values):
        if i and value != values[i - 1] + 1:
            at += 5
        out.append(at)
        at += cell
    return out
