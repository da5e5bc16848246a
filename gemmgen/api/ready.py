"""Kernels ready to be launched: compiled code beside what a launch needs to know of it, without the text.

Lowering a spec and writing its CUDA takes about 0.1 s a variant. What a launch asks of a kernel (its parameters, tensor
maps, threads and shared memory) is small, so it is kept in the cache with the code, under a key that changes with
gemmgen's own files, the compiler, the architecture, the spec and the variant.
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
    """The kernels of a variant, where the cache has them."""
    entry = (store or default_cache()).get(key(spec, variant, target))
    if entry is None:
        return None
    try:
        found: Any = pickle.loads(entry.code)  # the cache's folder is the user's alone, and what is in it is run
    except Exception:  # of a class that has changed: of any type
        return None
    return found if isinstance(found, Ready) else None


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

    said = repr((sorted(variant.guard), variant.align, sorted(variant.padded)))
    compiler = nvrtc_identity() or "none"
    return key_of(KIND, fingerprint(), compiler, target.kind, target.arch, spec.to_text(comment=False), said)


@cache
def fingerprint() -> str:
    """Changes whenever a file of gemmgen does."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        status = path.stat()
        digest.update(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
