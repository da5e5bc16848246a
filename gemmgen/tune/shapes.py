"""Kinds of shapes, and which tuned shape is nearest to another one."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, log2
from typing import Literal, TypeAlias

from gemmgen.ir.types import F32

Shape: TypeAlias = tuple[int, int, int]
Align: TypeAlias = tuple[int, int, int]
Kind = Literal["skinny_m", "skinny_n", "deep", "shallow", "square"]

SKINNY = 64
"""Rows (or columns) of C up to which a product reads a matrix more than it multiplies."""
LOPSIDED = 16
"""How much longer or shorter than C's sides K is, where that decides the kernel."""
OTHER_ALIGNMENT = 4.0
"""What another alignment of an operand's rows adds to a distance: as much as a factor of 4 in one size."""


def kind_of(shape: Shape) -> Kind:
    """What sort of product M x N x K is: the tile that suits one suits others of its kind."""
    m, n, k = shape
    if m <= SKINNY and m <= n:
        return "skinny_m"
    if n <= SKINNY:
        return "skinny_n"
    if k >= LOPSIDED * max(m, n):
        return "deep"
    if LOPSIDED * k <= min(m, n):
        return "shallow"
    return "square"


def alignment_of(leading: tuple[int, int, int], addresses: tuple[int, int, int] = (0, 0, 0)) -> Align:
    """Bytes (16, 8 or 4) to which each row of A, B and C is aligned; leading dimensions in elements of float32."""
    a, b, c = (_bytes(F32.bytes * row, at) for row, at in zip(leading, addresses, strict=True))
    return a, b, c


def packed(shape: Shape, layout: str = "nn") -> Align:
    """The alignment of packed matrices, of A and B by rows ("n") or by columns ("t"), and of C by rows."""
    m, n, k = shape
    return alignment_of((k if layout[0] == "n" else m, n if layout[1] == "n" else k, n))


def _bytes(*values: int) -> int:
    return next((w for w in (16, 8) if all(v % w == 0 for v in values)), 4)


def distance(one: Shape, other: Shape, align: Align, other_align: Align) -> float:
    """How unlike two products are: squares of the logarithms of the sizes' ratios; infinite between kinds."""
    if kind_of(one) != kind_of(other):
        return inf
    far = sum(log2(max(a, 1) / max(b, 1)) ** 2 for a, b in zip(one, other, strict=True))
    return far + OTHER_ALIGNMENT * sum(x != y for x, y in zip(align, other_align, strict=True))


def order_of_nearness(shape: Shape, align: Align, known: Iterable[tuple[Shape, Align]], far: float = inf) -> list[int]:
    """Positions in ``known``, nearest first: the very shape, then others of its kind, up to a distance of ``far``."""
    rows = [(distance(shape, other, align, other_align), i) for i, (other, other_align) in enumerate(known)]
    return [i for apart, i in sorted(rows) if apart <= far and apart < inf]
