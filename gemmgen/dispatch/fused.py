"""``matmul`` with a bias, an activation or a residual: the kernel that its shape asks for, with that epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, SpecError, shown
from gemmgen.ir.types import ELEMENT_TYPES

if TYPE_CHECKING:
    from gemmgen.api.kernel import Kernel

REMEMBERED = 1024
"""Kernels with an epilogue that are remembered."""


@dataclass(frozen=True)
class Fused:
    """What ``matmul`` was asked for beside the product: act(alpha * A B + beta * C + bias) + residual."""

    bias: Any = None
    residual: Any = None
    activation: str | None = None
    out_dtype: Any = None

    @property
    def chain(self) -> tuple[str, ...]:
        """The epilogue that does it."""
        if not isinstance(self.activation, str | None):
            raise ArgumentError(
                f"activation is {shown(self.activation)}; it is an entry of an epilogue, such as 'gelu'"
            )
        parts = (("bias", self.bias), (self.activation or "", self.activation), ("residual", self.residual))
        return tuple(text for text, value in parts if value is not None)

    def run(self, kernel: Kernel, A: Any, B: Any, C: Any, alpha: float, beta: float, stream: Any) -> Any:
        """The product by the sibling of ``kernel`` that has the epilogue."""
        given = {"bias": self.bias, "residual": self.residual}
        named = {name: x for name, x in given.items() if x is not None}
        out = None if self.out_dtype is None else type_name(self.out_dtype)
        return sibling(kernel, self.chain, out)(A, B, C, alpha, beta, stream, **named)


def one_product(signature: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of a batch's signature (shape, strides, address, device) that of one of its products."""
    shape, strides, address, device = signature
    return (shape[1:], strides[-2:], address, device) if len(shape) == 3 else signature


def type_name(dtype: Any) -> str:
    """The element type that a name of gemmgen, NumPy or torch means. Raises ArgumentError for anything else."""
    text = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).removeprefix("torch.")
    for kind in ELEMENT_TYPES.values():
        if text in (kind.name, kind.numpy):
            return kind.name
    raise ArgumentError(f"out_dtype is {shown(dtype)}; it is one of {', '.join(ELEMENT_TYPES)}")


@lru_cache(maxsize=REMEMBERED)
def sibling(kernel: Kernel, chain: tuple[str, ...], out: str | None) -> Kernel:
    """The kernel with an epilogue and another type of C. Atomics, which never have the whole value, become the second
    kernel of split_k. Raises ArgumentError where there is no such kernel."""
    from gemmgen.spec.model import Operand

    spec = kernel.spec
    c = spec.C if out is None else Operand(out, spec.C.order)
    try:
        changed = spec.replace(epilogue=chain, C=c, use=spec.use - {"atomics"})
    except SpecError as error:
        raise ArgumentError(f"no kernel with that epilogue and output: {error.errors[0].message}") from None
    return kernel.like(changed)
