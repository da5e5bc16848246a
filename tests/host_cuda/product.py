"""The kernels of a product, as the host's compiler built them, run one after the other."""

from __future__ import annotations

from typing import Any

from host_cuda.harness import HostModule
from host_cuda.problem import Problem
from pipelinehelp import launches, workspace
from simhelp import grid_of

from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.kernel import KernelIR

PARAMETERS = ("M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc")


def texts(name: str, ir: KernelIR) -> list[tuple[str, str]]:
    """The texts of the kernel and of the one before or after it, by the names that :func:`run` knows them under."""
    return [(_name(name, one), emit_cuda(one)) for one in ir.kernels]


def _name(name: str, ir: KernelIR) -> str:
    return name if ir.part == "main" else f"{name}_{ir.part}"


def arguments_of(p: Problem) -> dict[str, Any]:
    """The arguments of a product by the names of its kernels' parameters."""
    return dict(zip(PARAMETERS, p.arguments(), strict=True))


def run(module: HostModule, name: str, ir: KernelIR, p: Problem, *, reverse: bool = False) -> None:
    """The kernel, and the one before or after it. The second of two that overlap finds what the first makes as if it
    were still being written."""
    m, n = p.c.shape
    given = arguments_of(p)
    sums = workspace(ir, given)
    for one, scalars in launches(ir, given):
        values = scalars | {"C": sums if one.then else p.c.address, "W": sums}
        maps = p.arguments(one.tensor_maps)[len(given) :]
        grid = grid_of(one, {"M": m, "N": n, "K": p.k})
        values_of = [values[x.name] for x in one.params if x.kind != "tensormap"]
        arriving = {(): None, ("W",): sums, ("C",): p.c.buffer}[one.arriving]
        module.run(_name(name, one), grid, one.threads, [*values_of, *maps], reverse=reverse, arriving=arriving)
