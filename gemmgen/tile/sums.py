"""Who adds up a sum over K: one block, or several that each have a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True)
class Whole:
    """One block has all of K."""

    parts: ClassVar[int] = 1
    early: ClassVar[bool] = False


@dataclass(frozen=True)
class SecondKernel:
    """Each block's part goes to a workspace, where a second kernel adds them up in their order. ``early``: that kernel
    is launched while the first still runs, and waits for its end on the GPU."""

    parts: int
    early: bool = False


@dataclass(frozen=True)
class InCluster:
    """The blocks are a thread-block cluster, which adds up in shared memory, in their order. A thread leaves its part
    in pieces of ``width`` elements."""

    parts: int
    width: int = 1
    early: ClassVar[bool] = False


@dataclass(frozen=True)
class InMemory:
    """Each block adds its part to C by atomic additions, in no fixed order; a kernel before has made C beta * C.
    ``early``: this kernel is launched while that one still runs."""

    parts: int
    early: bool = False


Sums: TypeAlias = Whole | SecondKernel | InCluster | InMemory
WHOLE = Whole()
