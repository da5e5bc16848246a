"""Device memory: arrays of gemmgen's own, copies between host and device."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.diagnostics import LaunchError
from gemmgen.ir.types import U8, numpy_dtype
from gemmgen.runtime.driver import LEGACY_STREAM, bindings, call, current_device, failure, library, on_device

if TYPE_CHECKING:
    from gemmgen.runtime.views import ArrayView


class DeviceArray:
    """A matrix on a GPU that any library can read in place: torch.as_tensor(x), cupy.asarray(x).

    Its memory is freed, once the GPU no longer uses it, when the object goes.
    """

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: str,
        device: int,
        owner: DeviceArray | None = None,
    ) -> None:
        self.address = address
        self.shape = shape
        self.strides = strides  # in elements
        self.dtype = dtype
        self.device = device
        self.owner = owner  # whose memory this is a part of

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: str, device: int, *, order: str = "row") -> DeviceArray:
        """Memory with no set content. Raises LaunchError where there is not enough."""
        with on_device(device):
            address = int(call("cuMemAlloc", max(prod(shape), 1) * numpy_dtype(dtype).itemsize))
        m, n = shape[-2:]
        strides = (*(m * n for _ in shape[:-2]), *((n, 1) if order == "row" else (1, m)))
        return cls(address, shape, strides, dtype, device)

    def part(self, offset: int, shape: tuple[int, int], dtype: str | None = None, *, order: str = "row") -> DeviceArray:
        """A matrix in this memory, from ``offset`` bytes on; of the memory's type unless given."""
        strides = (shape[1], 1) if order == "row" else (1, shape[0])
        return DeviceArray(self.address + offset, shape, strides, dtype or self.dtype, self.device, owner=self)

    def bits(self, dtype: str) -> DeviceArray:
        """The same memory as elements of another type of the same size."""
        return DeviceArray(self.address, self.shape, self.strides, dtype, self.device, owner=self)

    @property
    def turned(self) -> DeviceArray:
        """The transposed matrix, in the same memory."""
        owner = self if self.owner is None else self.owner
        return DeviceArray(self.address, self.shape[::-1], self.strides[::-1], self.dtype, self.device, owner)

    def numpy(self) -> Any:
        """The values on the host; waits for the whole GPU."""
        import numpy as np

        out = np.empty(self.shape, numpy_dtype(self.dtype), order=self._order)
        with on_device(self.device):
            call("cuCtxSynchronize")
            download(self.address, out, LEGACY_STREAM)
        return out

    def set(self, values: Any) -> None:
        """Replaces the values by those of a NumPy array; waits for the whole GPU."""
        import numpy as np

        with on_device(self.device):
            call("cuCtxSynchronize")
            upload(np.require(values, numpy_dtype(self.dtype), [self._order]), self.address, LEGACY_STREAM)
            call("cuCtxSynchronize")

    @property
    def _order(self) -> Literal["C", "F"]:
        return "C" if self.strides[1] == 1 or self.shape[1] == 1 else "F"

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1] * numpy_dtype(self.dtype).itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        size = numpy_dtype(self.dtype).itemsize
        return {
            "shape": self.shape,
            "strides": tuple(s * size for s in self.strides),
            "typestr": numpy_dtype(self.dtype).str,
            "data": (self.address, False),
            "version": 3,
            "stream": None,
        }

    def free(self) -> None:
        """Give the memory back now; waits for the GPU."""
        address, self.address = self.address, 0
        if address and self.owner is None:
            with on_device(self.device):
                call("cuMemFree", address)

    def __del__(self) -> None:
        with suppress(Exception):  # at the interpreter's end the driver may be gone, and with it the memory
            self.free()


def upload(values: Any, address: int, stream: int) -> None:
    """Copies a contiguous NumPy array to device memory, in the order of the stream."""
    if values.nbytes:
        call("cuMemcpyHtoDAsync", address, int(values.__array_interface__["data"][0]), values.nbytes, stream)


