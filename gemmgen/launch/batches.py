"""Batches of products: how many there are, how far apart the matrices of each operand lie, and which are shared.

Pure, like ``launch.planning``. An operand has two dimensions, or a third in front; a batch of one, or none, is the same
for all products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gemmgen.diagnostics import ArgumentError
from gemmgen.launch.launches import Launch
from gemmgen.launch.placement import OPERANDS, WIDEST, Place

if TYPE_CHECKING:
    from gemmgen.ir.program import Program

GRID_Z = 65535
"""CUDA's limit on blocks along z."""


@dataclass(frozen=True)
class Batch:
    """``count`` products; of each operand the elements from one matrix to the next, 0 where all are one."""

    count: int = 1
    strides: tuple[tuple[str, int], ...] = ()


ONE = Batch()


def product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of A @ B: of the batch that either is, where one is."""
    batch = max((x[0] for x in (a, b) if len(x) == 3 and x[0] != 1), default=1)
    batch = 0 if any(len(x) == 3 and x[0] == 0 for x in (a, b)) else batch
    return (*((batch,) if 3 in (len(a), len(b)) else ()), a[-2], b[-1])


def batch_of(program: Program, shapes: Mapping[str, tuple[int, ...]], strides: Mapping[str, tuple[int, ...]]) -> Batch:
    """The batch of a call. Raises ArgumentError where operands disagree, or matrices of an output overlap."""
    if not program.batched:
        return ONE
    ranks = {**dict.fromkeys(OPERANDS, 2), **{x.name: max(1, len(x.dims)) for x in program.beside}}
    counts = {name: shapes[name][0] for name, rank in ranks.items() if len(shapes[name]) > rank}
    inputs = {name: count for name, count in counts.items() if name != "C"}
    most = max((c for c in inputs.values() if c != 1), default=1)
    for name, count in inputs.items():
        if count not in (1, most):
            other = next(x for x, c in inputs.items() if c == most)
            raise ArgumentError(f"{name} is a batch of {count}, and {other} of {most}; a batch of 1 is shared by all")
    if counts.get("C", 1) != most:
        raise ArgumentError(f"C is a batch of {counts.get('C', 1)}; the product is one of {most}")
    written = {"C", *(x.name for x in program.beside if x.written)}
    apart = []
    for name in ranks:
        count = counts.get(name, 1)
        step = strides[name][0] if count > 1 else 0
        if step < 0:
            raise ArgumentError(f"{name} has the stride {step} from one matrix to the next; pass a contiguous copy")
        if name in written and count != most:
            raise ArgumentError(f"{name} is a batch of {count}, and is written for each of {most} products")
        if name in written and count > 1:
            _refuse_overlap(name, shapes[name], strides[name])
        apart.append((name, step))
    return Batch(most, tuple(apart))


def _refuse_overlap(name: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Raise ArgumentError where two elements of an output may be one."""
    reach = 0
    for step, count in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if step <= reach:
            raise ArgumentError(f"{name} has strides {strides} (in elements): its matrices overlap; pass a copy")
        reach += step * (count - 1)


def matrices_of(values: Mapping[str, tuple[int, ...]], program: Program) -> dict[str, tuple[int, ...]]:
    """Shapes, or strides, of one product of a batch."""
    ranks = {**dict.fromkeys(OPERANDS, 2), **{x.name: max(1, len(x.dims)) for x in program.beside}}
    return {name: v[1:] if program.batched and len(v) > ranks[name] else v for name, v in values.items()}


def phase(program: Program, name: str, address: int, batch: Batch) -> int:
    """An address modulo 16 that is aligned as that of every matrix of a batch is."""
    items = {x.name: x.dtype.bytes for x in program.operands}
    return (address | dict(batch.strides).get(name, 0) * items[name]) % WIDEST


def refuse_copies(program: Program, places: Mapping[str, Place], strides: tuple[tuple[int, ...], ...]) -> None:
    """Raise ArgumentError for a batch whose matrices no kernel can read where they lie."""
    for i, name in enumerate(OPERANDS):
        if places[name].copy is not None:
            along = "rows" if program.matrix(name).order == "row" else "columns"
            raise ArgumentError(
                f"{name} has strides {strides[i]} (in elements) in each matrix of the batch; stride 1 along {along} "
                f"is wanted: pass a contiguous copy, or take a spec with {name} in the other order"
            )


def in_batches(program: Program, whole: Launch, batch: Batch) -> list[Launch]:
    """One launch of a panel of C for all products; several where the grid's z would pass its limit."""
    if not program.batched:
        return [whole]
    most = max(1, GRID_Z // program.parts)
    found = []
    for first in range(0, batch.count, most):
        given, step = whole.arguments, dict(batch.strides)
        moved = {name: getattr(given, name) + first * step[name] for name in OPERANDS}
        beside = tuple((name, at + first * step[name], leading) for name, at, leading in given.beside)
        count = min(most, batch.count - first)
        arguments = replace(given, **moved, beside=beside, batch=count, strides=batch.strides)
        found.append(replace(whole, grid=(*whole.grid[:2], whole.grid[2] * count), arguments=arguments))
    return found
