"""Derived synchronisation -> kernel IR: the only maker of barriers and of calls that put accesses in order.

A stage has an mbarrier that says when its tiles are there, and where warps release tiles by themselves another that
says when all are done with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Array, Call, If, Ref, Stmt, Sync
from gemmgen.ir.types import U64, WARP
from gemmgen.isa import bulk_store, wgmma
from gemmgen.isa.async_copy import (
    CP_ASYNC_COMMIT,
    MBARRIER_EXPECT,
    MBARRIER_FENCE,
    MBARRIER_INIT,
    MBARRIER_RELEASE,
    MBARRIER_WAIT,
    WARP_SYNC,
    cp_async_wait,
)
from gemmgen.isa.dependent import ALLOW_NEXT_KERNEL, WAIT_FOR_PREVIOUS_KERNEL
from gemmgen.isa.table import Completion
from gemmgen.isa.wgmma import GROUP_THREADS
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import Scope
from gemmgen.tile.statements import TileStmt
from gemmgen.tile.syncs import Kind, Side
from gemmgen.tile.syncs import Sync as Derived

RELEASE, EARLY, GROUPS, MATH, TMA = "use release", "use dependentLaunch", "use cpasync", "math", "use tma"
STORE = "use tmaStore"


@dataclass(frozen=True)
class At:
    """Which stage is meant (None: there is one), and the parity of the phase that is waited for."""

    stage: Expr | None = None
    parity: Expr = Const(0)  # noqa: RUF009


HERE = At()


class Syncs:
    """Lowers the syncs of one kernel, which share its mbarriers and number its barriers. ``sums``: the
    arrays of registers that asynchronous products add to, each by its first."""

    def __init__(self, s: Scope, sums: tuple[Ref, ...] = ()) -> None:
        self.s = s
        self.sums = sums
        stages = s.constants.get("STAGES")
        self.stages = stages.expr if stages else Const(s.p.pipeline.depth)
        self.full = Array("full", "shared", U64, (self.stages,), align=8)
        self.empty = Array("empty", "shared", U64, (self.stages,), align=8)
        self.made = 0

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The mbarriers that the kernel declares."""
        if not self.s.p.landing(Completion.BARRIER):
            return ()
        return (self.full, self.empty) if self.s.p.pipeline.release else (self.full,)

    def lower(self, sync: Derived, at: At = HERE) -> list[Stmt]:
        """The statements of one side of a sync, with its hazard as the comment."""
        why = sync.hazard
        match sync.kind, sync.side:
            case Kind.BLOCK, _:
                return [self._barrier(why)]
            case Kind.CLUSTER, _:
                self.made += 1
                return [Sync(self.made - 1, why, "cluster")]
            case Kind.SET_UP, _:
                return self._set_up(why)
            case Kind.GROUP, Side.RELEASE:
                return [Call(CP_ASYNC_COMMIT, (), why, GROUPS)]
            case Kind.GROUP, _:
                return [Call(cp_async_wait(sync.pending), (), why, GROUPS)]
            case Kind.FULL, Side.RELEASE:
                return [Call(MBARRIER_EXPECT, (_of(self.full, at), self._tile_bytes()), why)]
            case Kind.FULL, _:
                return [Call(MBARRIER_WAIT, (_of(self.full, at), at.parity), why)]
            case Kind.EMPTY, Side.RELEASE:
                meet = Call(WARP_SYNC, (), "all lanes are done: the first arrives for them", RELEASE)
                return [meet, Call(MBARRIER_RELEASE, (_of(self.empty, at),), why, RELEASE)]
            case Kind.EMPTY, _:
                return [Call(MBARRIER_WAIT, (_of(self.empty, at), at.parity), why, RELEASE)]
            case Kind.PROXY, _:
                return [Call(bulk_store.FENCE, (), why, TMA)]
            case Kind.HANDOVER, _:
                return [Call(bulk_store.FENCE, (), why, STORE), self._group_sync()]
            case Kind.STORED, Side.RELEASE:
                return [self._by_one_of_a_group(Call(bulk_store.COMMIT, (), why, STORE))]
            case Kind.STORED, Side.BOTH:  # nobody else uses the tile any more
                return [self._by_one_of_a_group(Call(bulk_store.WAIT_READ, (), why, STORE))]
            case Kind.STORED, _:
                return [self._by_one_of_a_group(Call(bulk_store.WAIT_READ, (), why, STORE)), self._group_sync()]
            case Kind.PRODUCTS, Side.RELEASE:
                return [Call(wgmma.COMMIT, (), why, MATH)]
            case Kind.PRODUCTS, _:
                return [Call(wgmma.wait(self.s.p.block[1], len(self.sums)), self.sums, why, MATH)]
            case Kind.REGISTERS, _:
                return [Call(wgmma.FENCE, (), why, MATH)]
            case Kind.KERNEL, _:
                return [between_kernels(sync)]

    def _group_sync(self) -> Call:
        """The threads of a warp group meet; barrier 0 is the block's."""
        return Call(bulk_store.GROUP_SYNC, (self.s.tid // GROUP_THREADS + 1,), origin=STORE)

    def _by_one_of_a_group(self, s: Stmt) -> Stmt:
        return If((self.s.tid % GROUP_THREADS).eq(0), (s,))

    def _barrier(self, hazard: str) -> Sync:
        self.made += 1
        return Sync(self.made - 1, hazard)

    def _set_up(self, hazard: str) -> list[Stmt]:
        """One thread initialises the mbarriers and shows them to the engine, before anyone waits for them."""

        def one(s: Expr) -> list[Stmt]:
            threads = self.s.constants["THREADS" if self.s.p.producer is None else "CONSUMERS"].expr
            lanes = self.s.constants["WARP"].expr
            arrivals = [Const(1), (threads + (WARP - 1)) // lanes if self.s.p.consumers % WARP else threads // lanes]
            return [Call(MBARRIER_INIT, (Ref(b, (s,)), n)) for b, n in zip(self.arrays, arrivals, strict=False)]

        each = nest([("s", self.stages, 1)], one, unroll=None)
        return [If(self.s.tid.eq(0), (*each, Call(MBARRIER_FENCE, ()))), self._barrier(hazard)]

    def _tile_bytes(self) -> Expr:
        """Bytes that fill a stage: those of all tiles that the engine brings."""
        p = self.s.p
        copies = p.landing(Completion.BARRIER)
        size = {"A": "BM * BK", "B": "BK * BN"}
        items = {c.operand: p.matrix(c.operand).dtype.bytes for c in copies}
        total = sum(
            items[c.operand] * p.extent(p.contiguous(c.operand)) * p.extent(p.strided(c.operand)) for c in copies
        )
        tiles = " + ".join(size[c.operand] for c in copies)
        text = f"{items[copies[0].operand]} * {f'({tiles})' if len(copies) > 1 else tiles}"
        parts = p.matrix(copies[0].operand).parts
        if parts > 1:
            total, text = parts * total, f"PARTS * {text}"
        why = f"bytes of one tile of {' and one of '.join(c.operand for c in copies)}"
        return self.s.constant("TILE_BYTES", total, text, why)


def beside(statements: Iterable[TileStmt]) -> tuple[Stmt, ...]:
    """The syncs among the statements of a kernel beside the main one."""
    return tuple(between_kernels(s) for s in statements if isinstance(s, Derived))


def between_kernels(sync: Derived) -> Stmt:
    """A side of the order between two kernels."""
    row = ALLOW_NEXT_KERNEL if sync.side is Side.RELEASE else WAIT_FOR_PREVIOUS_KERNEL
    return Call(row, (), sync.hazard, EARLY)


def _of(barriers: Array, at: At) -> Ref:
    """The mbarrier of a stage."""
    return Ref(barriers, (at.stage or Const(0),))
