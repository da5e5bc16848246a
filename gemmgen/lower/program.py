"""Tile program -> program of kernels: what a product launches beside the main kernel, and what each launch needs."""

from __future__ import annotations

from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.program import Program, Step, Workspace
from gemmgen.ir.reach import global_bytes
from gemmgen.tile.program import TileProgram
from gemmgen.tile.sums import InMemory


def program_of(p: TileProgram, exact: KernelIR) -> Program:
    """The program of a spec whose exact variant is ``p``, lowered as ``exact``."""
    (bm, bn, bk), parts = p.block, p.sums.parts
    found = [global_bytes(ir) for ir in exact.kernels]
    needs = tuple((x.name, max([x.dtype.bytes, *(w[x.name] for w in found if x.name in w)])) for x in p.matrices)
    return Program(
        name=p.name,
        matrices=p.given or p.matrices,
        read=p.matrices,
        split=p.product.math.split,
        tile=(bm, bn, bk if p.copies or p.product.lanes_k > 1 else 1),
        looks_ahead=bk * (parts + p.pipeline.depth),
        needs=needs,
        steps=_steps(p),
        workspace=Workspace("W", parts) if p.second_kernel else None,
        persistent=p.persistent,
        group=0 if p.group_m == 1 else p.group_m,
        aligned=frozenset(c.operand for c in p.copies) if p.asynchronous else frozenset(),
        beside=p.beside,
    )


def _steps(p: TileProgram) -> tuple[Step, ...]:
    if isinstance(p.sums, InMemory):
        return (
            Step("first", "lines", skipped="beta is 1"),
            Step("main", parts=p.sums.parts, skipped="K is 0", early=p.sums.early),
        )
    if p.second_kernel:
        return (Step("main", parts=p.sums.parts, output="workspace"), Step("then", "lines", early=p.sums.early))
    return (Step("main", parts=p.sums.parts),)
