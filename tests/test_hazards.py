"""Where syncs must stand, for orders of statements that no spec has yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen.ir.variant import EXACT
from gemmgen.spec.parse import parse
from gemmgen.tile.order import order
from gemmgen.tile.program import TileProgram
from gemmgen.tile.rewrites import build
from gemmgen.tile.statements import Ahead, Bring, Finish, Fragment, Inner, Multiply, Steps
from gemmgen.tile.syncs import Kind, Sync

INNER = Inner((Fragment("A", "As"), Fragment("B", "Bs"), Multiply()))


def staged(stages: int) -> TileProgram:
    """A program whose tiles pass through registers, with any number of stages."""
    p = build(parse("kernel through\ntile block 32x32x8\ntile thread 4x4\nuse smem\n"), EXACT)
    buffers = tuple(replace(b, stages=stages) for b in p.buffers)
    return replace(p, buffers=buffers, pipeline=replace(p.pipeline, depth=stages))


def test_a_loop_that_needs_other_barriers_in_every_other_turn_is_refused() -> None:
    """A tile that is put two ahead in four stages is read two turns later: one barrier serves both turns' tiles."""
    p = staged(4)
    fetch, put = Bring(p.copies, 2, "fetch"), Bring(p.copies, 2, "put")
    with pytest.raises(AssertionError, match="from turn to turn"):
        order(p, (Ahead(2, (Bring(p.copies, 0),)), Steps((fetch, INNER, put)), Finish()))


def test_tiles_that_threads_put_ahead_of_the_loop_are_waited_for() -> None:
    p = staged(3)
    ahead, barrier, loop, _ = order(p, (Ahead(3, (Bring(p.copies, 0),)), Steps((INNER,)), Finish()))
    assert isinstance(ahead, Ahead) and isinstance(loop, Steps)
    assert isinstance(barrier, Sync) and barrier.kind is Kind.BLOCK
