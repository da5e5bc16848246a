"""Tile program -> program of kernels: what a product launches beside the main kernel, and what each launch needs."""

from __future__ import annotations

from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.program import Program, Step, Workspace
from gemmgen.ir.reach import global_bytes
from gemmgen.tile.program import TileProgram


def program_of(p: TileProgram, exact: KernelIR) -> Program:
    """The program of a spec whose exact variant is ``p``, lowered as ``exact``."""
    (bm, bn, bk), parts = p.block, p.split_k
    found = [global_bytes(ir) for ir in exact.kernels]
    needs = tuple((x.name, max([x.dtype.bytes, *(w[x.name] for w in found if x.name in w)])) for x in p.matrices)
    return Program(
        name=p.name,
        matrices=p.matrices,
        tile=(bm, bn, bk if p.copies else 1),
        looks_ahead=bk * (parts + p.pipeline.depth),
        needs=needs,
        steps=_steps(p),
        workspace=Workspace("W", parts) if p.second_kernel else None,
        persistent=p.persistent,
        group=0 if p.group_m == 1 else p.group_m,
    )


def _steps(p: TileProgram) -> tuple[Step, ...]:
    if p.output.atomic:
        return (
            Step("first", "lines", skipped="beta is 1"),
            Step("main", parts=p.split_k, skipped="K is 0", early=p.dependent),
        )
    if p.second_kernel:
        return (Step("main", parts=p.split_k, output="workspace"), Step("then", "lines", early=p.dependent))
    return (Step("main", parts=p.split_k),)
