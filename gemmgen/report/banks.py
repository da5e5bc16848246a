"""The lane-to-bank map of a shared access as text."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.analysis.banks import BankMap, Phase
from gemmgen.isa.memory import BANKS
from gemmgen.report.colour import paint
from gemmgen.text.numbers import counted
from gemmgen.text.wrap import columns, wrapped

CELL = 3
MARGIN = 12


LEGEND = "cell: the lane that its bank serves in that wavefront; 16+: more lanes access the same word; .: none"


def map_text(m: BankMap, colour: bool = False, width: int | None = None) -> str:
    """A row per wavefront and a column per bank; a cell names the lane that is served there.

    Where several lanes access the same word, the cell names the first, with a ``+``. A bank with several words in a
    phase has a conflict and is red. Banks that do not fit ``width`` (None: the terminal's) follow in a second table.
    """
    at_once = BANKS
    while at_once > 4 and MARGIN + CELL * at_once > (columns() if width is None else width):
        at_once //= 2
    lines: list[str] = []
    for first in range(0, BANKS, at_once):
        banks = range(first, first + at_once)
        lines += [f"{'bank':<{MARGIN}}" + "".join(f"{bank:>{CELL}}" for bank in banks), *_rows(m, banks, colour)]
    return "\n".join([*(line.rstrip() for line in lines), wrapped(summary(m), width)])


def _rows(m: BankMap, banks: range, colour: bool) -> Iterator[str]:
    number = 0
    for phase in m.phases:
        for turn in range(phase.wavefronts):
            number += 1
            cells = "".join(_cell(phase, bank, turn, colour) for bank in banks)
            yield f"wavefront{number:>2} " + cells


def _cell(phase: Phase, bank: int, turn: int, colour: bool) -> str:
    words = phase.banks[bank]
    if turn >= len(words):
        return f"{'.':>{CELL}}"
    lanes = words[turn][1]
    text = f"{lanes[0]}{'+' if len(lanes) > 1 else ''}"
    return paint(f"{text:>{CELL}}", "red" if len(words) > 1 else "green", colour)


def summary(m: BankMap) -> str:
    """The verdict, then the counts behind it."""
    lanes = sum(word is not None for word in m.words)
    conflict = "no bank conflict" if m.ways == 1 else f"{m.ways:.3g}-way bank conflict"
    return (
        f"{conflict}: {counted(m.wavefronts, 'wavefront')}, {m.ideal} without conflicts; "
        f"{counted(lanes, 'lane')} {'store' if m.store else 'load'} {m.bytes} bytes each, "
        f"in {counted(len(m.phases), 'phase')}"
    )
