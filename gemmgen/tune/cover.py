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

from gemmgen.ir.types import VECTOR_BYTES as WIDEST
from gemmgen.launch.placement import FETCHES_WORTH_A_COPY, PRODUCTS_WORTH_A_COPY
from gemmgen.target import GPUS, Gpu
from gemmgen.tune import cost
from gemmgen.tune.cost import CONSTANTS, Kernels, Rates
from gemmgen.tune.features import kernels_of, served
from gemmgen.tune.pool import LAYOUTS, Layout
from gemmgen.tune.shapes import Align, Shape

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


# --- The kernels of a cover for a layout ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """The kernels of a cover that compute a layout: as it lies, or after copies of A, of B, or of both."""

    positions: Any  # of the cover's specs
    kernels: cost.Kernels
    swapped: Any
    copied: tuple[Any, Any]  # whether A, and B, are copied


def modelled(shape: Shape, align: Align, rows: Rows, cover: Cover) -> Any:
    """Seconds of every row for a product of the caller's shape and alignment."""
    import numpy as np

    m, n, k = shape
    swapped, rates = rows.swapped, cover.rates
    size = np.where(swapped, n, m), np.where(swapped, m, n), np.full(len(swapped), k)
    bm, bn, bk = rows.kernels.block.T
    large = float(m) * n * k >= PRODUCTS_WORTH_A_COPY
    down, across = np.where(swapped, bn, bm), np.where(swapped, bm, bn)  # of the caller's C
    extra, off = np.zeros(len(swapped)), np.zeros(len(swapped), bool)
    operands = (((m, k), rows.copied[0], align[0], -(-n // across)), ((k, n), rows.copied[1], align[1], -(-m // down)))
    for sides, turned, bytes_, fetches in operands:
        padded = ~turned & (bytes_ < WIDEST) & (fetches >= FETCHES_WORTH_A_COPY) & large
        extra += np.where(turned, cost.copied_s(*sides, rates, turned=True), 0.0)
        extra += np.where(padded, cost.copied_s(*sides, rates, turned=False), 0.0)
        off |= ~turned & ~padded & (bytes_ < WIDEST)
    off |= align[2] < WIDEST
    whole = (size[0] % bm == 0) & (size[1] % bn == 0) & (size[2] % bk == 0)
    variant = np.where(off, cost.UNALIGNED, np.where(whole, cost.EXACT, cost.GUARDED))
    return cost.seconds(rows.kernels, size, variant, rates) + extra


@dataclass(frozen=True)
class _Held:
    """A cover as an argument that is remembered by its identity."""

    cover: Cover

    def __hash__(self) -> int:
        return id(self.cover)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.cover is self.cover


def rows_of(layout: Layout, cover: Cover) -> Rows:
    """The kernels of a cover for a layout; made once."""
    return _rows(layout, _Held(cover))


@lru_cache(maxsize=64)
def _rows(layout: Layout, held: _Held) -> Rows:
    import numpy as np

    cover = held.cover
    found: list[tuple[int, bool, bool, bool]] = []
    for other in LAYOUTS:
        copied = other[0] != layout[0], other[1] != layout[1]
        if any(c and letter == "n" for c, letter in zip(copied, layout, strict=True)):
            continue  # what lies by rows is never turned
        for i, spec in enumerate(cover.specs):
            swapped = served(spec, other)
            if swapped is not None:
                found.append((i, swapped, *copied))
    columns = [np.array(column) for column in zip(*found, strict=True)]
    positions = columns[0]
    ks = cover.kernels
    taken = cost.Kernels(*(getattr(ks, name)[positions] for name in ("block", "parts", "how", "resident", "constants")))
    return Rows(positions, taken, columns[1], (columns[2], columns[3]))
