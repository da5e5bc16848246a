"""The lane-to-bank map of a shared access, drawn in text."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.analysis.banks import BankMap, Phase
from gemmgen.analysis.paragraph import counted
from gemmgen.isa.memory import BANKS
from gemmgen.report.colour import paint

CELL = 3
MARGIN = 12


LEGEND = "a cell names the lane that its bank serves in that wavefront; 16+: others asked for the same word; .: none"


def map_text(m: BankMap, colour: bool = False) -> str:
    """A row for each wavefront, a column for each bank; a cell names the lane that is served there.

    Where several lanes ask for the same word the first is named, with a ``+``. A bank of which more than one word is
    asked in a phase has a conflict, and is red.
    """
    lines = [f"{'bank':<{MARGIN}}" + "".join(f"{bank:>{CELL}}" for bank in range(BANKS)), *_rows(m, colour), summary(m)]
    return "\n".join(line.rstrip() for line in lines)


def _rows(m: BankMap, colour: bool) -> Iterator[str]:
    number = 0
    for phase in m.phases:
        for turn in range(phase.wavefronts):
            number += 1
            cells = "".join(_cell(phase, bank, turn, colour) for bank in range(BANKS))
            yield f"wavefront{number:>2} " + cells


def _cell(phase: Phase, bank: int, turn: int, colour: bool) -> str:
    words = phase.banks[bank]
    if turn >= len(words):
        return f"{'.':>{CELL}}"
    lanes = words[turn][1]
    text = f"{lanes[0]}{'+' if len(lanes) > 1 else ''}"
    return paint(f"{text:>{CELL}}", "red" if len(words) > 1 else "green", colour)


def summary(m: BankMap) -> str:
    """How it is served, in a line."""
    lanes = sum(word is not None for word in m.words)
    what = "store" if m.store else "load"
    conflict = "no bank conflict" if m.ways == 1 else f"{m.ways:.3g}-way bank conflict"
    return (
        f"a {what} of {4 * m.width} bytes by {counted(lanes, 'lane')}, in {counted(len(m.phases), 'phase')}: "
        f"{counted(m.wavefronts, 'wavefront')}, {m.ideal} ideal: {conflict}"
    )
