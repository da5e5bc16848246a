"""Which text of a spec: the same program with other guards and widths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Variant:
    """Which text of a spec: ``guard`` are the dimensions that may be ragged, ``align`` the bytes to which each
    operand's rows and base are aligned (16, 8 or 4 for float32). The lines of ``padded`` operands go on in zeros to a
    whole access: such copies are made of operands whose own lines are not aligned."""

    guard: frozenset[str] = frozenset()
    align: tuple[tuple[str, int], ...] = (("A", 16), ("B", 16), ("C", 16))
    padded: frozenset[str] = frozenset()

    def bytes(self, operand: str) -> int:
        return dict(self.align)[operand]

    @property
    def label(self) -> Literal["exact", "guarded", "guarded_unaligned"]:
        if any(b < 16 for _, b in self.align):
            return "guarded_unaligned"
        return "guarded" if self.guard else "exact"


EXACT = Variant()
GUARDED = Variant(frozenset("mnk"))
GUARDED_UNALIGNED = Variant(frozenset("mnk"), (("A", 4), ("B", 4), ("C", 4)))
PADDED = Variant(frozenset("mnk"), (("A", 16), ("B", 16), ("C", 4)), frozenset("AB"))
"""Any size and alignment, after copies of A and B to aligned lines."""
VARIANTS: Mapping[str, Variant] = {"exact": EXACT, "guarded": GUARDED, "guarded_unaligned": GUARDED_UNALIGNED}
