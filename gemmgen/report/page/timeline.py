"""A timeline of the stages: which tile of K each stage holds, when it is copied and when it is multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.isa.table import Completion
from gemmgen.report.page.svg import Drawing
from gemmgen.report.page.tiles import Picture

if TYPE_CHECKING:
    from gemmgen.tile.program import TileProgram

STEP, ROW, LEFT, TOP = 62.0, 26.0, 84.0, 34.0
SHOWN = 8
"""Steps along K that are drawn."""


@dataclass(frozen=True)
class Bar:
    """Tile ``tile`` in a row of the picture from step ``start`` to step ``end``: copied ("copying") or multiplied."""

    row: int
    tile: int
    start: float
    end: float
    what: str


def timeline(p: TileProgram, name: str) -> Picture | None:
    """The picture of a kernel that copies tiles ahead of their use; None for one that does not."""
    if not p.copies or p.pipeline.depth < 2:
        return None
    rows = [f"stage {i}" for i in range(p.pipeline.depth)] + (["registers"] if _through_registers(p) else [])
    d = Drawing(LEFT + SHOWN * STEP + 6, TOP + len(rows) * ROW + 8)
    d.text(2, 14, "step along K", "tiny")
    for step in range(SHOWN):
        x = LEFT + step * STEP
        d.text(x + STEP / 2, 14, str(step), "label mid")
        d.line((x, 22), (x, TOP + len(rows) * ROW), "grid")
    for i, row in enumerate(rows):
        d.text(2, TOP + i * ROW + 15, row, "label")
    for bar in bars(p):
        x, width = LEFT + bar.start * STEP, (bar.end - bar.start) * STEP
        y = TOP + bar.row * ROW
        of = f' data-k="{bar.what} {bar.tile}"'  # what the page's script looks for
        d.rect(x + 1, y, width - 2, ROW - 5, bar.what, f"tile {bar.tile}: {bar.what}", radius=2, data=of)
        if width > 14:
            d.text(x + width / 2, y + 14.5, str(bar.tile), f"tiny mid on-{bar.what}")
    caption = _caption(p)
    svg = d.render(f"{name}-timeline", f"Timeline of the stages of {p.name}", caption, "timeline")
    return Picture("Timeline of the stages", caption, svg)


def _through_registers(p: TileProgram) -> bool:
    return all(c.via.lands is Completion.NOW for c in p.copies)


def bars(p: TileProgram) -> list[Bar]:
    """The bars of the first steps: copies through registers, in groups of cp.async, or by the TMA engine."""
    depth, found = p.pipeline.depth, []
    for tile in range(SHOWN + depth):
        stage = tile % depth
        found.append(Bar(stage, tile, tile, tile + 1, "multiplied"))
        if _through_registers(p):
            if tile:
                found.append(Bar(depth, tile, tile - 1, tile - 0.25, "copying"))
                found.append(Bar(stage, tile, tile - 0.25, tile, "copying"))
        else:
            # cp.async fills the stage read in the step before; the TMA engine refills a stage right after its use.
            ahead = depth if any(c.via.lands is Completion.BARRIER for c in p.copies) else depth - 1
            start = max(tile - ahead + (1 if ahead == depth else 0), 0)
            if start < tile:
                found.append(Bar(stage, tile, start, tile, "copying"))
    return [_cut(b) for b in found if b.start < SHOWN]


def _cut(b: Bar) -> Bar:
    return Bar(b.row, b.tile, b.start, min(b.end, SHOWN), b.what)


def _caption(p: TileProgram) -> str:
    depth, before = p.pipeline.depth, p.pipeline.depth - 1
    if _through_registers(p):
        how = (
            "During a step the next tile is loaded from global memory into registers; at its end the registers are "
            "stored to the other stage. One barrier per step separates the two."
        )
    elif any(c.via.lands is Completion.BARRIER for c in p.copies):
        how = "The TMA engine refills a stage as soon as its tile is multiplied" + (
            "; each warp releases a stage by itself, without a block barrier."
            if p.pipeline.release
            else ", after a barrier of the block."
        )
    else:
        tiles = "tile" if before == 1 else f"{before} tiles"
        how = f"cp.async copies the next {tiles} while a tile is multiplied; each step waits for the oldest group."
    return (
        f"{depth} stages of shared memory. A number is a tile of K; a light bar is its copy in flight, a dark one its "
        f"multiplication. {how} The first copies, before step 0, are not drawn. Lengths are not to scale."
    )
