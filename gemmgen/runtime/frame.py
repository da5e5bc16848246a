"""One launch as the driver reads it: configuration and arguments as bytes, of which a call changes only a few."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmgen.runtime.tensormap import Encoded

# CUlaunchConfig: grid, block and bytes of dynamic shared memory; then a stream, the attributes, and how many they are.
_FIXED = struct.Struct("@7I0P")
_MOVING = "@PPP{}P"  # stream, attributes, their number; the addresses of A, B, C, the workspace, and what is beside
# CUlaunchAttribute, whose value takes 64 bytes: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, allowed. The
# launch may start before the one before it on the stream has ended. The driver reads it during the call.
_EARLY = ctypes.create_string_buffer(struct.pack("@i4xi60x", 6, 1), 72)
_ADDRESSES = _FIXED.size + struct.calcsize("@PPP")
_PLACE = 8  # bytes of a constant argument: as many as the widest takes, so that all are aligned

A, B, C, WORKSPACE = range(4)
BESIDE = 4
"""The number of the address of the first operand of an epilogue."""

Constant = tuple[str, Any]
"""An argument that is the same at every launch: struct's letter for its C type, and the value."""


class Frame:
    """The bytes of a launch with everything in place but the stream and the addresses.

    ``arguments``, in the order of the kernel's parameters: a Constant, or the number of an address (A, B, C,
    WORKSPACE, or from BESIDE on those of an epilogue, of which there are ``beside``).
    ``dependent``: the launch may start before the one before it has ended, as a kernel does that waits for that end by
    itself. May serve one launch at a time: the driver copies what it needs during the call. ``config`` and
    ``pointers`` are where the driver is told to look.
    """

    __slots__ = (
        "_attributes", "_bytes", "_count", "_fill", "_pointers", "config", "grid", "maps", "places", "pointers",
    )  # fmt: skip

    def __init__(
        self,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        arguments: Sequence[Constant | int],
        dependent: bool = False,
        beside: int = 0,
    ) -> None:
        self.grid = grid
        self._attributes, self._count = (ctypes.addressof(_EARLY), 1) if dependent else (0, 0)
        constants = _ADDRESSES + struct.calcsize(f"@{BESIDE + beside}P")
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
        moving = struct.Struct(_MOVING.format(BESIDE + beside))
        self._fill = partial(moving.pack_into, self._bytes, _FIXED.size)

    def point(self, argument: int, encoded: Encoded) -> None:
        """Argument number ``argument`` is a map, passed by value; the driver copies as many bytes as it has."""
        self._pointers[argument] = encoded.address

    def fill(self, stream: int, a: int = 0, b: int = 0, c: int = 0, workspace: int = 0, *beside: int) -> None:
        self._fill(stream, self._attributes, self._count, a, b, c, workspace, *beside)
