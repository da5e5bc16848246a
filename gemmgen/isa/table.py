"""Hardware instructions: one row each, its text, its meaning, its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from gemmgen.ir.types import WARP, DType


class Completion(Enum):
    """When an access is known to be complete."""

    NOW = "now"
    """When the instruction has been executed."""
    GROUP = "group"
    """When its thread has waited for the group it was committed in."""
    BARRIER = "barrier"
    """When the phase of the mbarrier that counts its bytes has ended."""


class Proxy(Enum):
    """The path by which an access reaches memory; between two paths stands a fence."""

    GENERIC = "generic"
    ASYNC = "async"


@dataclass(frozen=True)
class Needs:
    """The architectures that have an instruction: those from ``min`` on (80 for sm_80), or ``exact`` alone."""

    min: int = 50
    exact: str | None = None

    @property
    def capability(self) -> str:
        """The least compute capability, as people write it."""
        return f"{self.min // 10}.{self.min % 10}"


ANYWHERE = Needs()


@dataclass(frozen=True)
class Moved:
    """An access to memory that an instruction makes through its argument of this number.

    A lane moves ``width`` elements, and only where the argument ``guard`` (a condition) holds. Of a tensor map's
    argument one box is moved, which is no access of lanes: ``corner`` are the arguments that say where it begins, along
    the matrix's contiguous dimension and across it. ``past_l1``: the L1 cache keeps nothing of what is loaded.
    ``lanes``: how many of the warp's lanes, from the first on, give an address.
    """

    argument: int
    op: Literal["load", "store"]
    width: int = 1
    guard: int | None = None
    corner: tuple[int, int] | None = None
    past_l1: bool = False
    lanes: int = WARP


class Ordering(Enum):
    """What an instruction does that moves no data, and only puts accesses in order."""

    COMMIT = "commit"
    WAIT = "wait"
    INIT = "init"
    FENCE = "fence"
    ARRIVE = "arrive"
    ACQUIRE = "acquire"
    ALLOW = "allow"
    MEET = "meet"


Kind = Literal["register", "shared", "global", "barrier", "map", "value"]
Access = Literal["read", "write", "add"]


@dataclass(frozen=True)
class Operand:
    """An argument of an instruction: what it is, what is done with it, through which path, and when that is complete.
    ``dtype`` is the type of its elements; None where any will do. ``run``: so many registers from the one that is named
    on, which the text gives by its address."""

    kind: Kind
    access: Access = "read"
    dtype: DType | None = None
    proxy: Proxy = Proxy.GENERIC
    completes: Completion = Completion.NOW
    run: int = 1


WHOLE = 0
"""As an operand's ``run``: all registers of the array, which the text gives by its name."""
VALUE = Operand("value")

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
    ``name(arguments)``. ``meaning`` runs it on NumPy arrays of lanes. ``operands`` are its arguments in order, each
    with its effect, and ``orders`` what it does to the order of accesses; ``arch`` are the architectures that have it;
    ``needs`` are texts that must stand before its helper, each printed once. ``moves`` are its accesses to memory, as
    the hardware counts them, and ``work`` is its arithmetic.
    """

    name: str
    helper: str
    meaning: Callable[..., Any] | None = None
    operands: tuple[Operand, ...] = ()
    orders: Ordering | None = None
    arch: Needs = ANYWHERE
    needs: tuple[str, ...] = ()
    moves: tuple[Moved, ...] = ()
    work: Work | None = None

    @property
    def needed(self) -> bool:
        """Whether it only puts accesses in order, and they are in none without it."""
        return self.orders not in (None, Ordering.ALLOW)

    @property
    def adds(self) -> bool:
        """Whether it adds to memory where that is."""
        return any(x.access == "add" and x.kind != "register" for x in self.operands)
