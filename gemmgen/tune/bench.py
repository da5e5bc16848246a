"""Operands of any shape on the GPU, and kernels that are checked and timed there, for calibration and autotune()."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gemmgen.ir.types import F32
from gemmgen.ir.variant import EXACT, GUARDED, GUARDED_UNALIGNED, Variant
from gemmgen.tune.pool import Layout, swaps
from gemmgen.tune.shapes import Shape

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.memory import DeviceArray
    from gemmgen.runtime.target import Target
    from gemmgen.spec.model import Spec

VARIANTS: tuple[Variant, ...] = (EXACT, GUARDED, GUARDED_UNALIGNED)
"""By their numbers in ``cost``."""

SAMPLE_S = 0.0012


class Bench:
    """Operands of any shape on the GPU, and kernels that were compiled."""

    def __init__(self, device: Device, elements: tuple[int, int, int]) -> None:
        import numpy as np

        from gemmgen.runtime.driver import LEGACY_STREAM, call, private_stream
        from gemmgen.runtime.memory import DeviceArray, upload

        self.device, self.stream = device, private_stream(device.ordinal)
        self.slabs = [DeviceArray.empty((1, count), F32.numpy, device.ordinal) for count in elements]
        values = np.random.default_rng(0).standard_normal(1 << 22, dtype=F32.numpy_dtype)
        self.values = values
        for slab, count in zip(self.slabs, elements, strict=True):
            for at in range(0, count, len(values)):
                upload(values[: min(len(values), count - at)], slab.address + F32.bytes * at, LEGACY_STREAM)
        call("cuCtxSynchronize")
        self.kept: dict[int, Any] = {}
        self._loaded: dict[tuple[Spec, int], Any] = {}

    def operands(self, shape: Shape, layout: Layout) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        m, n, k = shape
        a, b, c = self.slabs
        return _view(a, (m, k), layout[0]), _view(b, (k, n), layout[1]), _view(c, (m, n), "n")

    def gemm(self, spec: Spec, number: int, target: Target) -> Any:
        from gemmgen.api import ready
        from gemmgen.runtime.gemm import GpuGemm
        from gemmgen.runtime.launch import GpuModule

        key = (spec, number)
        if key not in self._loaded:
            kernels = ready.keep(spec, VARIANTS[number], target)

            def load(variant: Variant, part: Any, device: Device) -> GpuModule:
                ir, built = kernels.part(part)
                return GpuModule(ir, built, device)

            gemm = GpuGemm(spec, load, VARIANTS[number], kernels.program)
            gemm.share_workspace(self.kept)
            gemm.keep_workspace(self.stream)
            self._loaded[key] = gemm
        return self._loaded[key]

    def call_of(self, gemm: Any, shape: Shape, layout: Layout) -> Callable[[], Any]:
        a, b, c = self.operands(shape, layout)
        if swaps(gemm.spec):
            a, b, c = b.turned, a.turned, c.turned
        return partial(gemm, a, b, c, 1.0, 0.0, self.stream)

    def error(self, call_it: Callable[[], Any], shape: Shape, layout: Layout) -> float:
        """The largest error of a call, relative to what rounding allows."""
        import numpy as np

        c = self.operands(shape, layout)[2]
        want, bound = self._expected(shape, layout)
        c.set(np.full(c.shape, np.nan, F32.numpy_dtype))
        call_it()
        worst: float = np.nan_to_num(np.abs(c.numpy() - want) / bound, nan=np.inf).max()
        return worst

    def _expected(self, shape: Shape, layout: Layout) -> tuple[Any, Any]:
        import numpy as np

        m, n, k = shape
        a = self.values[: m * k].astype(np.float64)
        b = self.values[: k * n].astype(np.float64)
        a = a.reshape(m, k) if layout[0] == "n" else a.reshape(k, m).T
        b = b.reshape(k, n) if layout[1] == "n" else b.reshape(n, k).T
        return a @ b, 2 * (k + 1) * 2.0**-24 * (np.abs(a) @ np.abs(b))

    def once(self, call_it: Callable[[], Any]) -> float:
        """Seconds of one launch, roughly: the second of two."""
        from gemmgen.runtime.timing import seconds_of

        call_it()
        return seconds_of(call_it, self.stream)

    def replayed(self, call_it: Callable[[], Any], roughly: float) -> float:
        """Seconds of one launch: the least of three replays of a graph."""
        from gemmgen.runtime.timing import capture, seconds_of

        count = max(2, min(100, math.ceil(SAMPLE_S / roughly)))

        def run() -> None:
            for _ in range(count):
                call_it()

        replay = capture(run, self.stream)
        found = [seconds_of(replay, self.stream) / count for _ in range(3 if roughly < 0.003 else 2)]
        return min(found[1:])


def _view(slab: DeviceArray, shape: tuple[int, int], letter: str) -> DeviceArray:
    rows, columns = shape
    if letter == "n":
        return slab.part(0, shape)
    return slab.part(0, (columns, rows)).turned
