"""The kernels that any choice is made of, with their constants: one file per GPU in ``gemmgen/records/cover``.

A GPU that has a file of its own is chosen for by what was measured on it. Another one of the same architecture takes
that file's constants, scaled by SMs, clock and bandwidth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.target import GPUS, Gpu
from gemmgen.tune.cost import CONSTANTS, Kernels, Rates
from gemmgen.tune.features import kernels_of

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

FOLDER = Path(__file__).resolve().parent.parent / "records" / "cover"
SECONDS = tuple(CONSTANTS.index(name) for name in ("start", "alone", "share", "end"))
"""Constants that are times, which scale with a GPU's clock; the others are factors."""


@dataclass(frozen=True)
class Cover:
    """Kernels with constants for a GPU. ``scaled_from`` is the GPU they were measured on, where that is another."""

    specs: tuple[Spec, ...]
    kernels: Kernels
    rates: Rates
    scaled_from: str = ""


@dataclass(frozen=True)
class _File:
    gpu: str
    arch: str
    specs: tuple[Spec, ...]
    kernels: Kernels
    rates: Rates


def cover_for(gpu: Gpu, folder: Path = FOLDER) -> Cover | None:
    """The cover for a GPU: its own, else that of another of its architecture, scaled; None where there is none."""
    return _cover_for(gpu.name, gpu.arch, (gpu.sms, gpu.clock_hz, gpu.dram_gb_s), folder)


@lru_cache(maxsize=16)
def _cover_for(name: str, arch: str, rates: tuple[int, float, float], folder: Path) -> Cover | None:
    files = sorted(folder.glob("*.json"))
    for path in files:
        if path.stem == name:
            found = _read(path)
            return Cover(found.specs, found.kernels, found.rates)
    for path in files:
        found = _read(path)
        if found.arch == arch and path.stem in GPUS:
            return _scaled(found, GPUS[path.stem], *rates)
    return None


def _scaled(found: _File, measured: Gpu, sms: int, clock_hz: float, dram_gb_s: float) -> Cover:
    clock = clock_hz / measured.clock_hz
    constants = found.kernels.constants.copy()
    for column in SECONDS:
        constants[:, column] /= clock
    rates = found.rates.scaled(sms, clock, dram_gb_s / measured.dram_gb_s)
    return Cover(found.specs, replace(found.kernels, constants=constants), rates, measured.title)


@lru_cache(maxsize=4)
def _read(path: Path) -> _File:
    from gemmgen.spec.parse import parse

    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    specs = tuple(parse(row["spec"]) for row in found["rows"])
    kernels = kernels_of(
        specs, [tuple(row["constants"]) for row in found["rows"]], [r["resident"] for r in found["rows"]]
    )
    return _File(found["gpu"], found["arch"], specs, kernels, Rates(**found["rates"]))


def document(specs: tuple[Spec, ...], kernels: Kernels, rates: Rates, **facts: Any) -> str:
    """The text of a cover's file; ``facts`` are its GPU, architecture, driver and so on."""
    rows = [
        {
            "spec": spec.to_text(comment=False),
            "resident": int(resident),
            "constants": [float(f"{value:.4g}") for value in constants],
        }
        for spec, resident, constants in zip(specs, kernels.resident, kernels.constants, strict=True)
    ]
    return json.dumps({**facts, "rates": vars(rates), "rows": rows}, indent=1) + "\n"
