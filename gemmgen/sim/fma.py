"""Nests of loops around one multiply-add, run as one outer product over all lanes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gemmgen.ir.nodes import Fma
from gemmgen.ir.types import F32
from gemmgen.isa.counted import FMA
from gemmgen.sim.access import Element, Plain, element, linear
from gemmgen.sim.index import Scope
from gemmgen.sim.lanes import Active, Data, Ints
from gemmgen.sim.machine import Machine
from gemmgen.sim.memory import SMALLEST_NORMAL
from gemmgen.sim.registers import SINGLE
from gemmgen.sim.values import Remembered

PIECE = 1 << 16
"""Products computed at a time: they and their factors stay in the cache."""

Loop = tuple[int, range]
"""A loop's slot among the loop variables, and its values."""


@dataclass(frozen=True)
class _Plan:
    """The nest for given outer loop variables: elements of acc, a and b for every point of the nest, [points], and
    views to compute them all at once (none where that would not be the same)."""

    elements: tuple[Ints, Ints, Ints]
    pieces: tuple[tuple[Data, Data, Data], ...]


def fma(m: Machine, loops: tuple[Loop, ...], s: Fma, scope: Scope) -> Plain:
    """``acc += a * b`` in float32 for all values of the loops; multiplication and addition are rounded apart, unless
    fused. Raises ValueError where the sum is of another type."""
    refs = (s.acc, s.a, s.b)
    if s.acc.array.dtype != F32:
        raise ValueError(f"{s.acc.array.name} is {s.acc.array.dtype}; a multiply-add sums in float32")
    operands = tuple(element(m, ref, scope, (s, i)) for i, ref in enumerate(refs))
    inner = {slot for slot, _ in loops}
    deps = frozenset[int]().union(*(linear(ref, scope).deps for ref in refs)) - inner
    wide: list[Data | None] = [None] * len(operands)

    def widen() -> list[Data]:
        """The operands' registers in float32, always in the same arrays."""
        found = [x.register.widened(into) for x, into in zip(operands, wide, strict=True)]
        wide[:] = found
        return found

    known: dict[tuple[bytes, ...], _Plan] = {}

    def planned() -> _Plan:
        """The plan for the current loop variables: few choices of elements occur, however many steps there are."""
        if known and known_for[0] is not m.batch:
            known.clear()
        known_for[0] = m.batch
        elements = _elements(m, loops, operands)
        key = tuple(e.tobytes() for e in elements)
        if key not in known:
            known[key] = _plan(operands, elements, tuple(len(r) for _, r in loops), widen())
        return known[key]

    known_for: list[object] = [None]
    plan = Remembered(m.values, deps, planned)
    narrow = any(x.register.dtype != SINGLE for x in operands)
    math, flops = m.math, FMA.flops * prod(len(r) for _, r in loops)
    scratch: list[Data] = []

    def run(active: Active) -> None:
        p = plan()
        math[FMA.pipe] += flops * m.active_lanes(active)
        if not p.pieces:
            _one_by_one(m, operands, p, active, s.fused)
            return
        for x, elements in zip(operands, p.elements, strict=True):
            if not x.register.full:
                for e in np.unique(elements):
                    x.check(int(e), 1, active, reads=True)
        if narrow:
            widen()
        where = None if operands[0].register.whole(active) or active is None else active.array
        for acc, a, b in p.pieces:
            if not scratch or scratch[0].size < acc.size:
                scratch[:] = [np.empty(acc.size, SINGLE)]
            products = scratch[0][: acc.size].reshape(acc.shape)
            if s.fused:
                np.copyto(acc, fused(acc, a, b), where=True if where is None else where)
                continue
            np.multiply(a, b, out=products)
            if where is None:
                np.add(acc, products, out=acc)
            else:
                np.add(acc, products, out=acc, where=where)

    return run


def _elements(m: Machine, loops: tuple[Loop, ...], operands: tuple[Element, ...]) -> tuple[Ints, Ints, Ints]:
    """The elements of acc, a and b at every point of the nest, for the current outer loop variables."""
    env, slots = m.values.env, [slot for slot, _ in loops]
    points = list(product(*(r for _, r in loops)))
    found = []
    for x in operands:
        at, elements = x.at, np.empty(len(points), np.int64)
        for point, values in enumerate(points):
            for slot, value in zip(slots, values, strict=True):
                env[slot] = value
            elements[point] = at()
        found.append(elements)
    acc, a, b = found
    return acc, a, b


