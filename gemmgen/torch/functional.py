"""``gemmgen.torch.matmul`` and ``gemmgen.torch.linear``."""

from __future__ import annotations

from typing import Any

import torch

from gemmgen.torch import ops  # noqa: F401  (registers them)
from gemmgen.torch.backend import activated


def matmul(a: Any, b: Any, *, precision: str = "exact") -> Any:
    """``a @ b`` for matrices and batches of them, differentiable, in the type of both.

    ``precision`` "tf32" allows float32 products on tensor cores. Raises ArgumentError for operands of different types
    or devices.
    """
    return torch.ops.gemmgen.matmul(a, b, precision=precision)


def linear(x: Any, weight: Any, bias: Any = None, activation: str | None = None, *, precision: str = "exact") -> Any:
    """``activation(x @ weight.T + bias)``, differentiable; ``activation`` is relu, gelu, gelu_tanh, silu or None.

    Without gradients it is one operator. With them an activation is applied beside it, since its gradient needs the
    value before.
    """
    name = activation or "none"
    if name != "none" and torch.is_grad_enabled() and _any_requires_grad(x, weight, bias):
        return activated(torch.ops.gemmgen.linear(x, weight, bias, precision=precision), _known(name))
    return torch.ops.gemmgen.linear(x, weight, bias, activation=name, precision=precision)


def _known(activation: str) -> str:
    from gemmgen.diagnostics import one_of
    from gemmgen.torch.checks import ACTIVATIONS

    return one_of("activation", activation, ACTIVATIONS)


def _any_requires_grad(*tensors: Any) -> bool:
    return any(x is not None and x.requires_grad for x in tensors)
