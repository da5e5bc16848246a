"""``gemmgen explain``: why a kernel is as fast as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmgen.cli import artifacts, exits, output
from gemmgen.cli.options import Json, OneSpec, Size, parse_size

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
    ),
]
Beta = Annotated[float, typer.Option(help="With 0, C is not read.")]


def explain(spec: OneSpec, size: SizeOption = None, gpu: GpuOption = None, beta: Beta = 0.0, json: Json = False) -> int:
    """Say why a kernel is as fast as it is, and which line of its spec would change that.

    For every access requests, sectors, and shared-memory wavefronts, exact at any size; registers and occupancy;
    traffic and intensity; a bound for each resource; the main loop as compiled; and the bottleneck in plain words. No
    GPU is needed. Examples:

      gemmgen explain warptile

      gemmgen explain specs/naive.gemm --size 1023 --gpu a6000

      gemmgen explain vectorized --json
    """
    import gemmgen
    from gemmgen.report.explained import explanation_dict

    [loaded] = artifacts.load_specs([spec])
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
