"""One launch as the driver reads it: configuration and arguments as bytes, of which a call changes only a few."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmgen.runtime.tensormap import Encoded

# CUlaunchConfig: grid, block and bytes of dynamic shared memory; then a stream, and the attributes, which are none.
_FIXED = struct.Struct("@7I0P")
_MOVING = struct.Struct("@PPP4P")  # stream, no attributes, none of them; the addresses of A, B, C and the workspace
_ADDRESSES = _FIXED.size + struct.calcsize("@PPP")
_PLACE = 8  # bytes of a constant argument: as many as the widest takes, so that all are aligned

A, B, C, WORKSPACE = range(4)

Constant = tuple[str, Any]
"""An argument that is the same at every launch: struct's letter for its C type, and the value."""


class Frame:
    """The bytes of a launch with everything in place but the stream and the addresses.

    ``arguments``, in the order of the kernel's parameters: a Constant, or the number of an address (A, B, C or
    WORKSPACE). May serve one launch at a time: the driver copies what it needs during the call. ``config`` and
    ``pointers`` are where the driver is told to look.
    """

    __slots__ = ("_bytes", "_fill", "_pointers", "config", "grid", "maps", "places", "pointers")

    def __init__(
        self, grid: tuple[int, int, int], threads: int, shared_bytes: int, arguments: Sequence[Constant | int]
    ) -> None:
        self.grid = grid
        constants = _ADDRESSES + struct.calcsize("@4P")
        self._bytes = ctypes.create_string_buffer(constants + _PLACE * len(arguments))
        base = ctypes.addressof(self._bytes)
        _FIXED.pack_into(self._bytes, 0, *grid, threads, 1, 1, shared_bytes)
        at = []
        for i, argument in enumerate(arguments):
            if isinstance(argument, int):
                at.append(base + _ADDRESSES + argument * struct.calcsize("@P"))
                continue
            letter, value = argument
            struct.pack_into(f"@{letter}", self._bytes, constants + _PLACE * i, value)
            at.append(base + constants + _PLACE * i)
        self._pointers = (ctypes.c_void_p * max(len(at), 1))(*at)
        self.config = base
        self.pointers = ctypes.addressof(self._pointers)
        self.places: tuple[int, int, int] | None = None  # the addresses that the maps are of
        self.maps: tuple[Encoded, ...] = ()
        self._fill = partial(_MOVING.pack_into, self._bytes, _FIXED.size)

    def point(self, argument: int, encoded: Encoded) -> None:
        """Argument number ``argument`` is a map, passed by value; the driver copies as many bytes as it has."""
        self._pointers[argument] = encoded.address

    def fill(self, stream: int, a: int = 0, b: int = 0, c: int = 0, workspace: int = 0) -> None:
        self._fill(stream, 0, 0, a, b, c, workspace)
