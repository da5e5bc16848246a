"""Matrices to multiply: with padded rows, NaN in everything that must not be used, and the bound on the result."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.kernel import TensorMap

F32 = NDArray[np.float32]
CANARY = np.float32(-12345.5)


@dataclass
class Matrix:
    """A rows x cols view, ``offset`` floats into a 16-byte aligned buffer, with ``pitch`` floats from row to row (from
    column to column where ``order`` is "col")."""

    buffer: F32
    offset: int
    pitch: int
    shape: tuple[int, int]
    order: str

    @property
    def address(self) -> int:
        return int(self.buffer.ctypes.data) + 4 * self.offset

    @property
    def view(self) -> F32:
        strides = (4 * self.pitch, 4) if self.order == "row" else (4, 4 * self.pitch)
        return np.lib.stride_tricks.as_strided(self.buffer[self.offset :], self.shape, strides)

    def mapped(self, x: TensorMap) -> tuple[int, ...]:
        """What a tensor map says of the matrix: tma_stub.h's Map."""
        along, across = self.shape[::-1] if self.order == "row" else self.shape
        return self.address, along, across, 4 * self.pitch, *x.box, x.swizzle

    def outside(self) -> F32:
        """What lies around and between the rows."""
        inside = Matrix(np.zeros_like(self.buffer), self.offset, self.pitch, self.shape, self.order)
        inside.view[...] = 1
        return self.buffer[inside.buffer == 0]


def matrix(values: F32, pad: int, offset: int, around: float, order: str) -> Matrix:
    """A copy of ``values`` in a larger buffer filled with ``around``; its rows are padded to whole 16 bytes plus
    ``pad`` floats, and it starts ``offset`` floats in."""
    lines, length = values.shape if order == "row" else values.shape[::-1]
    pitch = max(1, -(-length // 4) * 4 + pad)
    size = offset + lines * pitch + 64
    raw = np.full(size + 4, around, dtype=np.float32)
    start = (-raw.ctypes.data // 4) % 4
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
    before: F32
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
        u = 2.0**-24
        size = abs(self.alpha) * (np.abs(a) @ np.abs(b)) if self.alpha else 0.0
        bound = 2 * (self.k + 1) * u * size + 2 * u * np.abs(scaled) + u * np.abs(want) + (self.k + 2) * 2.0**-149
        wrong = ~(np.abs(self.c.view - want) <= bound)
        assert not wrong.any(), (
            f"{int(wrong.sum())} of {wrong.size} elements are wrong, first at {np.argwhere(wrong)[0].tolist()}: "
            f"got {self.c.view[wrong][0]}, want {want[wrong][0]}"
        )
        assert (self.c.outside() == CANARY).all(), "a write outside C"


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
) -> Problem:
    """Random operands, laid out as :func:`matrix` says. C starts as NaN where beta is 0. ``order`` is that of A, B and
    C, or of each."""
    order_a, order_b, order_c = (order,) * 3 if isinstance(order, str) else order
    rng = np.random.default_rng(seed)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
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
