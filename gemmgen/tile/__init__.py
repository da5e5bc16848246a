"""Level 1: decisions about how a block computes its tile, and the order that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem
from gemmgen.ir.variant import EXACT
from gemmgen.target import known_limits
from gemmgen.tile.fitting import sums_hint, tiles_hint
from gemmgen.tile.program import SHARED_LIMIT
from gemmgen.tile.rewrites import build
from gemmgen.tile.sequence import sequence
from gemmgen.tile.text import print_tile

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

__all__ = ["SHARED_LIMIT", "build", "check_resources", "print_tile", "sequence"]


def check_resources(spec: Spec, arch: str | None = None, hints: bool = True) -> list[Problem]:
    """What no GPU of ``arch``, else of the spec's own architecture, else no GPU at all can give a block, read off the
    tile program's own buffers; without hints it is quickly said."""
    p, (limit, most) = build(spec, EXACT), _shared_limit(arch or spec.arch)
    if p.shared_bytes <= limit:
        return []
    if p.tile_bytes <= limit and p.sums_bytes > p.tile_bytes:
        return [_too_many_sums(spec, p.sums_bytes, limit, most, hints)]
    parts = " + ".join(f"{name} {size}" for name, size in p.shared_parts)
    need = f"the block's tiles need {p.shared_bytes} bytes of shared memory ({parts})"
    message = f"{need}; {most}"
    return [Problem(message, tiles_hint(spec, limit) if hints else "", spec.spans.get("tile block"))]


def _shared_limit(arch: str | None) -> tuple[int, str]:
    """The most bytes of shared memory that a block may have, on one architecture or on any, and that in words."""
    known = None if arch is None else known_limits(arch)
    if known is None:
        return SHARED_LIMIT, f"a block has at most {SHARED_LIMIT}"
    return known.shared_per_block, f"a block has at most {known.shared_per_block} on {arch}"


def _too_many_sums(spec: Spec, need: int, limit: int, at_most: str, hints: bool) -> Problem:
    """A block leaves all its sums in its shared memory."""
    bm, bn, _ = spec.block
    toggle = "stageC" if spec.has("stageC") else "clusterReduce"
    message = f"{toggle} leaves {bm}x{bn} sums in shared memory, {need} bytes; {at_most}"
    hint = sums_hint(spec, limit) if hints else ""
    return Problem(message, hint, spec.spans.get(f"use {toggle}", spec.spans.get("tile block")))
