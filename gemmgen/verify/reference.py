"""Checking a result against float64, with a bound that follows from the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gemmgen.ir.types import BF16, F32
from gemmgen.launch.planning import as_float32
from gemmgen.text.numbers import counted
from gemmgen.verify.chain import Chain, chain_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gemmgen.spec.model import Spec

    Doubles: TypeAlias = "NDArray[np.float64]"

PANEL = 1 << 22  # elements of C or A that are compared at once


@dataclass(frozen=True)
class Verification:
    """Whether C is alpha * (A @ B) + beta * C0, within the error that float32 accumulation may make.

    ``where``, ``got``, ``want`` and ``bound`` are of the element that is worst in terms of its bound; None where C has
    no element, or where its shape or type is not the right one. ``max_error`` is the largest absolute error; infinite
    where one of C and the reference is not finite and the other does not agree, 0.0 where nothing was compared.
    """

    ok: bool
    max_error: float
    where: tuple[int, ...] | None = None
    got: float | None = None
    want: float | None = None
    bound: float | None = None
    reason: str = ""
    wrong: int = 0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.reason:
            return f"FAIL: {self.reason}"
        if self.where is None:
            return "PASS: C has no elements"
        element = f"C[{', '.join(map(str, self.where))}]: got {self.got!r}, expected {self.want!r}"
        at = f"{element}, tolerance {self.bound:.3g}"
        if self.ok:
            return f"PASS: largest error {self.max_error:.3g}; closest to the tolerance: {at}"
        return f"FAIL: {counted(self.wrong, 'element')} beyond the tolerance; worst: {at}"

    def _repr_html_(self) -> str:
        return _verdict_html(self)


def _verdict_html(v: Verification) -> str:
    from gemmgen.text.html import heading, joined, table

    verdict, _, rest = str(v).partition(": ")
    if v.where is None:
        return heading(str(v))
    element = f"C[{v.where[0]}, {v.where[1]}]"
    rows = [("element nearest to the tolerance" if v.ok else "worst element", element)]
    rows += [(name, f"{value!r}") for name, value in (("got", v.got), ("expected", v.want), ("tolerance", v.bound))]
    return joined(heading(f"{verdict}: {rest.partition(';')[0]}"), table((), rows))


def verify(
    C: Any,
    A: Any,
    B: Any,
    C0: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    spec: Spec | None = None,
    **named: Any,
) -> Verification:
    """Compare ``C`` with ``alpha * (A @ B) + beta * C0``, computed in float64, and with the epilogue of ``spec``.

    ``A`` is (M, K), ``B`` (K, N), ``C`` and ``C0`` (M, N); host or device arrays of any byte order. ``C0`` is C before
    the call, needed only where ``beta`` is not 0. Without ``spec``, C must have A's type or float32. The bound of an
    element is, with u = 2^-24 and u_out the unit roundoff of C's type, ``2 (K+1) u |alpha||A||B| + 2 u |beta C0| +
    u_out |want|`` and K+2 of the smallest numbers of C's type. NaN must meet NaN, and an infinity the same infinity. An
    infinity also passes where |alpha||A||B| overflows float32, or where the reference overflows C's type with the
    error that the bound allows before the last rounding. A wrong shape or type fails. As in a kernel, alpha and beta
    are float32. Raises ArgumentError where A, B and C0 are no operands of a product, or not real and floating-point.

    Products of tf32 and float8 add 2^-9 |alpha||A||B|.
    ``named`` are the operands of the epilogue as in the call; what it stored, as ``aux``, is compared where given. Each
    entry carries the bound before it on by its Lipschitz constant, and adds its own error.

    Where by the ``spec`` blocks add to C with atomics, each of the ``split_k`` additions rounds a sum that beta C0
    is in, which is u |beta C0| more, and takes subnormal numbers for zeros: of a part, of C, and of the sum.
    """
    from gemmgen.api.operands import element_type, host_array, native, real, scalar, shape_of
    from gemmgen.api.specs import of_type

    spec = None if spec is None else of_type(spec)
    if 3 in (getattr(A, "ndim", 2), getattr(B, "ndim", 2)):
        from gemmgen.verify.batches import verify_each

        return verify_each(C, A, B, C0, alpha, beta, spec, named)
    c, a, b = native(host_array("C", C)), real("A", host_array("A", A)), real("B", host_array("B", B))
    alpha, beta = as_float32(scalar("alpha", alpha)), as_float32(scalar("beta", beta))
    c0 = real("C0", host_array("C0", C0)) if C0 is not None and beta != 0.0 else None
    shape = shape_of(a, b, c0, beta)
    wanted = (element_type(spec, "C"),) if spec is not None else (str(a.dtype), F32.numpy)
    chain = chain_for(spec, named, shape)
    if c.shape != shape:
        return _failure(f"C has shape {c.shape}; A @ B has {shape}")
    if str(c.dtype) not in wanted:
        return _failure(f"C has type {c.dtype}; {' or '.join(dict.fromkeys(wanted))} is wanted")
    if c.size == 0:
        return Verification(True, 0.0)
    additions = spec.split_k if spec is not None and spec.unordered else 0
    coarse = spec.matrices[0].dtype.coarse if spec is not None else 0.0
    return _compare(c, a, b, c0, alpha, beta, (additions, coarse), chain)


def _failure(reason: str) -> Verification:
    return Verification(False, float("inf"), reason=reason)


def _compare(
    c: Any, a: Any, b: Any, c0: Any, alpha: float, beta: float, inexact: tuple[int, float], chain: Chain
) -> Verification:
    """The comparison in panels of rows, so that the doubles of a large product need little memory."""
    import numpy as np

    unread = alpha == 0.0 or a.shape[1] == 0
    right = np.zeros((0, c.shape[1])) if unread else b.astype(np.float64)
    sizes = np.abs(right)
    rows = max(1, PANEL // max(c.shape[1], a.shape[1]))
    worst, badness, largest, wrong = Verification(True, 0.0), -1.0, 0.0, 0
    for i in range(0, c.shape[0], rows):
        part = slice(i, i + rows)
        left = a[part, :0] if unread else a[part]
        with np.errstate(all="ignore"):
            reference = _reference(left.astype(np.float64), right, sizes, None if c0 is None else c0[part], alpha, beta)
            found, how_bad = _panel(c[part], reference, a.shape[1], i, inexact, chain.rows(part))
        if found.reason:
            return found
        wrong, largest = wrong + found.wrong, max(largest, found.max_error)
        if how_bad > badness:
            worst, badness = found, how_bad
    return replace(worst, ok=wrong == 0, wrong=wrong, max_error=largest)


def _panel(
    c: Any,
    reference: tuple[Doubles, Doubles, Doubles],
    depth: int,
    first_row: int,
    inexact: tuple[int, float],
    chain: Chain,
) -> tuple[Verification, float]:
    """The verdict on some rows, and how far the worst element is into its bound; ``depth`` is K. ``inexact``: so many
    additions were made to each element of C in memory; and products are coarse, relative to themselves."""
    want, magnitude, added = reference
    additions, coarse = inexact
    _, tiny, normal = _limits(c.dtype)
    summed = (2 * (depth + 1) * F32.unit_roundoff + coarse) * magnitude + (2 + additions) * F32.unit_roundoff * added
    summed += (depth + 2) * tiny + 3 * additions * normal
    want, summed, stored = chain.after(want, summed)
    for x in stored:
        beside, how_bad = _verdict(x.got, x.want, magnitude, x.error, first_row)
        if not beside.ok:
            return _failure(str(beside).replace("FAIL: ", "").replace("C[", f"{x.name}[")), how_bad
    return _verdict(c, want, magnitude, summed, first_row)


def _verdict(c: Any, want: Doubles, magnitude: Doubles, summed: Doubles, first_row: int) -> tuple[Verification, float]:
    """The verdict on what was stored, where the value before it was rounded may be ``summed`` from ``want``."""
    import numpy as np

    got, roundoff = c.astype(np.float64), _limits(c.dtype)[0]
    error = np.abs(got - want)
    bound = summed + roundoff * np.abs(want)
    finite = np.isfinite(got) & np.isfinite(want)
    right = np.where(finite, error <= bound, _agree(got, want, magnitude, summed, c.dtype))
    # What is wrong and not finite is worst of all, what agrees is no error.
    error = np.where(finite, error, np.where(right, 0.0, np.inf))
    badness = np.where(finite, error / bound, error)
    i, j = (int(x) for x in np.unravel_index(int(np.argmax(badness)), badness.shape))
    wrong = int(right.size - np.count_nonzero(right))
    values = float(got[i, j]), float(want[i, j]), float(bound[i, j])
    found = Verification(wrong == 0, float(error.max()), (first_row + i, j), *values, wrong=wrong)
    return found, float(badness[i, j])


def _limits(dtype: Any) -> tuple[float, float, float]:
    """Unit roundoff, smallest subnormal and smallest normal number of a type of NumPy or ml_dtypes."""
    import numpy as np

    info: Any = np.finfo
    if dtype.name == BF16.numpy:
        import ml_dtypes

        info = ml_dtypes.finfo
    info = info(dtype)
    return 0.5 * float(info.eps), float(info.smallest_subnormal), float(info.smallest_normal)


def _reference(
    a: Doubles, b: Doubles, sizes: Doubles, c0: Any, alpha: float, beta: float
) -> tuple[Doubles, Doubles, Doubles]:
    """alpha * (A @ B) + beta * C0, |alpha||A||B| and |beta C0| of some rows, where ``sizes`` is |B|.

    An empty sum is 0, whatever alpha is.
    """
    import numpy as np

    empty = a.shape[1] == 0
    want: Doubles = a @ b if empty else alpha * (a @ b)
    magnitude: Doubles = np.zeros_like(want) if empty else abs(alpha) * (np.abs(a) @ sizes)
    if c0 is None:
        return want, magnitude, np.zeros_like(want)
    term = beta * c0.astype(np.float64)
    return want + term, magnitude, np.abs(term)


def _agree(got: Doubles, want: Doubles, magnitude: Doubles, error: Doubles, dtype: Any) -> NDArray[np.bool_]:
    """Where two values, at least one of them not finite, are the same, or an infinity is an honest overflow: of sums,
    which are float32 whatever C's type is, or of a result that so much ``error`` before it is rounded takes there."""
    import numpy as np

    rounded = want.astype(dtype).astype(np.float64)
    overflow = np.isinf(magnitude.astype(F32.numpy_dtype)) & np.isfinite(want)
    edge = (np.copysign(np.inf, want) == got) & np.isinf((np.abs(want) + error).astype(dtype).astype(np.float64))
    same: NDArray[np.bool_] = (np.isnan(got) & np.isnan(want)) | (got == rounded) | (np.isinf(got) & overflow) | edge
    return same
