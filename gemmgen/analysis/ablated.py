"""Changes of a kernel that were measured on a GPU and ship with gemmgen; and how far the model can be trusted on them.

The file is ``generated/h200/ablations.json``: ``{gpu, commit, rows: [{kernel, change, size, before_s, after_s,
spec}]}``, both times of a row from one run. ``tests/gpu/ablations.py`` writes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.analysis.recorded import FOLDER, settings_of, settings_text
from gemmgen.diagnostics import GemmgenError
from gemmgen.spec.data import data_folder
from gemmgen.target import row_of

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu

Size = tuple[int, int, int]
FILE = "ablations.json"
UNCERTAINTY = 0.14
"""Relative: a modelled ratio of two times that is nearer to 1 says nothing about which is faster. At three of four
steps of the recorded ladder, the modelled ratio is nearer than this to the measured one."""


@dataclass(frozen=True)
class MeasuredChange:
    """Seconds before and after a change, in one run."""

    kernel: str
    change: str
    size: Size
    gpu: str
    commit: str
    before_s: float
    after_s: float
    spec: str

    @property
    def ratio(self) -> float:
        return self.after_s / self.before_s

    @property
    def source(self) -> str:
        return f"{self.gpu}, commit {self.commit[:12]}" if self.commit else self.gpu


def too_small(ratio: float) -> bool:
    """Whether a modelled ratio of two times lies within the model's uncertainty."""
    return abs(log(ratio)) < log(1 + UNCERTAINTY)


TOO_SMALL = f"within the model's uncertainty of {UNCERTAINTY:.0%}, too small to tell"


def measured_change(before: Spec, after: Spec, size: Size, gpu: Gpu) -> MeasuredChange | None:
    """The recorded times of both kernels, whatever their names; None where neither the change nor the way back from it
    is recorded."""
    pair = settings_text(before), settings_text(after)
    for row in recorded_changes(data_folder("generated") / FOLDER / FILE):
        if row.size == size and row_of(row.gpu) is gpu:
            recorded = _rung(row.kernel), settings_of(row.spec)
            if recorded == pair:
                return row
            if recorded == pair[::-1]:
                return replace(row, before_s=row.after_s, after_s=row.before_s)
    return None


@cache
def _rung(name: str) -> str:
    """The settings of a rung as it is now; empty where there is none of that name."""
    from gemmgen.spec.ladder import LADDER, ladder_path

    return settings_of(ladder_path(name).read_text(encoding="utf-8")) if name in LADDER else ""


@cache
def recorded_changes(path: Path) -> tuple[MeasuredChange, ...]:
    """Every recorded change; none where the file is not there or cannot be read."""
    try:
        run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return tuple(_change(run, row) for row in run["rows"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, GemmgenError):
        return ()


def _change(run: dict[str, Any], row: dict[str, Any]) -> MeasuredChange:
    m, n, k = (int(part) for part in row["size"])
    seconds = float(row["before_s"]), float(row["after_s"])
    if not min(seconds) > 0:
        raise ValueError(f"{row['kernel']} {row['change']}: a time is not positive")
    return MeasuredChange(
        row["kernel"], row["change"], (m, n, k), run["gpu"], run.get("commit") or "", *seconds, row["spec"]
    )
