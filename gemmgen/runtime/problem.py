"""Operands of a product on the GPU, in as many sets as the L2 cache must be passed by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, LaunchError
from gemmgen.ir.types import F32, U8, DType
from gemmgen.runtime.driver import LEGACY_STREAM, call
from gemmgen.runtime.memory import DeviceArray, upload

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device

Types = tuple[DType, DType, DType]
FLOATS: Types = (F32, F32, F32)
Orders = tuple[str, str, str]
BY_ROWS: Orders = ("row", "row", "row")
Set = tuple[DeviceArray, DeviceArray, DeviceArray]

BEYOND_L2 = 3  # the sets together are this many times the L2 cache
_ALIGN = 256
_MOST_SETS = 1000
_NAN = 0xFF
"""The byte of which a NaN of any floating-point type may be made."""


@dataclass(frozen=True)
class Expected:
    """Rows from ``first`` on, in float64: what is wanted, and how far from it is still right."""

    first: int
    want: Any
    bound: Any


@dataclass(frozen=True)
class Problem:
    """A, B and C of (M, N, K) = ``size``, random normal and the same in every set; ``host`` holds their values, which
    are of ``types``.

    ``expected`` is where a check keeps what it compares with.
    """

    size: tuple[int, int, int]
    device: Device
    host: tuple[Any, Any, Any]
    slab: DeviceArray
    sets: tuple[Set, ...]
    rotated_bytes: int
    types: Types = FLOATS
    expected: dict[tuple[float, float], tuple[Expected, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def make(
        cls,
        size: tuple[int, int, int],
        device: Device,
        *,
        beta: float,
        warm: bool,
        seed: int,
        types: Types = FLOATS,
        orders: Orders = BY_ROWS,
    ) -> Problem:
        """Raises ArgumentError where nothing can be timed, LaunchError where the GPU's memory is too small."""
        import numpy as np

        m, n, k = size
        if min(size) < 1:
            raise ArgumentError(f"size {m}x{n}x{k}: there is nothing to time where M, N or K is 0")
        shapes = ((m, k), (k, n), (m, n))
        sizes = [t.bytes * rows * columns for t, (rows, columns) in zip(types, shapes, strict=True)]
        places = [-(-size // _ALIGN) * _ALIGN for size in sizes]
        count = _count(sum(places), device, warm)
        rng = np.random.default_rng(seed)
        host = [rng.standard_normal(shape, dtype=F32.numpy_dtype) for shape in shapes[: 3 if beta else 2]]
        host += [np.zeros(shapes[2], F32.numpy_dtype)] * (3 - len(host))
        host = [
            np.asarray(x.astype(t.numpy_dtype, copy=False), order="C" if order == "row" else "F")
            for x, t, order in zip(host, types, orders, strict=True)
        ]
        slab = DeviceArray.empty((1, count * sum(places)), U8.numpy, device.ordinal)
        sets = []
        for i in range(count):
            at, parts = i * sum(places), []
            for shape, place, t, order in zip(shapes, places, types, orders, strict=True):
                parts.append(slab.part(at, shape, t.numpy, order=order))
                at += place
            sets.append((parts[0], parts[1], parts[2]))
        problem = cls(size, device, (host[0], host[1], host[2]), slab, tuple(sets), count * sum(places), types)
        problem._fill(sum(places))
        return problem

    def _fill(self, one: int) -> None:
        for part, values in zip(self.sets[0], self.host, strict=True):
            upload(values, part.address, LEGACY_STREAM)
        first = self.sets[0][0].address
        for a, _, _ in self.sets[1:]:
            call("cuMemcpyDtoDAsync", a.address, first, one, LEGACY_STREAM)
        call("cuCtxSynchronize")

    def poison(self, c: DeviceArray, beta: float = 0.0) -> None:
        """C as it should be before a check: NaN where it must not be read, else its first values."""
        if beta == 0.0:
            call("cuMemsetD8Async", c.address, _NAN, c.nbytes, LEGACY_STREAM)
        else:
            upload(self.host[2], c.address, LEGACY_STREAM)
        call("cuCtxSynchronize")

    def __enter__(self) -> Problem:
        return self

    def __exit__(self, *exception: object) -> None:
        self.expected.clear()
        call("cuCtxSynchronize")
        self.slab.free()


def _count(one: int, device: Device, warm: bool) -> int:
    """How many sets of ``one`` bytes: beyond the L2 cache together, within the memory that is free."""
    free = int(call("cuMemGetInfo")[0])
    if one > free * 0.9:
        raise LaunchError(f"the operands take {one / 1e9:.1f} GB, and {free / 1e9:.1f} GB of GPU memory are free")
    wanted = 1 if warm else max(2, -(-BEYOND_L2 * device.l2_bytes // one))
    return int(max(1, min(wanted, _MOST_SETS, free * 0.9 // one)))
