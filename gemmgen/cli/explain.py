"""``gemmgen explain``: what limits a kernel's speed."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_gpu
from gemmgen.cli.options import Json, OneSpec, Set, Size, parse_size
from gemmgen.cli.specs import load_specs

DEFAULT = Size(4096, 4096, 4096)

SizeOption = Annotated[
    Size | None,
    typer.Option("--size", metavar="MxNxK", parser=parse_size, help=f"Size of the product; default: {DEFAULT}."),
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        help="A GPU of `gemmgen gpus`, such as h200 or rtx4090; default: this machine's, or h200.",
        autocompletion=complete_gpu,
    ),
]
Beta = Annotated[float, typer.Option(help="With 0, C is not read.")]


def explain(
    spec: OneSpec,
    size: SizeOption = None,
    gpu: GpuOption = None,
    beta: Beta = 0.0,
    settings: Set = None,
    json: Json = False,
) -> int:
    """Show what limits a kernel's speed, and which line of its spec would change that.

    For every access requests, sectors, and shared-memory wavefronts, exact at any size; registers and occupancy;
    traffic and intensity; a bound for each resource; the main loop as compiled; and the bottleneck in plain words. No
    GPU is needed. Examples:

      gemmgen explain warptile

      gemmgen explain specs/naive.gemm --size 1023 --gpu a6000

      gemmgen explain warptile --set float4=off

      gemmgen explain vectorized --json
    """
    import gemmgen
    from gemmgen.report.explained import explanation_dict

    [loaded] = load_specs([spec], settings)
    with output.progress(f"explaining {loaded.name}"):
        found = gemmgen.explain(loaded, *(size or DEFAULT), gpu=named_gpu(gpu), beta=beta)
        told = explanation_dict(found) if json else str(found)  # tries other specs, and compiles them
    if isinstance(told, str):
        output.result(told)
    else:
        output.print_json(told)
    return exits.OK


def named_gpu(name: str | None) -> str:
    """The GPU that was named, else the row for this machine's, else h200."""
    from gemmgen.runtime.device import current
    from gemmgen.target import row_of

    if name is not None:
        return name
    device = current()
    row = row_of(device.name) if device else None
    return row.name if row else "h200"
