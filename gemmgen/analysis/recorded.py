"""Times that were measured on a GPU and ship with gemmgen, by GPU, kernel and size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.spec.data import data_folder
from gemmgen.target import row_of

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu

Size = tuple[int, int, int]
FOLDER = "h200"
RUNS = ("ladder.json", "f32.json")
"""Files of ``gemmgen ladder --json`` and ``gemmgen bench --suite --json``."""


@dataclass(frozen=True)
class Measured:
    """One time of a kernel: seconds, the GPU as its driver names it, and the commit of gemmgen."""

    spec: str
    size: Size
    gpu: str
    seconds: float
    commit: str
    beta: float = 0.0

    @property
    def source(self) -> str:
        """Where the time is from, in brackets after it: "NVIDIA H200, commit 5ae536262441"."""
        return f"{self.gpu}, commit {self.commit[:12]}" if self.commit else self.gpu


def measured(e: Explanation) -> Measured | None:
    """The recorded time of a kernel, size and beta on the GPU of an explanation; None where none is recorded."""
    return measured_time(e.spec, e.size, e.gpu, e.beta)


def measured_time(spec: Spec, size: Size, gpu: Gpu, beta: float = 0.0) -> Measured | None:
    """The recorded time of the same settings, whatever the kernel's name, at this size on this GPU."""
    text = settings_text(spec)
    for row in _rows(data_folder("generated") / FOLDER):
        if row.size == size and row.beta == beta and row_of(row.gpu) is gpu and settings_of(row.spec) == text:
            return row
    return None


def settings_text(spec: Spec) -> str:
    """The text of a spec without its name and comments: equal texts are equal kernels."""
    return "".join(line for line in spec.to_text(comment=False).splitlines(True) if line.split()[:1] != ["kernel"])


@cache
def settings_of(text: str) -> str:
    """The same of a recorded text; empty where this version of gemmgen refuses it."""
    from gemmgen.spec.parse import parse

    try:
        return settings_text(parse(text))
    except GemmgenError:
        return ""


@cache
def _rows(folder: Path) -> tuple[Measured, ...]:
    """Every recorded time; none where the files are not there or cannot be read."""
    found: list[Measured] = []
    for name in RUNS:
        try:
            recorded = json.loads((folder / name).read_text(encoding="utf-8"))
            for run in recorded if isinstance(recorded, list) else [recorded]:
                found += _suite(run) if "suite" in run else _ladder(run)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return tuple(found)


def _ladder(run: dict[str, Any]) -> Iterator[Measured]:
    from gemmgen.spec.ladder import ladder_names, ladder_path

    for row in run["rungs"]:
        if row.get("median_s") and row["kernel"] in ladder_names():
            text = ladder_path(row["kernel"]).read_text(encoding="utf-8")
            yield _measured(run, text, row.get("size") or run["size"], row["median_s"])


def _suite(run: dict[str, Any]) -> Iterator[Measured]:
    for row in run["rows"]:
        if "gemmgen_s" in row:
            yield _measured(run, row["spec"], (row["m"], row["n"], row["k"]), row["gemmgen_s"])


def _measured(run: dict[str, Any], text: str, size: Any, seconds: float) -> Measured:
    m, n, k = (int(part) for part in size)
    return Measured(text, (m, n, k), run["gpu"], float(seconds), run.get("commit") or "", float(run.get("beta") or 0.0))
