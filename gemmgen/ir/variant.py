"""Which text of a spec: the same program with other guards and widths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

NAMES = "ABC"
WIDEST = 16


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

    def named(self, wide: Iterable[str]) -> str:
        """The one name of the text, of a kernel whose accesses to the operands ``wide`` can be wider than an element:
        that of its file, and what ``variant_of`` reads. ``guarded_padded_AB_unaligned_C`` reads padded copies of A and
        B; the letters behind ``unaligned`` are left out where no access is wider than an element."""
        if not self.guard:
            return self.label
        rest = [x for x in NAMES if x in wide and x not in self.padded]
        narrow = [x for x in rest if self.bytes(x) < WIDEST]
        padded = f"_padded_{''.join(sorted(self.padded))}" if self.padded else ""
        letters = "" if narrow == rest else f"_{''.join(narrow)}"
        return f"guarded{padded}" + (f"_unaligned{letters}" if narrow else "")


EXACT = Variant()
GUARDED = Variant(frozenset("mnk"))
GUARDED_UNALIGNED = Variant(frozenset("mnk"), (("A", 4), ("B", 4), ("C", 4)))
PADDED = Variant(frozenset("mnk"), (("A", 16), ("B", 16), ("C", 4)), frozenset("AB"))
"""Any size and alignment, after copies of A and B to aligned lines."""
FORM = re.compile(r"guarded(?:_padded_(?P<padded>AB?|B))?(?P<unaligned>_unaligned(?:_(?P<narrow>A?B?C?))?)?")
VARIANTS: Mapping[str, Variant] = {"exact": EXACT, "guarded": GUARDED, "guarded_unaligned": GUARDED_UNALIGNED}


def variant_of(name: str) -> Variant | None:
    """The variant of a name (see ``Variant.named``); None for one that names none."""
    if name in VARIANTS:
        return VARIANTS[name]
    found = FORM.fullmatch(name)
    if found is None or found["narrow"] == "":
        return None
    padded = found["padded"] or ""
    narrow = found["narrow"] or "".join(x for x in NAMES if x not in padded)
    if found["unaligned"] is None or set(narrow) & set(padded):
        narrow = ""
    return Variant(GUARDED.guard, tuple((x, 4 if x in narrow else WIDEST) for x in NAMES), frozenset(padded))
