"""Epilogues in tests: operands for any chain, and what NumPy makes of it, written without gemmgen's own rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.types import ELEMENT_TYPES, EpilogueOperand
from gemmgen.spec.model import Spec

ENTRIES = (
    "bias", "scale", "scale_a", "scale_b", "residual", "relu", "gelu", "gelu_tanh", "silu", "clamp(-0.5, 1.25)",
    "cast(f16)", "cast(bf16)", "aux",
)  # fmt: skip
Doubles = NDArray[np.float64]


def operands(spec: Spec, m: int, n: int, seed: int = 0, pad: int = 0) -> dict[str, Any]:
    """Random operands of a spec's epilogue; lines of matrices are ``pad`` elements apart, vectors start that far in."""
    random = np.random.default_rng(seed + 17)
    found = {}
    for x in spec.beside:
        values = np.full(x.shape(m, n), 7.0) if x.written else random.standard_normal(x.shape(m, n))
        found[x.name] = _placed(x, values.astype(x.dtype.numpy_dtype), pad)
    return found


def _placed(x: EpilogueOperand, values: Any, pad: int) -> Any:
    if values.ndim == 1:
        whole = np.zeros(values.size + pad, values.dtype)
        whole[pad:] = values
        return whole[pad:]
    lines, extent = values.shape if x.order == "row" else values.shape[::-1]
    whole = np.full((lines, extent + pad), np.nan).astype(values.dtype)
    whole[:, :extent] = values if x.order == "row" else values.T
    return whole[:, :extent] if x.order == "row" else whole[:, :extent].T


def expected(chain: tuple[str, ...], value: Doubles, given: dict[str, Any]) -> tuple[Doubles, dict[str, Doubles]]:
    """The value behind a chain in float64, and what it stores on the way."""
    kept = {}
    beside = {name: np.asarray(x, np.float64) for name, x in given.items()}
    for entry in chain:
        match entry.partition("(")[0]:
            case "bias":
                value = value + beside["bias"][None, :]
            case "residual":
                value = value + beside["residual"]
            case "scale":
                value = value * beside["scale"]
            case "scale_a":
                value = value * beside["scale_a"][:, None]
            case "scale_b":
                value = value * beside["scale_b"][None, :]
            case "relu":
                value = np.maximum(value, 0.0)
            case "gelu":
                value = value * (1.0 + np.vectorize(math.erf)(value / math.sqrt(2.0))) / 2.0
            case "gelu_tanh":
                inner = math.sqrt(2.0 / math.pi) * (value + 0.044715 * value**3)
                value = 0.5 * value * (1.0 + np.tanh(inner))
            case "silu":
                value = value / (1.0 + np.exp(-value))
            case "clamp":
                value = np.clip(value, -0.5, 1.25)
            case "cast":
                kind = ELEMENT_TYPES[entry.partition("(")[2].rstrip(")")]
                value = value.astype(kind.numpy_dtype).astype(np.float64)
            case "aux":
                kept["aux"] = value
            case other:
                raise AssertionError(other)
    return value, kept
