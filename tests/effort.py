"""How much work something is, counted in function calls: the same on a busy machine as on an idle one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def at_most(calls: int) -> Iterator[None]:
    """Fails where the block makes more calls, of Python and C functions together."""
    made = 0

    def noted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(noted)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert made <= calls, f"{made} calls, and {calls} are enough"
