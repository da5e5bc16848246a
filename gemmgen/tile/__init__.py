"""Level 1: decisions about how a block computes its tile, and the order that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem
from gemmgen.tile.fitting import sums_hint, tiles_hint
from gemmgen.tile.program import SHARED_LIMIT
from gemmgen.tile.rewrites import build
from gemmgen.tile.sequence import sequence
from gemmgen.tile.text import print_tile

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

__all__ = ["SHARED_LIMIT", "build", "check_resources", "print_tile", "sequence"]


def check_resources(spec: Spec, hints: bool = True) -> list[Problem]:
    """What no GPU can give a block, read off the tile program's own buffers; without hints it is quickly said."""
    from gemmgen.tile.variant import EXACT

    p = build(spec, EXACT)
    if p.shared_bytes <= SHARED_LIMIT:
        return []
    if p.tile_bytes <= SHARED_LIMIT:
        return [_too_many_sums(spec, p.sums_bytes, hints)]
    parts = " + ".join(f"{b.name} {b.bytes}" for b in p.buffers)
    need = f"the block's tiles need {p.tile_bytes} bytes of shared memory ({parts})"
    message = f"{need}; a block has at most {SHARED_LIMIT}"
    return [Problem(message, tiles_hint(spec, SHARED_LIMIT) if hints else "", spec.spans.get("tile block"))]


def _too_many_sums(spec: Spec, need: int, hints: bool) -> Problem:
    """A block leaves all its sums in its shared memory."""
    bm, bn, _ = spec.block
    toggle = "stageC" if spec.has("stageC") else "clusterReduce"
    message = f"{toggle} leaves {bm}x{bn} sums in shared memory, {need} bytes; a block has at most {SHARED_LIMIT}"
    hint = sums_hint(spec, SHARED_LIMIT) if hints else ""
    return Problem(message, hint, spec.spans.get(f"use {toggle}", spec.spans.get("tile block")))
