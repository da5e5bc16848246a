"""Matrices to multiply: with padded rows, NaN in everything that must not be used, and the bound on the result."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir import types
from gemmgen.ir.kernel import TensorMap
from gemmgen.ir.types import NAMED, DType

F32 = NDArray[np.float32]
Elements = NDArray[Any]
"""float32, float16, or bfloat16 of ml_dtypes."""
CANARY = np.float32(-12345.5)
LINE = 16
"""Bytes of the widest access."""
Types = tuple[DType, DType, DType]
FLOATS: Types = (types.F32, types.F32, types.F32)


@dataclass
class Matrix:
    """A rows x cols view, ``offset`` elements into a 16-byte aligned buffer, with ``pitch`` elements from row to row
    (from column to column where ``order`` is "col")."""

    buffer: Elements
    offset: int
    pitch: int
    shape: tuple[int, int]
    order: str

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return self.buffer.itemsize

    @property
    def address(self) -> int:
        return int(self.buffer.ctypes.data) + self.item * self.offset

    @property
    def view(self) -> Elements:
        strides = (self.item * self.pitch, self.item) if self.order == "row" else (self.item, self.item * self.pitch)
        return np.lib.stride_tricks.as_strided(self.buffer[self.offset :], self.shape, strides)

    def mapped(self, x: TensorMap) -> tuple[int, ...]:
        """What a tensor map says of the matrix: tma_stub.h's Map."""
        along, across = self.shape[::-1] if self.order == "row" else self.shape
        return self.address, along, across, self.item * self.pitch, self.item, *x.box, x.swizzle

    def outside(self) -> Elements:
        """What lies around and between the rows."""
        inside = Matrix(np.zeros(self.buffer.shape, bool), self.offset, self.pitch, self.shape, self.order)
        inside.view[...] = True
        return self.buffer[~inside.buffer]


def matrix(values: Elements, pad: int, offset: int, around: float, order: str) -> Matrix:
    """A copy of ``values`` in a larger buffer filled with ``around``; its rows are padded to whole 16 bytes plus
    ``pad`` elements, and it starts ``offset`` elements in."""
    lines, length = values.shape if order == "row" else values.shape[::-1]
    unit = LINE // values.itemsize
    pitch = max(1, -(-length // unit) * unit + pad)
    size = offset + lines * pitch + 64
    raw = np.full(size + unit, around, dtype=values.dtype)
    start = (-raw.ctypes.data // values.itemsize) % unit
    made = Matrix(raw[start : start + size], offset, pitch, (values.shape[0], values.shape[1]), order)
    made.view[...] = values
    return made


class Reserved:
    """Address space of ``size`` bytes, of which only what is touched takes memory."""

    def __init__(self, size: int) -> None:
        no_reserve = 0x4000  # of Linux; in Python's mmap from 3.13 on
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
        self.map = mmap.mmap(-1, size, flags=flags)
        self.floats: F32 = np.frombuffer(self.map, dtype=np.float32)

    def __enter__(self) -> Reserved:
        return self

    def __exit__(self, *_: object) -> None:
        self.floats = np.empty(0, dtype=np.float32)


@dataclass
class Problem:
    """C = alpha * A B + beta * C, with A and B surrounded by NaN and C by a canary."""

    a: Matrix
    b: Matrix
    c: Matrix
    before: Elements
    alpha: float
    beta: float
    k: int

    def arguments(self, maps: Sequence[TensorMap] = ()) -> list[object]:
        """Kernel arguments, as a launch passes them: with alpha 0 there is nothing to add up. Tensor maps come last, as
        the harness takes them."""
        (m, n), k = self.c.shape, self.k if self.alpha else 0
        a, b, c = self.a, self.b, self.c
        plain = [m, n, k, self.alpha, a.address, a.pitch, b.address, b.pitch, self.beta, c.address, c.pitch]
        return [*plain, *({"A": a, "B": b}[x.operand].mapped(x) for x in maps)]

    def check(self) -> None:
        """Compares with float64 within the bound that rounding allows, and looks for stray writes."""
        a, b, c0 = (x.astype(np.float64) for x in (self.a.view, self.b.view, self.before))
        scaled = self.beta * c0 if self.beta else np.zeros_like(c0)
        want = (self.alpha * (a @ b) if self.alpha else 0.0) + scaled
        u, out = types.F32.unit_roundoff, NAMED[self.c.buffer.dtype.name]
        size = abs(self.alpha) * (np.abs(a) @ np.abs(b)) if self.alpha else 0.0
        bound = 2 * (self.k + 1) * u * size + 2 * u * np.abs(scaled) + out.unit_roundoff * np.abs(want)
        wrong = ~(np.abs(self.c.view.astype(np.float64) - want) <= bound + (self.k + 2) * out.tiny)
        assert not wrong.any(), (
            f"{int(wrong.sum())} of {wrong.size} elements are wrong, first at {np.argwhere(wrong)[0].tolist()}: "
            f"got {self.c.view[wrong][0]}, want {want[wrong][0]}"
        )
        assert (self.c.outside() == self.c.buffer.dtype.type(CANARY)).all(), "a write outside C"


def problem(
    m: int,
    n: int,
    k: int,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    pad: int = 0,
    offset: int = 0,
    seed: int = 0,
    order: str | tuple[str, str, str] = "row",
    dtypes: Types = FLOATS,
) -> Problem:
    """Random operands, laid out as :func:`matrix` says. C starts as NaN where beta is 0. ``order`` is that of A, B and
    C, or of each; ``dtypes`` are theirs."""
    order_a, order_b, order_c = (order,) * 3 if isinstance(order, str) else order
    rng = np.random.default_rng(seed)
    shapes = ((m, k), (k, n), (m, n))
    a, b, c = (rng.standard_normal(s).astype(t.numpy_dtype) for s, t in zip(shapes, dtypes, strict=True))
    if not beta:
        c[...] = np.nan
    nan = float("nan")
    return Problem(
        matrix(a, pad, offset, nan, order_a),
        matrix(b, pad, offset, nan, order_b),
        matrix(c, pad, offset, float(CANARY), order_c),
        c.copy(),
        alpha,
        beta,
        k,
    )