def _plan(
    operands: tuple[Element, ...], found: tuple[Ints, Ints, Ints], shape: tuple[int, ...], data: list[Data]
) -> _Plan:
    """``data`` are the operands' registers in float32. Sums that are distinct may be added to in any order: where the
    nest takes them in another than that of their numbers (snake order), the views are of the latter."""
    acc, a, b = found
    names = {x.register.name for x in operands}
    if len(np.unique(acc)) < len(acc) or len(names) < len(operands):
        return _Plan(found, ())
    rising = np.argsort(acc)
    for order in (slice(None), rising):
        views = [_view(x, e[order].reshape(shape)) for x, e in zip(data, found, strict=True)]
        if all(v is not None for v in views):
            return _Plan((acc, a, b), _pieces(*(v for v in views if v is not None)))
    return _Plan(found, ())


def _view(data: Data, elements: Ints) -> Data | None:
    """Elements of a register's data as an array [*loops, lanes]; None where their positions are no linear function of
    the loop variables, or lie outside."""
    if elements.size == 0 or elements.min() < 0 or elements.max() >= len(data):
        return None
    first = int(elements.flat[0])
    steps = [int(np.take(elements, 1, axis=d).flat[0]) - first if n > 1 else 0 for d, n in enumerate(elements.shape)]
    line = np.full(elements.shape, first, np.int64)
    for d, step in enumerate(steps):
        index = np.arange(elements.shape[d]).reshape([-1 if i == d else 1 for i in range(elements.ndim)])
        line = line + step * index
    if not np.array_equal(line, elements):
        return None
    row = data.strides[0]
    return as_strided(data[first:], (*elements.shape, data.shape[1]), (*(row * s for s in steps), data.strides[1]))


def _pieces(acc: Data, a: Data, b: Data) -> tuple[tuple[Data, Data, Data], ...]:
    """Cut along the first loop so that a piece fits the cache."""
    if acc.ndim < 2:
        return ((acc, a, b),)
    step = max(1, PIECE * acc.shape[0] // max(1, acc.size))
    return tuple((acc[i : i + step], a[i : i + step], b[i : i + step]) for i in range(0, acc.shape[0], step))


def _one_by_one(m: Machine, operands: tuple[Element, ...], p: _Plan, active: Active, once: bool) -> None:
    """Point by point: where one element is added to twice, or a position lies outside."""
    acc, a, b = operands
    for i, j, k in zip(*(e.tolist() for e in p.elements), strict=True):
        inside = [x.check(e, 1, active, reads=True) for x, e in ((acc, i), (a, j), (b, k))]
        if inside[0]:
            x = _single(a, j) if inside[1] else np.zeros(m.batch.lanes, SINGLE)
            y = _single(b, k) if inside[2] else np.zeros(m.batch.lanes, SINGLE)
            before = acc.register.data[i]
            acc.register.put(i, 1, active, fused(before, x, y) if once else before + x * y)


def _single(x: Element, element: int) -> Data:
    """One element of a register in float32."""
    value: Data = x.register.data[element].astype(SINGLE, copy=False)
    return value


def fused(c: Data, a: Data, b: Data) -> Data:
    """``a * b + c`` rounded once to float32, exactly as the hardware's fused multiply-add.

    The product of two float32 is exact in float64. The sum is rounded to float64 first, and rounding that to float32 is
    wrong only where it lies just between two float32 (the sum's error would decide), or is subnormal: there the sum is
    made odd in its last bit, which keeps the second rounding from losing what the first dropped.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = np.add(product, c)
    bits = total.view(np.int64)
    close = (bits & (1 << 29) - 1) == 1 << 28
    close |= np.abs(total) < SMALLEST_NORMAL
    if close.any():
        back = total - product
        error = (product - (total - back)) + (c - back)
        odd = close & (error != 0) & np.isfinite(total) & (bits & 1 == 0)
        bits += np.where(odd, np.where((error > 0) == (total > 0), 1, -1), 0)
    result: Data = total.astype(SINGLE)
    return result
