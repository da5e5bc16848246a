"""Suites of shapes that a benchmark goes through."""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.tune.shapes import Shape

F32: tuple[Shape, ...] = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (4092, 4092, 4092),
    (4095, 4095, 4095), (4097, 4097, 4097), (8192, 8192, 8192), (1000, 1000, 1000), (127, 129, 131),
    (1, 4096, 4096), (8, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096), (128, 4096, 4096), (4096, 64, 4096),
    (256, 256, 65536), (4096, 4096, 64), (8192, 1024, 1024), (3000, 777, 2049), (2048, 11008, 4096),
)  # fmt: skip
"""float32: squares from small to large, sizes one off a round one, few rows or columns, deep and shallow sums."""

SUITES: Mapping[str, tuple[Shape, ...]] = {"f32": F32}
