"""What computes the operators: gemmgen's kernels where the GPU and type have one, else torch itself."""

from __future__ import annotations

from typing import Any

import torch

from gemmgen.dispatch.matmul import matmul as gemmgen_matmul
from gemmgen.ir.types import BF16, F16, F32
from gemmgen.torch.checks import linear_shape, matmul_shape

KERNELS = frozenset(getattr(torch, t.numpy) for t in (F32, BF16, F16))
"""The types that ``gemmgen.matmul`` has kernels for. Products of others are torch's own."""


def matmul_on_host(a: Any, b: Any, *, precision: str = "exact") -> Any:
    """The product by torch, on any device."""
    matmul_shape(a, b, precision)
    return torch.matmul(a, b).contiguous()


def matmul_on_gpu(a: Any, b: Any, *, precision: str = "exact") -> Any:
    """The product by gemmgen's kernels; by torch where there is none for the type."""
    if precision == "exact" and a.dtype is b.dtype and a.dtype in KERNELS and a.dim() == b.dim() == 2:
        return _of_matrices(a, b)
    shape = matmul_shape(a, b, precision)
    if a.dtype not in KERNELS:
        return torch.matmul(a, b).contiguous()
    out = a.new_empty(shape)
    if b.dim() == 2:
        _product(_matrix(a), plain(b), _matrix(out), **_with(precision))
    elif out.numel():
        many = out.shape[:-2]
        _product(_batch(a, many), _batch(b, many), out.view(-1, *out.shape[-2:]), **_with(precision))
    return out


def _of_matrices(a: Any, b: Any) -> Any:
    """The product of two matrices, looked at no more than a kernel needs: what does not fit, it refuses."""
    if a.shape[1] != b.shape[0] or a.device != b.device:
        matmul_shape(a, b, "exact")
    a, b = plain(a), plain(b)
    out = a.new_empty((a.shape[0], b.shape[1]))
    _product(a, b, out)
    return out


def linear_on_host(x: Any, weight: Any, bias: Any = None, *, activation: str = "none", precision: str = "exact") -> Any:
    """The layer by torch, on any device."""
    linear_shape(x, weight, bias, activation, precision)
    return activated(torch.nn.functional.linear(x, weight, bias), activation).contiguous()


def linear_on_gpu(x: Any, weight: Any, bias: Any = None, *, activation: str = "none", precision: str = "exact") -> Any:
    """The layer as one kernel of gemmgen: bias and activation are its epilogue, and the weight is read as it lies."""
    shape = linear_shape(x, weight, bias, activation, precision)
    if x.dtype not in KERNELS:
        return activated(torch.nn.functional.linear(x, weight, bias), activation).contiguous()
    out = x.new_empty(shape)
    named: dict[str, Any] = _with(precision)
    if bias is not None:
        named["bias"] = plain(bias).contiguous()
    if activation != "none":
        named["activation"] = activation
    _product(_matrix(x), plain(weight).t(), _matrix(out), **named)
    return out


def activated(x: Any, activation: str) -> Any:
    """An activation of torch, by its name in an epilogue."""
    functional = torch.nn.functional
    match activation:
        case "relu":
            return functional.relu(x)
        case "gelu":
            return functional.gelu(x)
        case "gelu_tanh":
            return functional.gelu(x, approximate="tanh")
        case "silu":
            return functional.silu(x)
        case _:
            return x


def plain(x: Any) -> Any:
    """The tensor as a kernel takes it: no parameter, and with no gradient of its own."""
    return x.detach() if x.requires_grad or type(x) is not torch.Tensor else x


def _matrix(x: Any) -> Any:
    """A tensor as one matrix: all dimensions but the last are rows. Copied only where its strides allow no view."""
    x = plain(x)
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def _batch(x: Any, many: Any) -> Any:
    """A tensor as a batch of matrices in one dimension, or the one matrix that all products share."""
    x = plain(x)
    if x.shape[:-2].numel() == 1:
        return x.reshape(x.shape[-2:])
    x = x.expand(*many, *x.shape[-2:]).reshape(-1, *x.shape[-2:])
    return x if _lies_as_a_matrix(x) else x.contiguous()


def _lies_as_a_matrix(x: Any) -> bool:
    """Whether rows or columns are contiguous and apart. A gradient of a sum is one element, expanded: its are not."""
    (rows, columns), (down, along) = x.shape[-2:], x.stride()[-2:]
    by_columns: bool = rows > 1 and columns > 1 and down == 1 and along >= rows
    by_rows: bool = along == 1 and down >= columns
    return by_columns or by_rows


def _with(precision: str) -> dict[str, Any]:
    """The keyword of a precision that is not the default, which costs a call nothing."""
    return {} if precision == "exact" else {"precision": precision}


def _product(a: Any, b: Any, out: Any, **epilogue: Any) -> None:
    if out.numel():
        gemmgen_matmul(a, b, out, **epilogue)
