"""What the GPU tests share: the ladder's kernels, operands that are views of larger buffers, a float64 check."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.spec.ladder import LADDER as LADDER

ROOT = Path(__file__).resolve().parent.parent.parent
UNIT = 2.0**-24


@functools.cache
def kernel(name: str) -> gemmgen.Kernel:
    return gemmgen.compile(gemmgen.load(ROOT / "specs" / f"{name}.gemm"), device="cuda")


@functools.cache
def kernel_of(text: str) -> gemmgen.Kernel:
    return gemmgen.compile(gemmgen.parse(text), device="cuda")


def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def ones_of(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Operands of ones, and a C of NaN."""
    t = torch()
    return t.ones(m, k, device="cuda"), t.ones(k, n, device="cuda"), t.full((m, n), float("nan"), device="cuda")


@dataclass(frozen=True)
class Place:
    """Where a matrix lies in its buffer: elements before its first, and after each of its rows."""

    offset: int = 0
    pad: int = 0


def placed(values: Any, place: Place, around: float = float("nan")) -> tuple[Any, Any]:
    """(a view that holds ``values``, the whole buffer): everything around the view is ``around``."""
    t = torch()
    rows, columns = values.shape
    pitch = columns + place.pad
    buffer = t.full((place.offset + rows * pitch + 8,), around, dtype=values.dtype, device="cuda")
    view = buffer[place.offset : place.offset + rows * pitch].view(rows, pitch)[:, :columns]
    view.copy_(values)
    return view, buffer


def check(C: Any, A: Any, B: Any, C0: Any = None, alpha: float = 1.0, beta: float = 0.0) -> None:
    """C against float64 on the GPU, within the bound of gemmgen.verify; rows at a time, so that memory suffices."""
    t = torch()
    k = A.shape[1]
    wide = B.double()
    for first in range(0, C.shape[0], 2048):
        rows = slice(first, first + 2048)
        a = A[rows].double()
        want = alpha * (a @ wide)
        bound = 2 * (k + 1) * UNIT * abs(alpha) * (a.abs() @ wide.abs()) + (k + 2) * 2.0**-149
        if beta != 0.0:
            added = beta * C0[rows].double()
            want = want + added
            bound = bound + 2 * UNIT * added.abs()
        bound = bound + UNIT * want.abs()
        error = (C[rows].double() - want).abs()
        bad = ~(error <= bound)
        if bool(bad.any()):
            i, j = (int(x) for x in t.nonzero(bad)[0])
            pytest.fail(
                f"{int(bad.sum())} wrong from row {first}: C[{first + i}, {j}] is {float(C[rows][i, j])!r}, "
                f"want {float(want[i, j])!r}, bound {float(bound[i, j]):.3g}"
            )


def untouched(buffer: Any, view: Any, place: Place) -> None:
    """Everything of the buffer around the view is still NaN."""
    t = torch()
    rows, columns = view.shape
    outside = t.ones(buffer.shape[0], dtype=t.bool, device="cuda")
    pitch = columns + place.pad
    outside[place.offset : place.offset + rows * pitch].view(rows, pitch)[:, :columns] = False
    assert bool(buffer[outside].isnan().all()), "memory around C was written"
