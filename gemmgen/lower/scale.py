"""The kernel before the main one, where blocks add to C with atomics: what they add to is beta * C."""

from __future__ import annotations

from gemmgen.ir.expr import Const
from gemmgen.ir.kernel import KernelIR, Param
from gemmgen.ir.nodes import Alloc, Compute, FBin, If, Load, Read, Scalar, Section, Store
from gemmgen.lower.chain import strides
from gemmgen.lower.lines import lines_of
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import BETA, global_array
from gemmgen.lower.syncs import beside
from gemmgen.tile.order import order
from gemmgen.tile.program import TileProgram
from gemmgen.tile.statements import Prepare

ORIGIN = "use atomics"


def scaling(p: TileProgram) -> KernelIR:
    """C = beta * C; where beta is 0, C = 0 and is not read."""
    x = lines_of(p)
    out, old = x.registers("out"), x.registers("old")
    first = x.each(out, Const(0)), x.each(old, Const(0))
    scaled = nest(
        [("v", x.width, 1)],
        lambda v: [Compute(x.each(out, v), FBin("*", Scalar("beta"), Read(x.each(old, v))))],
    )
    keep = (Alloc(old), Load(first[1], x.target, x.width, None, ORIGIN), *scaled)
    body = (Alloc(out, 0.0), If(BETA.ne(0), keep), Store(x.target, first[0], x.width, None, ORIGIN))
    early = beside(order(p, (Prepare(),), "first"))
    main = Section("Scale, or clear without a look at what is there", (If(x.inside, body),))
    return KernelIR(
        name=f"{p.name}_scale",
        variant=p.variant,
        summary=f"Makes C ready to be added to by {p.name}: beta * C.",
        constants=(x.threads,),
        assertions=(),
        params=(
            Param("M", "int", why="rows of C"),
            Param("N", "int", why="columns of C"),
            Param("beta", "float"),
            Param("C", "pointer", global_array("C", x.dtype)),
            Param("ldc", "size", why=p.matrix("C").leading_counts),
            *(strides(p.matrices[2:]) if p.batched else ()),
        ),
        threads=x.threads.value,
        grid=x.grid,
        shared=(),
        body=(*early, x.placement, main),
        part="first",
        main=p.name,
        matrices=p.matrices,
        notes=(f"Launched before {p.name}, unless beta is 1.",),
    )
