"""The kernels of a product, as the host's compiler built them, run one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from host_cuda.harness import HostModule
from host_cuda.problem import Problem
from pipelinehelp import launches, workspace
from simhelp import grid_of

from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.kernel import KernelIR

NOTHING: Mapping[str, Any] = MappingProxyType({})
PARAMETERS = ("M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc")


def texts(name: str, ir: KernelIR) -> list[tuple[str, str]]:
    """The texts of the kernel and of the one before or after it, by the names that :func:`run` knows them under."""
    return [(_name(name, one), emit_cuda(one)) for one in ir.kernels]


def _name(name: str, ir: KernelIR) -> str:
    return name if ir.part == "main" else f"{name}_{ir.part}"


def _beside(beside: Mapping[str, Any]) -> dict[str, Any]:
    """Addresses, and leading dimensions of those that are matrices, in elements."""
    found = {name: int(x.__array_interface__["data"][0]) for name, x in beside.items()}
    leading = {f"ld{name}": max(x.strides) // x.itemsize for name, x in beside.items() if x.ndim == 2}
    return found | leading


def arguments_of(p: Problem) -> dict[str, Any]:
    """The arguments of a product by the names of its kernels' parameters."""
    return dict(zip(PARAMETERS, p.arguments(), strict=True))


def run(
    module: HostModule,
    name: str,
    ir: KernelIR,
    p: Problem,
    *,
    reverse: bool = False,
    beside: Mapping[str, Any] = NOTHING,
) -> None:
    """The kernel, and the one before or after it, with the operands of its epilogue. The second of two that overlap
    finds what the first makes as if it were still being written."""
    m, n = p.c.shape
    given = arguments_of(p)
    sums = workspace(ir, given)
    for one, scalars in launches(ir, given):
        values = scalars | {"C": sums if one.then else p.c.address, "W": sums} | _beside(beside)
        maps = p.arguments(one.tensor_maps)[len(given) :]
        grid = grid_of(one, {"M": m, "N": n, "K": p.k})
        values_of = [values[x.name] for x in one.params if x.kind != "tensormap"]
        arriving = {(): None, ("W",): sums, ("C",): p.c.buffer}[one.arriving]
        module.run(_name(name, one), grid, one.threads, [*values_of, *maps], reverse=reverse, arriving=arriving)
