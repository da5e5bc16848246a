"""Where numeric tests run: the simulator on NumPy arrays, or a GPU on device arrays that lie as the NumPy ones do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gemmgen
from gemmgen import Spec

SIM_AND_CUDA = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]


@dataclass(frozen=True)
class DeviceView:
    """A matrix inside a buffer on the GPU, for any library, as the NumPy view it copies lies in its own."""

    buffer: Any
    __cuda_array_interface__: dict[str, Any]


class Place:
    """Runs products on one of the two devices, with NumPy arrays in and out of it."""

    def __init__(self, device: str) -> None:
        if device == "cuda":
            from gemmgen.runtime import device as gpus

            if gpus.current() is None:
                pytest.skip(f"no GPU: {gpus.why_none()}")
        self.device = device

    def compile(self, spec: Spec) -> gemmgen.Kernel:
        return gemmgen.compile(spec, device=self.device)  # type: ignore[arg-type]

    def put(self, values: Any) -> Any:
        """The array itself, or its whole buffer copied to the GPU and the same view of it there."""
        if self.device == "sim" or values is None:
            return values
        from gemmgen.runtime import memory
        from gemmgen.runtime.driver import LEGACY_STREAM, on_device

        root = values
        while isinstance(root.base, np.ndarray):
            root = root.base
        flat = root.ravel(order="K").view(np.uint8)  # as it lies in memory
        buffer = memory.DeviceArray.empty((1, max(flat.size // 4, 1)), "float32", 0)
        with on_device(0):
            memory.upload(flat, buffer.address, LEGACY_STREAM)
        start = values.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        interface = dict(values.__array_interface__, data=(buffer.address + start, False), strides=values.strides)
        return DeviceView(buffer, {**interface, "version": 3, "stream": None})

    def get(self, x: Any) -> Any:
        """The values as a NumPy array."""
        if self.device == "sim" or isinstance(x, np.ndarray):
            return x
        from gemmgen.runtime.arrays import to_host

        return to_host(x)

    def run(self, spec: Spec, A: Any, B: Any, C: Any = None, alpha: Any = 1.0, beta: Any = 0.0) -> Any:
        """C as a NumPy array, after a call with arrays of the device, C updated in place where it is given."""
        out = self.put(C)
        result = self.compile(spec)(self.put(A), self.put(B), out, alpha, beta)
        assert C is None or result is out
        return self.get(result)


@pytest.fixture(params=SIM_AND_CUDA)
def place(request: pytest.FixtureRequest) -> Place:
    """The simulator; and the GPU, skipped with the reason where there is none."""
    return Place(request.param)
