"""Whether an output shares memory with an input, exactly: views of one buffer may lie between one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, TypeAlias

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.types import F32

if TYPE_CHECKING:
    from gemmgen.ir.program import Program

Dim: TypeAlias = tuple[int, int]
"""How many, and how many bytes apart."""


def refuse_overlap(
    program: Program,
    shapes: Mapping[str, tuple[int, ...]],
    strides: Mapping[str, tuple[int, ...]],
    addresses: Mapping[str, int],
) -> None:
    """Raise ArgumentError where C, or what an epilogue stores, shares memory with what is read. An operand of C's shape
    may be C itself: each of its elements is read by the thread that then stores it."""
    spans = {
        x.name: Rows.of(shapes[x.name], strides[x.name], addresses[x.name], x.dtype.bytes) for x in program.matrices
    }
    for x in program.beside:
        spans[x.name] = Rows.of(shapes[x.name], strides[x.name], addresses[x.name], x.dtype.bytes)
    written = ["C", *(x.name for x in program.beside if x.written)]
    whole = {x.name for x in program.beside if x.matrix is not None and not x.written}
    for out in written:
        for name in (x for x in spans if x not in written or x > out):
            same = out == "C" and name in whole and spans[out] == spans[name]
            if not same and spans[name].overlaps(spans[out]):
                raise ArgumentError(
                    f"{out} overlaps {name} in memory; it is written while {name} is read: pass a copy of one"
                    if name not in written
                    else f"{out} overlaps {name} in memory, and both are written: pass a copy of one"
                )


@dataclass(frozen=True)
class Rows:
    """The bytes of a strided matrix: runs of ``length`` bytes at ``first + x0 * step0 + x1 * step1``, for every x_i
    from 0 to ``count_i - 1``; ``dims`` are the (count, step), steps above 0."""

    first: int
    dims: tuple[Dim, ...]
    length: int

    @classmethod
    def of(cls, shape: tuple[int, ...], strides: tuple[int, ...], address: int, item: int = F32.bytes) -> Rows:
        if 0 in shape:
            return cls(address, (), 0)
        reach = [(n, s * item) for n, s in zip(shape, strides, strict=True) if n > 1 and s]
        first = address + sum((n - 1) * s for n, s in reach if s < 0)
        return cls(first, tuple((n, abs(s)) for n, s in reach), item)

    def overlaps(self, other: Rows) -> bool:
        """Whether a byte is in both: whether a run of one starts less than a length from one of the other."""
        if not self.length or not other.length:
            return False
        # start of own run - start of other's = apart + sums of steps, once the other's are counted from their ends.
        apart = self.first - other.first - sum((n - 1) * s for n, s in other.dims)
        return reaches((*self.dims, *other.dims), 1 - self.length - apart, other.length - 1 - apart)


def reaches(dims: Sequence[Dim], low: int, high: int) -> bool:
    """Whether x0 * step0 + x1 * step1 + ... lies in [low, high] for some x_i, each from 0 to its ``count - 1``.

    Exact. Two dimensions take a logarithmic number of steps, and those of views of one buffer join to that few; only
    what is left beyond two is gone through, the shortest first.
    """
    left = _joined(dims)
    while left and left[0][1] <= high - low + 1:  # steps that leave no gap widen the interval
        count, step = left.pop(0)
        low -= (count - 1) * step
    most = sum((count - 1) * step for count, step in left)
    if high < 0 or low > most:
        return False
    common = gcd(*(step for _, step in left))
    if not left or (common and high // common * common < low):
        return low <= 0 <= high
    match left:
        case [(count, step)]:
            return max(0, -(-low // step)) <= min(count - 1, high // step)
        case [one, other]:
            return _two_reach(one, other, low, high)
        case _:
            shortest = min(left)
            left.remove(shortest)
            return any(reaches(left, low - x * shortest[1], high - x * shortest[1]) for x in range(shortest[0]))


def _joined(dims: Sequence[Dim]) -> list[Dim]:
    """The dimensions by rising step; two become one where the longer step is a multiple that the shorter ones fill."""
    found: list[Dim] = []
    for count, step in sorted(dims, key=lambda dim: dim[1]):
        for i, (fewer, short) in enumerate(found):
            if step % short == 0 and fewer >= step // short:
                found[i] = (fewer + (count - 1) * (step // short), short)
                break
        else:
            found.append((count, step))
    return found


def _two_reach(one: Dim, other: Dim, low: int, high: int) -> bool:
    """``reaches`` of two dimensions, whose steps are larger than the interval.

    For a y between ``first`` and ``last`` the sum can only leave the interval by a remainder: every multiple of
    ``step`` in [low - y * across, high - y * across] is one that x reaches, or 0 is one. They are counted for all y.
    """
    (count, step), (lines, across) = one, other
    first = max(0, -(-(low - (count - 1) * step) // across))
    last = min(lines - 1, high // across)
    if first > last:
        return False
    many = last - first + 1
    upper, lower = high - last * across, low - 1 - last * across
    return _sum_of_floors(many, step, across, upper) > _sum_of_floors(many, step, across, lower)


def _sum_of_floors(n: int, m: int, a: int, b: int) -> int:
    """The sum of (a * i + b) // m for i from 0 to n - 1, as Euclid finds the greatest common divisor of a and m."""
    total = 0
    while n > 0:
        total += (a // m) * (n * (n - 1) // 2) + (b // m) * n
        a, b = a % m, b % m
        n, b, m, a = (a * n + b) // m, (a * n + b) % m, a, m
    return total
