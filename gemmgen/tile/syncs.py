"""What puts accesses in order: the kinds of synchronisation, each a pair of a release side and an acquire side."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Ways to put accesses in order. What one thread did before the release side is seen behind the acquire side."""

    BLOCK = "barrier"
    """All threads of the block meet: both sides at once."""
    CLUSTER = "cluster barrier"
    """All threads of the cluster's blocks meet."""
    GROUP = "group"
    """A thread's own asynchronous copies: committed as a group (release), waited for (acquire)."""
    FULL = "full"
    """An mbarrier per stage: the TMA engine's bytes are announced (release), and waited for by all (acquire)."""
    EMPTY = "empty"
    """An mbarrier per stage: each warp says that it has read the stage (release), who refills it waits (acquire)."""
    PRODUCTS = "products"
    """A warp group's asynchronous products: committed as a group (release), waited for (acquire)."""
    REGISTERS = "registers"
    """The registers that asynchronous products add to: what the threads did with them before is in order (acquire)."""
    PROXY = "proxy"
    """What a thread did to a tile, by the generic path to memory, is done before the TMA engine, with a path of its
    own, overwrites it: a load may else be on its way still when its thread meets others (both)."""
    HANDOVER = "handover"
    """What each thread of a warp group wrote is shown to the TMA engine, and all of the group meet."""
    STORED = "stored"
    """The engine's stores: committed as a group (release); read, as their thread waits for, and all of the warp group
    meet (acquire)."""
    SET_UP = "set up"
    """The mbarriers themselves: one thread initialises them, a fence shows them to the engine, all threads meet."""
    KERNEL = "kernel"
    """Two kernels that overlap: the first allows the second to start (release), which waits for its end (acquire)."""


class Side(Enum):
    """Which half of a pair a statement is; those in which all meet are both."""

    RELEASE = "release"
    ACQUIRE = "acquire"
    BOTH = "both"


@dataclass(frozen=True)
class Sync:
    """One derived synchronisation. ``hazard`` is what would go wrong without it, which is its comment in the CUDA.

    ``buffers`` are those whose accesses it puts in order. ``pending`` is how many of a thread's groups may still be on
    their way. ``ahead`` is the tile whose stage is meant, relative to the turn's own.
    """

    kind: Kind
    side: Side
    hazard: str
    buffers: tuple[str, ...] = ()
    pending: int = 0
    ahead: int = 0


def barrier(hazard: str, kind: Kind = Kind.BLOCK) -> Sync:
    """All meet."""
    return Sync(kind, Side.BOTH, hazard)
