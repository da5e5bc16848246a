"""Checks a product on the GPU against float64, quickly enough for a benchmark.

The reference is computed on the GPU by torch or CuPy where one is installed, else on the host: whole where that is
quick, in sampled rows where it is not. The bound is that of ``gemmgen.verify``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from gemmgen.ir.types import BF16, F32
from gemmgen.runtime.memory import DeviceArray
from gemmgen.runtime.problem import Expected, Problem, Types

_ON_HOST = 1 << 30  # products up to this many multiply-adds are checked on the host in a second or so
_ROWS_AT_ONCE = 1024  # on the GPU: bounds the float64 temporaries
_SAMPLED = 48
_KEPT_BYTES = 16  # an element of what is expected: a value and a bound
_KEPT_PART = 1 / 16  # of the GPU's memory, what may be kept of it


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
    """Whether ``c`` holds alpha * (A @ B) + beta * C0 of the problem's values; the GPU must be idle.

    What is expected is computed at the first check of a problem with these factors, and kept where it is small.
    """
    m, n, k = problem.size
    library = _on_gpu(problem) if m * n * k > _ON_HOST else None
    if library is not None:
        got, how = library.array(c), f"all, by {library.name} in float64"
        parts = _kept(problem, alpha, beta, lambda: _expected_on_gpu(problem, library, alpha, beta))
        return _worst([_compare(e, got[e.first : e.first + e.want.shape[0]], how) for e in parts])
    got = c.numpy()
    parts = _kept(problem, alpha, beta, lambda: _expected_on_host(problem, alpha, beta))
    how = "all, on the host" if m * n * k <= _ON_HOST else f"{len(_rows(m, n))} rows, on the host"
    return _worst([_compare(e, got[e.first : e.first + e.want.shape[0]], how) for e in parts])


def _kept(problem: Problem, alpha: float, beta: float, compute: Callable[[], Iterator[Expected]]) -> Iterable[Expected]:
    m, n, _ = problem.size
    if m * n * _KEPT_BYTES > problem.device.memory_bytes * _KEPT_PART:
        return compute()
    if (alpha, beta) not in problem.expected:
        problem.expected.clear()
        problem.expected[alpha, beta] = tuple(compute())
    return problem.expected[alpha, beta]


def _expected_on_host(problem: Problem, alpha: float, beta: float) -> Iterator[Expected]:
    """All rows in one, or single ones of a product that is too large for the host."""
    import numpy as np

    (m, n, k), (a, b, c0) = problem.size, problem.host
    wide = b.astype(np.float64)
    if m * n * k <= _ON_HOST:
        yield _expected(0, a.astype(np.float64), wide, c0, alpha, beta, problem.types)
        return
    for r in _rows(m, n):
        yield _expected(r, a[r : r + 1].astype(np.float64), wide, c0[r : r + 1], alpha, beta, problem.types)


def _expected_on_gpu(problem: Problem, library: _Library, alpha: float, beta: float) -> Iterator[Expected]:
    a, b, _ = problem.sets[0]
    narrow, wide = library.array(a), _double(library.array(b))
    c0 = library.array(problem.host[2]) if beta != 0.0 else None
    for first in range(0, problem.size[0], _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        before = None if c0 is None else c0[rows]
        yield _expected(first, _double(narrow[rows]), wide, before, alpha, beta, problem.types)


def _expected(first: int, a: Any, b: Any, c0: Any, alpha: float, beta: float, types: Types) -> Expected:
    """Arrays of NumPy, CuPy or torch, a and b in float64; ``c0`` is not read where beta is 0."""
    k, out = a.shape[1], types[2]
    want = alpha * (a @ b)
    bound = (2 * (k + 1) * F32.unit_roundoff + types[0].coarse) * abs(alpha) * (abs(a) @ abs(b))
    if beta != 0.0:
        added = beta * _double(c0)
        want = want + added
        bound = bound + 2 * F32.unit_roundoff * abs(added)
    return Expected(first, want, bound + out.unit_roundoff * abs(want) + (k + 2) * out.tiny)


def _compare(e: Expected, got: Any, how: str) -> Checked:
    error = abs(_double(got) - e.want)
    ratio = error / e.bound
    at = int(ratio.argmax())  # a NaN counts as the largest
    i, j = divmod(at, int(e.want.shape[1]))
    return Checked(
        bool((error <= e.bound).all()), float(error.max()), (e.first + i, j),
        float(got[i, j]), float(e.want[i, j]), float(e.bound[i, j]), how,
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


@dataclass(frozen=True)
class _Library:
    """A library that computes on the GPU; ``array`` reads a device array in place, and copies one of the host."""

    name: str
    array: Callable[[Any], Any]


def _on_gpu(problem: Problem) -> _Library | None:
    """The library that is installed; None where there is none."""
    if _has("torch") and ("torch" in sys.modules or not _has("cupy")):
        import torch

        if torch.cuda.is_available():
            where = f"cuda:{problem.device.ordinal}"

            def array(x: Any) -> Any:
                if str(x.dtype) != BF16.numpy:
                    return torch.as_tensor(x, device=where)
                if isinstance(x, DeviceArray):  # its interface has no name for bfloat16
                    return torch.as_tensor(x.bits("int16"), device=where).view(torch.bfloat16)
                return torch.as_tensor(x.astype(F32.numpy_dtype), device=where)

            return _Library("torch", array)
    if _has("cupy") and BF16 not in problem.types:
        import cupy

        return _Library("CuPy", cupy.asarray)
    return None


def _has(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None
