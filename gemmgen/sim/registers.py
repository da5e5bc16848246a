"""Register arrays of all lanes, and which of their elements hold a value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmgen.ir.types import F32, DType
from gemmgen.sim.lanes import Active, Bools, Data
from gemmgen.sim.memory import unravel

UNSET, PARTLY, SET = 0, 1, 2
SINGLE = F32.numpy_dtype
"""The type of all arithmetic."""


class Register:
    """A register array: ``data`` is [elements, lanes], each value of the array's own type.

    A 16-bit floating-point register holds its number (as NumPy's float16 or ``ml_dtypes``' bfloat16), not its bits;
    what reads it for arithmetic widens it to float32, which is exact.

    A register lives where it was declared: in a branch it belongs to the lanes of that branch only, so while just those
    are active no mask is needed.
    """

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType) -> None:
        self.name = name
        self.dtype = dtype.numpy_dtype
        self.shape = shape
        self.elements = int(np.prod(shape, dtype=np.int64))
        self.data: Data = np.zeros((self.elements, 0), self.dtype)
        self.scope: Active = None
        self.full = False
        self._state = bytearray(self.elements)
        self._partly: dict[int, Bools] = {}

    def start(self, lanes: int) -> None:
        """A new batch of blocks."""
        if self.data.shape[1] != lanes:
            self.data = np.zeros((self.elements, lanes), self.dtype)
        self.declare(None, None)

    def declare(self, init: float | None, active: Active) -> None:
        """The declaration runs: every element is ``init``, or holds nothing."""
        self.scope = active
        self.full = init is not None
        self._state = bytearray([SET if self.full else UNSET]) * self.elements
        self._partly.clear()
        if init is not None:
            self.data[...] = init

    def whole(self, active: Active) -> bool:
        """Whether the active lanes are all that the register belongs to."""
        return active is None or active is self.scope

    def window(self, first: int, width: int) -> Data:
        """Elements ``first ..`` as a view [width, lanes]."""
        return self.data[first : first + width]

    def widened(self, into: Data | None) -> Data:
        """The values in float32: the data itself, or, of another type, a copy, made in the array that is given."""
        if self.dtype == SINGLE:
            return self.data
        if into is None or into.shape != self.data.shape:
            into = np.empty(self.data.shape, SINGLE)
        into[...] = self.data
        return into

    def inside(self, first: int, width: int) -> bool:
        return first >= 0 and first + width <= self.elements

    def put(self, first: int, width: int, active: Active, values: Data) -> None:
        """Set elements in the active lanes."""
        if self.whole(active):
            self.data[first : first + width] = values
        else:
            assert active is not None
            np.copyto(self.data[first : first + width], values, casting="unsafe", where=active.array)
        self.define(first, width, active)

    def define(self, first: int, width: int, active: Active) -> None:
        """Elements now hold a value in the active lanes."""
        if self.full:
            return
        if self.whole(active):
            self._state[first : first + width] = bytes([SET]) * width
            self.full = self._state.count(SET) == self.elements
            return
        assert active is not None
        for i in range(first, first + width):
            if self._state[i] != SET:
                self._state[i] = PARTLY
                before = self._partly.get(i)
                self._partly[i] = active.array if before is None else before | active.array

    def missing(self, elements: Sequence[int], active: Active) -> tuple[int, int] | None:
        """(element, lane) of the first active lane for which an element holds no value."""
        if self.full:
            return None
        for i in elements:
            if self._state[i] == SET:
                continue
            lacks = np.ones(self.data.shape[1], np.bool_) if active is None else active.array.copy()
            if active is None and self.scope is not None:
                lacks &= self.scope.array
            if self._state[i] == PARTLY:
                lacks &= ~self._partly[i]
            if lacks.any():
                return i, int(np.argmax(lacks))
        return None

    def index_of(self, element: int) -> tuple[int, ...]:
        """The element's index in each dimension."""
        return unravel(element, self.shape)
