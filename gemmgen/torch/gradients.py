"""Gradients of the operators: products of the operands as they lie, transposed views included.

An operator's kernel for autograd goes straight to what computes it where there is nothing to record and nothing between
(a trace, a tensor of another kind): that takes a third of the time of torch's own way.
"""

from __future__ import annotations

from typing import Any

import torch

from gemmgen.torch import backend

_BELOW = torch._C._after_ADInplaceOrView_keyset
_GPU = torch._C.DispatchKey.CUDA


def matmul(keyset: Any, a: Any, b: Any, *, precision: str = "exact") -> Any:
    """The operator where gradients may be wanted."""
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        return _Matmul.apply(keyset, a, b, precision)
    below = keyset & _BELOW
    if below.highestPriorityTypeId() == _GPU:
        return backend.matmul_on_gpu(a, b, precision=precision)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.gemmgen.matmul.default.redispatch(below, a, b, precision=precision)


def linear(
    keyset: Any, x: Any, weight: Any, bias: Any = None, *, activation: str = "none", precision: str = "exact"
) -> Any:
    """The operator where gradients may be wanted."""
    wanted = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if wanted and torch.is_grad_enabled():
        return _Linear.apply(keyset, x, weight, bias, activation, precision)
    below = keyset & _BELOW
    if below.highestPriorityTypeId() == _GPU:
        return backend.linear_on_gpu(x, weight, bias, activation=activation, precision=precision)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.gemmgen.linear.default.redispatch(
            below, x, weight, bias, activation=activation, precision=precision
        )


class _Matmul(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, keyset: Any, a: Any, b: Any, precision: str) -> Any:
        ctx.save_for_backward(a, b)
        ctx.precision = precision
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.gemmgen.matmul.default.redispatch(keyset & _BELOW, a, b, precision=precision)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _matmul_backward(ctx, grad)


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, keyset: Any, x: Any, weight: Any, bias: Any, activation: str, precision: str) -> Any:
        ctx.save_for_backward(x, weight, bias)
        ctx.activation, ctx.precision = activation, precision
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.gemmgen.linear.default.redispatch(
                keyset & _BELOW, x, weight, bias, activation=activation, precision=precision
            )

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _linear_backward(ctx, grad)


def _matmul_backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    _, wants_a, wants_b, _ = ctx.needs_input_grad
    return (
        None,
        _to_shape(_product(grad, b.mT, ctx.precision), a) if wants_a else None,
        _gradient_of_b(a, b, grad, ctx.precision) if wants_b else None,
        None,
    )


def _gradient_of_b(a: Any, b: Any, grad: Any, precision: str) -> Any:
    if b.dim() == 2:  # one product over the rows of all matrices of a batch
        return _product(_rows(a).mT, _rows(grad), precision)
    return _to_shape(_product(a.mT, grad, precision), b)


def _linear_backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
    x, weight, bias = ctx.saved_tensors
    _, wants_x, wants_weight, wants_bias, _, _ = ctx.needs_input_grad
    if ctx.activation != "none":
        before = torch.ops.gemmgen.linear(x, weight, bias, precision=ctx.precision)
        grad = _through(grad, before, ctx.activation)
    rows = _rows(grad)
    return (
        None,
        _product(rows, weight, ctx.precision).reshape(x.shape) if wants_x else None,
        _product(rows.mT, _rows(x), ctx.precision) if wants_weight else None,
        rows.sum(0) if wants_bias else None,
        None,
        None,
    )


def _through(grad: Any, before: Any, activation: str) -> Any:
    """The gradient ahead of an activation, of the value that it was given."""
    ops = torch.ops.aten
    match activation:
        case "relu":
            return ops.threshold_backward(grad, before, 0)
        case "gelu":
            return ops.gelu_backward(grad, before)
        case "gelu_tanh":
            return ops.gelu_backward(grad, before, approximate="tanh")
        case _:
            inner = torch.sigmoid(before)  # torch's own operator for this has no gradient
            return grad * inner * (1 + before * (1 - inner))


def _product(a: Any, b: Any, precision: str) -> Any:
    return torch.ops.gemmgen.matmul(a, b, precision=precision)


def _rows(x: Any) -> Any:
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def _to_shape(grad: Any, x: Any) -> Any:
    """A gradient summed over the dimensions in which an operand was broadcast."""
    return grad if grad.shape == x.shape else grad.sum_to_size(x.shape)
