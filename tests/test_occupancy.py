"""Occupancy by the allocation rules, and the table of GPUs."""

from __future__ import annotations

import dataclasses

import pytest

from gemmgen.analysis.occupancy import occupancy, occupancy_of, registers_per_block
from gemmgen.diagnostics import ArgumentError
from gemmgen.target import FIGURES, GPUS, LIMITS, gpu, limits

# By hand from the rules of cuda_occupancy.h: (arch, threads, registers, shared bytes) -> (blocks, limiter).
KNOWN = [
    ("sm_80", 256, 32, 0, 8, "threads"),
    ("sm_80", 256, 100, 8192, 2, "registers"),  # 104 after rounding: 13312 of 16384 registers a quarter is 4 warps
    ("sm_80", 256, 64, 0, 4, "registers"),
    ("sm_80", 32, 16, 0, 32, "blocks"),
    ("sm_80", 128, 32, 41 * 1024, 3, "shared memory"),  # 42 KB with the reserved one; 164 / 42
    ("sm_80", 128, 32, 40 * 1024, 4, "shared memory"),
    ("sm_80", 1024, 65, 0, 0, "registers"),
    ("sm_86", 256, 32, 0, 6, "threads"),
    ("sm_86", 1024, 32, 8192, 1, "threads"),
    ("sm_86", 256, 100, 8192, 2, "registers"),
    ("sm_86", 32, 16, 0, 16, "blocks"),
    ("sm_86", 128, 128, 16384, 4, "registers"),
    ("sm_86", 64, 32, 99 * 1024, 1, "shared memory"),
    ("sm_89", 32, 16, 0, 24, "blocks"),
    ("sm_89", 512, 40, 0, 3, "threads"),
    ("sm_89", 256, 80, 24 * 1024, 3, "registers"),
    ("sm_89", 256, 40, 24 * 1024, 4, "shared memory"),
    ("sm_90", 128, 168, 16384, 3, "registers"),
    ("sm_90", 256, 128, 8192, 2, "registers"),
    ("sm_90", 256, 32, 100 * 1024, 2, "shared memory"),
    ("sm_90", 256, 32, 113 * 1024, 2, "shared memory"),
    ("sm_90", 256, 32, 114 * 1024, 1, "shared memory"),
    ("sm_90", 384, 40, 0, 4, "registers"),  # 1280 a warp: 12 a quarter, 48 in all
    ("sm_90", 96, 255, 0, 2, "registers"),  # 2 warps a quarter, 8 in all, 3 a block
    ("sm_75", 256, 32, 0, 4, "threads"),
    ("sm_75", 64, 32, 20000, 3, "shared memory"),
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "blocks", "limiter"), KNOWN)
def test_known_values(arch: str, threads: int, registers: int, shared: int, blocks: int, limiter: str) -> None:
    got = occupancy_of(LIMITS[arch], threads, registers, shared)
    warps = -(-threads // 32)
    assert (got.blocks_per_sm, got.limiter) == (blocks, limiter)
    assert got.warps_per_sm == blocks * warps
    assert got.fraction == blocks * warps / LIMITS[arch].warps


def test_lesson_problem_one_is_a_quarter() -> None:
    got = occupancy("a100", threads=256, registers=100, shared_bytes=8192)
    assert (got.blocks_per_sm, got.warps_per_sm, got.fraction, got.limiter) == (2, 16, 0.25, "registers")


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limiter"),
    [(1025, 32, 0, "threads"), (4096, 32, 0, "threads"), (512, 156, 0, "registers"), (32, 256, 0, "registers"),
     (128, 32, 228 * 1024, "shared memory")],
)  # fmt: skip
def test_impossible_gives_no_blocks_and_says_why(threads: int, registers: int, shared: int, limiter: str) -> None:
    got = occupancy("h200", threads, registers, shared)
    assert (got.blocks_per_sm, got.warps_per_sm, got.fraction, got.limiter) == (0, 0, 0.0, limiter)


def test_g22_registers_of_a_block_are_rounded() -> None:
    assert registers_per_block(LIMITS["sm_90"], 512, 156) == 160 * 512 > 65536
    assert occupancy("h200", 384, 156).blocks_per_sm == 1
    assert occupancy("h200", 256, 156).blocks_per_sm == 1


@pytest.mark.parametrize(("threads", "registers", "shared"), [(0, 32, 0), (32, -1, 0), (32, 32, -1)])
def test_nonsense_is_refused(threads: int, registers: int, shared: int) -> None:
    with pytest.raises(ArgumentError, match="threads"):
        occupancy("h200", threads, registers, shared)


def test_every_figure_has_a_source() -> None:
    for row in GPUS.values():
        assert set(row.sources) == set(FIGURES)
        assert all(len(source) > 10 for source in row.sources.values())
        assert set(FIGURES) <= {f.name for f in dataclasses.fields(row)}


def test_figures_agree_with_each_other() -> None:
    for row in GPUS.values():
        by_clock = 2 * row.limits.fp32_lanes * row.sms * row.clock_hz / 1e12
        assert 0.96 * by_clock < row.fp32_tflops < 1.02 * by_clock, row.name
        assert row.l2_gb_s > row.dram_gb_s
        assert row.l2_bytes < row.memory_bytes


@pytest.mark.parametrize(
    ("asked", "name"),
    [("h200", "h200"), ("H200", "h200"), ("NVIDIA H200", "h200"), ("RTX 4090", "rtx4090"), ("rtx-3090", "rtx3090"),
     ("4090", "rtx4090"), ("RTX A6000", "a6000"), ("NVIDIA GeForce RTX 5090", "rtx5090")],
)  # fmt: skip
def test_names_in_any_spelling(asked: str, name: str) -> None:
    assert gpu(asked).name == name
    assert gpu(GPUS[name]) is GPUS[name]


def test_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(ArgumentError, match="did you mean h200"):
        gpu("h20")
    with pytest.raises(ArgumentError, match=r"gemmgen knows .*a100"):
        gpu("radeon")


def test_limits_by_architecture() -> None:
    assert limits("sm_90a") is LIMITS["sm_90"]
    with pytest.raises(ArgumentError, match="sm_35"):
        limits("sm_35")
