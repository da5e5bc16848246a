"""What lies behind a statement: accesses that later ones still have to be ordered with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gemmgen.isa.table import Completion, Proxy
from gemmgen.tile.effects import ACCUMULATORS, STORES, TENSOR_CORES, Agent, Cluster, Effect, Effects, Engine, Kernel
from gemmgen.tile.program import STAGED, Group
from gemmgen.tile.syncs import Kind, Sync

OWN = (ACCUMULATORS, STAGED)
"""Places without stages that one warp group alone uses, its barriers apart from the block's."""


@dataclass(frozen=True)
class Past:
    """An access to one stage of a piece of memory. ``stage`` is relative to the turn's own tile, modulo the depth.

    ``ahead`` is how many tiles beyond the turn's own it is: behind the last turn there is none. ``group`` is the number
    of the thread's group that it was committed in. ``released``: each warp has said that it read what it wants.
    ``fenced``: it is done before what engines do. ``met``: all threads have met since, and engines alone overtake it.
    """

    storage: str
    stage: int
    buffer: str
    writes: bool
    agent: Agent
    until: Completion = Completion.NOW
    ahead: int = 0
    group: int = 0
    released: bool = False
    proxy: Proxy = Proxy.GENERIC
    fenced: bool = False
    met: bool = False

    @property
    def done(self) -> bool:
        """Whether threads of the block made it, and need only meet."""
        return self.until is Completion.NOW and not isinstance(self.agent, Kernel | Cluster)


@dataclass(frozen=True)
class Conflict:
    """An access behind that one that comes now must wait for, and what puts them in order."""

    past: Past
    kind: Kind


