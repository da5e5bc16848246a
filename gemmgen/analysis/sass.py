"""The main loop of a kernel as compiled, read from its SASS: what its instructions are, and what its registers cost.

Text as nvdisasm prints it; pure functions of it. The main loop is the one with most FFMA, and of nested loops the inner
one where that has at least half of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LINE = re.compile(r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*?)\s*;")
_LABEL = re.compile(r"^(?P<name>\.L_x_\d+|\.L_\d+):")
_TARGET = re.compile(r"`\((?P<name>\.L_\w+)\)")
_REGISTER = re.compile(r"R(?P<number>\d+)(?P<reuse>\.reuse)?")

BANKS = 2
"""Register banks of a quarter of an SM; a register is in bank number mod 2."""
SLACK = 1
"""Clocks by which reads may run behind the instruction that needs them before the next one waits."""

WIDTHS = {"": 32, "64": 64, "128": 128, "U8": 8, "S8": 8, "U16": 16, "S16": 16}


@dataclass(frozen=True)
class Instruction:
    """One line of SASS: byte address, predicate ("@!P0" or ""), opcode with its modifiers, operands as text."""

    at: int
    predicate: str
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The opcode without modifiers: LDS of LDS.128."""
        return self.opcode.partition(".")[0]

    @property
    def bits(self) -> int:
        """Bits a lane that a load, store or copy moves."""
        return next((WIDTHS[m] for m in self.opcode.split(".")[1:] if m in WIDTHS and m), 32)


@dataclass(frozen=True)
class Loop:
    """A loop of the SASS: its instructions, those of inner loops included."""

    instructions: tuple[Instruction, ...]

    @property
    def ffma(self) -> int:
        return sum(i.name == "FFMA" for i in self.instructions)

    def within(self, other: Loop) -> bool:
        """Whether it is the other loop or one inside it."""
        first, last = other.instructions[0].at, other.instructions[-1].at
        return first <= self.instructions[0].at and self.instructions[-1].at <= last


@dataclass(frozen=True)
class MainLoop:
    """What the hottest loop is made of, a turn of it.

    ``accesses`` counts memory instructions by name and bits a lane: ("LDS", 128) -> 32. ``idle_loads`` are loads of
    shared memory that load nothing, in a turn of the outermost loop around it. ``port_cycles`` is how long its
    FFMAs take by the rule of the register ports, a scheduler issuing one a clock at best. ``spills`` are loads and
    stores of local memory, in the whole kernel.
    """

    first: int
    last: int
    instructions: int
    ffma: int
    accesses: Mapping[tuple[str, int], int]
    barriers: int
    port_cycles: float
    spills: int
    idle_loads: int = 0

    @property
    def share(self) -> float:
        """FFMAs of all instructions."""
        return self.ffma / self.instructions

    @property
    def port_stall(self) -> float:
        """Clocks a FFMA beyond one, lost to register ports."""
        return max(0.0, self.port_cycles / self.ffma - 1) if self.ffma else 0.0

    def per_ffma(self, name: str) -> dict[int, float]:
        """Instructions of one name for each FFMA, by bits a lane."""
        return {bits: n / self.ffma for (of, bits), n in self.accesses.items() if of == name} if self.ffma else {}

    def to_dict(self) -> dict[str, Any]:
        """Plain data: accesses as {"LDS.128": 32}, addresses in bytes."""
        return {
            "first": self.first,
            "last": self.last,
            "instructions": self.instructions,
            "ffma": self.ffma,
            "ffma_share": self.share,
            "accesses": {f"{name}.{bits}": n for (name, bits), n in sorted(self.accesses.items())},
            "barriers": self.barriers,
            "register_port_cycles_per_ffma": self.port_cycles / self.ffma if self.ffma else None,
            "spill_instructions": self.spills,
        }


MEMORY = ("LDS", "STS", "LDG", "STG", "LDGSTS", "LDL", "STL", "LD", "ST", "UTMALDG", "UBLKCP", "LDSM", "RED", "REDG")
NEVER = "@!PT"
"""The predicate of instructions that only fill slots: the compiler puts such loads before LDGSTS."""
BARRIERS = ("BAR", "SYNCS", "WARPSYNC")


def parse(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions of a kernel, and for each label the index of the instruction it stands before."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label["name"]] = len(found)
        elif match := _LINE.search(line):
            found.append(_instruction(int(match["at"], 16), match["text"].split()))
    return found, labels


def _instruction(at: int, words: Sequence[str]) -> Instruction:
    predicate, rest = (words[0], words[1:]) if words and words[0].startswith("@") else ("", words)
    return Instruction(at, predicate, rest[0] if rest else "", " ".join(rest[1:]))


def loops(text: str) -> list[Loop]:
    """The loops of a kernel: from the target of each branch backwards to the branch."""
    code, labels = parse(text)
    spans = set()
    for index, i in enumerate(code):
        target = _TARGET.search(i.operands) if i.name == "BRA" else None
        start = labels.get(target["name"]) if target else None
        if start is not None and start <= index:
            spans.add((start, index))
    return [Loop(tuple(code[a : b + 1])) for a, b in sorted(spans)]


def main_loop(text: str) -> MainLoop | None:
    """The loop with most FFMA; None where no loop has one."""
    found = [loop for loop in loops(text) if loop.ffma]
    if not found:
        return None
    most = max(found, key=lambda loop: loop.ffma)
    inner = [loop for loop in found if loop.within(most) and 2 * loop.ffma >= most.ffma]
    hot = min(inner, key=lambda loop: len(loop.instructions))
    code = hot.instructions
    names = Counter((i.name, i.bits) for i in code if i.name in MEMORY and i.predicate != NEVER)
    return MainLoop(
        first=code[0].at,
        last=code[-1].at,
        instructions=len(code),
        ffma=hot.ffma,
        accesses=dict(names),
        barriers=sum(i.name in BARRIERS for i in code),
        port_cycles=port_cycles(code),
        spills=sum(i.name in ("LDL", "STL") for i in parse(text)[0]),
        idle_loads=sum(i.name == "LDS" and i.predicate == NEVER for i in most.instructions),
    )


def port_cycles(code: Iterable[Instruction]) -> float:
    """Clocks that the FFMAs of ``code`` take a scheduler, one warp after another, as their register reads allow.

    Each of two banks gives one 32-lane register a clock. An operand flagged ``.reuse`` stays at hand for the same place
    of the next instruction; the zero register and a register named twice in one bank and instruction cost nothing more.
    Reads may run one clock behind, so that two FFMAs of 2 + 1 and 1 + 2 reads take 3 clocks.
    """
    kept: dict[int, int] = {}
    busy = [0.0] * BANKS
    now = 0.0
    spent = 0.0
    for i in code:
        sources = _sources(i)
        if i.name == "FFMA":
            reads = {number for place, (number, _) in sources.items() if kept.get(place) != number}
            for bank in range(BANKS):
                busy[bank] = max(busy[bank], now) + sum(number % BANKS == bank for number in reads)
            then = max(now + 1, *(b - SLACK for b in busy))
            spent += then - now
            now = then
        else:
            now += 1
        kept = {place: number for place, (number, reuse) in sources.items() if reuse}
    return spent


def _sources(i: Instruction) -> dict[int, tuple[int, bool]]:
    """The registers an instruction reads: place -> (number, flagged for reuse). The first operand is written."""
    found = {}
    for place, operand in enumerate(i.operands.split(",")[1:]):
        match = _REGISTER.search(operand)
        if match:
            found[place] = (int(match["number"]), match["reuse"] is not None)
    return found
