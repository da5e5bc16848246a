"""cuBLAS as the baseline: the same product, in float32, by nvmath-python's bindings or CuPy's, whichever is there.

A baseline that is wrong or fails is worse than none: every fault is a BaselineError, which ends the comparison.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.runtime import memory
from gemmgen.runtime.driver import on_device, private_stream

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.memory import DeviceArray

_NO_TRANSPOSE = 0  # CUBLAS_OP_N
_DEFAULT_MATH = 0  # CUBLAS_DEFAULT_MATH: float32 arithmetic, TF32 off
_LARGEST = (1 << 31) - 1


class BaselineError(GemmgenError):
    """The baseline is missing, failed, or gave a wrong result: nothing can be compared with it."""


@dataclass(frozen=True)
class _Library:
    """cuBLAS as one of the packages gives it; ``sgemm`` takes cuBLAS's own arguments, after a stream."""

    package: str
    handle: int
    version: int
    sgemm: Callable[..., None]
    destroy: Callable[[int], None]


class Cublas:
    """float32 products of row-major matrices by cuBLAS on one GPU. Use from one thread at a time.

    Raises BaselineError where neither package is installed, a call fails, or TF32 turns out to be on.
    """

    name = "cublas"

    def __init__(self, device: Device) -> None:
        self.device = device
        with on_device(device.ordinal):
            self._library = _open()
            self._refuse_tf32()

    @property
    def description(self) -> str:
        """Where it comes from: "cuBLAS 13.1.0 through CuPy, TF32 off"."""
        v = self._library.version
        return f"cuBLAS {v // 10000}.{v // 100 % 100}.{v % 100} through {self._library.package}, TF32 off"

    def enqueue(self, A: DeviceArray, B: DeviceArray, C: DeviceArray, alpha: float, beta: float, stream: int) -> None:
        """C = alpha * (A @ B) + beta * C on a stream; matrices in row order, any leading dimension.

        cuBLAS thinks in columns: a row-major matrix is its own transpose there, so it is asked for
        C^T = B^T A^T, N x M, with the leading dimensions as they are.
        """
        (m, k), n = A.shape, B.shape[1]
        if (B.shape[0], C.shape) != (k, (m, n)):
            raise BaselineError(f"shapes do not fit: A {A.shape}, B {B.shape}, C {C.shape}")
        if m == 0 or n == 0:
            return
        lda, ldb, ldc = (_leading(x) for x in (A, B, C))
        factors = (ctypes.c_float * 2)(alpha, beta)
        at = ctypes.addressof(factors)  # read during the call: they lie on the host
        try:
            self._library.sgemm(
                stream, self._library.handle, _NO_TRANSPOSE, _NO_TRANSPOSE, n, m, k,
                at, B.address, ldb, A.address, lda, at + 4, C.address, ldc,
            )  # fmt: skip
        except Exception as e:  # each package has an error type of its own
            raise BaselineError(f"cuBLAS failed at {m}x{n}x{k}: {e}") from e

    def close(self) -> None:
        with on_device(self.device.ordinal):
            self._library.destroy(self._library.handle)

    def _refuse_tf32(self) -> None:
        """A product that TF32, with its 10 bits, cannot get right: (1 + 2^-12) times the identity."""
        import numpy as np

        n, value = 16, np.float32(1 + 2**-12)
        a, b, c = (memory.DeviceArray.empty((n, n), "float32", self.device.ordinal) for _ in range(3))
        a.set(np.full((n, n), value))
        b.set(np.eye(n))
        c.set(np.full((n, n), np.nan))
        self.enqueue(a, b, c, 1.0, 0.0, private_stream(self.device.ordinal))
        got = c.numpy()
        if not (got == value).all():
            raise BaselineError(
                f"cuBLAS gives {got[0, 0]!r} for {float(value)!r} x 1: it does not compute in float32 here "
                "(TF32 or another reduced mode is on; look for NVIDIA_TF32_OVERRIDE)"
            )


def _leading(x: DeviceArray) -> int:
    """The leading dimension of a row-major matrix; where there is one row, or no element, any will do."""
    rows, columns = x.shape
    least = max(columns, 1)
    leading = x.strides[0] if rows > 1 and columns > 0 else least
    if (x.strides[1] != 1 and columns > 1 and rows > 0) or not least <= leading <= _LARGEST:
        raise BaselineError(f"cuBLAS needs rows of unit stride; strides are {x.strides} for {x.shape}")
    return leading


def _open() -> _Library:
    """cuBLAS through the first package that gives it. Raises BaselineError with what hinders each."""
    reasons = []
    for package, attempt in (("nvmath-python", _nvmath), ("CuPy", _cupy)):
        try:
            return attempt()
        except Exception as e:  # missing, or there without a working library: of many types
            reasons.append(f"{package}: {(str(e).strip().splitlines() or [type(e).__name__])[0]}")
    raise BaselineError(f"cuBLAS needs nvmath-python or CuPy; pip install 'gemmgen[bench]' ({'; '.join(reasons)})")


def _nvmath() -> _Library:
    from nvmath.bindings import cublas

    handle = cublas.create()
    cublas.set_math_mode(handle, _DEFAULT_MATH)

    def sgemm(stream: int, handle: int, *arguments: Any) -> None:
        cublas.set_stream(handle, stream)
        cublas.sgemm(handle, *arguments)

    return _Library("nvmath-python", handle, cublas.get_version(handle), sgemm, cublas.destroy)


def _cupy() -> _Library:
    import cupy
    from cupy.cuda import cublas  # loads the library where it lies

    handle = cublas.create()
    cublas.setMathMode(handle, _DEFAULT_MATH)

    def sgemm(stream: int, handle: int, *arguments: Any) -> None:
        with cupy.cuda.ExternalStream(stream):  # its bindings take CuPy's current stream
            cublas.sgemm(handle, *arguments)

    return _Library("CuPy", handle, cublas.getVersion(handle), sgemm, cublas.destroy)
