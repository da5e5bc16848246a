"""Register arrays of all lanes, and which of their elements hold a value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmgen.sim.lanes import Active, Bools, Floats
from gemmgen.sim.memory import unravel

UNSET, PARTLY, SET = 0, 1, 2


class Register:
    """A register array: ``data`` is [elements, lanes].

    A register lives where it was declared: in a branch it belongs to the lanes of that branch only, so while just those
    are active no mask is needed.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.shape = shape
        self.elements = int(np.prod(shape, dtype=np.int64))
        self.data: Floats = np.zeros((self.elements, 0), np.float32)
        self.scope: Active = None
        self.full = False
        self._state = bytearray(self.elements)
        self._partly: dict[int, Bools] = {}

    def start(self, lanes: int) -> None:
        """A new batch of blocks."""
        if self.data.shape[1] != lanes:
            self.data = np.zeros((self.elements, lanes), np.float32)
        self.declare(None, None)

    def declare(self, init: float | None, active: Active) -> None:
        """The declaration runs: every element is ``init``, or holds nothing."""
        self.scope = active
        self.full = init is not None
        self._state = bytearray([SET if self.full else UNSET]) * self.elements
        self._partly.clear()
        if init is not None:
            self.data[...] = np.float32(init)

    def whole(self, active: Active) -> bool:
        """Whether the active lanes are all that the register belongs to."""
        return active is None or active is self.scope

    def window(self, first: int, width: int) -> Floats:
        """Elements ``first ..`` as a view [width, lanes]."""
        return self.data[first : first + width]

    def inside(self, first: int, width: int) -> bool:
        return first >= 0 and first + width <= self.elements

    def put(self, first: int, width: int, active: Active, values: Floats) -> None:
        """Set elements in the active lanes."""
        if self.whole(active):
            self.data[first : first + width] = values
        else:
            assert active is not None
            np.copyto(self.data[first : first + width], values, where=active.array)
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
