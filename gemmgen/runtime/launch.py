"""Loads a compiled kernel and launches it."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from gemmgen.diagnostics import LaunchError
from gemmgen.runtime import driver
from gemmgen.runtime.driver import on_device

if TYPE_CHECKING:
    from gemmgen.launch import Arguments
    from gemmgen.runtime.cubin import Resources
    from gemmgen.runtime.device import Device

OPT_IN_ABOVE = 48 << 10  # bytes of dynamic shared memory that need no permission

WARP = 32
REGISTER_UNIT = 256  # registers are handed out to a warp in units of this many

# C types of the parameters of a product: M, N, K, alpha, A, lda, B, ldb, beta, C, ldc (struct's letters)
GEMM_SIGNATURE = "iiifPNPNfPN"


class LaunchLimits(Protocol):
    """What a block may take of a GPU, bytes and 32-bit registers: a Device, or the Limits of an architecture."""

    @property
    def threads_per_block(self) -> int: ...
    @property
    def registers_per_block(self) -> int: ...
    @property
    def shared_per_block(self) -> int: ...


def check_resources(limits: LaunchLimits, threads: int, registers: int, shared_bytes: int = 0) -> None:
    """Raise LaunchError where a block cannot run: ``registers`` a thread, ``shared_bytes`` a block.

    The message names the need, the limit, and what would fit.
    """
    if threads > limits.threads_per_block:
        raise LaunchError(f"{threads} threads a block are over the limit of {limits.threads_per_block}")
    warps = -(-threads // WARP)
    a_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    if warps * a_warp > limits.registers_per_block:
        fit = limits.registers_per_block // a_warp * WARP
        most = limits.registers_per_block // warps // REGISTER_UNIT * REGISTER_UNIT // WARP
        raise LaunchError(
            f"{threads} threads x {registers} registers = {threads * registers} registers a block "
            f"({threads} x {a_warp // WARP} = {warps * a_warp} as they are handed out), "
            f"over the limit of {limits.registers_per_block}: "
            f"at most {fit} threads fit with {registers} registers, or {threads} threads with at most {most} registers"
        )
    if shared_bytes > limits.shared_per_block:
        raise LaunchError(
            f"a block needs {shared_bytes} bytes of shared memory, over the limit of {limits.shared_per_block}"
        )


class _Frame(threading.local):
    """Where a thread lays out the arguments of its launches: the driver copies them during the call."""

    def __init__(self, signature: str) -> None:
        self.values = ctypes.create_string_buffer(struct.calcsize("@" + signature))
        # Padding before each value: a format of all before it and none of it ends where it begins.
        offsets = [struct.calcsize(f"@{signature[:i]}0{letter}") for i, letter in enumerate(signature)]
        base = ctypes.addressof(self.values)
        self.pointers = (ctypes.c_void_p * len(signature))(*(base + o for o in offsets))
        self.address = ctypes.addressof(self.pointers)


class Module:
    """A kernel on the GPUs of one architecture, from a cubin (or PTX), with the C types of its parameters.

    ``threads`` a block; ``shared_bytes`` of dynamic shared memory a block, over 48 KB opted into where it is needed.
    ``resources``, where known, are checked against the GPU, so that an impossible launch is a typed error.
    Raises LaunchError. May be used from several threads.
    """

    def __init__(
        self,
        code: bytes,
        name: str,
        threads: int,
        shared_bytes: int = 0,
        *,
        signature: str,
        resources: Resources | None = None,
        kind: Literal["cubin", "ptx"] = "cubin",
        device: Device | None = None,
    ) -> None:
        from cuda.core import ObjectCode

        from gemmgen.runtime import device as devices

        self.device = device or devices.required()
        self.name, self.threads, self.shared_bytes, self.resources = name, threads, shared_bytes, resources
        if resources is not None:
            check_resources(self.device, threads, resources.registers, resources.shared_bytes + shared_bytes)
        with on_device(self.device.ordinal):
            try:
                self._library = ObjectCode.from_cubin(code) if kind == "cubin" else ObjectCode.from_ptx(code)
                self._kernel = self._library.get_kernel(name)
            except Exception as e:  # cuda.core's own type, which is not part of its documented surface
                raise LaunchError(f"{name} cannot be loaded on {self.device.name} ({self.device.arch}): {e}") from e
        self.handle: Any = self._kernel.handle
        self._pack = struct.Struct("@" + signature).pack_into
        self._frame = _Frame(signature)
        self._opted_in: set[int] = set()
        bindings = driver.bindings()
        self._launch: Any = bindings.cuLaunchKernel
        self._stream: Any = bindings.CUstream

    def launch(self, grid: tuple[int, int, int], values: tuple[Any, ...], stream: int) -> None:
        """Launch on the stream, in the current context. No wait and no allocation: may be captured in a graph."""
        if self.shared_bytes > OPT_IN_ABOVE:
            self._opt_in()
        frame = self._frame
        self._pack(frame.values, 0, *values)
        (status,) = self._launch(
            self.handle, *grid, self.threads, 1, 1, self.shared_bytes, _stream(self._stream, stream), frame.address, 0
        )
        if status != 0:
            raise driver.failure(f"the launch of {self.name} with a grid of {grid}", status)

    def _opt_in(self) -> None:
        """The permission for more than 48 KB, once a GPU."""
        device = driver.call("cuCtxGetDevice")
        if int(device) in self._opted_in:
            return
        attribute = driver.bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.call("cuKernelSetAttribute", attribute, self.shared_bytes, self.handle, device)
        self._opted_in.add(int(device))


class GpuModule(Module):
    """A kernel of a product, with the parameters that all of them have."""

    def __init__(
        self,
        code: bytes,
        name: str,
        threads: int,
        shared_bytes: int = 0,
        *,
        resources: Resources | None = None,
        kind: Literal["cubin", "ptx"] = "cubin",
        device: Device | None = None,
    ) -> None:
        super().__init__(
            code, name, threads, shared_bytes, signature=GEMM_SIGNATURE, resources=resources, kind=kind, device=device
        )

    def bind(self, grid: tuple[int, int, int], arguments: Arguments) -> Bound:
        """A launch with everything fixed but the addresses; offsets of the arguments are in elements of float32."""
        a = arguments
        return Bound(self, grid, (a.M, a.N, a.K, a.alpha), (a.lda, a.ldb, a.beta), a.ldc, (4 * a.A, 4 * a.B, 4 * a.C))


@dataclass(frozen=True)
class Bound:
    """A launch that waits for the addresses of A, B and C. ``offsets`` in bytes from them."""

    module: GpuModule
    grid: tuple[int, int, int]
    sizes: tuple[int, int, int, float]
    middle: tuple[int, int, float]
    ldc: int
    offsets: tuple[int, int, int]

    def __call__(self, a: int, b: int, c: int, stream: int) -> None:
        lda, ldb, beta = self.middle
        da, db, dc = self.offsets
        self.module.launch(self.grid, (*self.sizes, a + da, lda, b + db, ldb, beta, c + dc, self.ldc), stream)


@functools.lru_cache(maxsize=64)
def _stream(make: Any, handle: int) -> Any:
    """The driver's object for a stream handle: made once, since a program uses few."""
    return make(handle)
