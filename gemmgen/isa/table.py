"""Hardware instructions: one row each, its text, its meaning, its effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Instruction:
    """A hardware operation outside the core of the compiler.

    ``helper`` is the CUDA text of a small named function (printed once, before the kernel); a Call prints as
    ``name(arguments)``. ``meaning`` runs it on NumPy arrays of lanes. ``effects`` says what it reads, writes,
    acquires and releases; ``arch`` is the minimum architecture (80, 90); ``needs`` are texts that must stand before its
    helper, each printed once.
    """

    name: str
    helper: str
    meaning: Callable[..., Any] | None = None
    effects: tuple[str, ...] = ()
    arch: int = 50
    needs: tuple[str, ...] = ()
