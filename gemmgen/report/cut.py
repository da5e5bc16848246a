"""A small run in the simulator without one synchronisation: what it is there for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.ir.nodes import Call, Sync, walk

if TYPE_CHECKING:
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.sim.faults import Fault
    from gemmgen.spec.model import Spec

BARRIERS = {"block": "__syncthreads", "cluster": "cluster barrier"}


@dataclass(frozen=True)
class Cut:
    """What a run gave. ``right``: the result is within its tolerance, which a race may leave it by chance."""

    size: tuple[int, int, int]
    faults: tuple[Fault, ...]
    right: bool


def synchronisation(ir: KernelIR) -> list[Sync | Call]:
    """The barriers, and the waits, arrivals, commits and fences, in program order."""
    return [s for s in walk(ir.body) if isinstance(s, Sync) or (isinstance(s, Call) and s.row.needed)]


def named(s: Sync | Call) -> tuple[str, str]:
    """What the text calls it, and the hazard that it prevents."""
    return (BARRIERS[s.scope], s.hazard) if isinstance(s, Sync) else (s.row.name, s.why)


def without(spec: Spec, ir: KernelIR, sync: Sync | Call) -> Cut:
    """Run one block over more tiles than there are stages, without ``sync`` of its kernel."""
    import numpy as np

    from gemmgen.api.beside import drawn
    from gemmgen.api.simulation import simulate
    from gemmgen.verify import verify

    bm, bn, bk = spec.block
    m, n, k = bm, bn, max(bk, 8) * (spec.stages + 2) * spec.split_k
    a, b = (
        np.ones(shape, x.dtype.numpy_dtype, "F" if x.order == "col" else "C")
        for shape, x in zip(((m, k), (k, n)), spec.matrices, strict=False)
    )
    beside: dict[str, Any] = dict(drawn(spec, m, n))
    done = simulate(ir.without(sync), a, b, **beside)
    right = bool(verify(done.C, a, b, spec=spec, **beside).ok)
    return Cut((m, n, k), tuple(done.faults), right)
