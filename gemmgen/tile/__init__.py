"""Level 1: decisions about how a block computes its tile, and the order that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem
from gemmgen.tile.rewrites import build
from gemmgen.tile.sequence import sequence
from gemmgen.tile.text import print_tile

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

__all__ = ["SHARED_LIMIT", "build", "check_resources", "print_tile", "sequence"]

# The most shared memory that any supported GPU gives one block (sm_90, sm_100: 227 KB; CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability").
SHARED_LIMIT = 227 * 1024


def check_resources(spec: Spec) -> list[Problem]:
    """What no GPU can give a block, read off the tile program's own buffers."""
    from gemmgen.tile.variant import EXACT

    p = build(spec, EXACT)
    if p.shared_bytes <= SHARED_LIMIT:
        return []
    parts = " + ".join(f"{b.name} {b.bytes}" for b in p.buffers)
    need = f"the block's tiles need {p.shared_bytes} bytes of shared memory ({parts})"
    message = f"{need}; a block has at most {SHARED_LIMIT}"
    (bm, bn, bk), fixed = spec.block, p.shared_bytes
    fits = max(1, bk * SHARED_LIMIT // fixed)
    return [Problem(message, f"BK of {fits} or less fits with {bm}x{bn}", spec.spans.get("tile block"))]
