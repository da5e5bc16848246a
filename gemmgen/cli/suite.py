"""``gemmgen bench --suite``: gemmgen.matmul beside cuBLAS over a list of shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gemmgen.cli import exits, output

if TYPE_CHECKING:
    from gemmgen.report.suite import Broken, Row
    from gemmgen.runtime.baseline import Cublas

UNORDERED = frozenset({"atomics"})
"""Toggles that let partial sums be added in any order."""


def bench_suite(name: str, sizes: Sequence[tuple[int, int, int]] | None, *, json: bool) -> int:
    """Compare every shape of a suite (or those of ``sizes``); 1 where a shape could not be compared.

    Raises UsageError for an unknown suite, LaunchError where there is no GPU, BaselineError where there is no cuBLAS.
    """
    from gemmgen.cli.tensor_suite import TENSOR_SUITES, rows_of
    from gemmgen.runtime.baseline import Cublas
    from gemmgen.runtime.device import required
    from gemmgen.tune.suite import SUITES

    if name in TENSOR_SUITES:
        with output.progress("compiling") as shown:
            described, found = rows_of(name, list(sizes) if sizes else list(SUITES["f32"]), shown.update)
        return _told(name, described, found, json=json)
    if name not in SUITES:
        raise exits.UsageError(f"no suite {name}; there is {', '.join((*SUITES, *TENSOR_SUITES))}")
    shapes = list(sizes) if sizes else list(SUITES[name])
    cublas = Cublas(required())
    try:
        with output.progress("compiling") as shown:
            rows = compare_all(shapes, cublas, shown.update)
        description = cublas.description
    finally:
        cublas.close()
    return _told(name, description, rows, json=json)


def _told(name: str, description: str, rows: Sequence[Row | Broken], *, json: bool) -> int:
    """Prints the rows of a suite; 1 where one could not be compared."""
    from gemmgen.cli.machine import machine
    from gemmgen.report.suite import Broken, suite_dict, suite_table

    if json:
        output.print_json({**machine(), **suite_dict(name, description, rows)})
    else:
        output.result(suite_table(description, rows))
    return exits.FAILED if any(isinstance(row, Broken) for row in rows) else exits.OK


def compare_all(
    shapes: Sequence[tuple[int, int, int]], cublas: Cublas, progress: Callable[[str], None]
) -> list[Row | Broken]:
    """A row for every shape. A kernel that is wrong or fails is a row that says so; a baseline that does raises."""
    from gemmgen.diagnostics import GemmgenError
    from gemmgen.report.suite import Broken
    from gemmgen.runtime.baseline import BaselineError

    rows: list[Row | Broken] = []
    for shape in shapes:
        progress("x".join(map(str, shape)))
        try:
            rows.append(compare(shape, cublas))
        except BaselineError:
            raise
        except GemmgenError as error:
            rows.append(Broken(shape, " ".join(str(error).split())[:300]))
    return rows


def compare(shape: tuple[int, int, int], cublas: Cublas) -> Row:
    """One shape, both sides in one run."""
    from gemmgen.dispatch.matmul import choice_for, matmul
    from gemmgen.report.suite import Row
    from gemmgen.runtime.timing import KernelSide, bench

    choice = choice_for(*shape)

    def product(A: object, B: object, C: object, alpha: float, beta: float, stream: int) -> None:
        matmul(A, B, C, alpha, beta, stream)

    done = bench([KernelSide("gemmgen.matmul", product), cublas], shape, warm=True)
    return Row(done, choice, bool(choice.spec.use & UNORDERED))
