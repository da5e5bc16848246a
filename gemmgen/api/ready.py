"""Kernels ready to be launched: compiled code beside what a launch needs to know of it, without the text.

Lowering a spec and writing its CUDA takes about 0.1 s a variant. What a launch asks of a kernel (its parameters, tensor
maps, threads and shared memory) is small, so it is kept in the cache with the code, under a key that changes with
gemmgen's own files, the compiler, the architecture, the spec and the variant. A wheel may carry some (``carried``).
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.api import carried
from gemmgen.ir.variant import EXACT, GUARDED, GUARDED_UNALIGNED, PADDED, Variant
from gemmgen.runtime.cache import Cache, Entry, default_cache, key_of
from gemmgen.runtime.target import Target, choose_target

if TYPE_CHECKING:
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.ir.program import Part, Program
    from gemmgen.runtime.build import Built
    from gemmgen.runtime.device import Device
    from gemmgen.spec.model import Spec

KIND = "ready"
WARMED = (EXACT, GUARDED, GUARDED_UNALIGNED, PADDED)
"""The variants that `gemmgen warm` compiles: any call can be computed by one of them."""
SILENT_S = 1.0


@dataclass(frozen=True)
class Ready:
    """The kernels of one variant of a spec by their part, each without its body, with its code; and the program."""

    program: Program
    kernels: tuple[tuple[Part, KernelIR, Built], ...]

    def part(self, which: Part) -> tuple[KernelIR, Built]:
        return next((ir, built) for part, ir, built in self.kernels if part == which)


def made(spec: Spec, variant: Variant, target: Target) -> Ready:
    """A variant lowered and compiled. Raises CompileError."""
    from gemmgen.cuda.emit import emit_cuda
    from gemmgen.lower import lower
    from gemmgen.runtime.build import compile_target
    from gemmgen.spec.effort import slow_to_compile

    whole = lower(spec, variant)
    slow, found = slow_to_compile(spec), []
    for ir in whole.kernels:
        for_it = replace(target, arch=ir.target(target.arch))
        built = compile_target(emit_cuda(ir), for_it, name=ir.name, slow=slow)
        found.append((ir.part, launchable(ir), built))
    assert whole.program is not None
    return Ready(whole.program, tuple(found))


def launchable(ir: KernelIR) -> KernelIR:
    """What a launch asks of a kernel: all but the statements, and the kernels beside it."""
    return replace(ir, body=(), first=None, then=None, constants=(), assertions=(), program=None)


def keep(spec: Spec, variant: Variant, target: Target, store: Cache | None = None) -> Ready:
    """The kernels of a variant from the cache, else compiled and kept there. Raises CompileError."""
    store = store or default_cache()
    known = find(spec, variant, target, store)
    if known is not None:
        return known
    fresh = made(spec, variant, target)
    store.put(key(spec, variant, target), Entry({}, pickle.dumps(fresh)))
    return fresh


def find(spec: Spec, variant: Variant, target: Target, store: Cache | None = None) -> Ready | None:
    """The kernels of a variant, where the cache or the wheel has them."""
    return in_cache(spec, variant, target, store) or in_wheel(spec, variant, target)


def in_cache(spec: Spec, variant: Variant, target: Target, store: Cache | None = None) -> Ready | None:
    entry = (store or default_cache()).get(key(spec, variant, target))
    return None if entry is None else _unpacked(entry.code)


def in_wheel(spec: Spec, variant: Variant, target: Target) -> Ready | None:
    if target.kind != "cubin":
        return None
    data = carried.entry(target.arch, carried.name_of(spec, variant, target.arch))
    return None if data is None else _unpacked(data)


def _unpacked(data: bytes) -> Ready | None:
    try:
        # The cache's folder is the user's alone, the wheel's that of gemmgen itself: what is in both is run.
        found: Any = pickle.loads(data)
    except Exception:  # of a class that has changed: of any type
        return None
    return found if isinstance(found, Ready) else None


def packed(spec: Spec, variant: Variant, target: Target) -> tuple[str, bytes]:
    """A variant for an archive of :mod:`gemmgen.api.carried`: its name there, and the kernels. Raises CompileError."""
    return carried.name_of(spec, variant, target.arch), pickle.dumps(keep(spec, variant, target))


class Kept:
    """The kernels of one spec in the cache, for GPUs of one architecture. May be used from several threads."""

    def __init__(self, spec: Spec, arch: str) -> None:
        self._spec = spec
        self._target = Target("cubin", arch)
        self._found: dict[Variant, Ready | None] = {}

    @property
    def program(self) -> Program | None:
        """What a product launches, where any variant is in the cache."""
        return next((found.program for v in WARMED if (found := self._of(v)) is not None), None)

    def has(self, variant: Variant) -> bool:
        return self._of(variant) is not None

    def _of(self, variant: Variant) -> Ready | None:
        if variant not in self._found:
            self._found[variant] = find(self._spec, variant, self._target)
        return self._found[variant]

    def part(self, variant: Variant, which: Part, gpu: Device) -> tuple[KernelIR, Built]:
        """A kernel of a variant, compiled for a GPU where it is not in the cache. Raises CompileError, LaunchError."""
        from gemmgen.runtime.launch import check_architecture
        from gemmgen.runtime.nvrtc import supported_archs

        found = self._of(variant)
        if found is None:
            from gemmgen.lower import lower

            for ir in lower(self._spec, variant).kernels:
                check_architecture(ir, gpu)
            target = choose_target(gpu.cc, supported_archs())
            with announced(self._spec.name):
                found = keep(self._spec, variant, target)
            self._found[variant] = found
        return found.part(which)

    def anew(self, variant: Variant, which: Part, why: str) -> tuple[KernelIR, Built] | None:
        """A kernel that the wheel carries and the driver does not load, compiled here; None of one that is not
        carried. One line on stderr says so. Raises CompileError."""
        if in_cache(self._spec, variant, self._target) is not None:
            return None
        if in_wheel(self._spec, variant, self._target) is None:
            return None
        _say(f"gemmgen: {self._spec.name} is compiled here, since the kernel that gemmgen carries fails: {why}\n")
        fresh = made(self._spec, variant, self._target)
        default_cache().put(key(self._spec, variant, self._target), Entry({}, pickle.dumps(fresh)))
        self._found[variant] = fresh
        return fresh.part(which)


@contextmanager
def announced(name: str) -> Iterator[None]:
    """Says on stderr that a kernel is compiled, once that has taken a second."""
    said = f"gemmgen: compiling the kernel {name}, which takes some seconds; `gemmgen warm` compiles ahead\n"
    timer = threading.Timer(SILENT_S, _say, (said,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # closed, or none
        sys.stderr.write(text)
        sys.stderr.flush()


def key(spec: Spec, variant: Variant, target: Target) -> str:
    from gemmgen.runtime.installed import nvrtc_identity

    compiler = nvrtc_identity() or "none"
    own = spec.to_text(comment=False), carried.variant_text(variant)
    return key_of(KIND, fingerprint(), compiler, target.kind, target.arch, *own)


@cache
def fingerprint() -> str:
    """Changes whenever a file of gemmgen does."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        status = path.stat()
        digest.update(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
