"""Ways to multiply: one row each."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.isa.table import ANYWHERE, Needs, Work


@dataclass(frozen=True)
class Math:
    """One multiplication of ``shape`` (M x N x K), which ``threads`` execute together. ``work`` is what each of them
    does, ``needs`` the architectures that have it."""

    name: str
    shape: tuple[int, int, int]
    threads: int
    work: Work
    needs: Needs = ANYWHERE


FMA = Math("fma", (1, 1, 1), 1, Work("fma", 2))
"""Plain multiply-adds: a thread's product is an outer product of single elements."""
