"""The ladder's report: gathers what the page shows, and writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from gemmgen.cli import output
from gemmgen.cli.files import write_file

if TYPE_CHECKING:
    from gemmgen.cli.options import Size
    from gemmgen.report.ladder import LadderResult, Rung
    from gemmgen.report.page.facts import RungFacts
    from gemmgen.target import Gpu

WORKERS = 4


def written(file: Path, size: Size, gpu: Gpu, run: LadderResult | None) -> LadderResult:
    """Write the page for a size, and give the ladder it shows: ``run`` where there is one, measured on ``gpu``; else
    exact counts, with the times of a recorded run of that GPU beside them.

    Raises OSError where the file cannot be written.
    """
    from gemmgen.report.ladder import RECORDED_ON, RUNGS
    from gemmgen.report.page import page
    from gemmgen.report.page.recorded import measured, recorded

    with output.progress("explaining the ladder") as shown:
        found = explained(size, RUNGS, gpu, shown.update, sass=True)
        known = recorded(size) if gpu.name == RECORDED_ON else None
        times = known if run is None else measured(run.to_dict())
        write_file(file, page(found, size, gpu, times).encode())
    output.wrote(file)
    return run or counted(size, found, gpu.title)


def modelled(size: Size, rungs: Sequence[Rung], gpu: Gpu) -> LadderResult:
    """The ladder of a size by exact counts, with the times that are modelled for a GPU."""
    with output.progress("explaining the ladder") as shown:
        return counted(size, explained(size, rungs, gpu, shown.update), gpu.title)


def explained(
    size: Size, rungs: Sequence[Rung], gpu: Gpu, progress: Callable[[str], None], sass: bool = False
) -> list[RungFacts]:
    """The facts of every rung; compilers and disassemblers run while others wait for them."""
    from gemmgen.report.page.facts import facts_of

    def one(number: int) -> RungFacts:
        progress(f"explaining {rungs[number].spec} at {size}")
        return facts_of(number, rungs[number], size, gpu, sass)

    with ThreadPoolExecutor(WORKERS) as workers:
        return list(workers.map(one, range(len(rungs))))


def counted(size: Size, found: list[RungFacts], gpu: str) -> LadderResult:
    """The ladder by its exact counts; a rung is verified where a small run in the simulator passed."""
    from gemmgen.analysis.recorded import measured
    from gemmgen.cli.machine import machine
    from gemmgen.report.ladder import Counted, LadderResult, RungResult

    lines = []
    for f in found:
        e = f.explanation
        counts = Counted.of(e.to_dict()) if e else None
        recorded = measured(e) if e else None
        lines.append(
            RungResult(
                f.rung,
                f.check.ok,
                counted=counts,
                expected_s=e.bound.total_s if e else None,
                recorded_s=recorded.seconds if recorded else None,
                skipped="" if e else f"not counted: {f.problem}",
            )
        )
    return LadderResult(size, machine(), lines, modelled=gpu)
