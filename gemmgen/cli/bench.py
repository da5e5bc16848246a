"""``gemmgen bench``: how fast kernels are on the GPU, or gemmgen itself on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.options import Json, Set, Size, Sizes, SomeSpecs, parse_sizes
from gemmgen.cli.specs import load_specs
from gemmgen.cli.timing import Baseline, compare
from gemmgen.diagnostics import LaunchError

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

DEFAULT_SIZES = Sizes([Size(4096, 4096, 4096)])


def bench(
    specs: SomeSpecs = None,
    sizes: Annotated[
        Sizes | None,
        typer.Option(
            "--sizes",
            metavar="SIZE,...",
            parser=parse_sizes,
            help="Sizes, separated by commas: 1024,2048,4096x64x4096; default: 4096.",
        ),
    ] = None,
    baseline: Annotated[
        Baseline,
        typer.Option("--baseline", help="cublas or cutlass in the same run, or none; auto: cuBLAS where it is there."),
    ] = Baseline.auto,
    warm: Annotated[
        bool, typer.Option("--warm", help="Keep to one set of operands, so that the L2 cache is warm.")
    ] = False,
    host: Annotated[
        bool, typer.Option("--host", help="Measure gemmgen itself on the CPU: simulator, text, whole process.")
    ] = False,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="NAME",
            help="f32; bf16, f16, tf32, bf16x6, tf32x3, or these with -nt: gemmgen.matmul beside cuBLAS, warm.",
        ),
    ] = None,
    shapes: Annotated[
        Path | None,
        typer.Option("--shapes", metavar="FILE", help="As --suite, at the shapes of a file. A line: MxNxK LAYOUT."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option("--layout", metavar="nn|nt|tn|tt|all", help="How A and B lie, with --suite or --shapes; t: A.T."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE.svg|.png|-", help="With --shapes: plot ratio over work; -: as text."),
    ] = None,
    settings: Set = None,
    json: Json = False,
) -> int:
    """Time kernels on the GPU, beside cuBLAS in the same run.

    Every result is verified before it is timed. Launches are replayed as CUDA graphs after a warm-up, the sides take
    turns, and operands are rotated beyond the L2 cache. Examples:

      gemmgen bench warptile --sizes 2048,4096,8192

      gemmgen bench specs/vectorized.gemm specs/warptile.gemm --json

      gemmgen bench --suite f32 --layout all --json

      gemmgen bench --shapes shapes.txt --plot -

      gemmgen bench --host
    """
    if shapes is not None:
        if specs or host or settings or suite is not None or sizes is not None:
            raise exits.UsageError(
                "--shapes times gemmgen.matmul at a file's shapes, and takes no specs, suite or sizes"
            )
        from gemmgen.cli.suite import bench_shapes

        return bench_shapes(shapes, layout, plot, json=json)
    if plot is not None or (layout is not None and suite is None):
        raise exits.UsageError("--layout is for --suite and --shapes, and --plot for --shapes")
    if suite is not None:
        if specs or host or settings:
            raise exits.UsageError("--suite times gemmgen.matmul and takes no specs")
        from gemmgen.cli.suite import bench_suite

        return bench_suite(suite, sizes, layout or "nn", json=json)
    if host:
        if specs or settings:
            raise exits.UsageError("--host measures gemmgen itself and takes no specs")
        return bench_host(json)
    if not specs:
        raise exits.UsageError("name the specs to time, --suite or --host; `gemmgen bench --help` explains the command")
    return bench_gpu(load_specs(specs, settings), sizes or DEFAULT_SIZES, baseline, warm=warm, json=json)


def bench_gpu(specs: Sequence[Spec], sizes: Sizes, baseline: Baseline, *, warm: bool, json: bool) -> int:
    from gemmgen.cli.machine import machine
    from gemmgen.report.bench import comparison_table
    from gemmgen.runtime.device import current, why_none

    gpu = current()
    if gpu is None:
        raise LaunchError(f"bench times kernels on a GPU: {why_none()}; `gemmgen ladder` counts in the simulator")
    done = []
    for size in sizes:
        with output.progress(f"{size}: compiling") as shown:
            done.append(compare(specs, size, warm=warm, progress=shown.update, baseline=baseline))
        if not json:
            output.result(f"{size} on {gpu.name}\n\n{comparison_table(done[-1])}\n")
    if json:
        output.print_json({**machine(), "results": [comparison.to_dict() for comparison in done]})
    return exits.OK


def bench_host(json: bool) -> int:
    from gemmgen.cli.host import host_json, host_table, measure_host

    rows = measure_host()
    if json:
        output.print_json(host_json(rows))
    else:
        output.result(host_table(rows))
    return exits.OK
