"""SASS beside its source: which instructions the compiler made of each line of the CUDA."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from gemmgen.diagnostics import CompileError

LINE = re.compile(r'//## File "[^"]*", line (\d+)')
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@\S+\s+)?([A-Z][\w.]*)")
WIDTHS = {"64", "128", "U8", "U16"}
SHOWN = 4
"""Instructions that stand beside a line; the rest are counted."""


def sass_by_line(cuda: str, arch: str, name: str, slow: str = "") -> Mapping[int, str]:
    """The instructions of each line of a CUDA text: "64 FFMA, 8 LDS.128"; empty where they cannot be read here."""
    from gemmgen.runtime.nvrtc import compile_cubin
    from gemmgen.runtime.sass import disassemble

    try:
        made = compile_cubin(cuda, arch, name=name, options=("--generate-line-info",), slow=slow)
        return counted_by_line(disassemble(made.cubin, lines=True))
    except CompileError:
        return {}


def counted_by_line(sass: str) -> Mapping[int, str]:
    """The same of a disassembly with source lines."""
    found: dict[int, Counter[str]] = {}
    line = None
    for text in sass.splitlines():
        if place := LINE.search(text):
            line = int(place[1])
        elif (made := INSTRUCTION.search(text)) and line is not None:
            found.setdefault(line, Counter())[_short(made[1])] += 1
    return {at: _told(counts) for at, counts in sorted(found.items())}


def _short(opcode: str) -> str:
    """The opcode with its width alone: LDG.E.128.CONSTANT is LDG.128."""
    name, *modifiers = opcode.split(".")
    return ".".join([name, *(m for m in modifiers if m in WIDTHS)])


def _told(counts: Counter[str]) -> str:
    most = counts.most_common(SHOWN)
    rest = counts.total() - sum(n for _, n in most)
    told = ", ".join(f"{n} {name}" for name, n in most)
    return f"{told}, {rest} more" if rest else told
