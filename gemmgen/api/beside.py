"""The operands of an epilogue in a call: ``bias=``, ``residual=`` and the like, checked against what the spec asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gemmgen.api.operands import Matrix, host_view
from gemmgen.diagnostics import ArgumentError

if TYPE_CHECKING:
    from gemmgen.ir.types import EpilogueOperand


class Chained(Protocol):
    """What has an epilogue: a spec, or a program."""

    @property
    def name(self) -> str: ...
    @property
    def beside(self) -> tuple[EpilogueOperand, ...]: ...


def refuse_names(named: Mapping[str, Any], of: Chained) -> None:
    """Raise ArgumentError where an operand is missing, or one is given that the epilogue does not take."""
    wanted = [x.name for x in of.beside]
    for name, value in named.items():
        if name not in wanted and value is not None:
            takes = f"takes {' and '.join(wanted)}" if wanted else "takes no operands beside A, B and C"
            raise ArgumentError(f"{name} is given, and the epilogue of {of.name!r} {takes}")
    for x in of.beside:
        if named.get(x.name) is None:
            does = "stores to" if x.written else "reads"
            raise ArgumentError(f"{x.name} is missing: the epilogue of {of.name!r} {does} it; pass {x.name}=")


def refuse_type(x: EpilogueOperand, dtype: str, of: Chained) -> None:
    """Raise ArgumentError where an operand is not of its type."""
    if dtype != x.dtype.numpy:
        raise ArgumentError(f"{x.name} has element type {dtype}; the kernel {of.name!r} wants {x.dtype.numpy}")


def on_host(named: Mapping[str, Any], of: Chained) -> dict[str, Matrix]:
    """The operands as host arrays. Raises ArgumentError for a name, a type or an array that does not fit."""
    refuse_names(named, of)
    found: dict[str, Matrix] = {}
    for x in of.beside:
        values = host_view(x.name, named[x.name])
        refuse_type(x, values.dtype.name if values.dtype.isnative else values.dtype.str, of)
        if x.written and not values.flags.writeable:
            raise ArgumentError(f"{x.name} is read-only, and the epilogue stores to it: pass one that can be written")
        if any(s % values.itemsize for n, s in zip(values.shape, values.strides, strict=True) if n > 1):
            raise ArgumentError(f"{x.name} has strides of {values.strides} bytes, no multiples of {values.itemsize}")
        found[x.name] = Matrix.of(values)
    return found


def drawn(spec: Chained, m: int, n: int, seed: int = 0) -> dict[str, Any]:
    """Random operands of an epilogue beside a C of m x n, each of its type; what it stores to holds zeros."""
    import numpy as np

    if not spec.beside:
        return {}
    random, found = np.random.default_rng(seed + 1), {}
    for x in spec.beside:
        shape = x.shape(m, n)
        values = np.zeros(shape) if x.written else random.standard_normal(shape)
        found[x.name] = np.asarray(values.astype(x.dtype.numpy_dtype), order="C" if x.order == "row" else "F")
    return found
