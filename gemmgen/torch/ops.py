"""The operators, registered with torch: schemas, kernels, shapes for traces, autocast and vmap.

They are opaque to ``torch.compile``: one node of a graph each, with no break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gemmgen.torch import backend, gradients
from gemmgen.torch.checks import linear_shape, matmul_shape

LIBRARY = torch.library.Library("gemmgen", "DEF")
MATMUL, LINEAR = "gemmgen::matmul", "gemmgen::linear"
COMPLIANT = (torch.Tag.pt2_compliant_tag,)


def _register() -> None:
    LIBRARY.define("matmul(Tensor a, Tensor b, *, str precision='exact') -> Tensor", tags=COMPLIANT)
    LIBRARY.define(
        "linear(Tensor x, Tensor weight, Tensor? bias=None, *, str activation='none', str precision='exact') -> Tensor",
        tags=COMPLIANT,
    )
    LIBRARY.impl("matmul", backend.matmul_on_host, "CompositeExplicitAutograd")
    LIBRARY.impl("linear", backend.linear_on_host, "CompositeExplicitAutograd")
    LIBRARY.impl("matmul", backend.matmul_on_gpu, "CUDA")
    LIBRARY.impl("linear", backend.linear_on_gpu, "CUDA")
    torch.library.register_fake(MATMUL, _matmul_fake, lib=LIBRARY)
    torch.library.register_fake(LINEAR, _linear_fake, lib=LIBRARY)
    LIBRARY.impl("matmul", gradients.matmul, "Autograd", with_keyset=True)
    LIBRARY.impl("linear", gradients.linear, "Autograd", with_keyset=True)
    torch.library.register_vmap(MATMUL, _matmul_vmap, lib=LIBRARY)
    torch.library.register_vmap(LINEAR, _linear_vmap, lib=LIBRARY)
    for device, key in (("cuda", "AutocastCUDA"), ("cpu", "AutocastCPU")):
        for name in ("matmul", "linear"):
            LIBRARY.impl(name, _autocast(name, device, key), key)


# --- Traces ---------------------------------------------------------------------------------------------------------


def _matmul_fake(a: Any, b: Any, *, precision: str = "exact") -> Any:
    return a.new_empty(matmul_shape(a, b, precision))


def _linear_fake(x: Any, weight: Any, bias: Any = None, *, activation: str = "none", precision: str = "exact") -> Any:
    return x.new_empty(linear_shape(x, weight, bias, activation, precision))


# --- Autocast and vmap ----------------------------------------------------------------------------------------------


def _autocast(name: str, device: str, key: str) -> Callable[..., Any]:
    """The kernel that casts floating-point operands to the type of ``torch.autocast``, and goes on below it."""
    excluded = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast(x: Any, dtype: Any) -> Any:
        fits = isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtype) if fits else x

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return getattr(torch.ops.gemmgen, name)(*(cast(x, dtype) for x in args), **kwargs)

    return kernel


def _matmul_vmap(info: Any, in_dims: tuple[Any, ...], a: Any, b: Any, *, precision: str = "exact") -> tuple[Any, int]:
    """A vmapped dimension is one more of the batch, in front."""
    ranks = [x.dim() - (at is not None) for x, at in zip((a, b), in_dims, strict=True)]
    moved = [_in_front(x, at, max(ranks)) for x, at in zip((a, b), in_dims, strict=True)]
    return torch.ops.gemmgen.matmul(moved[0], moved[1], precision=precision), 0


def _in_front(x: Any, at: int | None, rank: int) -> Any:
    """The tensor with its vmapped dimension first and others of size 1 behind that, up to ``rank``."""
    if at is None:
        return x
    x = x.movedim(at, 0)
    return x.reshape(x.shape[0], *([1] * (rank + 1 - x.dim())), *x.shape[1:])


def _linear_vmap(
    info: Any, in_dims: tuple[Any, ...], x: Any, weight: Any, bias: Any = None, *, activation: str = "none",
    precision: str = "exact",
) -> tuple[Any, int]:  # fmt: skip
    at, of_weight, of_bias = (*in_dims, None)[:3]
    x = x.movedim(at, 0) if at is not None else x
    if of_weight is None and of_bias is None:
        return torch.ops.gemmgen.linear(x, weight, bias, activation=activation, precision=precision), 0
    x = x if at is not None else x.unsqueeze(0).expand(info.batch_size, *x.shape)
    flat = x.reshape(x.shape[0], -1, x.shape[-1])  # one matrix for each of the vmapped weights
    weights = weight.movedim(of_weight, 0) if of_weight is not None else weight
    out = torch.ops.gemmgen.matmul(flat, weights.mT, precision=precision)
    if bias is not None:
        out = out + (bias.movedim(of_bias, 0).unsqueeze(1) if of_bias is not None else bias)
    return backend.activated(out.reshape(*x.shape[:-1], out.shape[-1]), activation), 0


_register()
