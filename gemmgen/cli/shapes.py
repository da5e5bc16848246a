"""``gemmgen tune --shapes`` and ``--calibrate``: many shapes at once."""

from __future__ import annotations

import json as text
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.cli import exits, output
from gemmgen.cli.files import check_writable, write_file
from gemmgen.diagnostics import GemmgenError

if TYPE_CHECKING:
    from gemmgen.tune.pool import Layout
    from gemmgen.tune.shapes import Shape
    from gemmgen.tune.share import Outcome, Task

SECONDS = 400.0
"""Of a calibration."""


def read_shapes(path: Path) -> list[tuple[Shape, Layout]]:
    """The shapes of a file, each with its layout (see docs/commands.md). Raises ArgumentError, and OSError."""
    from gemmgen.tune.suite import read_cases

    return read_cases(path.read_text(encoding="utf-8", errors="replace"), str(path))


def tasks_of(cases: Sequence[tuple[Shape, Layout]], options: Any) -> list[Task]:
    """A task for each shape: the default space where A and B lie by rows, else the pool of the layout."""
    from gemmgen.tune.features import layout_of
    from gemmgen.tune.pool import pool
    from gemmgen.tune.share import Task

    texts = {
        x: tuple(s.to_text(comment=False) for s in pool(x) if layout_of(s) == x)
        for x in dict.fromkeys(layout for _, layout in cases)
    }
    return [Task(shape, None if layout == "nn" else texts[layout], {}, options) for shape, layout in cases]


def tune_shapes(path: Path, options: Any, gpus: int, records: Path | None, ray: str | None, *, json: bool) -> int:
    """Tune every shape of a file; 1 where one was not tuned. What is recorded is not measured again."""
    from gemmgen.tune.records import default_path

    cases = list(dict.fromkeys(read_shapes(path)))
    tasks, book = tasks_of(cases, options), records or default_path()
    with output.progress("tuning") as shown:
        if ray is not None:
            from gemmgen.tune.cluster import tune_on_ray

            found = tune_on_ray(tasks, ray, book, shown.update)
        else:
            found = _locally(tasks, gpus, book, shown.update)
    return report(cases, found, json=json)


def _locally(tasks: Sequence[Task], gpus: int, book: Path, progress: Any) -> list[Outcome]:
    from gemmgen.runtime.device import count, required
    from gemmgen.tune.share import tune_many

    required()
    there = count()
    if gpus > there:
        raise exits.UsageError(f"--gpus {gpus}: there are {there}")
    return tune_many(tasks, range(gpus or there), book, progress)


def report(cases: Sequence[tuple[Shape, Layout]], found: Sequence[Outcome], *, json: bool) -> int:
    from dataclasses import asdict

    from gemmgen.report.table import duration, format_table

    if json:
        output.print_json([asdict(o) | {"layout": layout} for o, (_, layout) in zip(found, cases, strict=True)])
    else:
        rows = [
            ["x".join(map(str, o.shape)), layout, "-" if o.seconds is None else duration(o.seconds), o.timings, o.error]
            for o, (_, layout) in zip(found, cases, strict=True)
        ]
        output.result(format_table(("shape", "layout", "time", "timings", ""), rows))
    return exits.FAILED if any(o.error for o in found) else exits.OK


def calibrate_into(path: Path, *, json: bool) -> int:
    """Measure the pool on this GPU, fit the constants, and write the kernels that a choice is made of into a file."""
    import tempfile

    from gemmgen.runtime.device import required
    from gemmgen.tune.calibrate import Plan, calibrate
    from gemmgen.tune.fit import cover_document, read
    from gemmgen.tune.gpu import gpu_of
    from gemmgen.tune.suite import drawn

    gpu = gpu_of(required())
    check_writable(path)
    with tempfile.TemporaryDirectory() as folder, output.progress("compiling") as shown:
        points = Path(folder) / "points.json"
        calibrate(Plan(drawn(320), SECONDS, os.cpu_count() or 1), points, shown.update)
        if not points.is_file():
            raise GemmgenError("no kernel was timed: the machine is too slow to compile the pool in the time there is")
        shown.update("fitting")
        document, facts = cover_document(read(points.read_text(encoding="utf-8")), gpu.arch)
    write_file(path, document.encode())
    output.wrote(path)
    if json:
        output.print_json(facts)
    else:
        output.result(text.dumps(facts, indent=1) + "\n")
    return exits.OK
