"""``gemmgen warm``: compile ahead what gemmgen.matmul chooses from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.options import Json


def warm(
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="For which GPU; default: this machine's, else the H200.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Processes that compile; 0: one per processor.")] = 0,
    pack: Annotated[
        Path | None, typer.Option("--pack", metavar="FILE", help="Write them to an archive too, for a wheel to carry.")
    ] = None,
    json: Json = False,
) -> int:
    """Compile the kernels of gemmgen.matmul ahead, into the cache.

    Afterwards a call of a shape that was never seen compiles nothing. Needs no GPU. Examples:

      gemmgen warm

      gemmgen warm --gpu h200 --jobs 8

      gemmgen warm --gpu h200 --pack gemmgen/records/ready/sm_90.zip
    """
    from gemmgen.dispatch.warm import pack as pack_up
    from gemmgen.dispatch.warm import warm as warm_up
    from gemmgen.runtime.device import current
    from gemmgen.runtime.nvrtc import supported_archs
    from gemmgen.runtime.target import choose_target
    from gemmgen.target import gpu as gpu_named
    from gemmgen.tune.gpu import gpu_of

    here = current() if gpu is None else None
    row = gpu_of(here) if here is not None else gpu_named(gpu or "h200")
    number = int(row.arch.removeprefix("sm_"))
    target = choose_target(here.cc if here is not None else divmod(number, 10), supported_archs())
    with output.progress("compiling") as shown:
        count = jobs or os.cpu_count() or 1
        found = pack_up(row, target, count, pack, shown.update) if pack else warm_up(row, target, count, shown.update)
    if json:
        output.print_json({"gpu": row.title, "arch": target.arch, **vars(found)})
    else:
        size = f"{found.code_bytes / 1e6:.1f} MB"
        where = f"{pack}, a file of {size}" if pack and not found.failed else f"the cache, {size} of code"
        output.result(f"{found.variants} variants of kernels for {row.title} are in {where}\n")
        for why in found.failed:
            output.say(f"not compiled: {why}")
    return exits.FAILED if found.failed else exits.OK
