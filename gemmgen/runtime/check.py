"""Checks a product on the GPU against float64, quickly enough for a benchmark.

The reference is computed on the GPU by torch or CuPy where one is installed, else on the host: whole where that is
quick, in sampled rows where it is not. The bound is that of ``gemmgen.verify``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gemmgen.verify import UNIT

if TYPE_CHECKING:
    from gemmgen.runtime.memory import DeviceArray
    from gemmgen.runtime.problem import Problem


_TINY = 2.0**-149  # its smallest subnormal
_ON_HOST = 1 << 30  # products up to this many multiply-adds are checked on the host in a second or so
_ROWS_AT_ONCE = 1024  # on the GPU: bounds the float64 temporaries
_SAMPLED = 48


@dataclass(frozen=True)
class Checked:
    """What came out: the element that is worst in terms of its bound, and what was compared ("all" or "48 rows")."""

    ok: bool
    max_error: float
    where: tuple[int, int]
    got: float
    want: float
    bound: float
    how: str

    def __str__(self) -> str:
        verdict = "right" if self.ok else "wrong"
        return (
            f"{verdict}: C[{self.where[0]}, {self.where[1]}] is {self.got!r}, want {self.want!r}, "
            f"bound {self.bound:.3g} ({self.how})"
        )


def check(problem: Problem, c: DeviceArray, alpha: float, beta: float) -> Checked:
    """Whether ``c`` holds alpha * (A @ B) + beta * C0 of the problem's values; the GPU must be idle."""
    import numpy as np

    m, n, k = problem.size
    a, b, c0 = problem.host
    if m * n * k > _ON_HOST and (device := _on_gpu(problem, c)) is not None:
        ga, gb, gc, gc0, library = device
        parts = [slice(i, i + _ROWS_AT_ONCE) for i in range(0, m, _ROWS_AT_ONCE)]
        found = [_compare(p.start, ga[p], gb, gc0[p], gc[p], alpha, beta, f"all, by {library}") for p in parts]
        return _worst(found)
    got = c.numpy()
    if m * n * k <= _ON_HOST:
        return _compare(0, a.astype(np.float64), b.astype(np.float64), c0, got, alpha, beta, "all, on the host")
    rows = _rows(m, n)
    wide = b.astype(np.float64)
    found = [
        _compare(r, a[r : r + 1].astype(np.float64), wide, c0[r : r + 1], got[r : r + 1], alpha, beta, "") for r in rows
    ]
    worst = _worst(found)
    return Checked(
        worst.ok, worst.max_error, worst.where, worst.got, worst.want, worst.bound, f"{len(rows)} rows, on the host"
    )


def _compare(first: int, a: Any, b: Any, c0: Any, got: Any, alpha: float, beta: float, how: str) -> Checked:
    """Rows from ``first`` on; arrays of NumPy, CuPy or torch, a and b in float64."""
    k = a.shape[1]
    want = alpha * (a @ b)
    bound = 2 * (k + 1) * UNIT * abs(alpha) * (abs(a) @ abs(b))
    if beta != 0.0:
        added = beta * _double(c0)
        want = want + added
        bound = bound + 2 * UNIT * abs(added)
    bound = bound + UNIT * abs(want) + (k + 2) * _TINY
    error = abs(_double(got) - want)
    ratio = error / bound
    at = int(ratio.argmax())  # a NaN counts as the largest
    i, j = divmod(at, int(want.shape[1]))
    return Checked(
        bool((error <= bound).all()), float(error.max()), (first + i, j),
        float(got[i, j]), float(want[i, j]), float(bound[i, j]), how,
    )  # fmt: skip


def _double(x: Any) -> Any:
    return x.double() if hasattr(x, "double") else x.astype("float64")


def _worst(found: list[Checked]) -> Checked:
    wrong = [f for f in found if not f.ok]
    return wrong[0] if wrong else max(found, key=lambda f: f.max_error / f.bound)


def _rows(m: int, n: int) -> list[int]:
    """Rows to sample: the first and last, those at the edges of tiles, and random ones."""
    import numpy as np

    edges = {r for t in (64, 128, 256) for r in (t - 1, t, m - m % t - 1, m - m % t) if 0 <= r < m}
    some = np.random.default_rng(m * 1_000_003 + n).integers(0, m, _SAMPLED)
    return sorted({0, m - 1} | edges | {int(r) for r in some})


def _on_gpu(problem: Problem, c: DeviceArray) -> tuple[Any, Any, Any, Any, str] | None:
    """A and B in float64, C and C0, as arrays of a library that is installed; None where there is none."""
    a, b, _ = problem.sets[0]
    c0 = problem.host[2]
    if _has("torch") and ("torch" in sys.modules or not _has("cupy")):
        import torch

        where = f"cuda:{problem.device.ordinal}"
        if torch.cuda.is_available():
            ga, gb, gc = (torch.as_tensor(x, device=where) for x in (a, b, c))
            return ga.double(), gb.double(), gc, torch.as_tensor(c0, device=where), "torch in float64"
    if _has("cupy"):
        import cupy

        ga, gb, gc = (cupy.asarray(x) for x in (a, b, c))
        return ga.astype("float64"), gb.astype("float64"), gc, cupy.asarray(c0), "CuPy in float64"
    return None


def _has(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None
