"""Where barriers must stand, for orders of statements that no spec has yet."""

from __future__ import annotations

import pytest

from gemmgen.tile.hazards import lands, with_barriers
from gemmgen.tile.program import Copy
from gemmgen.tile.statements import Ahead, Barrier, Bring, Finish, Fragment, Inner, Multiply


def test_a_loop_that_needs_other_barriers_in_every_other_turn_is_refused() -> None:
    """A tile that is put two ahead in four stages is read two turns later: one barrier serves both turns' tiles."""
    copies = (Copy("A", "As", 1, "m"), Copy("B", "Bs", 1, "n"))
    fetch, put = Bring(copies, 2, "fetch"), Bring(copies, 2, "put")
    inner = Inner((Fragment("A", "As"), Fragment("B", "Bs"), Multiply()))
    with pytest.raises(AssertionError, match="from turn to turn"):
        with_barriers((Ahead(2, (Bring(copies, 0),)),), (fetch, inner, put), (Finish(),), 4)


def test_tiles_that_threads_put_ahead_of_the_loop_are_waited_for() -> None:
    copies = (Copy("A", "As", 1, "m"),)
    assert lands(Ahead(3, (Bring(copies, 0),))) == {("As", 0), ("As", 1), ("As", 2)}
    before, _, _ = with_barriers(
        (Ahead(3, (Bring(copies, 0),)),), (Inner((Fragment("A", "As"), Multiply())),), (Finish(),), 3
    )
    assert isinstance(before[-1], Barrier)
