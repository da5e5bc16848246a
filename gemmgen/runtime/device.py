"""Which GPU there is, asked of the driver itself: no CUDA package is imported, and no context made.

With no driver, or no GPU, the answer is None at once.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from dataclasses import dataclass

from gemmgen.diagnostics import LaunchError, escaped

_LIBRARY = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}

# CUdevice_attribute
_ATTRIBUTES = {
    "threads_per_block": 1,
    "shared_static": 8,
    "registers_per_block": 12,
    "clock_khz": 13,
    "sms": 16,
    "l2_bytes": 38,
    "threads_per_sm": 39,
    "major": 75,
    "minor": 76,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_per_block": 97,
}


@dataclass(frozen=True)
class Device:
    """A GPU and its limits. Memory in bytes; ``shared_per_block`` is the most that a block can be given, of which
    ``shared_static`` without asking.

    ``driver`` is the CUDA version that the driver supports, as (13, 0).
    """

    ordinal: int
    name: str
    cc: tuple[int, int]
    sms: int
    threads_per_block: int
    threads_per_sm: int
    registers_per_block: int
    registers_per_sm: int
    shared_static: int
    shared_per_block: int
    shared_per_sm: int
    l2_bytes: int
    memory_bytes: int
    clock_khz: int
    driver: tuple[int, int]

    @property
    def arch(self) -> str:
        return f"sm_{self.cc[0]}{self.cc[1]}"


@dataclass(frozen=True)
class _Driver:
    """The driver's library, initialised; ``why`` says what is missing where ``library`` is None."""

    library: ctypes.CDLL | None
    count: int = 0
    why: str = ""


def count() -> int:
    """How many GPUs there are."""
    return _driver().count


def why_none() -> str:
    """What is missing, in a few words, where there is no GPU; else an empty text."""
    return _driver().why


def current() -> Device | None:
    """The GPU of the calling thread's current context, else the first; None where there is none."""
    driver = _driver()
    if driver.library is None:
        return None
    device = ctypes.c_int()
    ordinal = device.value if driver.library.cuCtxGetDevice(ctypes.byref(device)) == 0 else 0
    return get(ordinal)


def required() -> Device:
    """The current GPU. Raises LaunchError where there is none."""
    device = current()
    if device is None:
        simulator = "`gemmgen run --device sim`, `gemmgen ladder`; device='sim' in Python"
        raise LaunchError(f"no GPU can be used here: {why_none()}; the simulator needs none ({simulator})")
    return device


@functools.cache
def get(ordinal: int) -> Device:
    """GPU number ``ordinal``. Raises LaunchError where there is none of that number."""
    driver = _driver()
    library = driver.library
    if library is None or not 0 <= ordinal < driver.count:
        raise LaunchError(f"there is no GPU number {ordinal}: {driver.why or f'{driver.count} found'}")
    handle = ctypes.c_int()
    _ok(library.cuDeviceGet(ctypes.byref(handle), ordinal), "cuDeviceGet")
    name = ctypes.create_string_buffer(256)
    _ok(library.cuDeviceGetName(name, len(name), handle), "cuDeviceGetName")
    memory = ctypes.c_size_t()
    _ok(library.cuDeviceTotalMem_v2(ctypes.byref(memory), handle), "cuDeviceTotalMem")
    found = {key: _attribute(library, number, handle) for key, number in _ATTRIBUTES.items()}
    supported = ctypes.c_int()
    _ok(library.cuDriverGetVersion(ctypes.byref(supported)), "cuDriverGetVersion")
    return Device(
        ordinal=ordinal,
        name=escaped(name.value.decode(errors="replace")),
        cc=(found.pop("major"), found.pop("minor")),
        memory_bytes=memory.value,
        driver=(supported.value // 1000, supported.value % 1000 // 10),
        **found,
    )


def library_name() -> str | None:
    """What the driver's library is called here; None where there is none for the system."""
    return _LIBRARY.get(sys.platform)


@functools.cache
def _driver() -> _Driver:
    name = library_name()
    if name is None:
        return _Driver(None, why=f"CUDA does not exist for {sys.platform}")
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return _Driver(None, why=f"the NVIDIA driver is not installed ({name} is missing)")
    status = library.cuInit(0)
    if status != 0:
        return _Driver(None, why=f"the NVIDIA driver answers {_error(library, status)} to cuInit")
    n = ctypes.c_int()
    status = library.cuDeviceGetCount(ctypes.byref(n))
    if status != 0 or n.value == 0:
        return _Driver(None, why="the NVIDIA driver finds no GPU")
    return _Driver(library, n.value)


def _attribute(library: ctypes.CDLL, number: int, handle: ctypes.c_int) -> int:
    value = ctypes.c_int()
    _ok(library.cuDeviceGetAttribute(ctypes.byref(value), number, handle), f"cuDeviceGetAttribute({number})")
    return value.value


def _ok(status: int, call: str) -> None:
    if status != 0:
        raise LaunchError(f"{call} failed with CUDA error {status}")


def _error(library: ctypes.CDLL, status: int) -> str:
    text = ctypes.c_char_p()
    found = library.cuGetErrorName(status, ctypes.byref(text)) == 0 and text.value
    return found.decode() if found else f"error {status}"
