"""The ladders: one spec a rung, from the naive kernel up, and at its end the branches for small shapes; and by tensor
cores, in bfloat16."""

from __future__ import annotations

import difflib
from pathlib import Path

from gemmgen.diagnostics import ArgumentError, quoted
from gemmgen.spec.data import data_folder

LADDER = (
    "naive",
    "coalesced",
    "smem",
    "regblock1d",
    "regblock2d",
    "regblock2d_64",
    "vectorized",
    "warptile",
    "doublebuffer",
    "cpasync",
    "registerbanks",
    "tma",
    "pipelined",
    "splitk",
    "skinny",
)
LADDER_BF16 = (
    "mma",
    "mma_ldmatrix",
    "mma_swizzled",
    "mma_pipelined",
    "wgmma",
    "wgmma_roles",
    "wgmma_persistent",
    "wgmma_store",
)

EXAMPLES = ("tf32", "fp8", "f32_split", "gemm_bias_gelu", "batched")
"""Specs beside the ladders that show what a product can be asked for."""


def ladder_names() -> tuple[str, ...]:
    """The rungs, lowest first, then the side branches; then those of the second ladder, and examples."""
    return (*LADDER, *LADDER_BF16, *EXAMPLES)


def ladder_path(name: str) -> Path:
    """The spec file of a rung. Raises ArgumentError for a name that is not one."""
    if name not in ladder_names():
        near = difflib.get_close_matches(name, ladder_names(), 1, 0)
        hint = f"; did you mean {quoted(near[0])}?" if near else ""
        raise ArgumentError(f"{quoted(name)} is not a rung of the ladder ({', '.join(ladder_names())}){hint}")
    return data_folder("specs") / f"{name}.gemm"
