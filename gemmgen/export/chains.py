"""Epilogues in the C++ of an export's own check: what each entry does to a value and to its error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.ir.types import ELEMENT_TYPES
from gemmgen.isa.epilogue import Entry, chain_of

if TYPE_CHECKING:
    from gemmgen.export.kernels import Exported

ADDED = ("bias", "residual")
SCALED = ("scale", "scale_a", "scale_b")
CALLED = ("relu", "gelu", "gelu_tanh", "silu", "clamp")


def chain_name(x: Exported) -> str:
    """The function of a spec's epilogue in the check; nullptr where an entry is not one of gemmgen's own."""
    known = all(_known(entry) for entry in chain_of(x.spec.epilogue))
    return f"chain_of_{x.name}" if known else "nullptr"


def chain_text(x: Exported) -> str:
    """That function; ``operands`` are the values of what lies beside an element of C."""
    if chain_name(x) == "nullptr":
        return ""
    numbers = {e.name: i for i, e in enumerate(x.program.beside)}
    lines = [f"    v = {_step(entry, numbers)};" for entry in chain_of(x.spec.epilogue)]
    given = "Bounded v, Bounded* operands" if numbers else "Bounded v, Bounded*"
    return "\n".join([f"Bounded chain_of_{x.name}({given})", "{", *lines, "    return v;", "}", ""])


def _known(entry: Entry) -> bool:
    return entry.row.name in (*ADDED, *SCALED, *CALLED, "cast", "aux")


def _step(entry: Entry, numbers: dict[str, int]) -> str:
    name = entry.row.name
    at = [f"operands[{numbers[o.name]}]" for o in entry.row.operands]
    if name in ADDED:
        return f"v.add({at[0]}.x)"
    if name in SCALED:
        return f"v.scale({at[0]}.x)"
    if name == "aux":
        return f"v.keep({at[0]})"
    if entry.cast is not None:
        bits = next(i for i in range(1, 64) if 2.0**-i <= ELEMENT_TYPES[entry.cast.name].unit_roundoff)
        return f"v.cast({bits})"
    return f"v.{name}({', '.join(repr(x) for x in entry.numbers)})"
