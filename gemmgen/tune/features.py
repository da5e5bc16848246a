"""What the model of time asks of specs: integers of each, and constants guessed where none were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gemmgen.ir.types import F32
from gemmgen.tune.cost import CLUSTER, CONSTANTS, SECOND, WHOLE, Kernels
from gemmgen.tune.pool import LAYOUTS, Layout, swaps

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.tune.shapes import Shape

ADDING = frozenset({"dependentLaunch", "clusterReduce", "atomics"})
CLOCK = 1.755e9
STEP_WAIT_S = 0.25e-6 / 32
"""Seconds that a block waits for a step along k to arrive, where other stages hide most of it."""


def layout_of(spec: Spec) -> Layout:
    """The layout that a spec computes, C by rows: with operands swapped where its own C is by columns."""
    orders = [x.order for x in (spec.A, spec.B)]
    if swaps(spec):
        orders = ["row" if order == "col" else "col" for order in reversed(orders)]
    letters = "".join("n" if order == "row" else "t" for order in orders)
    return next(layout for layout in LAYOUTS if layout == letters)


def served(spec: Spec, layout: Layout) -> bool | None:
    """Whether a kernel computes a layout (C by rows) with its operands swapped; None where it reads others."""
    return swaps(spec) if layout_of(spec) == layout else None


def own_shape(spec: Spec, shape: Shape) -> Shape:
    """The shape of a caller's product as a spec computes it."""
    m, n, k = shape
    return (n, m, k) if swaps(spec) else shape


def how_added(spec: Spec) -> int:
    if spec.split_k == 1:
        return WHOLE
    return CLUSTER if spec.has("clusterReduce") else SECOND


def base_of(spec: Spec) -> Spec:
    """The spec with K whole: what its constants are kept for, whatever the number of parts."""
    return spec if spec.split_k == 1 else spec.replace(split_k=1, use=spec.use - ADDING)


def guess(spec: Spec) -> tuple[float, ...]:
    """Constants of a kernel that nobody measured."""
    bm, bn, bk = spec.block
    sums = spec.thread[0] * spec.thread[1] * spec.warp_iterations[0] * spec.warp_iterations[1]
    busy = 0.92 if spec.has("tma") else 0.85 if spec.has("cpasync") else 0.6
    share = bm * bn * bk / 128 / CLOCK / (busy * sums / (sums + 6))
    waited = STEP_WAIT_S * bk if spec.stages > 1 or bk == 1 else 0.8e-6
    values = {
        "start": 1.0e-6, "alone": share + waited, "share": share, "end": 0.8e-6 + bm * bn * F32.bytes / 60e9,
        "exact": 0.97, "unaligned": 1.25, "ragged_end": 1.5,
    }  # fmt: skip
    return tuple(values[name] for name in CONSTANTS)


def resident_guess(spec: Spec) -> int:
    """Blocks of a spec that fit on an SM of sm_90, before it was compiled."""
    from gemmgen.analysis.occupancy import occupancy_of
    from gemmgen.ir.variant import EXACT
    from gemmgen.target import limits
    from gemmgen.tile.rewrites import build
    from gemmgen.tune.estimate import ADDRESSES, fragments_of, sums_of

    p, here = build(spec, EXACT), limits("sm_90")
    most = here.registers_per_thread if not p.min_blocks else here.registers // (p.min_blocks * max(p.threads, 128))
    registers = min(most, sums_of(p) + fragments_of(p) + ADDRESSES)
    return max(1, occupancy_of(here, p.threads, registers, p.shared_bytes).blocks_per_sm)


def resident_of(specs: Sequence[Spec], registers: Mapping[tuple[int, int], int]) -> dict[Spec, int]:
    """Blocks that fit on an SM, by the registers that the compiler took: the most of any variant."""
    from gemmgen.analysis.occupancy import occupancy_of
    from gemmgen.ir.variant import EXACT
    from gemmgen.target import limits
    from gemmgen.tile.rewrites import build

    here, most = limits("sm_90"), dict[int, int]()
    for (i, _), count in registers.items():
        most[i] = max(count, most.get(i, 0))
    found = {}
    for i, count in most.items():
        p = build(specs[i], EXACT)
        found[specs[i]] = max(1, occupancy_of(here, p.threads, count, p.shared_bytes).blocks_per_sm)
    return found


def kernels_of(
    specs: Sequence[Spec],
    constants: Sequence[Sequence[float]] | None = None,
    resident: Sequence[int] | None = None,
) -> Kernels:
    """The rows of specs; what is not given is guessed."""
    import numpy as np

    fit = [resident_guess(s) for s in specs] if resident is None else resident
    known = [guess(s) for s in specs] if constants is None else constants
    return Kernels(
        np.array([s.block for s in specs], np.int64).reshape(-1, 3),
        np.array([s.split_k for s in specs], np.int64),
        np.array([how_added(s) for s in specs], np.int64),
        np.array(fit, np.int64),
        np.array(known, np.float64).reshape(-1, len(CONSTANTS)),
    )
