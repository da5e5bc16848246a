"""A GPU of this machine to tune on: candidates are compiled here, and run in a process of their own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gemmgen.target import GPUS, Gpu
from gemmgen.tune.backend import Care, Compiled, Failed, Measured
from gemmgen.tune.compiling import as_sent, compile_candidate
from gemmgen.tune.features import layout_of
from gemmgen.tune.process import Patience, WorkerProcess
from gemmgen.tune.records import Machine
from gemmgen.tune.shapes import Shape

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.tune.space import Candidate


class GpuBackend:
    """GPU number ``ordinal`` of this machine. Raises LaunchError where there is none."""

    def __init__(self, ordinal: int = 0, patience: Patience | None = None) -> None:
        from gemmgen.runtime import device as devices
        from gemmgen.runtime.nvrtc import supported_archs
        from gemmgen.runtime.target import choose_target

        self.device = devices.get(ordinal)
        self._target = choose_target(self.device.cc, supported_archs())
        self._machine = machine_of(self.device)
        self._gpu = gpu_of(self.device)
        self._worker = WorkerProcess({"CUDA_VISIBLE_DEVICES": visible(ordinal)}, patience)

    @property
    def machine(self) -> Machine:
        return self._machine

    @property
    def gpu(self) -> Gpu:
        return self._gpu

    @property
    def clock_hz(self) -> float:
        return self.device.clock_khz * 1000.0

    @property
    def sms(self) -> int:
        return self.device.sms

    def compile(self, candidate: Candidate, shape: Shape) -> Compiled | Failed:
        return compile_candidate(candidate.spec, shape, self._target)

    def measure(self, batch: Sequence[Candidate], shape: Shape, care: Care, *, warm: bool) -> list[Measured | Failed]:
        layouts = [layout_of(c.spec) for c in batch]
        found: dict[int, Measured | Failed] = {}
        for layout in dict.fromkeys(layouts):  # operands lie as the kernels read them
            places = [i for i, own in enumerate(layouts) if own == layout]
            texts = [as_sent(batch[i].spec) for i in places]
            answers = self._worker.measure(texts, shape, care, warm=warm, layout=layout)
            found.update(zip(places, answers, strict=True))
        return [found[i] for i in range(len(batch))]

    def close(self) -> None:
        self._worker.close()


def machine_of(device: Device) -> Machine:
    """What measurements on a GPU hold for, with the compiler that is installed; "none" where none is."""
    from gemmgen.runtime.nvrtc import NvrtcMissing, version

    try:
        nvrtc = _dotted(version())
    except NvrtcMissing:
        nvrtc = "none"
    return Machine(device.name, driver_release() or "CUDA " + _dotted(device.driver), nvrtc)


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def driver_release() -> str | None:
    """The release of the NVIDIA driver, as 580.95.05; None where nothing tells."""
    module = Path("/proc/driver/nvidia/version")
    if not module.is_file():
        return None
    words = module.read_text(encoding="utf-8", errors="replace").split()
    return next((w for w in words if w[0].isdigit() and "." in w), None)


def gpu_of(device: Device) -> Gpu:
    """The row of the table of GPUs for a device; where it has none, the nearest architecture's, scaled to it."""
    name = "".join(c for c in device.name.lower() if c.isalnum())
    named = [row for row in GPUS.values() if row.name in name]
    if named:
        return max(named, key=lambda row: len(row.name))
    number = 10 * device.cc[0] + device.cc[1]
    near = min(GPUS.values(), key=lambda row: abs(int(row.arch.removeprefix("sm_")) - number))
    rate = device.sms * device.clock_khz / (near.sms * near.clock_mhz * 1000)
    return replace(
        near, name=device.name, title=device.name, sms=device.sms, clock_mhz=device.clock_khz // 1000,
        fp32_tflops=near.fp32_tflops * rate, l2_bytes=device.l2_bytes, memory_bytes=device.memory_bytes,
    )  # fmt: skip


def visible(ordinal: int) -> str:
    """What makes GPU number ``ordinal`` of this process the only one of a child."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return str(ordinal)
    listed = [x.strip() for x in given.split(",") if x.strip()]
    return listed[ordinal] if ordinal < len(listed) else str(ordinal)
