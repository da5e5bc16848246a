"""The operands of an epilogue in a call: ``bias=``, ``residual=`` and the like, checked against what the spec asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemmgen.api.operands import Matrix, host_view
from gemmgen.diagnostics import ArgumentError
from gemmgen.launch.beside import Chained, refuse_names, refuse_type


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