@dataclass(frozen=True)
class Behind:
    """All accesses behind. ``shared`` are the pieces of shared memory; what threads do to global memory is each one's
    own. ``groups`` is how many groups of copies a thread has committed. ``engine`` are the pieces of shared memory that
    the TMA engine writes."""

    depth: int
    shared: frozenset[str]
    past: frozenset[Past] = frozenset()
    groups: int = 0
    engine: frozenset[str] = frozenset()

    def conflicts(self, found: Effects) -> list[Conflict]:
        """Pairs of which one writes what the other accesses."""
        return [
            Conflict(x, _kind(x, e))
            for e in found
            for x in self.past
            if (x.writes or e.writes) and self._same(x, e) and not _in_turn(x, e) and not (x.met and not by_engine(e))
        ]

    def _same(self, x: Past, e: Effect) -> bool:
        """Whether both are in one place. Matrices in global memory have no stages."""
        staged = x.storage in self.shared
        return x.storage == e.place.storage and (not staged or x.stage == e.place.stage % self.depth)

    def after(self, found: Effects) -> Behind:
        """With a statement's accesses behind too."""
        mine = (self._past(e) for e in found if e.place.storage in (*self.shared, *OWN))
        return replace(self, past=self.past | frozenset(mine))

    def _past(self, e: Effect) -> Past:
        tile = e.place.buffer == e.place.storage
        return Past(
            e.place.storage,
            e.place.stage % self.depth,
            e.place.buffer,
            e.writes,
            e.agent,
            e.until,
            e.place.stage if tile and e.writes else 0,
            self.groups if e.until is Completion.GROUP else 0,
            proxy=e.proxy,
        )

    # --- Synchronisation -------------------------------------------------------------------------------------------

    def without(self, gone: Callable[[Past], bool]) -> Behind:
        return replace(self, past=frozenset(x for x in self.past if not gone(x)))

    def meet(self, kind: Kind) -> Behind:
        """All threads of the block, or of the cluster's blocks, have met."""
        among = kind is Kind.CLUSTER

        def over(x: Past) -> bool:
            return (x.done and x.storage not in OWN) or (among and isinstance(x.agent, Cluster))

        left = (
            replace(x, met=True) if over(x) else x for x in self.past if not (over(x) and self._overtaken_by_none(x))
        )
        return replace(self, past=frozenset(left))

    def _overtaken_by_none(self, x: Past) -> bool:
        """Whether no engine can overtake an access once threads have met."""
        return x.fenced or x.proxy is not Proxy.GENERIC or x.storage not in self.engine

    def multiplied(self, threads: Agent) -> Behind:
        """The warp group's products are done: what they read has been read by it, and the sums are its own."""
        there = (replace(x, until=Completion.NOW, agent=threads) if x.agent == TENSOR_CORES else x for x in self.past)
        return replace(self, past=frozenset(there))

    def before_engines(self) -> Behind:
        """What threads did is done before what engines do."""
        there = (replace(x, fenced=True) if x.proxy is Proxy.GENERIC else x for x in self.past)
        return replace(self, past=frozenset(x for x in there if not x.met))

    def handed_over(self) -> Behind:
        """The warp group's threads have met, and the engine sees what they wrote."""
        return self.without(lambda x: x.storage == STAGED and x.agent != STORES)

    def stored(self) -> Behind:
        """The engine has read what the warp group gave it."""
        return self.without(lambda x: x.agent == STORES)

    def fenced(self) -> Behind:
        """What threads did with the sums is in order with the products that follow."""
        return self.without(lambda x: x.storage == ACCUMULATORS and x.agent != TENSOR_CORES)

    def landed(self, group: int, threads: Agent) -> Behind:
        """The copies up to this group have landed, each for the thread that started it."""
        there = (
            replace(x, until=Completion.NOW, agent=threads, group=0)
            if x.until is Completion.GROUP and x.group <= group and x.agent not in (TENSOR_CORES, STORES)
            else x
            for x in self.past
        )
        return replace(self, past=frozenset(there))

    def arrived(self, sync: Sync) -> Behind:
        """All threads see the tile that the engine brought."""
        stage = sync.ahead % self.depth
        return self.without(lambda x: x.until is Completion.BARRIER and x.stage == stage and x.buffer in sync.buffers)

    def released(self, sync: Sync) -> Behind:
        """Each warp has read what it wants of the turn's tile."""
        return replace(
            self,
            past=frozenset(
                replace(x, released=True) if not x.writes and x.stage == 0 and x.buffer in sync.buffers else x
                for x in self.past
            ),
        )

    def committed(self) -> Behind:
        return replace(self, groups=self.groups + 1)

    # --- Loops -----------------------------------------------------------------------------------------------------

    def next_turn(self) -> Behind:
        """One tile on: what lay one ahead is the turn's own."""
        moved = (replace(x, stage=(x.stage - 1) % self.depth, ahead=max(0, x.ahead - 1)) for x in self.past)
        return replace(self, past=frozenset(moved))

    def last_turn(self) -> Behind:
        """Behind the loop: what would be ahead of its last tile does not exist."""
        return self.without(lambda x: x.ahead > 0)

    def any_stage(self) -> Behind:
        """Where the next tiles may come to lie in any stage: one access of a buffer is as one of all its stages, and
        tiles are released only where all that were read are."""
        late = {x.storage for x in self.past if not x.writes and not x.released}
        spread = (
            replace(x, stage=stage, released=x.released and x.storage not in late)
            for x in self.past
            for stage in range(self.depth)
        )
        return replace(self, past=frozenset(spread))


def _in_turn(x: Past, e: Effect) -> bool:
    """Whether one engine makes both, one after the other, or a thread, to registers of its own."""
    return x.agent == e.agent and (x.agent in (TENSOR_CORES, STORES) or x.storage == ACCUMULATORS)


def by_engine(e: Effect) -> bool:
    """Whether an engine that one thread sets to work makes an access."""
    return isinstance(e.agent, Engine) and e.until is Completion.BARRIER


def buffers_of(found: Iterable[Past]) -> tuple[str, ...]:
    return tuple(sorted({x.buffer for x in found}))


def _kind(x: Past, e: Effect) -> Kind:
    """What puts an access behind another."""
    if by_engine(e) and x.proxy is Proxy.GENERIC and not x.fenced and isinstance(x.agent, Group | Cluster):
        return Kind.PROXY
    if isinstance(x.agent, Kernel):
        return Kind.KERNEL
    if isinstance(x.agent, Cluster):
        return Kind.CLUSTER
    if x.agent == TENSOR_CORES:
        return Kind.PRODUCTS
    if x.agent == STORES:
        return Kind.STORED
    if e.agent == STORES:
        return Kind.HANDOVER
    if x.storage == ACCUMULATORS:
        return Kind.REGISTERS
    match x.until:
        case Completion.BARRIER:
            return Kind.FULL
        case Completion.GROUP:
            return Kind.GROUP
        case Completion.NOW:
            return Kind.EMPTY if x.released and by_engine(e) else Kind.BLOCK
