"""Hand-built IR over arrays of any element type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from simir import at

from gemmgen.ir.expr import Const
from gemmgen.ir.nodes import Alloc, Array, Load, Ref, Stmt, Store
from gemmgen.ir.types import DType


def given(name: str, dtype: DType) -> Array:
    return Array(name, "global", dtype, None, const=name != "C")


def tile(dtype: DType, *shape: int, name: str = "tile", align: int = 16, over: tuple[str, ...] = ()) -> Array:
    return Array(name, "shared", dtype, tuple(map(Const, shape)), align, over=over)


def held(dtype: DType, *shape: int, name: str = "held") -> Array:
    return Array(name, "register", dtype, tuple(map(Const, shape)))


def typed(values: Any, dtype: DType) -> NDArray[Any]:
    return np.asarray(values, np.float64).astype(dtype.numpy_dtype)


def put(dst: Ref, value: float = 1.0, width: int = 1) -> tuple[Stmt, ...]:
    """Write elements of the memory's own type."""
    some = held(dst.array.dtype, width, name=f"put{dst.array.dtype}")
    return Alloc(some, value), Store(dst, at(some, 0), width, origin="tile block")


def get(src: Ref, width: int = 1) -> tuple[Stmt, ...]:
    some = held(src.array.dtype, width, name=f"got{src.array.dtype}")
    return Alloc(some), Load(at(some, 0), src, width, origin="use float4")
