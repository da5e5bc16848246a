"""Barriers, and warps that run different programs at the same time.

Each role is a generator over the lanes of its warps in all blocks of a batch; it yields what it waits for. They take
turns; when none can go on, that is a deadlock, which is reported, and the roles are given up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from gemmgen.ir.nodes import Role, Sync
from gemmgen.ir.types import WARP
from gemmgen.sim.calls import Step, Wait
from gemmgen.sim.lanes import Active, Bools, Mask, narrow
from gemmgen.sim.machine import Machine

BARRIER = "__syncthreads"
Program = Callable[[Active], Generator[Wait, None, None]]


@dataclass
class _Arrivals:
    """Which threads have come to the block's barrier, and how often it has opened."""

    arrived: Bools
    opened: int = 0


def barrier(m: Machine, s: Sync, in_roles: bool) -> Step:
    """``__syncthreads()``, or a barrier of a cluster."""
    clusters = s.scope == "cluster"
    if clusters and in_roles:
        raise ValueError("warps that run different programs meet no other blocks")

    def alone(active: Active) -> None:
        if active is None:
            m.join(None, clusters)
            return
        _report_missing(m, s, active)
        m.join(_met(m, active, clusters), clusters)

    def among_roles(active: Active) -> Generator[Wait, None, None]:
        arrivals = m.state.setdefault(BARRIER, _Arrivals(np.zeros(m.batch.lanes, np.bool_)))
        assert isinstance(arrivals, _Arrivals)
        arrivals.arrived |= True if active is None else active.array
        if arrivals.arrived.all():
            arrivals.arrived[:] = False
            arrivals.opened += 1
            m.join()
            return
        before = arrivals.opened
        yield Wait(lambda: arrivals.opened > before, BARRIER)

    return among_roles if in_roles else alone


def _met(m: Machine, active: Mask, clusters: bool) -> Bools:
    """The blocks that come to a barrier, or those of the clusters that do."""
    blocks = m.batch.any_block(active)
    if not clusters:
        return blocks
    size = m.batch.cluster
    found: Bools = np.repeat(blocks.reshape(-1, size).any(axis=1), size)
    return found


def _report_missing(m: Machine, s: Sync, active: Mask) -> None:
    b = m.batch
    torn = _met(m, active, s.scope == "cluster") & ~b.whole_blocks(active)
    if not torn.any():
        return
    block = int(np.argmax(torn))
    lanes = active.array[block * b.threads : (block + 1) * b.threads]
    lane = block * b.threads + int(np.argmin(lanes))
    other = f"{int(lanes.sum())} of {b.threads} threads reach this barrier; this one does not"
    m.fault("barrier", ("sync", s.id), BARRIER, lane, (), None, other)


def role_steps(m: Machine, roles: Sequence[tuple[Role, Program]]) -> Step:
    """All roles, taking turns until each is done."""

    def run(active: Active) -> None:
        going: dict[str, tuple[Generator[Wait, None, None], Wait | None]] = {}
        for role, program in roles:
            lanes = narrow(active, _warps(m, role))
            if lanes is None or lanes.count:
                going[role.name] = (program(lanes), None)
        while going:
            moved = False
            for name, (program_run, wait) in list(going.items()):
                if wait is not None and not wait.ready():
                    continue
                moved = True
                try:
                    going[name] = (program_run, next(program_run))
                except StopIteration:
                    del going[name]
            if not moved:
                _report_deadlock(m, roles, {name: wait for name, (_, wait) in going.items()})
                return

    return run


def _warps(m: Machine, role: Role) -> Mask | bool:
    warp = m.batch.thread // WARP
    lanes = (warp >= role.first) & (warp <= role.last)
    return True if lanes.all() else Mask(lanes, lasting=True)


def _report_deadlock(m: Machine, roles: Sequence[tuple[Role, Program]], waits: dict[str, Wait | None]) -> None:
    waiting = {name: "" if w is None else w.what for name, w in waits.items()}
    first = {role.name: role.first * WARP for role, _ in roles}
    if set(waiting.values()) == {BARRIER}:
        done = next((role for role, _ in roles if role.name not in waiting), None)
        lane = 0 if done is None else first[done.name]
        names = ", ".join(waiting)
        m.fault("barrier", "roles", BARRIER, lane, (), None, f"waited for by {names}; this thread does not reach it")
        return
    other = "; ".join(f"{name} waits for {what}" for name, what in waiting.items())
    m.fault("deadlock", "roles", next(iter(waiting.values())), first[next(iter(waiting))], (), None, other)
