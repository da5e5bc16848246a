"""GPUs: limits per compute capability, peaks per product, each figure with its source.

Peaks are dense rates. A figure that NVIDIA does not publish is measured, or an upper limit derived from a published
figure; its source says which.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from gemmgen.diagnostics import ArgumentError, shown


@dataclass(frozen=True)
class Limits:
    """Resources of one streaming multiprocessor (SM) of a compute capability, and their allocation units.

    Registers are 32-bit; shared memory is in bytes. ``shared_per_block`` is the opt-in maximum; up to 48 KB needs no
    opt-in. ``shared_reserved`` is what the system reserves per block. ``fp32_lanes`` are float32 FMAs per clock.
    ``mma_share`` is the part of the tensor cores' rate that mma.sync reaches.
    """

    arch: str
    warps: int
    blocks: int
    shared_per_sm: int
    shared_per_block: int
    shared_unit: int
    shared_reserved: int
    fp32_lanes: int
    threads_per_block: int = 1024
    registers: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    register_unit: int = 256
    warp_unit: int = 4
    schedulers: int = 4
    shared_bytes_per_clock: int = 128
    l1_lines_per_clock: int = 1
    l2_bytes_per_clock: int = 64
    shared_static: int = 48 * 1024
    mma_share: float = 1.0


KB = 1024
MB = 1024 * 1024
GB = 1_000_000_000

LIMITS_SOURCE = (
    "CUDA C++ Programming Guide, technical specifications per compute capability; "
    "allocation units as in cuda_occupancy.h of the CUDA Toolkit"
)
L1_SOURCE = (
    "one tag lookup of a 128-byte line per clock and SM: a kernel with 32 lines per request takes 33.5 clocks per step "
    "on an H200"
)

LIMITS: Mapping[str, Limits] = {
    row.arch: row
    for row in (
        #      arch      warps blocks  shared/SM  shared/block  unit  reserved  FP32 lanes
        Limits("sm_75", 32, 16, 64 * KB, 64 * KB, 256, 0, 64),
        Limits("sm_80", 64, 32, 164 * KB, 163 * KB, 128, KB, 64),
        Limits("sm_86", 48, 16, 100 * KB, 99 * KB, 128, KB, 128),
        Limits("sm_87", 48, 16, 164 * KB, 163 * KB, 128, KB, 128),
        Limits("sm_89", 48, 24, 100 * KB, 99 * KB, 128, KB, 128),
        Limits("sm_90", 64, 32, 228 * KB, 227 * KB, 128, KB, 128, mma_share=0.62),
        Limits("sm_100", 64, 32, 228 * KB, 227 * KB, 128, KB, 128),
        Limits("sm_103", 64, 32, 228 * KB, 227 * KB, 128, KB, 128),
        Limits("sm_110", 48, 24, 228 * KB, 227 * KB, 128, KB, 128),
        Limits("sm_120", 48, 24, 100 * KB, 99 * KB, 128, KB, 128),
        Limits("sm_121", 48, 24, 100 * KB, 99 * KB, 128, KB, 128),
    )
}

MOST = Limits("any", 64, 32, 228 * KB, 227 * KB, 128, KB, 128)
"""The largest of each limit."""
ARCHS: tuple[str, ...] = (
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a",
    *(f"sm_{number}{suffix}" for number in (100, 103, 107, 110, 120, 121) for suffix in ("", "a", "f")),
)  # fmt: skip
"""Architectures that NVRTC 13 reports. Another release may lack some, and reports an error then."""


@dataclass(frozen=True)
class Gpu:
    """A product: rates in TFLOP/s (None where it has no such unit), bandwidths in GB/s, sizes in bytes.

    ``sources`` has the source of each figure.
    """

    name: str
    title: str
    arch: str
    sms: int
    clock_mhz: int
    fp32_tflops: float
    tf32_tflops: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    dram_gb_s: float
    l2_gb_s: float
    l2_bytes: int
    memory_bytes: int
    sources: Mapping[str, str]

    @property
    def limits(self) -> Limits:
        """The resources of one of its SMs."""
        return LIMITS[self.arch]

    @property
    def clock_hz(self) -> float:
        return self.clock_mhz * 1e6

    def tensor_tflops(self, bits: int) -> float | None:
        """The rate of the tensor cores for operands of so many bits, with sums in float32."""
        return {32: self.tf32_tflops, 16: self.bf16_tflops, 8: self.fp8_tflops}[bits]

    @property
    def shared_gb_s(self) -> float:
        """Shared-memory bandwidth of all SMs together."""
        return self.sms * self.limits.shared_bytes_per_clock * self.clock_hz / GB

    @property
    def ridge(self) -> float:
        """flop per byte of DRAM traffic above which a float32 kernel can be limited by arithmetic."""
        return self.ridge_at(self.fp32_tflops)

    def ridge_at(self, tflops: float) -> float:
        """The same at another rate of arithmetic, such as that of the tensor cores."""
        return tflops * 1e12 / (self.dram_gb_s * GB)


FIGURES = (
    "sms", "clock_mhz", "fp32_tflops", "tf32_tflops", "bf16_tflops", "fp8_tflops",
    "dram_gb_s", "l2_gb_s", "l2_bytes", "memory_bytes",
)  # fmt: skip

_PORT = "upper limit: 64 bytes per clock and SM at the given clock; no total is published"
_SLICES = "upper limit: 5120 bytes per clock as in the NVIDIA A100 whitepaper, at the given clock; none is published"


def _sources(everything: str, **exceptions: str) -> Mapping[str, str]:
    return {**dict.fromkeys(FIGURES, everything), **exceptions}


def _port_gb_s(sms: int, clock_mhz: int) -> float:
    return sms * 64 * clock_mhz / 1000


def _slices_gb_s(clock_mhz: int) -> float:
    return 5120 * clock_mhz / 1000


_ROWS = (
    Gpu(
        "t4", "NVIDIA T4", "sm_75", 40, 1590, 8.1, None, None, None, 320, _port_gb_s(40, 1590), 4 * MB, 16 * GB,
        _sources("NVIDIA Turing architecture whitepaper and T4 datasheet", l2_gb_s=_PORT),
    ),
    Gpu(
        "a100", "NVIDIA A100 SXM4 80 GB", "sm_80", 108, 1410, 19.5, 156, 312, None,
        2039, _slices_gb_s(1410), 40 * MB, 80 * GB,
        _sources(
            "NVIDIA A100 whitepaper",
            dram_gb_s="NVIDIA A100 80 GB datasheet",
            memory_bytes="NVIDIA A100 80 GB datasheet",
            l2_gb_s="NVIDIA A100 whitepaper: 5120 bytes per clock",
        ),
    ),
    Gpu(
        "a6000", "NVIDIA RTX A6000", "sm_86", 84, 1800, 38.7, 77.4, 154.8, None,
        768, _port_gb_s(84, 1800), 6 * MB, 48 * GB,
        _sources("NVIDIA Ampere GA102 whitepaper and RTX A6000 datasheet", l2_gb_s=_PORT),
    ),
    Gpu(
        "rtx3090", "NVIDIA GeForce RTX 3090", "sm_86", 82, 1695, 35.6, 35.6, 71, None,
        936, _port_gb_s(82, 1695), 6 * MB, 24 * GB,
        _sources("NVIDIA Ampere GA102 whitepaper (tensor rates with float32 accumulation)", l2_gb_s=_PORT),
    ),
    Gpu(
        "rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", 128, 2520, 82.6, 82.6, 165.2, 330.3,
        1008, _port_gb_s(128, 2520), 72 * MB, 24 * GB,
        _sources("NVIDIA Ada architecture whitepaper (tensor rates with float32 accumulation)", l2_gb_s=_PORT),
    ),
    Gpu(
        "l40s", "NVIDIA L40S", "sm_89", 142, 2520, 91.6, 183, 362, 733,
        864, _port_gb_s(142, 2520), 96 * MB, 48 * GB,
        _sources(
            "NVIDIA L40S datasheet",
            clock_mhz="NVIDIA L40S product brief",
            l2_bytes="NVIDIA Ada architecture whitepaper, AD102 with the full L2",
            l2_gb_s=_PORT,
        ),
    ),
    Gpu(
        "h100", "NVIDIA H100 SXM5 80 GB", "sm_90", 132, 1980, 66.9, 494.7, 989.4, 1978.9,
        3350, _slices_gb_s(1980), 50 * MB, 80 * GB,
        _sources(
            "NVIDIA H100 whitepaper and datasheet",
            clock_mhz="published listings of the board's maximum clock in nvidia-smi",
            l2_gb_s=_SLICES,
        ),
    ),
    Gpu(
        "h200", "NVIDIA H200 SXM 141 GB", "sm_90", 132, 1980, 64.6, 494.7, 989.4, 1978.9,
        4220, _slices_gb_s(1980), 60 * MB, 141 * GB,
        _sources(
            "NVIDIA H200 datasheet",
            sms="read from the driver of an H200",
            clock_mhz="measured under load on an H200 of 700 W, 2026-11-29",
            fp32_tflops="measured: FMA ceiling of an H200 of 700 W, 2026-11-29 (66.9 by clock)",
            dram_gb_s="measured: device copy, read and written, on an H200, 2026-11-29 (4800 by datasheet)",
            l2_bytes="read from the driver of an H200",
            l2_gb_s=_SLICES,
        ),
    ),
    Gpu(
        "b200", "NVIDIA B200 SXM 180 GB", "sm_100", 148, 1965, 74.4, 1100, 2250, 4500,
        7700, _slices_gb_s(1965), 126 * MB, 180 * GB,
        _sources(
            "NVIDIA HGX B200 datasheet, one eighth of it",
            sms="published listings of what the driver of a B200 reports",
            clock_mhz="published listings of the board's maximum clock in nvidia-smi",
            fp32_tflops="148 SMs of 128 lanes at the given clock (the HGX B200 datasheet rounds to 75)",
            l2_bytes="published listings of what the driver of a B200 reports",
            l2_gb_s=_SLICES,
        ),
    ),
    Gpu(
        "rtx5090", "NVIDIA GeForce RTX 5090", "sm_120", 170, 2407, 104.8, 104.8, 209.5, 419,
        1792, _port_gb_s(170, 2407), 96 * MB, 32 * GB,
        _sources("NVIDIA RTX Blackwell whitepaper (tensor rates with float32 accumulation)", l2_gb_s=_PORT),
    ),
)  # fmt: skip

GPUS: Mapping[str, Gpu] = {row.name: row for row in _ROWS}
"""The table, by short name: ``h200``, ``rtx4090``."""


def gpu(name: str | Gpu) -> Gpu:
    """The row of a GPU by name, in any case and spacing (``"RTX 4090"``); a row is returned unchanged.

    Raises ArgumentError with the nearest name.
    """
    if isinstance(name, Gpu):
        return name
    if not isinstance(name, str):
        raise ArgumentError(f"gpu is {shown(name)}; it is the name of a GPU, such as 'h200', or a row of GPUS")
    key = _key(name)
    if key in GPUS:
        return GPUS[key]
    near = difflib.get_close_matches(key, GPUS, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ";"
    raise ArgumentError(f"unknown GPU {name!r}{hint} gemmgen knows {', '.join(GPUS)}")


def _key(name: str) -> str:
    key = "".join(c for c in name.lower() if c.isalnum())
    for prefix in ("nvidia", "geforce"):
        key = key.removeprefix(prefix)
    return {"3090": "rtx3090", "4090": "rtx4090", "5090": "rtx5090", "rtxa6000": "a6000"}.get(key, key)


def row_of(device_name: str) -> Gpu | None:
    """The row of a GPU by its driver's name ("NVIDIA H100 80GB HBM3"); None where the table has no row for it."""
    key = device_name.lower().replace(" ", "").replace("-", "")
    found = [row for row in _ROWS if row.name in key]
    return max(found, key=lambda row: len(row.name), default=None)


def limits(arch: str) -> Limits:
    """The limits of an architecture such as ``sm_90`` or ``sm_90a``. Raises ArgumentError for an unknown one."""
    row = known_limits(arch)
    if row is None:
        raise ArgumentError(f"unknown architecture {arch!r}; gemmgen knows {', '.join(LIMITS)}")
    return row


def known_limits(arch: str) -> Limits | None:
    """The limits of an architecture; None where the table lacks them, even if NVRTC can compile for it."""
    return LIMITS.get(arch.rstrip("af"))
