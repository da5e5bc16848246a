"""How much a simulated launch takes: memory of a batch of blocks, and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import assert_never

from gemmgen.ir.expr import Bin, Const, Expr, Select, Var, value_of
from gemmgen.ir.integers import apply
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import (
    Alloc,
    Call,
    Compute,
    Fma,
    For,
    If,
    Let,
    LetPointer,
    Load,
    Pinned,
    Roles,
    Section,
    Stmt,
    Store,
    Sync,
    shape_of,
    size_bytes,
    walk,
)
from gemmgen.sim.lanes import grid_values

Known = Mapping[str, int | float]

LANES_AT_ONCE = 1 << 15
"""Lanes beyond which a larger batch gains nothing more."""
SHADOW_BYTES = 10
"""Bytes of shadow for an element of shared memory: stamp, writer, access."""

# Measured on one core of a Xeon server at about 3 GHz, rounded up.
STEP_S = 12e-6
"""A statement executed for a batch: the interpreter's part of it."""
MOVED_S = 1.2e-9
"""An element that one thread moves between memories and registers, checks and counts included."""
FUSED_STEPS = 4
"""A statement of multiply-adds of one rounding, in steps."""
PRODUCT_S = 0.8e-9
"""A multiply-add of one thread."""
BATCH_S = 4e-3
"""Setting up a batch: lane parts of the indices, counting each access for the first time."""


@dataclass(frozen=True)
class Amount:
    """What one thread does: ``steps`` statements (a nest of multiply-adds is one), ``moved`` elements, ``products``."""

    steps: float = 0
    moved: float = 0
    products: float = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.steps + other.steps, self.moved + other.moved, self.products + other.products)

    def times(self, n: float) -> Amount:
        return Amount(self.steps * n, self.moved * n, self.products * n)


def blocks_at_once(ir: KernelIR, total: int, memory_bytes: int = 200 << 20) -> int:
    """How many of ``total`` blocks are run together, so that their state takes about ``memory_bytes`` at most: whole
    clusters."""
    unit = min((a.dtype.bytes for a in ir.shared), default=1)
    shared = ir.shared_bytes + ir.shared_bytes // unit * SHADOW_BYTES
    registers, index = 0, 0
    for s in walk(ir.body):
        match s:
            case Alloc(array):
                registers += size_bytes(array)
            case Load(width=width) | Store(width=width):
                index += 8 * (1 + width)
            case _:
                pass
    block = shared + ir.threads * (registers + 3 * index + 64)
    by_memory = memory_bytes // block
    by_lanes = LANES_AT_ONCE // ir.threads
    cluster = value_of(ir.cluster) or 1
    return max(cluster, min(total, by_memory, by_lanes) // cluster * cluster)


def estimate_seconds(ir: KernelIR, grid: tuple[int, int, int], scalars: Mapping[str, int | float]) -> float:
    """About how long ``run_kernel`` takes, in seconds on one core; right within a factor of 2 or so."""
    total = grid[0] * grid[1] * grid[2]
    if total == 0:
        return 0.0
    work = _all(ir.body, {**scalars, **grid_values(grid)})
    batches = -(-total // blocks_at_once(ir, total))
    lanes = total * ir.threads
    return batches * (BATCH_S + work.steps * STEP_S) + lanes * (work.moved * MOVED_S + work.products * PRODUCT_S)


def _all(body: tuple[Stmt, ...], known: dict[str, int | float]) -> Amount:
    total = Amount()
    for s in body:
        total += _one(s, known)
    return total


def _one(s: Stmt, known: dict[str, int | float]) -> Amount:
    match s:
        case Let(var, expr):
            known[var.name] = _value(expr, known)
            return Amount()
        case LetPointer():
            return Amount()
        case For():
            return _loop(s, known)
        case If(_, then, orelse):
            return _all(then, dict(known)) + _all(orelse, dict(known))
        case Section(_, body) | Pinned(_, body):
            return _all(body, known)
        case Roles(roles):
            return sum((_all(r.body, dict(known)) for r in roles), Amount())
        case Load(width=width) | Store(width=width):
            return Amount(1, width)
        case Fma(fused=fused):
            return Amount(FUSED_STEPS if fused else 1, 0, 1)
        case Compute():
            return Amount(1, 1)
        case Alloc(array, init):
            return Amount(0.1) if init is None else Amount(1, prod(shape_of(array)))
        case Call():
            return Amount(4, 4)
        case Sync():
            return Amount(1)
        case _:
            assert_never(s)


def _loop(s: For, known: dict[str, int | float]) -> Amount:
    start, stop, step = (int(_value(e, known)) for e in (s.start, s.stop, s.step))
    trips = len(range(start, stop, max(1, step)))
    body = _all(s.body, known | {s.var.name: start})
    if body.products and not body.moved:  # a nest of multiply-adds is one statement
        return Amount(min(body.steps, FUSED_STEPS), 0, body.products * trips)
    return body.times(trips)


def _value(e: Expr, known: Known) -> int | float:
    """The value of an expression where it is known; in the first thread of the first block."""
    match e:
        case Const(value):
            return value
        case Var(name):
            return known.get(name, 0)
        case Bin(op, a, b):
            x, y = _value(a, known), _value(b, known)
            return 0 if op in "/%" and y == 0 else apply(op, x, y)  # type: ignore[arg-type]  # alpha and beta are floats
        case Select(cond, a, b):
            return _value(a if _value(cond, known) else b, known)
        case _:
            raise TypeError(f"not an index expression: {e!r}")
