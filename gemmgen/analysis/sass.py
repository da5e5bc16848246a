"""The main loop of a compiled kernel, read from its SASS: its instructions and its register-bank conflicts.

The input is the text that nvdisasm prints. The main loop is the loop with the most FFMAs; of nested loops it is the
inner one where that has at least half of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_LINE = re.compile(r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*?)\s*;")
_LABEL = re.compile(r"^(?P<name>\.L_x_\d+|\.L_\d+):")
_TARGET = re.compile(r"`\((?P<name>\.L_\w+)\)")
_REGISTER = re.compile(r"R(?P<number>\d+)(?P<reuse>\.reuse)?")

TENSOR = ("HMMA", "QMMA", "HGMMA", "QGMMA")
MULTIPLIES = ("FFMA", *TENSOR)
"""Multiply-adds of threads, and of warps by tensor cores."""
BANKS = 2
"""Register banks per quarter of an SM. A register is in the bank of its number mod 2."""
SLACK = 1
"""Clocks by which register reads may lag behind their instruction before the next one stalls."""

WIDTHS = {"": 32, "64": 64, "128": 128, "U8": 8, "S8": 8, "U16": 16, "S16": 16}


@dataclass(frozen=True)
class Instruction:
    """One line of SASS: byte address, predicate ("@!P0" or ""), opcode with its modifiers, operands as text."""

    at: int
    predicate: str
    opcode: str
    operands: str

    @cached_property
    def name(self) -> str:
        """The opcode without modifiers: LDS of LDS.128."""
        return self.opcode.partition(".")[0]

    @property
    def bits(self) -> int:
        """Bits per lane that a load, store or copy moves."""
        return next((WIDTHS[m] for m in self.opcode.split(".")[1:] if m in WIDTHS and m), 32)


@dataclass(frozen=True)
class Loop:
    """A loop of the SASS: its instructions, including those of inner loops."""

    instructions: tuple[Instruction, ...]

    @cached_property
    def ffma(self) -> int:
        """Instructions that multiply: FFMAs, and those of tensor cores."""
        return sum(i.name in self.ways for i in self.instructions)

    @cached_property
    def ways(self) -> tuple[str, ...]:
        """What multiplies: tensor cores, where they do; then FFMAs are of the epilogue."""
        return TENSOR if any(i.name in TENSOR for i in self.instructions) else MULTIPLIES

    def within(self, other: Loop) -> bool:
        """Whether it is the other loop or one inside it."""
        first, last = other.instructions[0].at, other.instructions[-1].at
        return first <= self.instructions[0].at and self.instructions[-1].at <= last


@dataclass(frozen=True)
class MainLoop:
    """One iteration of the hottest loop.

    ``accesses`` counts memory instructions by name and bits per lane: ("LDS", 128) -> 32. ``idle_loads`` are shared
    loads that load nothing, per iteration of the outermost loop around it. ``multiplies`` is FFMA, or HMMA of tensor
    cores, of which ``ffma`` is the number. ``port_cycles`` is the number of clocks that its FFMAs take with
    register-bank conflicts, where a scheduler issues at most one per clock. ``spills`` are loads and stores of local
    memory in the whole kernel.
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
    multiplies: str = "FFMA"

    @property
    def share(self) -> float:
        """Share of FFMAs among all instructions."""
        return self.ffma / self.instructions

    @property
    def port_stall(self) -> float:
        """Clocks per FFMA beyond one, lost to register-bank conflicts."""
        return max(0.0, self.port_cycles / self.ffma - 1) if self.ffma else 0.0

    def per_ffma(self, name: str) -> dict[int, float]:
        """Instructions of one name per FFMA, by bits per lane."""
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


def kept(loop: MainLoop | None) -> dict[str, Any]:
    """A main loop as plain data, all of it, for a cache."""
    if loop is None:
        return {}
    return vars(loop) | {"accesses": [[name, bits, n] for (name, bits), n in loop.accesses.items()]}


def of_kept(data: Mapping[str, Any]) -> MainLoop | None:
    """The main loop that ``kept`` was given."""
    return MainLoop(**{**data, "accesses": {(name, bits): n for name, bits, n in data["accesses"]}}) if data else None


MEMORY = ("LDS", "STS", "LDG", "STG", "LDGSTS", "LDL", "STL", "LD", "ST", "UTMALDG", "UBLKCP", "LDSM", "RED", "REDG")
NEVER = "@!PT"
"""The predicate of instructions that never execute: the compiler puts such loads before LDGSTS."""
BARRIERS = ("BAR", "SYNCS", "WARPSYNC")


def parse(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions of a kernel, and for each label the index of the instruction after it."""
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
    """The loops of a kernel: from the target of each backward branch to the branch."""
    return _loops(*parse(text))


def _loops(code: Sequence[Instruction], labels: Mapping[str, int]) -> list[Loop]:
    spans = set()
    for index, i in enumerate(code):
        target = _TARGET.search(i.operands) if i.opcode.startswith("BRA") and i.name == "BRA" else None
        start = labels.get(target["name"]) if target else None
        if start is not None and start <= index:
            spans.add((start, index))
    return [Loop(tuple(code[a : b + 1])) for a, b in sorted(spans)]


def main_loop(text: str) -> MainLoop | None:
    """The loop with the most FFMAs; None where no loop has one."""
    whole, labels = parse(text)
    found = [loop for loop in _loops(whole, labels) if loop.ffma]
    if not found:
        return None
    found = [loop for loop in found if loop.ways == TENSOR] or found
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
        spills=sum(i.name in ("LDL", "STL") for i in whole),
        multiplies=next(i.name for i in code if i.name in hot.ways),
        idle_loads=sum(i.name == "LDS" and i.predicate == NEVER for i in most.instructions),
    )


def port_cycles(code: Iterable[Instruction]) -> float:
    """Clocks that the FFMAs of ``code`` take one scheduler, limited by their register reads.

    Each of two banks delivers one 32-lane register per clock. An operand flagged ``.reuse`` is cached for the same
    position of the next instruction. The zero register costs nothing, and a register named twice is read once. Reads
    may lag by one clock, so two FFMAs with 2 + 1 and 1 + 2 reads per bank take 3 clocks.
    """
    kept: dict[int, int] = {}
    busy = [0.0] * BANKS
    now = 0.0
    spent = 0.0
    for i in code:
        sources = _sources(i)
        if i.name in MULTIPLIES[1:]:
            spent, now = spent + 1, now + 1  # the tensor cores take longer than their operands
        elif i.name == "FFMA":
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
    """The registers an instruction reads: position -> (number, flagged for reuse). The first operand is written."""
    found = {}
    for place, operand in enumerate(i.operands.split(",")[1:]):
        match = _REGISTER.search(operand)
        if match:
            found[place] = (int(match["number"]), match["reuse"] is not None)
    return found
