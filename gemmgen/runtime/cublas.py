"""The few functions of cuBLAS that the baseline needs, called in the library itself.

The library is the one that the CUDA wheels, a CUDA toolkit, torch or CuPy brought.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

_NAMES = {
    "linux": ("libcublas.so.13", "libcublas.so.12"),
    "win32": ("cublas64_13.dll", "cublas64_12.dll"),
}
_INT, _POINTER = ctypes.c_int, ctypes.c_void_p
_SGEMM = (
    _POINTER, _INT, _INT, _INT, _INT, _INT, _POINTER, _POINTER, _INT, _POINTER, _INT, _POINTER, _POINTER, _INT,
)  # fmt: skip


_GEMM_EX = (
    *(_POINTER, _INT, _INT, _INT, _INT, _INT, _POINTER, _POINTER, _INT, _INT, _POINTER, _INT, _INT, _POINTER),
    *(_POINTER, _INT, _INT, _INT, _INT),
)


class Direct:
    """cuBLAS's own functions; each raises RuntimeError where cuBLAS reports an error.

    ``package`` says in words where the library comes from.
    """

    def __init__(self, library: ctypes.CDLL, package: str) -> None:
        self._library = library
        self.package = package
        library.cublasSgemm_v2.argtypes = _SGEMM
        library.cublasGemmEx.argtypes = _GEMM_EX

    @classmethod
    def find(cls) -> Direct:
        """Raises RuntimeError where there is no library."""
        reasons = []
        for place, name in _places():
            try:
                return cls(ctypes.CDLL(name), place)
            except OSError as e:
                reasons.append(str(e))
        raise RuntimeError(reasons[0] if reasons else f"cuBLAS does not exist for {sys.platform}")

    def create(self) -> int:
        handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(handle))
        if handle.value is None:
            raise RuntimeError("cublasCreate_v2 gave no handle")
        return handle.value

    def destroy(self, handle: int) -> None:
        self._call("cublasDestroy_v2", _POINTER(handle))

    def get_version(self, handle: int) -> int:
        version = ctypes.c_int()
        self._call("cublasGetVersion_v2", _POINTER(handle), ctypes.byref(version))
        return version.value

    def set_math_mode(self, handle: int, mode: int) -> None:
        self._call("cublasSetMathMode", _POINTER(handle), _INT(mode))

    def set_stream(self, handle: int, stream: int) -> None:
        self._call("cublasSetStream_v2", _POINTER(handle), _POINTER(stream))

    def set_workspace(self, handle: int, address: int, size: int) -> None:
        self._call("cublasSetWorkspace_v2", _POINTER(handle), _POINTER(address), ctypes.c_size_t(size))

    def sgemm(self, handle: int, *arguments: int) -> None:
        """cublasSgemm's own arguments, addresses as numbers."""
        self._call("cublasSgemm_v2", handle, *arguments)

    def gemm_ex(self, handle: int, *arguments: int) -> None:
        """cublasGemmEx's own arguments, addresses as numbers."""
        self._call("cublasGemmEx", handle, *arguments)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            self._fail(name, status)

    def _fail(self, name: str, status: int) -> NoReturn:
        text = self._library.cublasGetStatusString
        text.restype = ctypes.c_char_p
        said = text(status)
        raise RuntimeError(f"{name}: {said.decode(errors='replace') if said else f'status {status}'}")


def installed() -> bool:
    """Whether cuBLAS is likely to be found: a package that brings it is there, or the library itself."""
    if any(importlib.util.find_spec(package) is not None for package in ("nvmath", "torch", "cupy")):
        return True
    with suppress(Exception):  # pathfinder's own errors, and its absence
        from cuda import pathfinder

        return bool(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
    return False


def _places() -> Iterator[tuple[str, str]]:
    """(where from, what to open), the most certain first. A library that is loaded is found by its name."""
    with suppress(Exception):  # pathfinder's own errors: not found, or of a system it does not know
        from cuda import pathfinder

        found = pathfinder.load_nvidia_dynamic_lib("cublas").abs_path
        if found:
            yield "its library", found
    names = _NAMES.get(sys.platform, ())
    for package, module in (("torch", "torch"), ("CuPy", "cupy.cuda.cublas")):
        if package.lower() in sys.modules or importlib.util.find_spec(package.lower()) is not None:
            with suppress(Exception):  # installed, but of no use here
                __import__(module)
                yield from ((f"{package}'s library", name) for name in names)
    yield from (("the system's library", name) for name in names)
