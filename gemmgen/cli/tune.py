"""``gemmgen tune``: find the fastest kernel for a shape, and keep what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_setting, complete_spec
from gemmgen.cli.files import check_writable, write_file
from gemmgen.cli.options import Json, Size, Sizes, parse_sizes
from gemmgen.cli.settings import divided, parse_settings
from gemmgen.cli.specs import load_specs
from gemmgen.diagnostics import escaped
from gemmgen.text.numbers import listed

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.tune.records import Record
    from gemmgen.tune.tuner import TuneResult

DEFAULT_SIZES = Sizes([Size(4096, 4096, 4096)])


class Search(StrEnum):
    """In which order candidates are timed."""

    guided = "guided"
    exhaustive = "exhaustive"
    random = "random"
    optuna = "optuna"


def tune(
    specs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SPEC",
            help="Spec files or names, with tune lines or without; none: a space for the shape.",
            show_default=False,
            autocompletion=complete_spec,
        ),
    ] = None,
    sizes: Annotated[
        Sizes | None,
        typer.Option(
            "--size",
            "--sizes",
            "--shape",
            metavar="SIZE,...",
            parser=parse_sizes,
            help="Shapes to tune for, separated by commas: 4096,16x4096x4096; default: 4096.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=A,B",
            help="Values to choose from, beside the tune lines: stages=2,3. Repeat it for several settings.",
            show_default=False,
            autocompletion=complete_setting,
        ),
    ] = None,
    search: Annotated[Search, typer.Option("--search", help="In which order candidates are timed.")] = Search.guided,
    timings: Annotated[int, typer.Option("--timings", min=1, help="At most this many candidates are timed.")] = 60,
    seed: Annotated[int, typer.Option("--seed", help="Seed of random searches.")] = 0,
    warm: Annotated[
        bool, typer.Option("--warm", help="Keep to one set of operands, so that the L2 cache is warm.")
    ] = False,
    unordered: Annotated[
        bool, typer.Option("--unordered", help="Also try atomics, whose results may differ in the last bits.")
    ] = False,
    shape_file: Annotated[
        Path | None,
        typer.Option("--shapes", metavar="FILE", help="Tune the shapes of a file; resumable. A line: MxNxK LAYOUT."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="With --shapes: tune on a Ray cluster, one process per GPU."),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            "--calibrate", metavar="FILE", help="Measure the constants of gemmgen.matmul's choice, into a file."
        ),
    ] = None,
    model: Annotated[bool, typer.Option("--model", help="Choose by the model alone, without measuring.")] = False,
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="For which GPU the model chooses.")] = "h200",
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, help="Tune several shapes on this many GPUs at a time; 0: all.")
    ] = 1,
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="FILE", help="The file of results; default: GEMMGEN_RECORDS, or the user's."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show what is recorded, and exit.")] = False,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE.gemm", help="Write the winner as a spec.")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE.svg|.png|-", help="Plot GFLOP/s against each parameter; -: as text."),
    ] = None,
    json: Json = False,
) -> int:
    """Find the fastest kernel for a shape.

    Candidates come from the spec's tune lines, from --set, or from kernels known to be fast for the shape. Illegal
    candidates and those that the model rules out are skipped; the rest is compiled, checked against float64 and timed
    in a separate process. Results are recorded: nothing is measured twice, and gemmgen.matmul prefers your records to
    those that ship, under the same driver and NVRTC. Examples:

      gemmgen tune --size 1000x1000x1000 --export fast.gemm

      gemmgen tune warptile --set stages=1,2 --set min_blocks=2,3 --plot tune.svg

      gemmgen tune --size 512,1024,8x4096x4096 --gpus 2

      gemmgen tune --shapes shapes.txt --gpus 0

      gemmgen tune --calibrate h200.json

      gemmgen tune --show
    """
    check_outputs(export, plot)
    if ray is not None and shape_file is None:
        raise exits.UsageError("--ray is for the shapes of a file; name it with --shapes")
    if calibrate is not None:
        from gemmgen.cli.shapes import calibrate_into

        return calibrate_into(calibrate, json=json)
    if shape_file is not None:
        from gemmgen.cli.shapes import tune_shapes

        if specs or settings or sizes is not None or model:
            extra = {"SPEC": specs, "--set": settings, "--size": sizes is not None, "--model": model}
            left_out = listed([name for name, there in extra.items() if there])
            why = "measures kernels of gemmgen.matmul at the shapes of a file"
            raise exits.UsageError(f"--shapes {why}; leave out {left_out}")
        return tune_shapes(shape_file, how(search, timings, seed, warm), gpus, records, ray, json=json)
    if show:
        return show_records(sizes, records, export=export, plot=plot, json=json)
    varied, fixed = divided(settings or [])
    if fixed and not specs:
        raise exits.UsageError(f"--set {fixed[0]} changes a spec, and none is named; name one, such as warptile")
    choices = parse_settings(varied)
    loaded = load_specs(specs, fixed) if specs else []
    shapes = sizes or DEFAULT_SIZES
    if len(shapes) > 1 and (export or plot):
        raise exits.UsageError("--export and --plot are for one shape; with several, `tune --show --size ...` has them")
    if model:
        results = [by_model(loaded, choices, shape, gpu, unordered) for shape in shapes]
        return finish(results, export, plot, json)
    options = how(search, timings, seed, warm)
    if len(shapes) > 1 and gpus != 1:
        return on_many(loaded, choices, shapes, options, gpus, records, json, unordered)
    results = [on_one(loaded, choices, shape, options, records, unordered) for shape in shapes]
    return finish(results, export, plot, json)


def how(search: Search, timings: int, seed: int, warm: bool) -> Any:
    import os

    from gemmgen.tune.tuner import Options

    return Options(search.value, timings, seed, warm, os.cpu_count() or 1)


def given(specs: Sequence[Spec]) -> Any:
    """What gemmgen.tune takes: nothing, the one spec, or all."""
    return None if not specs else specs[0] if len(specs) == 1 else list(specs)


def by_model(
    specs: Sequence[Spec], choices: dict[str, tuple[Any, ...]], size: Size, gpu: str, unordered: bool
) -> TuneResult:
    import gemmgen

    with output.progress(f"{size}: looking at candidates"):
        return gemmgen.tune(
            given(specs), *size, choices=choices or None, device="sim", gpu=gpu, records=False, unordered=unordered
        )


def on_one(
    specs: Sequence[Spec], choices: dict[str, tuple[Any, ...]], size: Size, options: Any, records: Path | None,
    unordered: bool,
) -> TuneResult:  # fmt: skip
    import gemmgen

    with output.progress(f"{size}: looking at candidates") as shown:
        return gemmgen.tune(
            given(specs), *size, choices=choices or None, options=options, search=options.search, warm=options.warm,
            records=records, progress=lambda doing: shown.update(f"{size}: {doing}"), unordered=unordered,
        )  # fmt: skip


def on_many(
    specs: Sequence[Spec], choices: dict[str, tuple[Any, ...]], sizes: Sizes, options: Any, gpus: int,
    records: Path | None, json: bool, unordered: bool,
) -> int:  # fmt: skip
    """Several shapes, one process a GPU; 1 where a shape was not tuned."""
    from dataclasses import asdict

    from gemmgen.report.table import duration, format_table
    from gemmgen.runtime.device import count, required
    from gemmgen.tune.records import default_path
    from gemmgen.tune.share import Task, tune_many

    required()
    there = count()
    if gpus > there:
        raise exits.UsageError(f"--gpus {gpus}: there are {there}")
    texts = tuple(spec.to_text() for spec in specs) or None
    given = {n: list(v) for n, v in choices.items()}
    tasks = [Task((size.m, size.n, size.k), texts, given, options, unordered) for size in sizes]
    with output.progress("tuning") as shown:
        found = tune_many(tasks, range(gpus or there), records or default_path(), shown.update)
    if json:
        output.print_json([asdict(outcome) for outcome in found])
    else:
        rows = [
            ["x".join(map(str, o.shape)), "-" if o.seconds is None else duration(o.seconds), o.timings, o.gpu, o.error]
            for o in found
        ]
        output.result(format_table(("shape", "time", "timings", "GPU", ""), rows))
    return exits.FAILED if any(o.error for o in found) else exits.OK


def check_outputs(export: Path | None, plot: str | None) -> None:
    """Raise what keeps the winner or the plot from being written, before anything is measured."""
    from gemmgen.report.tuning import require_plot

    if plot is not None and plot != "-":
        if Path(plot).suffix not in (".svg", ".png"):
            raise exits.UsageError(f"--plot {plot}: the name ends in .svg or .png, or is - for text")
        require_plot()
        check_writable(Path(plot))
    if export is not None:
        check_writable(export)


def finish(results: Sequence[TuneResult], export: Path | None, plot: str | None, json: bool) -> int:
    from gemmgen.report.tuning import only_left, rates, result_dict

    if export:
        write_spec(results[0].best.to_text(comment=False), export)
    if plot:
        size, how = "x".join(map(str, results[0].shape)), "" if results[0].measured else ", modelled"
        draw(rates(results[0]), plot, f"{size} on {results[0].gpu}{how}", json, only_left(results[0]))
    if json:
        found = [result_dict(result) for result in results]
        output.print_json(found[0] if len(found) == 1 else found)
    else:
        output.result("\n\n".join(map(str, results)))
    return exits.OK


def write_spec(text: str, path: Path) -> None:
    write_file(path, text.encode())
    output.wrote(path)


def draw(trials: Sequence[tuple[Spec, float]], target: str, title: str, json: bool, notes: Sequence[str] = ()) -> None:
    """A plot into a file, by its suffix, or as text. ``notes`` stand under the text."""
    from gemmgen.report.tuning import plot_image, plot_text, points

    found = points(trials)
    if target == "-":
        text = plot_text(found, title, notes)
        if json:
            output.say(text)
        else:
            output.result(f"{text}\n")
        return
    image = plot_image(found, escaped(title), Path(target).suffix.removeprefix("."))
    write_file(Path(target), image)
    output.wrote(Path(target))


def show_records(sizes: Sizes | None, path: Path | None, *, export: Path | None, plot: str | None, json: bool) -> int:
    """What the file of records holds, of some shapes or of all; 1 where it holds nothing of that.

    Raises GemmgenError where there is no such file.
    """
    from gemmgen.diagnostics import GemmgenError
    from gemmgen.report.tuning import records_table
    from gemmgen.tune.records import READ_WAIT_S, Records, default_path, skipped_text

    path = path or default_path()
    if not path.is_file():
        raise GemmgenError(f"no records at {path}; `gemmgen tune --size ...` makes some")
    with Records(path, write=False, wait_s=READ_WAIT_S) as book:
        wanted = [None] if sizes is None else [(size.m, size.n, size.k) for size in sizes]
        found = [record for shape in wanted for record in book.find(shape=shape)]
        if book.skipped:
            output.say(f"warning: {skipped_text(book)}")
    good = [r for r in found if r.status == "ok" and r.seconds is not None]
    if (export or plot) and len({(r.shape, r.machine.gpu) for r in good}) != 1:
        raise exits.UsageError("--export and --plot need records of one shape; name it with --size")
    if export:
        write_spec(min(good, key=rank).spec, export)
    if plot:
        from gemmgen.report.tuning import spec_of

        trials = [(spec, r.gflops or 0.0) for r in good if (spec := spec_of(r)) is not None]
        draw(trials, plot, "x".join(map(str, good[0].shape)) + f" on {good[0].machine.gpu}", json)
    if json:
        output.print_json([r.to_dict() for r in found])
    elif found:
        output.result(records_table(found))
    else:
        output.say("nothing is recorded for that")
    return exits.OK if found else exits.FAILED


def rank(record: Record) -> tuple[int, float]:
    """The fastest of those that were timed most carefully."""
    return -record.level, record.seconds or float("inf")
