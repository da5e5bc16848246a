"""``gemmgen ladder``: the whole ladder on this machine, one line a rung."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_gpu
from gemmgen.cli.files import check_writable, write_file
from gemmgen.cli.memory import refuse_too_large
from gemmgen.cli.options import Json, Size, parse_size
from gemmgen.diagnostics import SimulationFault
from gemmgen.ir.types import F32

if TYPE_CHECKING:
    from gemmgen.report.ladder import LadderResult, Rung, RungResult

ON_GPU = Size(4096, 4096, 4096)
SIMULATED = Size(256, 256, 256)


def ladder(
    size: Annotated[
        Size | None,
        typer.Option(
            "--size",
            metavar="MxNxK",
            parser=parse_size,
            help=f"Size of the product; default: {ON_GPU} on a GPU, {SIMULATED} simulated.",
        ),
    ] = None,
    suite: Annotated[
        str, typer.Option("--suite", metavar="TYPE", help="f32: by multiply-adds; bf16: by tensor cores.")
    ] = "f32",
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="Run nothing: exact counts, and times modelled for a GPU of `gemmgen gpus`.",
            autocompletion=complete_gpu,
        ),
    ] = None,
    json: Json = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write the ladder as one page of HTML, with pictures and code."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", metavar="FILE", help="Write the recorded ladder of an H200 as a bar chart (SVG)."),
    ] = None,
) -> int:
    """Run every rung of the ladder and show which bottleneck each removes.

    On a GPU: time, GFLOP/s and share of cuBLAS, in one run, every result verified before it is timed. With no GPU the
    rungs run in the simulator, and the table has counts in place of times. Examples:

      gemmgen ladder

      gemmgen ladder --size 8192 --json

      gemmgen ladder --suite bf16

      gemmgen ladder --gpu a100 --size 2048

      gemmgen ladder --report ladder.html

    The report needs no GPU: without one it counts exactly what the kernels do at any size, and models their times.
    """
    from gemmgen.report.ladder import LADDERS, ladder_table
    from gemmgen.runtime.device import current
    from gemmgen.target import gpu as gpu_named
    from gemmgen.text.wrap import wrapped

    if suite not in LADDERS:
        raise exits.UsageError(f"no ladder of {suite}; there is {' and '.join(LADDERS)}")
    if suite != "f32" and (chart is not None or report is not None):
        raise exits.UsageError("--report and --chart show the ladder of f32")
    if chart is not None:
        return charted(chart)
    here, rungs = current() if gpu is None else None, LADDERS[suite]
    if report is not None:
        from gemmgen.cli.ladder_report import written
        from gemmgen.report.page import modelled_gpu, require

        row = modelled_gpu(here.name if here else None) if gpu is None else gpu_named(gpu)
        require()
        check_writable(report)
        run = None if here is None else timed_ladder(size or ON_GPU, rungs)
        result = written(report, size or ON_GPU, row, run)
    elif gpu is not None:
        from gemmgen.cli.ladder_report import modelled

        result = modelled(size or ON_GPU, rungs, gpu_named(gpu))
    else:
        result = counted_ladder(size or SIMULATED, rungs) if here is None else timed_ladder(size or ON_GPU, rungs)
    wrong = [line.rung.spec for line in result.rungs if not line.verified]
    if json:
        output.print_json(result.to_dict())
    else:
        where = place(here.name if here else None, report is not None, gpu and result.modelled)
        output.result(f"{wrapped(f'{Size(*result.size)}{where}')}\n\n{ladder_table(result)}")
    if wrong:
        output.say(f"error: wrong results: {', '.join(wrong)}")
    return exits.FAILED if wrong else exits.OK


def charted(path: Path) -> int:
    """Writes the chart of the ladder as it was recorded."""
    import json

    from gemmgen.report.chart import ladder_chart
    from gemmgen.spec.data import data_folder

    record = data_folder("generated") / "h200" / "ladder.json"
    write_file(path, ladder_chart(json.loads(record.read_text(encoding="utf-8"))).encode())
    return exits.OK


def place(gpu: str | None, report: bool, asked: str | None = None) -> str:
    """What the figures are of, after the size. ``asked``: the GPU that was named, on which nothing is run."""
    from gemmgen.runtime.device import why_none

    if gpu:
        return f" on {gpu}"
    if asked:
        return f": exact counts, and times modelled for {asked}"
    if report:
        return f": exact counts; not timed here, because {why_none()}"
    return f" on the simulator, because {why_none()}: counts, not times"


def counted_ladder(size: Size, rungs: Sequence[Rung]) -> LadderResult:
    """The ladder in the simulator. Raises SimulationFault where a kernel does something illegal."""
    import numpy as np

    import gemmgen
    from gemmgen.cli.machine import machine
    from gemmgen.report.ladder import RECORDED_ON, LadderResult
    from gemmgen.spec.ladder import ladder_path
    from gemmgen.target import gpu

    refuse_too_large(size)
    random = np.random.default_rng(0)
    dtype = gemmgen.load(ladder_path(rungs[0].spec)).matrices[0].dtype.numpy_dtype
    a = random.standard_normal((size.m, size.k), dtype=F32.numpy_dtype).astype(dtype, copy=False)
    b = random.standard_normal((size.k, size.n), dtype=F32.numpy_dtype).astype(dtype, copy=False)
    lines: list[RungResult] = []
    with output.progress(f"simulating the ladder at {size}") as shown:
        for rung in rungs:
            shown.update(f"simulating {rung.spec} at {size}")
            m, n, k = rung.size(size)
            lines.append(counted(rung, size, a[:m, :k], b[:k, :n]))
    return LadderResult(size, machine(), lines, modelled=gpu(RECORDED_ON).title)


def counted(rung: Rung, size: Size, a: object, b: object) -> RungResult:
    import gemmgen
    from gemmgen.analysis.recorded import measured_time
    from gemmgen.report.ladder import RECORDED_ON, Counted, RungResult
    from gemmgen.spec.ladder import ladder_path
    from gemmgen.target import gpu

    spec = gemmgen.load(ladder_path(rung.spec))
    done = gemmgen.simulate(spec, a, b)
    if done.faults:
        raise SimulationFault(done.faults)
    verified = gemmgen.verify(done.C, a, b, spec=spec).ok
    found = measured_time(spec, rung.size(size), gpu(RECORDED_ON))
    recorded = found.seconds if found else None
    return RungResult(rung, verified, counted=Counted.of(done.counters), recorded_s=recorded)


def timed_ladder(size: Size, rungs: Sequence[Rung]) -> LadderResult:
    """The ladder on the GPU, with cuBLAS in the same run, and a run for each size that is a rung's own.

    What the GPU's architecture lacks is left out, with the reason. Raises WrongResult where a rung is wrong.
    """
    import gemmgen
    from gemmgen.api.specs import unfit
    from gemmgen.cli.machine import machine
    from gemmgen.cli.timing import compare
    from gemmgen.report.ladder import LadderResult, RungResult
    from gemmgen.runtime.device import required
    from gemmgen.spec.ladder import ladder_path

    specs = {rung: gemmgen.load(ladder_path(rung.spec)) for rung in rungs}
    problems = {rung: unfit(spec, required().arch) for rung, spec in specs.items()}
    lines = {rung: RungResult(rung, True, skipped=f"not run: {why}") for rung, why in problems.items() if why}
    sizes = dict.fromkeys([size, *(Size(*rung.size(size)) for rung in rungs)])
    runs = {}
    with output.progress(f"compiling the ladder for {size}") as shown:
        for own in sizes:
            here = [rung for rung in rungs if rung not in lines and rung.size(size) == own]
            runs[own] = done = compare([specs[rung] for rung in here], own, warm=False, progress=shown.update)
            for rung, timing, checked in zip(here, done.kernels, done.bench.checks, strict=False):
                lines[rung] = RungResult(rung, checked.ok, timing, comparison=done if own != size else None)
    return LadderResult(size, machine(), [lines[rung] for rung in rungs], runs[size])
