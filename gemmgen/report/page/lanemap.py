"""Which lane accesses which sector, or which bank: one picture per access of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemmgen.isa import memory
from gemmgen.report.page.patterns import Pattern, Phase, phases, runs, sectors
from gemmgen.report.page.svg import PITCH, Cell, Drawing

CELL, ROW, GUTTER = PITCH, 14.0, 88.0
LINE_WORDS = memory.LINE // memory.BANK_BYTES
SECTOR_WORDS = memory.SECTOR // memory.BANK_BYTES


@dataclass(frozen=True)
class LaneMap:
    """A picture of one access. ``ways``: its cost over the least possible. ``alternative``: the same, lane by lane, as
    text."""

    caption: str
    alternative: str
    svg: str
    ways: float


def lane_map(p: Pattern, name: str, what: str) -> LaneMap:
    """The picture of a pattern; ``name`` is its id, ``what`` the access in words."""
    return bank_map(p, name, what) if p.access.array.space == "shared" else sector_map(p, name, what)


def lanes_text(lanes: Sequence[int]) -> str:
    if len(lanes) == 1:
        return f"lane {lanes[0]}"
    whole = list(lanes) == list(range(lanes[0], lanes[-1] + 1))
    return f"lanes {lanes[0]} to {lanes[-1]}" if whole else f"lanes {', '.join(map(str, lanes))}"


def cell_text(lanes: Sequence[int]) -> str:
    """The text of a cell: the lane, or the number of lanes."""
    return str(lanes[0]) if len(lanes) == 1 else f"\u00d7{len(lanes)}"


def where(p: Pattern) -> str:
    return f"warp {p.warp} of block {p.block}"


# --- Global memory: sectors ---------------------------------------------------------------------------------------


def sector_map(p: Pattern, name: str, what: str) -> LaneMap:
    """One row per 128-byte line: its four sectors of eight words, moved or not, used or not."""
    words, moved = p.lanes_by_word(), set(sectors(p))
    lines = sorted({word // LINE_WORDS for word in words})
    d = Drawing(GUTTER + LINE_WORDS * CELL + 4 * 6, 20 + len(lines) * ROW + 4)
    for i in range(4):
        d.text(GUTTER + i * (SECTOR_WORDS * CELL + 6) + 2, 12, f"sector {i}", "tiny")
    d.text(2, 12, "line at byte", "tiny")
    first = lines[0] * memory.LINE
    for at, line in enumerate(lines):
        y = 20 + at * ROW
        d.text(2, y + 10, "+0" if at == 0 else f"+{line * memory.LINE - first:,}", "tiny")
        for i in range(LINE_WORDS // SECTOR_WORDS):
            _sector(d, GUTTER + i * (SECTOR_WORDS * CELL + 6), y, line * (LINE_WORDS // SECTOR_WORDS) + i, words, moved)
    bytes_moved, bytes_used = memory.SECTOR * len(moved), memory.BANK_BYTES * len(words)
    caption = (
        f"{what}, {where(p)}: {_count(len(moved), 'sector')} of 32 bytes in {_count(len(lines), 'line')} of 128; "
        f"{bytes_used:,} of {bytes_moved:,} bytes moved are used ({bytes_used / bytes_moved:.0%})."
    )
    ideal = -(-bytes_used // memory.SECTOR)
    alternative = "; ".join(runs(p))
    svg = d.render(name, f"Lanes and sectors: {what}", caption, "lanes")
    return LaneMap(caption, alternative, svg, len(moved) / ideal)


def _sector(d: Drawing, x: float, y: float, sector: int, words: Mapping[int, list[int]], moved: set[int]) -> None:
    is_moved = sector in moved
    all_used = all(sector * SECTOR_WORDS + i in words for i in range(SECTOR_WORDS))
    if not all_used:
        d.rect(x, y, SECTOR_WORDS * CELL - 1, ROW - 1, "wasted" if is_moved else "still")
    used = {i: lanes for i in range(SECTOR_WORDS) if (lanes := words.get(sector * SECTOR_WORDS + i)) is not None}
    if used:
        d.cells(x, y, "used", _cells(used))


def _cells(lanes_at: Mapping[int, Sequence[int]]) -> list[Cell]:
    """A cell for each word of a row, in order; neighbours that the same lanes access are one."""
    found: list[Cell] = []
    for at, lanes in sorted(lanes_at.items()):
        cell, last = Cell(at * CELL, cell_text(lanes), " ".join(map(str, lanes))), found[-1] if found else None
        if last is not None and last.lanes == cell.lanes and last.x + last.span * CELL == cell.x:
            found[-1] = replace(last, span=last.span + 1)
        else:
            found.append(cell)
    return found


# --- Shared memory: banks -----------------------------------------------------------------------------------------


def bank_map(p: Pattern, name: str, what: str) -> LaneMap:
    """One row per wavefront of each phase: the words that the 32 banks deliver."""
    served = [phase for phase in phases(p) if phase.turns]
    rows = sum(len(phase.turns) for phase in served)
    d = Drawing(GUTTER + memory.BANKS * CELL + 4, 20 + rows * ROW + 5 * len(served))
    d.text(2, 12, "bank", "tiny")
    d.texts(GUTTER + CELL / 2, 12, "heads", CELL, [str(bank) for bank in range(memory.BANKS)])
    y = 20.0
    for phase in served:
        for turn, words in enumerate(phase.turns):
            _bank_row(d, y, words, turn, _row_name(phase, turn))
            y += ROW
        y += 5
    ideal = memory.ideal_wavefronts(p.words, p.width, p.access.op == "store")
    caption = f"{what}, {where(p)}: {_count(rows, 'wavefront')}, {ideal} without conflicts: {_conflict(rows, ideal)}."
    alternative = "; ".join(runs(p))
    svg = d.render(name, f"Lanes and banks: {what}", caption, "lanes bank")
    return LaneMap(caption, alternative, svg, rows / ideal)


def _row_name(phase: Phase, turn: int) -> str:
    return f"lanes {phase.lanes[0]}\u2013{phase.lanes[-1]}" if turn == 0 else f"  wavefront {turn + 1}"


def _bank_row(d: Drawing, y: float, words: Mapping[int, tuple[int, list[int]]], turn: int, name: str) -> None:
    d.text(2, y + 10, name, "tiny" if turn == 0 else "tiny conflict-text")
    if len(words) < memory.BANKS:
        d.rect(GUTTER, y, memory.BANKS * CELL - 1, ROW - 1, "still")
    d.cells(GUTTER, y, "conflict" if turn else "used", _cells({bank: lanes for bank, (_, lanes) in words.items()}))


def _conflict(rows: int, ideal: int) -> str:
    return "no bank conflict" if rows == ideal else f"a {rows / ideal:.3g}-way bank conflict"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
