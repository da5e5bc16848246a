"""``gemmgen profile``: the GPU's own counters beside what was predicted."""

from __future__ import annotations

import json as json_module
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.explain import Beta, named_gpu
from gemmgen.cli.options import Json, Set, Size, Specs, parse_size
from gemmgen.cli.specs import load_specs
from gemmgen.diagnostics import LaunchError

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.spec.model import Spec

DEFAULT = Size(1024, 1024, 1024)
COPY = "gemmgen_copy"
"""The kernel that copies operands into aligned rows before a product; what it does is not predicted."""


def profile(
    specs: Specs,
    size: Annotated[
        Size | None,
        typer.Option("--size", metavar="MxNxK", parser=parse_size, help=f"Size of the product; default: {DEFAULT}."),
    ] = None,
    beta: Beta = 0.0,
    settings: Set = None,
    json: Json = False,
) -> int:
    """Measure a kernel's counters with Nsight Compute, beside what `explain` predicts.

    Every count is shown as predicted and as measured, and a disagreement is marked. Needs a GPU, Nsight Compute (ncu),
    and the permission to read counters. Examples:

      gemmgen profile warptile

      gemmgen profile specs/*.gemm --size 1023x1025x1027 --beta 1 --json
    """
    from gemmgen.analysis.counters import profile_dict
    from gemmgen.report.profile import profile_text

    loaded = load_specs(specs, settings)
    at = size or DEFAULT
    jobs = [(spec, at, beta) for spec in loaded]
    with output.progress(f"profiling {len(jobs)} kernels"):
        found = measured(jobs)
    if json:
        output.print_json([profile_dict(e, values) for e, values in found])
    else:
        output.result("\n\n".join(profile_text(e, values) for e, values in found))
    return exits.OK


Job = tuple["Spec", Size, float]
"""A spec, the size of a product, and beta."""


def measured(jobs: Sequence[Job]) -> list[tuple[Explanation, dict[str, float]]]:
    """Each job's explanation and its counters, all measured in one process.

    Raises LaunchError where there is no GPU, no ncu, no permission, or nothing to launch.
    """
    import gemmgen
    from gemmgen.analysis.counters import (
        ADDITIONS,
        ASYNCHRONOUS,
        BUSY,
        COUNTERS,
        DRAM_READ,
        PIPE,
        TIME,
        parse_ncu,
        total,
    )
    from gemmgen.runtime.device import why_none
    from gemmgen.runtime.ncu import profile as run_ncu
    from gemmgen.runtime.ncu import required_tool

    required_tool()
    if why := why_none():
        raise LaunchError(f"profile measures on a GPU: {why}; `gemmgen explain` gives the counts without one")
    gpu = named_gpu(None)
    explained = [gemmgen.explain(spec, size.m, size.n, size.k, gpu, beta) for spec, size, beta in jobs]
    core = [*COUNTERS.values(), TIME, DRAM_READ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.json"
        path.write_text(json_module.dumps([described(job) for job in jobs]), encoding="utf-8")
        command = [sys.executable, "-m", "gemmgen.cli.counted", str(path)]
        try:
            special = (*ASYNCHRONOUS.values(), *ADDITIONS.values())
            more = [*BUSY.values(), *PIPE.values(), *(counter for of in special for counter in of)]
            text, printed = run_ncu(command, [*core, *more])
            launches = parse_ncu(text)
        except LaunchError:
            launches = []
        if not launches:  # a name that this version does not know: without the percentages
            text, printed = run_ncu(command, core)
            launches = parse_ncu(text)
    launches = [one for one in launches if one.kernel != COPY]
    counts = json_module.loads(printed.strip().splitlines()[-1])
    if sum(counts) != len(launches):
        raise LaunchError(f"ncu saw {len(launches)} kernels, where {sum(counts)} were launched")
    found = []
    for e, n in zip(explained, counts, strict=True):
        found.append((e, total(launches[:n])))
        launches = launches[n:]
    return found


def described(job: Job) -> dict[str, Any]:
    spec, size, beta = job
    return {"spec": spec.to_text(), "size": list(size), "beta": beta}
