"""What the operators accept, with the sizes of what they give: the same for real tensors and for those of a trace."""

from __future__ import annotations

from typing import Any

import torch

from gemmgen.diagnostics import ArgumentError, one_of
from gemmgen.ir.split import SPLITS
from gemmgen.ir.types import BF16, F16, F32

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
PRECISIONS = ("exact", "tf32", *SPLITS)
TYPES = (*(getattr(torch, t.numpy) for t in (F32, F16, BF16)), torch.float64)


def refuse_types(**tensors: Any) -> None:
    """Raise ArgumentError where tensors are of different types or devices, or of a type that no product is of."""
    given = {name: x for name, x in tensors.items() if x is not None}
    (first, x), *others = given.items()
    if x.dtype not in TYPES:
        raise ArgumentError(f"{first} has type {_name(x.dtype)}; {', '.join(map(_name, TYPES))} are supported")
    for name, y in others:
        if y.dtype != x.dtype:
            raise ArgumentError(
                f"{first} has type {_name(x.dtype)} and {name} {_name(y.dtype)}; convert one, or use torch.autocast"
            )
        if y.device != x.device:
            raise ArgumentError(f"operands must be on one device: {first} on {x.device}, {name} on {y.device}")


def matmul_shape(a: Any, b: Any, precision: str) -> tuple[Any, ...]:
    """The shape of ``matmul(a, b)``. Raises ArgumentError where the two do not fit."""
    one_of("precision", precision, PRECISIONS)
    for name, x in (("A", a), ("B", b)):
        if x.dim() < 2:
            raise ArgumentError(f"{name} has {x.dim()} dimensions; a matrix has 2, and a batch of them more")
    refuse_types(A=a, B=b)
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"A has {a.shape[-1]} columns, and B {b.shape[-2]} rows")
    if b.dim() == 2:  # said apart, since it holds for sizes that are not known
        return (*a.shape[:-1], b.shape[-1])
    return (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def linear_shape(x: Any, weight: Any, bias: Any, activation: str, precision: str) -> tuple[Any, ...]:
    """The shape of ``linear(x, weight, bias)``. Raises ArgumentError where they do not fit."""
    one_of("activation", activation, ACTIVATIONS)
    one_of("precision", precision, PRECISIONS)
    if x.dim() < 1 or weight.dim() != 2:
        raise ArgumentError(f"x has {x.dim()} dimensions and weight {weight.dim()}; x has 1 or more, and weight 2")
    refuse_types(x=x, weight=weight, bias=bias)
    features, given = weight.shape[1], x.shape[-1]
    torch._check(given == features, lambda: f"x has {given} features, and weight takes {features}")
    if bias is not None:
        if bias.dim() != 1:
            raise ArgumentError(f"bias has {bias.dim()} dimensions; it has 1, with an element for each row of weight")
        rows, count = weight.shape[0], bias.shape[0]
        torch._check(count == rows, lambda: f"bias has {count} elements, and weight {rows} rows")
    return (*x.shape[:-1], weight.shape[0])


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
