"""An array where it lies, whoever owns it: address, shape and strides."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Kind = Literal["numpy", "torch", "cupy", "cuda"]
HOST = -1


class ArrayView(NamedTuple):
    """An array where it lies. ``strides`` in elements, ``address`` in bytes, ``device`` a GPU's number or HOST.

    ``dtype`` is NumPy's name, with the byte order where it is not the machine's. ``kind`` says whose array it is;
    "cuda" is any other device array. ``owner`` is the array itself, which keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    read_only: bool
    kind: Kind
    owner: Any

    @property
    def turned(self) -> ArrayView:
        """The transposed matrix, in the same memory."""
        return self._replace(shape=self.shape[::-1], strides=self.strides[::-1])
