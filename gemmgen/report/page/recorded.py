"""Times measured on a GPU: of this run, or of a recorded one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.spec.data import data_folder

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Time:
    """One kernel: seconds, TFLOP/s, and the share of cuBLAS in the same run (None: no cuBLAS there)."""

    seconds: float
    tflops: float
    percent: float | None


@dataclass(frozen=True)
class Measured:
    """A run on a GPU. ``source`` describes machine and commit; ``times`` are by kernel; ``cublas`` is the baseline."""

    size: Size
    gpu: str
    source: str
    times: Mapping[str, Time]
    cublas: Time | None = None


def recorded_path() -> Path:
    """The file of the recorded run on an H200, as ``gemmgen ladder --json`` prints it."""
    return data_folder("generated") / "h200" / "ladder.json"


def recorded(size: Size, path: Path | None = None) -> Measured | None:
    """The recorded run of this size, else of another size; None where nothing is recorded.

    Raises GemmgenError where the file is not the output of ``gemmgen ladder --json``.
    """
    path = path or recorded_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
        runs = [measured(run, "recorded") for run in ([found] if isinstance(found, dict) else found)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise GemmgenError(f"{path}: not a run recorded by gemmgen ladder --json: {error!r}") from error
    return next((run for run in runs if run.size == size), runs[0] if runs else None)


def measured(run: Mapping[str, Any], how: str = "this run") -> Measured:
    """The times in the JSON of one ladder on a GPU. ``how``: "this run" or "recorded"."""
    m, n, k = (int(part) for part in run["size"])
    baseline = run.get("baseline")
    details = [
        f"driver {run['driver']}" if run.get("driver") else "",
        f"commit {run['commit'][:12]}" if run.get("commit") else "",
    ]
    source = ", ".join(filter(None, (f"{how}: {run['gpu']} at {m}x{n}x{k}", *details)))
    if baseline:
        source += f", beside {baseline['description']} in the same run"
    times = {row["kernel"]: _time(row, row.get("percent_of_cublas")) for row in run["rungs"] if row.get("median_s")}
    return Measured((m, n, k), run["gpu"], source, times, _time(baseline, 100.0) if baseline else None)


def _time(row: Mapping[str, Any], percent: float | None) -> Time:
    return Time(float(row["median_s"]), float(row["gflops"]) / 1000, percent)
