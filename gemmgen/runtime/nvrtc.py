"""Compiles CUDA C++ with NVRTC, with no GPU and no driver.

The raw bindings are used, since they import in a quarter of the time that cuda.core takes, and only when a
compilation is not in the cache.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.diagnostics import ArgumentError, CompileError
from gemmgen.runtime.cubin import Resources
from gemmgen.runtime.locale_guard import keep_locale
from gemmgen.runtime.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from types import ModuleType

    from gemmgen.runtime.cache import Cache, Entry

STATIC_SHARED_LIMIT = 48 << 10  # bytes a kernel may declare; NVRTC itself accepts more, and the driver then refuses
PATIENCE = 20.0
Kind = Literal["cubin", "ptx"]
INSTALL = "pip install nvidia-cuda-nvrtc cuda-bindings"


class NvrtcMissing(CompileError):
    """NVRTC or its bindings cannot be loaded: text can be written, nothing compiled."""


class UnknownArchitecture(CompileError):
    """This release of NVRTC does not compile for an architecture; the message lists those that it does for."""


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel. ``log`` is the compiler's, ``cached`` whether it came from the cache."""

    cubin: bytes
    resources: Resources
    log: str
    arch: str
    options: tuple[str, ...]
    cached: bool = False


def compile_cubin(
    source: str,
    arch: str = DEFAULT_ARCH,
    *,
    name: str,
    options: tuple[str, ...] = (),
    filename: str = "",
    cache: Cache | Literal["default"] | None = "default",
    slow: str = "",
) -> Compiled:
    """The cubin of kernel ``name`` in ``source`` (which includes no header) for ``arch``, such as "sm_90".

    ``options`` are added to NVRTC's command line; ``filename`` stands in messages. ``cache`` None compiles anew.
    ``slow``: why this may take long, where it may; then it is given up after ``patience()`` seconds. Raises
    CompileError, with the options and the log, NvrtcMissing, and UnknownArchitecture.
    """
    from gemmgen.runtime import cubin as cubins
    from gemmgen.runtime.cache import Entry

    line = (f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v", *options)
    store, key = _store(cache, "cubin", source, name, line)
    hit = None if store is None else store.get(key)
    if hit is not None and not _given_up(hit, name, slow) and (kept := _kept(hit, arch, line)) is not None:
        return kept
    code, log = _made(source, filename or f"{name}.cu", arch, line, "cubin", slow, store, key)
    found = cubins.resources(code, name, _spills(log, name))
    if found.shared_bytes > STATIC_SHARED_LIMIT:
        raise CompileError(
            f"{name} declares {found.shared_bytes} bytes of static shared memory, over the limit of "
            f"{STATIC_SHARED_LIMIT}; declare it extern and give its size at the launch"
        )
    if store is not None:
        store.put(key, Entry({"resources": found.to_dict(), "log": log, "options": list(line)}, code))
    return Compiled(code, found, log, arch, line)


def _kept(hit: Entry, arch: str, line: tuple[str, ...]) -> Compiled | None:
    """A compilation from the cache; None where its facts are not those that are kept today."""
    try:
        resources, log = Resources(**hit.facts["resources"]), hit.facts["log"]
    except (KeyError, TypeError):
        return None
    return Compiled(hit.code, resources, log, arch, line, cached=True)


def compile_ptx(
    source: str,
    arch: str = DEFAULT_ARCH,
    *,
    name: str,
    options: tuple[str, ...] = (),
    filename: str = "",
    cache: Cache | Literal["default"] | None = "default",
    slow: str = "",
) -> str:
    """The PTX of ``source`` for ``arch`` ("sm_90" or "compute_90"). ``slow`` and errors as in :func:`compile_cubin`."""
    from gemmgen.runtime.cache import Entry

    line = (f"--gpu-architecture={arch.replace('sm_', 'compute_')}", "--std=c++17", *options)
    store, key = _store(cache, "ptx", source, name, line)
    if store is not None and (hit := store.get(key)) is not None and not _given_up(hit, name, slow):
        return hit.code.decode()
    code, log = _made(source, filename or f"{name}.cu", arch, line, "ptx", slow, store, key)
    if store is not None:
        store.put(key, Entry({"log": log}, code))
    return code.decode()


def patience() -> float:
    """Seconds of processor time that a slow compilation may take: GEMMGEN_COMPILE_SECONDS, else 20."""
    given = os.environ.get("GEMMGEN_COMPILE_SECONDS", "")
    try:
        seconds = float(given or PATIENCE)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds < float("inf"):
        raise ArgumentError(f"GEMMGEN_COMPILE_SECONDS is {given!r}; it is a number of seconds, 1 or more")
    return seconds


def _made(
    source: str, filename: str, arch: str, line: tuple[str, ...], kind: Kind, slow: str, store: Cache | None, key: str
) -> tuple[bytes, str]:
    """Compile, in a process of its own where that may take long; that it took too long is remembered."""
    from gemmgen.runtime.cache import Entry
    from gemmgen.runtime.limited import OutOfTime, call

    try:
        if not slow or not sys.executable:
            return _compile(source, filename, line, kind)
        found: tuple[bytes, str] = call(__name__, "_compile", (source, filename, line, kind), patience())
    except OutOfTime as late:
        if store is not None and late.certain:
            store.put(key, Entry({"given_up": patience()}, b""))
        raise OutOfTime(_too_slow(filename.removesuffix(".cu"), str(late), slow), late.certain) from None
    except NvrtcMissing:
        raise
    except CompileError as error:
        _refuse_unknown(arch, line, error)
        raise
    return found


def _given_up(hit: Entry, name: str, slow: str) -> bool:
    """Whether an entry says that a compilation took too long. Raises OutOfTime where it would again."""
    from gemmgen.runtime.limited import OutOfTime

    seconds = hit.facts.get("given_up")
    if seconds is not None and slow and patience() <= seconds:
        raise OutOfTime(_too_slow(name, f"over {seconds:g} s of processor time", slow))
    return seconds is not None


def _too_slow(name: str, how_long: str, slow: str) -> str:
    hint = "make tile thread or BK smaller, or write 'unroll 4'; GEMMGEN_COMPILE_SECONDS allows more time"
    return f"compiling {name} took {how_long} and was given up: {slow}; {hint}"


def _refuse_unknown(arch: str, line: tuple[str, ...], error: CompileError) -> None:
    """Raise UnknownArchitecture where ``error`` came of an architecture that this NVRTC does not know."""
    known = supported_archs()
    found = re.fullmatch(r"(?:sm|compute)_([0-9]+)[af]?", arch)
    if found is None or int(found.group(1)) not in known:
        names, release = ", ".join(f"sm_{number}" for number in known), ".".join(map(str, version()))
        what = f"NVRTC {release} does not compile for {arch}; it does for {names}"
        raise UnknownArchitecture(f"{what} (options {' '.join(line)})") from error


def supported_archs() -> tuple[int, ...]:
    """The architectures that this NVRTC compiles for, rising: 90 is 9.0. Raises NvrtcMissing."""
    nvrtc = _load()
    return tuple(sorted(_value(nvrtc, nvrtc.nvrtcGetSupportedArchs())))


def version() -> tuple[int, int]:
    """NVRTC's version. Raises NvrtcMissing."""
    nvrtc = _load()
    status, major, minor = nvrtc.nvrtcVersion()
    _check(nvrtc, status)
    return int(major), int(minor)


def _store(
    cache: Cache | Literal["default"] | None, kind: str, source: str, name: str, line: tuple[str, ...]
) -> tuple[Cache | None, str]:
    """The cache to use and the key of this compilation in it."""
    from gemmgen.runtime.cache import default_cache, key_of
    from gemmgen.runtime.installed import nvrtc_identity

    store = default_cache() if cache == "default" else cache
    if store is None:
        return None, ""
    identity = nvrtc_identity() or "{}.{}".format(*version())
    return store, key_of(kind, source, name, *line, identity)


def _load() -> ModuleType:
    """The bindings, with NVRTC itself loaded."""
    try:
        from cuda.bindings import nvrtc

        with keep_locale():
            nvrtc.nvrtcVersion()  # finds and loads the library, or raises
    except Exception as e:  # ImportError, or one of several types that the loader raises for a missing library
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise NvrtcMissing(f"NVRTC cannot be loaded ({reason}); {INSTALL}") from e
    module: ModuleType = nvrtc
    return module


def _compile(source: str, filename: str, line: tuple[str, ...], kind: Kind) -> tuple[bytes, str]:
    nvrtc = _load()
    size_of, read = {
        "cubin": (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
        "ptx": (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX),
    }[kind]
    with keep_locale():
        program = _value(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), filename.encode(), 0, [], []))
        try:
            status = nvrtc.nvrtcCompileProgram(program, len(line), [o.encode() for o in line])[0]
            log = _read(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
            log = log.rstrip("\0").strip()
            if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
                raise CompileError(_message(filename, status.name, line, log))
            code = _read(nvrtc, program, size_of, read)
        finally:
            nvrtc.nvrtcDestroyProgram(program)
    if not code:
        raise CompileError(_message(filename, f"no {kind} came back", line, log))
    return (code.rstrip(b"\0") if kind == "ptx" else code), log


def _message(filename: str, what: str, line: tuple[str, ...], log: str) -> str:
    return f"NVRTC refused {filename} ({what}), options {' '.join(line)}\n{log or '(its log is empty)'}"


def _read(nvrtc: ModuleType, program: Any, size_of: Callable[..., Any], read: Callable[..., Any]) -> bytes:
    """Output of the compiler, taken into memory of our own: the bindings write through what they are given."""
    buffer = bytearray(_value(nvrtc, size_of(program)))
    _check(nvrtc, read(program, buffer)[0])
    return bytes(buffer)


def _value(nvrtc: ModuleType, result: tuple[Any, ...]) -> Any:
    _check(nvrtc, result[0])
    return result[1]


def _check(nvrtc: ModuleType, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC: {getattr(status, 'name', status)}")


_PROPERTIES = re.compile(r"Function properties for (\S+)\s*\n[^\n]*?(\d+) bytes spill stores")


def _spills(log: str, name: str) -> int:
    """Bytes per thread that ptxas stores from registers to memory in kernel ``name``."""
    return next((int(size) for kernel, size in _PROPERTIES.findall(log) if kernel == name), 0)
