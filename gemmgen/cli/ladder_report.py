"""The ladder's report: gathers what the page shows, and writes it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from gemmgen.cli import output
from gemmgen.cli.files import write_file

if TYPE_CHECKING:
    from gemmgen.cli.options import Size
    from gemmgen.report.ladder import LadderResult
    from gemmgen.report.page.facts import RungFacts

WORKERS = 4


def written(file: Path, size: Size, gpu_name: str | None, run: LadderResult | None) -> LadderResult:
    """Write the page for a size, and give the ladder it shows: ``run`` where there is one, measured on the GPU that its
    driver calls ``gpu_name``; else exact counts, with a recorded run's times beside them.

    Raises OSError where the file cannot be written.
    """
    from gemmgen.report.ladder import RUNGS
    from gemmgen.report.page import modelled_gpu, page
    from gemmgen.report.page.facts import facts_of
    from gemmgen.report.page.recorded import measured, recorded

    gpu = modelled_gpu(gpu_name)
    # Compilers and disassemblers run while others wait for them.
    with output.progress("explaining the ladder") as shown, ThreadPoolExecutor(WORKERS) as workers:

        def explained(number: int) -> RungFacts:
            shown.update(f"explaining {RUNGS[number].spec} at {size}")
            return facts_of(number, RUNGS[number], size, gpu, sass=True)

        found = list(workers.map(explained, range(len(RUNGS))))
        times = recorded(size) if run is None else measured(run.to_dict())
        write_file(file, page(found, size, gpu, times).encode())
    output.wrote(file)
    return run or counted(size, found, gpu.title)


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
            )
        )
    return LadderResult(size, machine(), lines, modelled=gpu)
