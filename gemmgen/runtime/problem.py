"""Operands of a product on the GPU, in as many sets as the L2 cache must be passed by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, LaunchError
from gemmgen.runtime.driver import LEGACY_STREAM, call
from gemmgen.runtime.memory import DeviceArray, upload

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device

Set = tuple[DeviceArray, DeviceArray, DeviceArray]

BEYOND_L2 = 3  # the sets together are this many times the L2 cache
_ALIGN = 256
_MOST_SETS = 1000
_NAN = 0x7FC00000


@dataclass(frozen=True)
class Expected:
    """Rows from ``first`` on, in float64: what is wanted, and how far from it is still right."""

    first: int
    want: Any
    bound: Any


@dataclass(frozen=True)
class Problem:
    """A, B and C of (M, N, K) = ``size``, random normal and the same in every set; ``host`` holds their values.

    ``expected`` is where a check keeps what it compares with.
    """

    size: tuple[int, int, int]
    device: Device
    host: tuple[Any, Any, Any]
    slab: DeviceArray
    sets: tuple[Set, ...]
    rotated_bytes: int
    layout: str = "nn"
    """How A and B lie: "n" by rows, "t" by columns, as a transposed view. C lies by rows."""
    expected: dict[tuple[float, float], tuple[Expected, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def make(
        cls, size: tuple[int, int, int], device: Device, *, beta: float, warm: bool, seed: int, layout: str = "nn"
    ) -> Problem:
        """Raises ArgumentError where nothing can be timed, LaunchError where the GPU's memory is too small."""
        import numpy as np

        m, n, k = size
        if min(size) < 1:
            raise ArgumentError(f"size {m}x{n}x{k}: there is nothing to time where M, N or K is 0")
        shapes = ((m, k), (k, n), (m, n))
        places = [-(-4 * rows * columns // _ALIGN) * _ALIGN for rows, columns in shapes]
        count = _count(sum(places), device, warm)
        rng = np.random.default_rng(seed)
        host = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes[: 3 if beta else 2]]
        host += [np.zeros(shapes[2], np.float32)] * (3 - len(host))
        slab = DeviceArray.empty((1, count * sum(places) // 4), "float32", device.ordinal)
        sets = []
        for i in range(count):
            at, parts = i * sum(places), []
            for shape, place, letter in zip(shapes, places, layout + "n", strict=True):
                parts.append(slab.part(at, shape) if letter == "n" else slab.part(at, shape[::-1]).turned)
                at += place
            sets.append((parts[0], parts[1], parts[2]))
        problem = cls(size, device, (host[0], host[1], host[2]), slab, tuple(sets), count * sum(places), layout)
        problem._fill(sum(places))
        return problem

    def _fill(self, one: int) -> None:
        import numpy as np

        for part, values, letter in zip(self.sets[0], self.host, self.layout + "n", strict=True):
            stored = values if letter == "n" else np.ascontiguousarray(values.T)
            upload(stored, part.address, LEGACY_STREAM)
            call("cuCtxSynchronize")
        first = self.sets[0][0].address
        for a, _, _ in self.sets[1:]:
            call("cuMemcpyDtoDAsync", a.address, first, one, LEGACY_STREAM)
        call("cuCtxSynchronize")

    def poison(self, c: DeviceArray, beta: float = 0.0) -> None:
        """C as it should be before a check: NaN where it must not be read, else its first values."""
        if beta == 0.0:
            call("cuMemsetD32Async", c.address, _NAN, c.nbytes // 4, LEGACY_STREAM)
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
