"""``gemmgen bench --suite``: gemmgen.matmul beside cuBLAS over a list of shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gemmgen.cli import exits, output
from gemmgen.cli.files import write_file

if TYPE_CHECKING:
    from gemmgen.report.suite import Broken, HostTimes, Row
    from gemmgen.runtime.baseline import Cublas
    from gemmgen.tune.pool import Layout
    from gemmgen.tune.shapes import Shape

UNORDERED = frozenset({"atomics"})
"""Toggles that let partial sums be added in any order."""


def bench_suite(name: str, sizes: Sequence[tuple[int, int, int]] | None, layouts: str = "nn", *, json: bool) -> int:
    """Compare every shape of a suite (or those of ``sizes``) in a layout, or in "all"; 1 where one could not be
    compared.

    Raises UsageError for an unknown suite or layout, LaunchError where there is no GPU, BaselineError where there is
    no cuBLAS.
    """
    from gemmgen.cli.tensor_suite import TENSOR_SUITES, rows_of
    from gemmgen.tune.suite import SUITES

    if name in TENSOR_SUITES:
        with output.progress("compiling") as shown:
            described, found = rows_of(name, list(sizes) if sizes else list(SUITES["f32"]), shown.update)
        return _told(name, described, found, json=json)
    if name not in SUITES:
        raise exits.UsageError(f"no suite {name}; there is {', '.join((*SUITES, *TENSOR_SUITES))}")
    shapes = list(sizes) if sizes else list(SUITES[name])
    cases = [(shape, layout) for layout in layouts_named(layouts) for shape in shapes]
    return bench_cases(name, cases, None, json=json)


def bench_shapes(path: Path, layouts: str | None, plot: str | None, *, json: bool) -> int:
    """The same for the shapes of a file. ``layouts``, where given, replace those of the file."""
    from gemmgen.cli.shapes import read_shapes

    cases = read_shapes(path)
    if layouts is not None:
        cases = [(shape, layout) for layout in layouts_named(layouts) for shape in dict.fromkeys(s for s, _ in cases)]
    return bench_cases(path.stem, cases, plot, json=json)


def layouts_named(name: str) -> tuple[Layout, ...]:
    """The layouts that a word names. Raises UsageError."""
    from gemmgen.tune.pool import LAYOUTS

    found = tuple(x for x in LAYOUTS if name in (x, "all"))
    if not found:
        raise exits.UsageError(f"--layout {name}: a layout is one of {', '.join(LAYOUTS)}, or all")
    return found


def bench_cases(name: str, cases: Sequence[tuple[Shape, Layout]], plot: str | None, *, json: bool) -> int:
    from gemmgen.report.suite import Row, scatter
    from gemmgen.runtime.baseline import Cublas
    from gemmgen.runtime.device import required

    cublas = Cublas(required())
    try:
        with output.progress("compiling") as shown:
            rows = compare_all(cases, cublas, shown.update)
        description = cublas.description
    finally:
        cublas.close()
    good = [row for row in rows if isinstance(row, Row)]
    if plot is not None and plot != "-":
        from gemmgen.report.suite import scatter_image

        write_file(Path(plot), scatter_image(good, Path(plot).suffix.removeprefix(".")))
        output.wrote(Path(plot))
    return _told(name, description, rows, scatter(good) if plot == "-" else "", json=json)


def _told(name: str, description: str, rows: Sequence[Row | Broken], plot: str = "", *, json: bool) -> int:
    """Prints the rows of a suite; 1 where one could not be compared."""
    from gemmgen.cli.machine import machine
    from gemmgen.report.suite import Broken, suite_dict, suite_table

    if json:
        output.print_json({**machine(), **suite_dict(name, description, rows)})
    else:
        output.result(suite_table(description, rows) + (f"\n\n{plot}" if plot else ""))
    return exits.FAILED if any(isinstance(row, Broken) for row in rows) else exits.OK


def compare_all(
    cases: Sequence[tuple[Shape, Layout]], cublas: Cublas, progress: Callable[[str], None]
) -> list[Row | Broken]:
    """A row for every case. A kernel that is wrong or fails is a row that says so; a baseline that does raises."""
    from gemmgen.diagnostics import GemmgenError
    from gemmgen.report.suite import Broken
    from gemmgen.runtime.baseline import BaselineError

    rows: list[Row | Broken] = []
    for shape, layout in cases:
        progress(f"{'x'.join(map(str, shape))} {layout}")
        try:
            rows.append(compare(shape, cublas, layout))
        except BaselineError:
            raise
        except GemmgenError as error:
            rows.append(Broken(shape, " ".join(str(error).split())[:300], layout))
    return rows


def compare(shape: Shape, cublas: Cublas, layout: Layout = "nn") -> Row:
    """One shape, both sides in one run."""
    from gemmgen.dispatch.matmul import choice_for, matmul
    from gemmgen.report.suite import Row
    from gemmgen.runtime.timing import KernelSide, bench
    from gemmgen.tune.pool import orders_of

    host, o = host_times(shape, layout), orders_of(layout)
    choice = choice_for(*shape, layout=layout)

    def product(A: object, B: object, C: object, alpha: float, beta: float, stream: int) -> None:
        matmul(A, B, C, alpha, beta, stream)

    done = bench([KernelSide("gemmgen.matmul", product), cublas], shape, warm=True, orders=(o.a, o.b, o.c))
    return Row(done, choice, bool(choice.spec.use & UNORDERED), layout, host)


EAGER_CALLS = 50
"""Calls whose host times are measured; few enough that none waits for the GPU's queue."""


def host_times(shape: Shape, layout: Layout) -> HostTimes | None:
    """Seconds of host time of the first call, of a later one, and of torch.mm's; None where torch is not installed."""
    from gemmgen.report.suite import HostTimes

    try:
        import torch
    except ImportError:
        return None
    import statistics
    import time

    from gemmgen.dispatch.matmul import matmul

    (m, n, k), cuda = shape, {"device": "cuda"}
    a = torch.empty((m, k), **cuda) if layout[0] == "n" else torch.empty((k, m), **cuda).T
    b = torch.empty((k, n), **cuda) if layout[1] == "n" else torch.empty((n, k), **cuda).T
    c = torch.empty((m, n), **cuda)

    def seconds(call: Callable[[], object]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    first = seconds(lambda: matmul(a, b, c))
    eager = statistics.median(seconds(lambda: matmul(a, b, c)) for _ in range(EAGER_CALLS))
    torch.mm(a, b, out=c)
    theirs = statistics.median(seconds(lambda: torch.mm(a, b, out=c)) for _ in range(EAGER_CALLS))
    return HostTimes(first, eager, theirs)
