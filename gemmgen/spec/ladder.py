"""The ladder: one spec a rung, from the naive kernel up, and at its end the branches for small shapes."""

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

EXAMPLES = ("gemm_bias_gelu", "batched")
"""Specs beside the ladder that show what a product can be asked for."""


def ladder_names() -> tuple[str, ...]:
    """The rungs, lowest first, then the side branches."""
    return LADDER


def ladder_path(name: str) -> Path:
    """The spec file of a rung, or of an example. Raises ArgumentError for a name that is not one."""
    if name not in (*LADDER, *EXAMPLES):
        near = difflib.get_close_matches(name, LADDER, 1, 0)
        hint = f"; did you mean {quoted(near[0])}?" if near else ""
        raise ArgumentError(f"{quoted(name)} is not a rung of the ladder ({', '.join(LADDER)}){hint}")
    return data_folder("specs") / f"{name}.gemm"
