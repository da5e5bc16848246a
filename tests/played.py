"""A GPU that tests play where there is none."""

from __future__ import annotations

from gemmgen.runtime.device import Device

GPU = Device(
    ordinal=0, name="Test", cc=(9, 0), sms=132, threads_per_block=1024, threads_per_sm=2048, registers_per_block=65536,
    registers_per_sm=65536, shared_static=48 << 10, shared_per_block=227 << 10, shared_per_sm=228 << 10,
    l2_bytes=60 << 20, memory_bytes=1 << 37, clock_khz=1_980_000, driver=(13, 0),
)  # fmt: skip
