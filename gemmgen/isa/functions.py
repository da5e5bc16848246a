"""Functions of floats that an epilogue calls: the text of each, and its meaning in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Function:
    """A function of floats. ``helper`` is its CUDA text, printed once before the kernel; ``meaning`` takes arrays of
    float32 or float64 and computes in their type."""

    name: str
    helper: str
    meaning: Callable[..., Any] = field(compare=False)


def function(name: str, why: str, parameters: tuple[str, ...], body: str, meaning: Callable[..., Any]) -> Function:
    """A function whose ``body`` is an expression of its parameters, or statements that end in ``return``."""
    takes = ", ".join(f"float {x}" for x in parameters)
    head = f"__device__ __forceinline__ float {name}({takes})"
    if "return" in body:
        lines = [f"    {line.strip()}" for line in body.strip().splitlines()]
        return Function(name, "\n".join([f"// {why}", head, "{", *lines, "}"]), meaning)
    one = f"{head} {{ return {body}; }}"
    text = one if len(one) <= 100 else f"{head}\n{{\n    return {body};\n}}"
    return Function(name, f"// {why}\n{text}", meaning)


def _erf(x: Floats) -> Floats:
    import numpy as np

    found: Floats = np.asarray(np.frompyfunc(math.erf, 1, 1)(np.asarray(x, np.float64)), x.dtype)
    return found


def _relu(x: Floats) -> Floats:
    import numpy as np

    return np.where(x < 0, x.dtype.type(0), x)


def _gelu(x: Floats) -> Floats:
    one, half, root = (x.dtype.type(v) for v in (1.0, 0.5, math.sqrt(0.5)))
    found: Floats = half * x * (one + _erf(x * root))
    return found


def _gelu_tanh(x: Floats) -> Floats:
    import numpy as np

    one, half, scale, cubic = (x.dtype.type(v) for v in (1.0, 0.5, math.sqrt(2.0 / math.pi), 0.044715))
    found: Floats = half * x * (one + np.tanh(scale * (x + cubic * x * x * x)))
    return found


def _silu(x: Floats) -> Floats:
    import numpy as np

    one = x.dtype.type(1.0)
    found: Floats = x / (one + np.exp(-x))
    return found


def _clamp(x: Floats, lo: Floats, hi: Floats) -> Floats:
    import numpy as np

    return np.where(x < lo, lo, np.where(x > hi, hi, x)).astype(x.dtype, copy=False)


RELU = function("relu", "Negative numbers become 0; NaN stays NaN.", ("x",), "x < 0.0f ? 0.0f : x", _relu)
GELU = function(
    "gelu",
    "x times the probability that a standard normal number is below x.",
    ("x",),
    "0.5f * x * (1.0f + erff(x * 0.70710678f))",
    _gelu,
)
GELU_TANH = function(
    "gelu_tanh",
    "GELU by its tanh approximation.",
    ("x",),
    "return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));",
    _gelu_tanh,
)
SILU = function("silu", "x times its logistic function.", ("x",), "x / (1.0f + expf(-x))", _silu)
CLAMP = function(
    "clamp",
    "x between lo and hi; NaN stays NaN.",
    ("x", "lo", "hi"),
    "x < lo ? lo : x > hi ? hi : x",
    _clamp,
)
