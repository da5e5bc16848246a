"""What each statement does to memory that others use too: the one input of :func:`gemmgen.tile.order.order`.

An effect says who accesses which region and when that access is complete. A new way of copying or of multiplying
states its effects here, and its synchronisation follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, assert_never

from gemmgen.isa.table import Completion, Proxy
from gemmgen.tile.program import STAGED, SUMS, Copy, Group, TileProgram
from gemmgen.tile.statements import (
    AddLanes,
    AddUp,
    Ahead,
    Bring,
    Clear,
    EachTile,
    Finish,
    Fragment,
    Gather,
    Inner,
    Issue,
    Leave,
    Multiply,
    Prepare,
    Programs,
    Promote,
    Publish,
    Stage,
    Steps,
    StoreBoxes,
    TileStmt,
)
from gemmgen.tile.syncs import Sync


@dataclass(frozen=True)
class Region:
    """A piece of memory: one ``stage`` of a piece of shared memory, relative to the turn's own tile; or a matrix in
    global memory. Buffers that share storage access the same regions; ``buffer`` is the name of the one meant."""

    storage: str
    stage: int = 0
    buffer: str = field(default="", compare=False)


@dataclass(frozen=True)
class Engine:
    """Hardware that works on its own: cp.async for the thread that started it, TMA for whoever waits, wgmma for its
    warp group."""

    name: Literal["cp.async", "TMA", "TMA store", "wgmma"]


@dataclass(frozen=True)
class Kernel:
    """The kernel before this one on the stream, or the one behind it, while they overlap."""

    which: Literal["previous", "next"]
    name: str


@dataclass(frozen=True)
class Cluster:
    """A group of threads in every block of a thread-block cluster."""

    group: Group


TENSOR_CORES = Engine("wgmma")
STORES = Engine("TMA store")
ACCUMULATORS = "accumulators"
"""The registers that asynchronous products add to, as a piece of memory."""

Access: TypeAlias = Literal["read", "write"]
Agent: TypeAlias = Group | Engine | Kernel | Cluster


@dataclass(frozen=True)
class Effect:
    """An access. ``until`` says how it is known to be complete; ``proxy`` by which path it reaches memory."""

    access: Access
    place: Region
    agent: Agent
    proxy: Proxy = Proxy.GENERIC
    until: Completion = Completion.NOW

    @property
    def writes(self) -> bool:
        return self.access == "write"

    def later(self, turns: int) -> Effect:
        """The same of the tile that is so many further on."""
        return replace(self, place=replace(self.place, stage=self.place.stage + turns))


Effects: TypeAlias = tuple[Effect, ...]


def effects(p: TileProgram, s: TileStmt) -> Effects:
    """What a statement reads and writes, in order. Registers are each thread's own."""
    everyone = p.group
    match s:
        case Fragment(operand, buffer):
            return (Effect("read", Region(buffer or operand, 0, buffer or operand), everyone),)
        case Bring():
            return tuple(x for c in s.copies for x in _copy(everyone, c, s))
        case Issue(buffers):
            read = (Effect("read", Region(b, 0, b), TENSOR_CORES, Proxy.ASYNC, Completion.GROUP) for b in buffers)
            return (*read, Effect("write", Region(ACCUMULATORS), TENSOR_CORES, until=Completion.GROUP))
        case Promote():
            return (Effect("read", Region(ACCUMULATORS), everyone),)
        case Inner(body, _, brings):
            return _all(p, (*body, *brings))
        case Ahead(count, body):
            return tuple(x.later(turn) for turn in range(count) for x in _all(p, body))
        case Publish():
            return (*_sums(p, everyone), *_over(p, "write", SUMS, Cluster(everyone)))
        case Gather():
            return _over(p, "read", SUMS, Cluster(everyone))
        case Leave():
            return (*_sums(p, everyone), *_over(p, "write", STAGED, everyone))
        case Stage():
            old = Effect("read", Region("C", 0, "C"), everyone)
            return (*_sums(p, everyone), old, Effect("write", Region(STAGED, 0, STAGED), everyone))
        case StoreBoxes():
            tile_read = Effect("read", Region(STAGED, 0, STAGED), STORES, Proxy.ASYNC, Completion.GROUP)
            return (tile_read, Effect("write", Region("C", 0, "C"), STORES))
        case Finish(gathered, staged):
            # A block that ends takes its shared memory with it.
            ends = _over(p, "write", SUMS, Cluster(everyone)) if gathered else ()
            tile = _over(p, "read", STAGED, everyone) if staged else _sums(p, everyone)
            return (*ends, *tile, *_result(everyone))
        case AddUp():
            return (Effect("read", Region("W", 0, "W"), everyone), *_result(everyone))
        case Prepare():
            return _result(everyone)
        case Steps(body) | EachTile(body):
            return _all(p, body)
        case Programs(producer, consumers):
            return _all(p, (*producer, *consumers))
        case Clear() if p.asynchronous:
            return (Effect("write", Region(ACCUMULATORS), everyone),)
        case Clear() | Multiply() | AddLanes() | Sync():
            return ()
        case _:
            assert_never(s)


def _all(p: TileProgram, body: Iterable[TileStmt]) -> Effects:
    return tuple(x for s in body for x in effects(p, s))


def _copy(everyone: Group, c: Copy, s: Bring) -> Effects:
    """A tile is read where the matrix lies, and written where its buffer does."""
    source = Effect("read", Region(c.operand, 0, c.operand), everyone)
    place = Region(c.buffer, s.ahead, c.buffer)
    match s.part, c.via.lands:
        case "fetch", _:
            return (source,)
        case "put", _:
            return (Effect("write", place, everyone),)
        case _, Completion.NOW:
            return (source, Effect("write", place, everyone))
        case _, Completion.GROUP:
            return (Effect("write", place, Engine("cp.async"), until=Completion.GROUP),)
        case _:
            return (Effect("write", place, Engine("TMA"), Proxy.ASYNC, Completion.BARRIER),)


def _over(p: TileProgram, access: Access, name: str, agent: Agent) -> Effects:
    """An access to all of what lies in the place of the tiles, in each of their stages."""
    return tuple(Effect(access, Region(b.name, i, name), agent) for b in p.buffers for i in range(b.stages))


def _sums(p: TileProgram, everyone: Group) -> Effects:
    """Each thread reads its sums, which asynchronous products may still be adding to."""
    return (Effect("read", Region(ACCUMULATORS), everyone),) if p.asynchronous else ()


def _result(everyone: Group) -> Effects:
    """C is read where beta asks for it, and written."""
    place = Region("C", 0, "C")
    return (Effect("read", place, everyone), Effect("write", place, everyone))