def download(address: int, values: Any, stream: int) -> None:
    """Copies device memory into a contiguous NumPy array, and waits until it is there."""
    if values.nbytes:
        call("cuMemcpyDtoHAsync", int(values.__array_interface__["data"][0]), address, values.nbytes, stream)
    call("cuStreamSynchronize", stream)


def download_view(x: ArrayView) -> Any:
    """A matrix on a GPU, of any strides, as a NumPy array in row order."""
    import numpy as np

    from gemmgen.runtime import copies
    from gemmgen.runtime import device as devices

    out = np.empty(x.shape, numpy_dtype(x.dtype))
    if not out.size:
        return out
    if out.itemsize not in copies.KINDS or len(x.shape) != 2:
        raise LaunchError(f"a device array of {x.dtype} and shape {x.shape} cannot be read here; pass a float matrix")
    with on_device(x.device):
        call("cuCtxSynchronize")
        with workspace(out.nbytes, LEGACY_STREAM) as address:
            wanted = copies.dense(x.shape, x.strides, "row", x.shape[1], out.itemsize)
            copied = copies.Copies(devices.get(x.device), {0: wanted})
            copied(x.address, 0, address, LEGACY_STREAM)
            download(address, out, LEGACY_STREAM)
    return out


KEPT_BYTES = 256 << 20  # of freed workspaces, what stays with the program from one synchronisation to the next


class workspace:
    """Device memory in the order of a stream, at a multiple of 256 bytes; may be used in a graph that is captured.

    ``with workspace(size, stream) as address:`` in the current context. Raises LaunchError where there is not enough.
    """

    __slots__ = ("_address", "_size", "_stream")

    def __init__(self, size: int, stream: int) -> None:
        self._size, self._stream = max(size, 1), stream

    def __enter__(self) -> int:
        allocate, _ = _stream_ordered()
        found = ctypes.c_void_p()
        status = allocate(ctypes.addressof(found), self._size, _pool(current_device()), self._stream)
        if status != 0:
            raise failure(f"allocating {self._size} bytes (cuMemAllocFromPoolAsync)", status)
        self._address = found.value or 0
        return self._address

    def __exit__(self, kind: object, *_: object) -> None:
        free = _stream_ordered()[1]
        status = free(self._address, self._stream)
        if status != 0 and kind is None:  # else what went wrong first is told
            raise failure("cuMemFreeAsync", status)


@functools.cache
def _stream_ordered() -> tuple[Callable[[int, int, int, int], int], Callable[[int, int], int]]:
    """The driver's own cuMemAllocFromPoolAsync and cuMemFreeAsync: calls that are quick, see driver.library."""
    allocate, free = library().cuMemAllocFromPoolAsync, library().cuMemFreeAsync
    allocate.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    free.argtypes = (ctypes.c_uint64, ctypes.c_void_p)
    return allocate, free


@functools.cache
def _pool(ordinal: int) -> int:
    """A pool of gemmgen's own on a GPU: a default one gives all back to the system whenever something waits."""
    driver = bindings()
    where = driver.CUmemLocation()
    where.type, where.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, ordinal
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = where
    pool = call("cuMemPoolCreate", properties)
    threshold = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    call("cuMemPoolSetAttribute", pool, threshold, driver.cuuint64_t(KEPT_BYTES))
    return int(pool)


class Kept:
    """Workspace that is kept from call to call. ``lock`` is held while the steps of one call are enqueued."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._held: list[DeviceArray] = []  # the last is the largest; graphs may have been captured with the others

    def of(self, size: int) -> int:
        """The address of at least ``size`` bytes, in the current context. Raises LaunchError where there is not enough,
        and then keeps what there was."""
        if not self._held or self._held[-1].nbytes < size:
            self._held.append(DeviceArray.empty((1, size), U8.numpy, current_device()))
        return self._held[-1].address
