"""How a kernel is launched, as the header of its text and ``gemmgen compile --json`` say it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gemmgen.ir.expr import Expr, show, value_of
from gemmgen.ir.facts import variables
from gemmgen.ir.kernel import KernelIR, TensorMap
from gemmgen.ir.memory import STATIC_SHARED_BYTES
from gemmgen.ir.nodes import Call, If, Load, Sync, walk
from gemmgen.ir.references import references
from gemmgen.isa.cluster import CLUSTER_SYNC
from gemmgen.isa.lane_values import LANE_VALUES
from gemmgen.isa.table import Needs

FILL = "zeros"
"""What the TMA engine writes for elements outside the matrix."""


@dataclass(frozen=True)
class LaunchFacts:
    """``grid`` are C expressions of M and N for x, y and z; ``cluster`` blocks along z run together. ``architecture``
    is the least that has the kernel's instructions (None: any), or with ``exact`` the only one."""

    grid: tuple[str, str, str]
    block: int
    dynamic_shared_bytes: int
    static_shared_bytes: int
    cluster: int
    tensor_maps: tuple[TensorMap, ...]
    architecture: str | None
    exact: bool


def launch_facts(ir: KernelIR) -> LaunchFacts:
    dynamic = ir.shared_bytes if ir.shared_bytes > STATIC_SHARED_BYTES else 0
    found = list(_needs(ir))
    exact = next((n.exact for n in found if n.exact), None)
    least = max((n.min for n in found), default=Needs().min)
    x, y, z = (_grid_text(ir, part) for part in ir.grid)
    return LaunchFacts(
        (x, y, z), ir.threads, dynamic, ir.shared_bytes - dynamic, value_of(ir.cluster) or 1, ir.tensor_maps,
        exact or (f"sm_{least}" if least > Needs().min else None), exact is not None,
    )  # fmt: skip


def _grid_text(ir: KernelIR, part: Expr) -> str:
    """A part of the grid in M, N and numbers: it stands above the constants."""
    values = {c.name: str(c.value) for c in ir.constants}
    text = re.sub(r"\b[A-Z]\w+\b", lambda m: values.get(m[0], m[0]), show(part))
    return re.sub(r"\+ (\d+) - 1\b", lambda m: f"+ {int(m[1]) - 1}", text).replace(" + 0)", ")")


def _needs(ir: KernelIR) -> Iterator[Needs]:
    """What each instruction of a kernel needs, and each element type."""
    for s in walk(ir.body):
        match s:
            case Call(row=row):
                yield row.arch
            case Sync(scope="cluster"):
                yield CLUSTER_SYNC.arch
            case Load(rank=rank) if rank is not None:
                yield CLUSTER_SYNC.arch
            case If(cond=cond):
                yield from (LANE_VALUES[v.name].arch for v in variables(cond) if v.name in LANE_VALUES)
            case _:
                pass
        yield from (Needs(ref.array.dtype.arch) for ref in references(s) if ref.array.dtype.arch)


def launch_text(ir: KernelIR) -> str:
    """One sentence: grid, block, shared memory, cluster, architecture."""
    found = launch_facts(ir)
    parts = [f"grid ({', '.join(found.grid)})", f"{found.block} threads per block"]
    if found.cluster > 1:
        parts.append(f"clusters of {found.cluster} blocks along z")
    if found.dynamic_shared_bytes:
        parts.append(f"{found.dynamic_shared_bytes} bytes of dynamic shared memory")
    else:
        parts.append("no dynamic shared memory")
    if found.architecture:
        parts.append(found.architecture if found.exact else f"{found.architecture} or newer")
    return f"Launch: {', '.join(parts)}."


def maps_text(ir: KernelIR) -> str:
    """The tensor maps that are passed at launch; empty where there are none."""
    if not ir.tensor_maps:
        return ""
    return f"Tensor maps (cuTensorMapEncodeTiled): {'; '.join(_map_text(ir, m) for m in ir.tensor_maps)}."


def _map_text(ir: KernelIR, m: TensorMap) -> str:
    swizzle = f"{m.swizzle}-byte swizzle" if m.swizzle else "no swizzle"
    return f"{m.name} of {m.operand}, {m.dtype}, box {m.box[0]} x {m.box[1]} elements, {swizzle}, {FILL} out of bounds"


def launch_dict(ir: KernelIR) -> dict[str, Any]:
    """The same as JSON. A grid is C expressions of M and N; boxes are in elements, contiguous dimension first."""
    found = launch_facts(ir)
    maps = [
        {
            "parameter": m.name,
            "operand": m.operand,
            "element_type": m.dtype.name,
            "box": list(m.box),
            "swizzle_bytes": m.swizzle,
            "out_of_bounds_fill": FILL,
        }
        for m in ir.tensor_maps
    ]
    parameters = [{"name": p.name, "kind": p.kind} for p in ir.params]
    return {
        **asdict(found),
        "grid": list(found.grid),
        "block": [found.block, 1, 1],
        "cluster": [1, 1, found.cluster],
        "tensor_maps": maps,
        "parameters": parameters,
    }
