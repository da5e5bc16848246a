"""Times that the lesson reports for its own kernels."""

from __future__ import annotations

from collections.abc import Mapping

PERCENT_OF_CUBLAS: Mapping[str, float] = {
    "naive": 1.3,
    "coalesced": 8.5,
    "smem": 12.8,
    "regblock1d": 36.5,
    "regblock2d": 68.7,
    "vectorized": 78.4,
    "warptile": 93.7,
}
"""Share of cuBLAS on an RTX A6000 (4092 x 4092 x 4092, float32, cuBLAS at about 23.2 TFLOP/s)."""

SOURCE = (
    "Simon Boehm, \u201cHow to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance: a Worklog\u201d (2022): "
    "his kernels on an RTX A6000, 4092 x 4092 x 4092"
)
