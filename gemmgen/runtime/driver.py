"""The CUDA driver through cuda.bindings, with errors as LaunchError, and the context of a GPU made current."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gemmgen.diagnostics import LaunchError

_IMPORTING = threading.Lock()


@functools.cache
def bindings() -> Any:
    """``cuda.bindings.driver``. Raises LaunchError where there is no driver or no GPU, or the bindings are missing."""
    from gemmgen.runtime import device

    device.required()
    try:
        from cuda.bindings import driver
    except ImportError as e:
        raise LaunchError(f"cuda-python is not installed ({e}); pip install cuda-python") from e
    return driver


@functools.cache
def core() -> Any:
    """``cuda.core``, imported by one thread while others wait: two that import it together may see half of it."""
    with _IMPORTING:
        import cuda.core

        return cuda.core


@functools.cache
def library() -> ctypes.CDLL:
    """The driver itself, for what must be quick: a call with plain numbers takes a third of the bindings' time."""
    from gemmgen.runtime import device

    bindings()
    return ctypes.CDLL(device.library_name())


@functools.cache
def launcher() -> Callable[[int, int, int, None], int]:
    """cuLaunchKernelEx of a configuration's address, a kernel's handle, and the address of its arguments' addresses."""
    function = library().cuLaunchKernelEx
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return function


class _CurrentDevice(threading.local):
    """Asks for this thread's current device, into memory that it keeps for the answer."""

    def __init__(self) -> None:
        self._answer = ctypes.c_int()
        function = library().cuCtxGetDevice
        function.argtypes = (ctypes.c_void_p,)
        self._ask = functools.partial(function, ctypes.c_void_p(ctypes.addressof(self._answer)))

    def number(self) -> int:
        """-1 where there is none."""
        return self._answer.value if self._ask() == 0 else -1


@functools.cache
def _current_device() -> _CurrentDevice:
    return _CurrentDevice()


def call(what: str, *arguments: Any) -> Any:
    """The driver's function ``what``: what it returns beside the status. Raises LaunchError naming the error."""
    status, *values = getattr(bindings(), what)(*arguments)
    if status != 0:
        raise failure(what, status)
    return values[0] if len(values) == 1 else tuple(values) or None


def failure(what: str, status: Any) -> LaunchError:
    """The error of a call that returned ``status``."""
    driver = bindings()
    status = driver.CUresult(status)
    text = driver.cuGetErrorString(status)[1]
    explained = text.decode(errors="replace") if text else "no description"
    return LaunchError(f"{what} failed: {getattr(status, 'name', status)} ({explained})")


def is_current(ordinal: int) -> bool:
    """Whether this thread's current context is of that GPU."""
    return _current_device().number() == ordinal


def current_device() -> int:
    """The GPU of this thread's current context. Raises LaunchError where there is none."""
    found = _current_device().number()
    return found if found >= 0 else int(call("cuCtxGetDevice"))


def make_current(ordinal: int) -> None:
    """Make the primary context of a GPU current in this thread, the one that every framework uses."""
    if not is_current(ordinal):
        core().Device(ordinal).set_current()


@contextmanager
def on_device(ordinal: int) -> Iterator[None]:
    """In this block the GPU's primary context is current; what was current before is current again after it."""
    before = call("cuCtxGetCurrent")
    make_current(ordinal)
    try:
        yield
    finally:
        if int(before) and int(before) != int(call("cuCtxGetCurrent")):
            call("cuCtxSetCurrent", before)


@functools.cache
def private_stream(ordinal: int) -> int:
    """A stream of gemmgen's own on a GPU, for work that nothing else waits for: timing, and graphs that are captured.

    Only to be asked for with the GPU's context current.
    """
    return int(call("cuStreamCreate", int(bindings().CUstream_flags.CU_STREAM_NON_BLOCKING)))


PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD: each thread's own default stream
LEGACY_STREAM = 1  # CU_STREAM_LEGACY: the default stream that waits for the others
