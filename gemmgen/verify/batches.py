"""Checking a batch of products: each like one product, the worst element of all told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemmgen.api.operands import host_array
from gemmgen.diagnostics import ArgumentError
from gemmgen.verify.reference import Verification, verify

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec


def verify_each(
    C: Any, A: Any, B: Any, C0: Any, alpha: float, beta: float, spec: Spec | None, named: Mapping[str, Any]
) -> Verification:
    """``verify`` of each product; an operand of two dimensions, or a batch of one, is the same for all."""
    c, a, b = (host_array(name, x) for name, x in (("C", C), ("A", A), ("B", B)))
    count = max(x.shape[0] if x.ndim == 3 else 1 for x in (a, b))
    if c.ndim != 3 or c.shape[0] != count:
        return Verification(False, float("inf"), reason=f"C has shape {c.shape}; a batch of {count} is wanted")
    before = None if C0 is None else host_array("C0", C0)
    beside = {name: host_array(name, x) for name, x in named.items() if x is not None}
    ranks = {x.name: max(1, len(x.dims)) for x in (() if spec is None else spec.beside)}
    found: list[Verification] = []
    for i in range(count):
        ci, ai, bi = (_one(x, i, 2) for x in (c, a, b))
        before_i = None if before is None else _one(before, i, 2)
        own = {name: _one(x, i, ranks.get(name, x.ndim)) for name, x in beside.items()}
        one = verify(ci, ai, bi, before_i, alpha, beta, spec, **own)
        found.append(one if one.where is None else replace(one, where=(i, *one.where)))
    if not found:
        return Verification(True, 0.0)
    wrong = [x for x in found if not x.ok]
    worst = wrong[0] if wrong else max(found, key=_badness)
    largest, many = max(x.max_error for x in found), sum(x.wrong for x in found)
    return replace(worst, max_error=largest, wrong=many)


def _one(x: Any, i: int, rank: int) -> Any:
    if x.ndim <= rank:
        return x
    if x.ndim != rank + 1:
        raise ArgumentError(f"an operand has {x.ndim} dimensions; one of {rank}, or a batch of them, is wanted")
    return x[0 if x.shape[0] == 1 else i]


def _badness(x: Verification) -> float:
    if x.got is None or x.want is None or not x.bound:
        return 0.0
    return abs(x.got - x.want) / x.bound
