"""cuBLAS as the baseline: the same product, in float32, through nvmath-python or the library itself.

A baseline that is wrong or fails is worse than none: every fault is a BaselineError, which ends the comparison.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gemmgen.diagnostics import GemmgenError
from gemmgen.ir.types import F32
from gemmgen.runtime import memory
from gemmgen.runtime.driver import call, on_device, private_stream

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.memory import DeviceArray

_NO_TRANSPOSE, _TRANSPOSE = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
_DEFAULT_MATH = 0  # CUBLAS_DEFAULT_MATH: float32 arithmetic, TF32 off
_LARGEST = (1 << 31) - 1

WORKSPACE_BYTES = 32 << 20
"""What NVIDIA recommends for sm_90 (cuBLAS documentation, cublasSetWorkspace), and what torch gives it."""


class BaselineError(GemmgenError):
    """The baseline is missing, failed, or gave a wrong result: nothing can be compared with it."""


@dataclass(frozen=True)
class _Library:
    """cuBLAS with a handle of its own; ``sgemm`` and ``gemm_ex`` take cuBLAS's own arguments, after a stream. May be
    captured."""

    package: str
    handle: int
    version: int
    sgemm: Callable[..., None]
    gemm_ex: Callable[..., None]
    destroy: Callable[[int], None]


class Cublas:
    """float32 products by cuBLAS on one GPU: A and B by rows or by columns, C by rows. Use from one thread at a time.

    Raises BaselineError where cuBLAS is not installed, a call fails, or TF32 turns out to be on.
    """

    name = "cublas"

    def __init__(self, device: Device) -> None:
        self.device = device
        with on_device(device.ordinal):
            self._library = _open()
            self._refuse_tf32()

    @property
    def description(self) -> str:
        """Where it comes from: "cuBLAS 13.1.0 through nvmath-python, TF32 off"."""
        v = self._library.version
        return f"cuBLAS {v // 10000}.{v // 100 % 100}.{v % 100} through {self._library.package}, TF32 off"

    def enqueue(self, A: DeviceArray, B: DeviceArray, C: DeviceArray, alpha: float, beta: float, stream: int) -> None:
        """C = alpha * (A @ B) + beta * C on a stream; any leading dimension, C by rows.

        cuBLAS thinks in columns: a row-major matrix is its own transpose there, so it is asked for
        C^T = B^T A^T, N x M, with the leading dimensions as they are; a matrix by columns it is to transpose.
        """
        (m, k), n = A.shape, B.shape[1]
        if (B.shape[0], C.shape) != (k, (m, n)):
            raise BaselineError(f"shapes do not fit: A {A.shape}, B {B.shape}, C {C.shape}")
        if m == 0 or n == 0:
            return
        (op_a, lda), (op_b, ldb), (op_c, ldc) = (_lying(x) for x in (A, B, C))
        if op_c != _NO_TRANSPOSE:
            raise BaselineError(f"cuBLAS is given C by rows here; strides are {C.strides} for {C.shape}")
        factors = (ctypes.c_float * 2)(alpha, beta)
        at = ctypes.addressof(factors)  # read during the call: they lie on the host
        try:
            self._library.sgemm(
                stream, self._library.handle, op_b, op_a, n, m, k,
                at, B.address, ldb, A.address, lda, at + 4, C.address, ldc,
            )  # fmt: skip
        except Exception as e:  # nvmath-python has an error type of its own
            raise BaselineError(f"cuBLAS failed at {m}x{n}x{k}: {e}") from e

    def close(self) -> None:
        with on_device(self.device.ordinal):
            self._library.destroy(self._library.handle)

    def _refuse_tf32(self) -> None:
        """A product that TF32, with its 10 bits, cannot get right: (1 + 2^-12) times the identity."""
        import numpy as np

        n, value = 16, F32.numpy_dtype.type(1 + 2**-12)
        a, b, c = (memory.DeviceArray.empty((n, n), F32.numpy, self.device.ordinal) for _ in range(3))
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


def _lying(x: DeviceArray) -> tuple[int, int]:
    """Whether cuBLAS is to transpose a matrix, since it lies by columns; and its leading dimension."""
    rows, columns = x.shape
    if x.strides[0] == 1 and x.strides[1] != 1 and rows > 1 and x.strides[1] >= rows:
        return _TRANSPOSE, x.strides[1] if columns > 1 else rows
    return _NO_TRANSPOSE, _leading(x)


def _leading(x: DeviceArray) -> int:
    """The leading dimension of a row-major matrix; where there is one row, or no element, any will do."""
    rows, columns = x.shape
    least = max(columns, 1)
    leading = x.strides[0] if rows > 1 and columns > 0 else least
    if (x.strides[1] != 1 and columns > 1 and rows > 0) or not least <= leading <= _LARGEST:
        raise BaselineError(f"cuBLAS needs rows of unit stride; strides are {x.strides} for {x.shape}")
    return leading


def _open() -> _Library:
    """cuBLAS through nvmath-python, else the library itself. Raises BaselineError with what hinders each."""
    reasons = []
    for package, attempt in (("nvmath-python", _nvmath), ("cuBLAS itself", _direct)):
        try:
            return attempt()
        except Exception as e:  # missing, or there without a working library: of many types
            reasons.append(f"{package}: {(str(e).strip().splitlines() or [type(e).__name__])[0]}")
    raise BaselineError(
        f"cuBLAS needs nvmath-python, or the library as CUDA, torch or CuPy bring it; "
        f"pip install 'gemmgen[bench]' ({'; '.join(reasons)})"
    )


class _Workspace:
    """Memory of a handle's own. With it, cuBLAS allocates nothing in a call, which a capture in a graph needs.

    cuBLAS forgets it at every change of stream, so that the two are set together.
    """

    def __init__(self, set_stream: Callable[[int, int], None], set_workspace: Callable[[int, int, int], None]) -> None:
        self._set_stream, self._set_workspace = set_stream, set_workspace
        self._stream: int | None = None
        self._address = 0

    def use(self, handle: int, stream: int) -> None:
        if stream == self._stream:
            return
        if not self._address:
            self._address = int(call("cuMemAlloc", WORKSPACE_BYTES))
        self._set_stream(handle, stream)
        self._set_workspace(handle, self._address, WORKSPACE_BYTES)
        self._stream = stream

    def free(self) -> None:
        if self._address:
            call("cuMemFree", self._address)
            self._address, self._stream = 0, None


def _library(package: str, functions: _Functions) -> _Library:
    """A handle of its own, in float32 arithmetic, with a workspace."""
    handle = functions.create()
    functions.set_math_mode(handle, _DEFAULT_MATH)
    workspace = _Workspace(functions.set_stream, functions.set_workspace)

    def sgemm(stream: int, handle: int, *arguments: Any) -> None:
        workspace.use(handle, stream)
        functions.sgemm(handle, *arguments)

    def gemm_ex(stream: int, handle: int, *arguments: Any) -> None:
        workspace.use(handle, stream)
        functions.gemm_ex(handle, *arguments)

    def destroy(handle: int) -> None:
        functions.destroy(handle)
        workspace.free()

    return _Library(package, handle, functions.get_version(handle), sgemm, gemm_ex, destroy)


class _Functions(Protocol):
    """The functions of cuBLAS that are used; each raises where cuBLAS reports an error."""

    def create(self) -> int: ...
    def destroy(self, handle: int, /) -> None: ...
    def get_version(self, handle: int, /) -> int: ...
    def set_math_mode(self, handle: int, mode: int, /) -> None: ...
    def set_stream(self, handle: int, stream: int, /) -> None: ...
    def set_workspace(self, handle: int, address: int, size: int, /) -> None: ...
    def sgemm(self, handle: int, /, *arguments: int) -> None: ...
    def gemm_ex(self, handle: int, /, *arguments: int) -> None: ...


def _nvmath() -> _Library:
    from nvmath.bindings import cublas

    return _library("nvmath-python", cublas)


def _direct() -> _Library:
    from gemmgen.runtime.cublas import Direct

    found = Direct.find()
    return _library(found.package, found)
