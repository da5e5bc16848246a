"""Hardware instructions: one row each, its text, its meaning, its effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Moved:
    """An access to memory that an instruction makes through its argument of this number.

    A lane moves ``width`` elements, and only where the argument ``guard`` (a condition) holds. Of a tensor map's
    argument one box is moved, which is no access of lanes: ``corner`` are the arguments that say where it begins, along
    the matrix's contiguous dimension and across it. ``past_l1``: the L1 cache keeps nothing of what is loaded.
    """

    argument: int
    op: Literal["load", "store"]
    width: int = 1
    guard: int | None = None
    corner: tuple[int, int] | None = None
    past_l1: bool = False


Pipe = Literal["fma", "tensor"]
"""The units of a multiprocessor whose arithmetic is counted, each for itself."""


@dataclass(frozen=True)
class Work:
    """Arithmetic: ``flops`` for each thread that executes it, on one pipe. A warp's instruction is shared by its 32."""

    pipe: Pipe
    flops: int


@dataclass(frozen=True)
class Instruction:
    """A hardware operation outside the core of the compiler.

    ``helper`` is the CUDA text of a small named function (printed once, before the kernel); a Call prints as
    ``name(arguments)``. ``meaning`` runs it on NumPy arrays of lanes. ``effects`` says what it reads, writes,
    acquires and releases; ``arch`` is the minimum architecture (80, 90); ``needs`` are texts that must stand before its
    helper, each printed once. ``moves`` are its accesses to memory, as the hardware counts them, and ``work`` is its
    arithmetic.
    """

    name: str
    helper: str
    meaning: Callable[..., Any] | None = None
    effects: tuple[str, ...] = ()
    arch: int = 50
    needs: tuple[str, ...] = ()
    moves: tuple[Moved, ...] = ()
    work: Work | None = None
