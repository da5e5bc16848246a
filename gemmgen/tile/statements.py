"""The statements of a tile program in order, as :func:`gemmgen.tile.sequence.sequence` gives them.

Inside the loop over tiles of K, ``ahead`` counts tiles from the turn's own: tile t + ahead lies in stage
(t + ahead) % depth of its buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gemmgen.tile.program import Copy
from gemmgen.tile.syncs import Sync


@dataclass(frozen=True)
class Clear:
    """acc = 0."""


@dataclass(frozen=True)
class Bring:
    """Copy the tiles of A and B that lie ``ahead``. ``part``: through registers at once ("whole"), or only as far as
    the registers ("fetch") and later on from there ("put"); asynchronous copies are started. ``first``: what the one
    thread that issues them does before, where one does."""

    copies: tuple[Copy, ...]
    ahead: int
    part: Literal["whole", "fetch", "put"] = "whole"
    first: tuple[Sync, ...] = ()


@dataclass(frozen=True)
class Fragment:
    """A thread fetches its part of one operand at one k into registers, from a buffer or from global memory."""

    operand: Literal["A", "B"]
    buffer: str | None


@dataclass(frozen=True)
class Multiply:
    """acc += a x b, the outer product of a thread's fragments: those of this step, or with ``behind`` those of the step
    before."""

    behind: bool = False


@dataclass(frozen=True)
class Issue:
    """Each warp group starts acc += a x b of the whole tile, which the tensor cores read from these buffers until the
    group has waited for its products."""

    buffers: tuple[str, ...]


@dataclass(frozen=True)
class Promote:
    """Each thread adds what the tensor cores have added up of one tile to its sums, rounded to float32."""


@dataclass(frozen=True)
class Ahead:
    """``body`` for each of the first ``count`` tiles, before the loop."""

    count: int
    body: tuple[TileStmt, ...]


@dataclass(frozen=True)
class Steps:
    """The loop over tiles of K."""

    body: tuple[TileStmt, ...]


@dataclass(frozen=True)
class Inner:
    """for k in 0..BK inside a tile, or in 0..K where nothing is staged (``whole``).

    ``brings`` are spread over the steps.
    """

    body: tuple[TileStmt, ...]
    whole: bool = False
    brings: tuple[Bring, ...] = ()


@dataclass(frozen=True)
class AddLanes:
    """The lanes that share the sum over K of the same elements of C add up what each has, from register to register."""


@dataclass(frozen=True)
class Publish:
    """Each thread leaves its sums in the block's shared memory, in the place of the tiles, for the cluster's blocks."""


@dataclass(frozen=True)
class Gather:
    """Each thread fetches its block's share of the sums, as all blocks of the cluster left them."""


@dataclass(frozen=True)
class Leave:
    """Each thread leaves its sums in the block's shared memory, where they lie as C's tile does in C, in the place of
    the tiles."""


@dataclass(frozen=True)
class Stage:
    """Each thread leaves its part of C = alpha * acc + beta * C, rounded, in a tile of its own in shared memory."""


@dataclass(frozen=True)
class StoreBoxes:
    """The TMA engine stores that tile: one thread of each warp group issues its rows."""


@dataclass(frozen=True)
class Finish:
    """C = alpha * acc + beta * C, or as ``Output`` says: the end of a tile of C. ``gathered``: acc are the sums of
    several blocks, in their order, of which each block of a cluster stores a share. ``staged``: acc are the sums that
    all threads left, of which consecutive threads store neighbours in C."""

    gathered: bool = False
    staged: bool = False


@dataclass(frozen=True)
class EachTile:
    """The loop over the tiles of C that a block computes, one after another."""

    body: tuple[TileStmt, ...]


@dataclass(frozen=True)
class Programs:
    """Warp groups that run different programs at the same time: one brings tiles, the others use them."""

    producer: tuple[TileStmt, ...]
    consumers: tuple[TileStmt, ...]


@dataclass(frozen=True)
class Prepare:
    """In a kernel before the main one: C = beta * C, for blocks to add to."""


@dataclass(frozen=True)
class AddUp:
    """In a kernel behind the main one: C = alpha * (the parts in W, added up in their order) + beta * C."""


TileStmt: TypeAlias = (
    EachTile
    | Programs
    | Clear
    | Bring
    | Fragment
    | Multiply
    | Issue
    | Promote
    | Ahead
    | Steps
    | Inner
    | AddLanes
    | Publish
    | Gather
    | Leave
    | Stage
    | StoreBoxes
    | Finish
    | Prepare
    | AddUp
    | Sync
)
