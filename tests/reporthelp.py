"""What the report knows of every rung, worked out once for all tests of a process."""

from __future__ import annotations

from functools import cache

from gemmgen.report.ladder import RUNGS
from gemmgen.report.page import modelled_gpu
from gemmgen.report.page.facts import RungFacts, facts_of


@cache
def rungs_at(size: tuple[int, int, int]) -> tuple[RungFacts, ...]:
    """Every rung for a product of this size on the GPU that is modelled where there is none."""
    gpu = modelled_gpu(None)
    return tuple(facts_of(number, rung, size, gpu) for number, rung in enumerate(RUNGS))
