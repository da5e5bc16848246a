"""cuBLAS for other types than float32: bfloat16 and float16 with float32 sums, and tf32."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gemmgen.ir.types import BF16, F16, F32, TF32, DType
from gemmgen.runtime.baseline import BaselineError, Cublas

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.memory import DeviceArray

KINDS: Mapping[DType, int] = {F32: 0, F16: 2, BF16: 14, TF32: 0}
"""cudaDataType of each element type."""
_SUMS, _SUMS_OF_TF32 = 68, 77  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32
_DEFAULT_ALGORITHM = -1


class TypedCublas(Cublas):
    """Products of matrices of one type by cuBLAS; A and B by rows or by columns, C by rows, of the same type or
    float32."""

    def __init__(self, device: Device, types: tuple[DType, DType, DType]) -> None:
        self.types = types
        super().__init__(device)

    def _refuse_tf32(self) -> None:
        """How products are computed is said in each call, whatever the environment asks of float32 ones."""

    @property
    def description(self) -> str:
        """Where it comes from, and what it multiplies."""
        whole, _, _ = super().description.partition(", TF32")
        a, _, c = self.types
        return f"{whole}, {a} with float32 sums, C {c}"

    def enqueue(self, A: DeviceArray, B: DeviceArray, C: DeviceArray, alpha: float, beta: float, stream: int) -> None:
        """C = alpha * (A @ B) + beta * C on a stream, asked for as C^T = B^T A^T, since cuBLAS thinks in columns."""
        (m, k), n = A.shape, B.shape[1]
        if m == 0 or n == 0:
            return
        (op_a, lda), (op_b, ldb), (_, ldc) = (_lying(x) for x in (A, B, C))
        a, b, c = (KINDS[t] for t in self.types)
        sums = _SUMS_OF_TF32 if self.types[0] == TF32 else _SUMS
        factors = (ctypes.c_float * 2)(alpha, beta)
        at = ctypes.addressof(factors)  # read during the call: they lie on the host
        try:
            self._library.gemm_ex(
                stream, self._library.handle, op_b, op_a, n, m, k, at, B.address, b, ldb,
                A.address, a, lda, at + ctypes.sizeof(ctypes.c_float), C.address, c, ldc, sums, _DEFAULT_ALGORITHM,
            )  # fmt: skip
        except Exception as e:  # nvmath-python has an error type of its own
            raise BaselineError(f"cuBLAS failed at {m}x{n}x{k}: {e}") from e


def _lying(x: DeviceArray) -> tuple[int, int]:
    """Whether cuBLAS is to transpose a matrix, since it lies by columns; and its leading dimension."""
    rows, columns = x.shape
    if x.strides[1] == 1 or columns == 1:
        return 0, x.strides[0] if rows > 1 else max(columns, 1)
    return 1, x.strides[1]
