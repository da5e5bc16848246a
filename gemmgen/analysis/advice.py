"""Advice: a change of the spec that lowers the expected time.

Advice is tried before it is given. Each change that could help is applied, the program is lowered and counted again,
and the change that lowers the expected time most is returned with its gain.

The compiler can undo that gain: it decides the order of FMAs, registers and spills. Where the kernel was compiled, the
best changes are therefore compiled too, and the first that still helps is returned with its gain as compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gemmgen.analysis.accesses import launch_grid
from gemmgen.analysis.changes import Change, changes, sets
from gemmgen.analysis.counts import count
from gemmgen.analysis.model import Bounds, Run, bounds, tiles_computed
from gemmgen.analysis.occupancy import named_registers, occupancy_of, register_limit
from gemmgen.diagnostics import GemmgenError
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.ir.variant import EXACT, GUARDED_UNALIGNED
from gemmgen.lower import lower
from gemmgen.spec.architecture import architecture_problem
from gemmgen.spec.model import Spec
from gemmgen.spec.replace import tried

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation


WORTH = 0.97
"""A change is advised where it leaves at most this share of the expected time."""
TRIES = 3
"""Changes that are compiled at most: one compilation takes longer than everything else."""


@dataclass(frozen=True)
class Advice:
    """A change that lowers the expected time, with the bounds ``before`` and ``after``, both as ``compiled`` or both as
    written. ``together``: no single setting helps, but the settings of the change together do."""

    change: Change
    before: Bounds
    after: Bounds
    together: bool = False
    compiled: bool = False


def advise(e: Explanation) -> Advice | None:
    """The change that lowers the expected time most: of one setting, else of several together, else None."""
    before = _tried(e, {})
    if before is None:
        return None
    by, spec = e.bound.by, e.spec
    single = _best(e, before, changes(spec, by))
    if single is not None:
        return single
    several = _best(e, before, sets(spec, by))
    return several and replace(several, together=True)


def _best(e: Explanation, before: Bounds, candidates: Iterable[Change]) -> Advice | None:
    """The best change as written; where the kernel was compiled, the first of the best that also helps as compiled."""
    promised = sorted(_promised(e, before, candidates), key=lambda advice: advice.after.total_s)
    if e.again is None:
        return next((advice for advice in promised if _worth(advice)), None)
    checked = (_as_compiled(e, e.again, advice.change) for advice in promised[:TRIES])
    return next((advice for advice in checked if advice is not None and _worth(advice)), None)


def _promised(e: Explanation, before: Bounds, candidates: Iterable[Change]) -> Iterator[Advice]:
    """The changes that save time as written."""
    for change in candidates:
        after = _tried(e, change.fields)
        if after is not None and after.total_s < before.total_s:
            yield Advice(change, before, after)


def _worth(advice: Advice) -> bool:
    return advice.after.total_s <= WORTH * advice.before.total_s


def _as_compiled(e: Explanation, again: Callable[[Spec], Explanation], change: Change) -> Advice | None:
    """A change with its bounds as compiled; None where it does not compile, or no block fits on an SM."""
    try:
        followed = again(tried(e.spec, **change.fields))
    except GemmgenError:  # a grid that cannot be launched
        return None
    if followed.compiled is None or not followed.occupancy.blocks_per_sm:
        return None
    return Advice(change, e.bound, followed.bound, compiled=True)


def _tried(e: Explanation, fields: dict[str, Any]) -> Bounds | None:
    """The bounds with some settings changed; None where the spec is not legal or no block fits on an SM."""
    try:
        spec = tried(e.spec, **fields)
    except GemmgenError:
        return None
    if architecture_problem(spec, e.gpu.arch):
        return None
    m, n, k = e.size
    bm, bn, bk = spec.block
    line = max(x.dtype.elements(VECTOR_BYTES) for x in e.ir.matrices)
    whole = m % bm == 0 and n % bn == 0 and k % bk == 0 and all(extent % line == 0 for extent in e.size)
    ir = lower(spec, EXACT if whole else GUARDED_UNALIGNED)
    fits = occupancy_of(e.gpu.limits, ir.threads, _registers(e, ir), ir.shared_bytes)
    if not fits.blocks_per_sm:
        return None
    leading = {f"ld{x.lower()}": pitch for x, pitch in zip("ABC", pitches(spec, e.size), strict=True)}
    leading |= {x.matrix.leading: leading["ldc"] for x in spec.beside if x.matrix is not None}
    leading |= {x.stride: 0 for x in spec.operands if x.batch}
    scalars = {"alpha": 1.0, "beta": e.beta, "M": m, "N": n, "K": k, **leading}
    grid = launch_grid(ir, scalars)
    blocks, launches = grid[0] * grid[1] * grid[2], len(ir.kernels)
    tiles = tiles_computed(ir, grid, scalars)
    run = Run(ir, e.size, count(ir, scalars, grid), blocks, e.gpu, fits, e.beta, launches=launches, tiles=tiles)
    return bounds(run)


def _registers(e: Explanation, ir: KernelIR) -> int:
    """Registers per thread of a program that was not compiled: those it names, and as many more as the compiler added
    to this one."""
    named = named_registers(ir.body)
    if e.compiled is None or bool(ir.shared) != bool(e.ir.shared):
        return named
    more = max(0, e.compiled.registers - named_registers(e.ir.body))
    return max(named, min(named + more, register_limit(ir, e.gpu)))


def pitches(spec: Spec, size: tuple[int, int, int]) -> tuple[int, int, int]:
    """Leading dimensions of packed A, B and C, in elements."""
    m, n, k = size
    rows, columns = (m, k, m), (k, n, n)
    orders = (spec.A.order, spec.B.order, spec.C.order)
    a, b, c = (max(1, columns[i] if orders[i] == "row" else rows[i]) for i in range(3))
    return a, b, c
