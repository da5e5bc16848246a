"""Where operands lie: on which GPU, with how many dimensions, and which bytes they reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.diagnostics import ArgumentError
from gemmgen.runtime.views import HOST

if TYPE_CHECKING:
    from gemmgen.runtime.views import ArrayView


def one_device(views: dict[str, ArrayView]) -> None:
    devices = {x.device for x in views.values()}
    if len(devices) > 1 or HOST in devices:
        said = ", ".join(
            f"{name} on {'the host' if x.device == HOST else f'GPU {x.device}'}" for name, x in views.items()
        )
        raise ArgumentError(f"operands must be on one device: {said}")


def two_dimensions(x: ArrayView, name: str, batched: bool) -> None:
    if len(x.shape) != 2 and not (batched and len(x.shape) == 3):
        raise ArgumentError(f"{name} has {len(x.shape)} dimensions, shape {tuple(x.shape)}; a matrix has 2")


def span_of(x: ArrayView, item: int) -> tuple[int, int]:
    """The bytes that a matrix reaches: (lowest, one past the highest) from its address; (0, 0) where it is empty."""
    if 0 in x.shape:
        return 0, 0
    reach = [(n - 1) * s * item for n, s in zip(x.shape, x.strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + item


def meet(spans: tuple[int, int, int, int, int, int], a: int, b: int, c: int) -> bool:
    """Whether C's extent meets that of A or of B: then the exact check is asked for again."""
    a_low, a_high, b_low, b_high, c_low, c_high = spans
    c_low, c_high = c + c_low, c + c_high
    return (c_low < a + a_high and a + a_low < c_high) or (c_low < b + b_high and b + b_low < c_high)
