"""Source to code that a given GPU can load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from gemmgen.runtime.nvrtc import compile_cubin, compile_ptx, supported_archs
from gemmgen.runtime.target import Target, choose_target

if TYPE_CHECKING:
    from gemmgen.runtime.cubin import Resources
    from gemmgen.runtime.device import Device


@dataclass(frozen=True)
class Built:
    """A cubin, or PTX that the driver compiles when it is loaded: then the resources are not known before."""

    code: bytes
    kind: Literal["cubin", "ptx"]
    arch: str
    resources: Resources | None
    log: str = ""


def compile_for(
    source: str, device: Device, *, name: str, slow: str = "", retarget: Callable[[str], str] | None = None
) -> Built:
    """Compiles kernel ``name`` for a GPU, by the rule of ``choose_target``; ``slow`` as in ``compile_cubin``.
    ``retarget`` gives the name of the architecture under which it has all that the kernel uses (``KernelIR.target``).
    Raises CompileError."""
    target = choose_target(device.cc, supported_archs())
    if retarget is not None:
        target = replace(target, arch=retarget(target.arch))
    return compile_target(source, target, name=name, slow=slow)


def compile_target(source: str, target: Target, *, name: str, slow: str = "") -> Built:
    """Compiles kernel ``name`` for a target. Raises CompileError."""
    if target.kind == "ptx":
        return Built(compile_ptx(source, target.arch, name=name, slow=slow).encode(), "ptx", target.arch, None)
    compiled = compile_cubin(source, target.arch, name=name, slow=slow)
    return Built(compiled.cubin, "cubin", target.arch, compiled.resources, compiled.log)
