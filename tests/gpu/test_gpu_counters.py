"""Predicted counts against the GPU's own counters: every spec, two sizes, with and without reading C."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gemmgen.analysis.counters import ASYNCHRONOUS, COUNTERS, Comparison, compare
from gemmgen.analysis.explain import Explanation
from gemmgen.diagnostics import LaunchError
from gemmgen.runtime.installed import find_tool

sys.path.insert(0, str(Path(__file__).resolve().parent))
import counters

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

JOBS = counters.jobs()
IDS = [f"{spec.name}-{size}-beta{beta:g}" for spec, size, beta in JOBS]


@pytest.fixture(scope="module")
def measured() -> list[tuple[Explanation, dict[str, float]]]:
    """All of them under Nsight Compute, in one process."""
    if find_tool("ncu") is None:
        pytest.skip("Nsight Compute (ncu) is not installed")
    try:
        return counters.measured(JOBS)
    except LaunchError as error:
        if "ERR_NVGPUCTRPERM" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("number", range(len(JOBS)), ids=IDS)
def test_predicted_counts_are_the_hardwares(number: int, measured: list[Any]) -> None:
    explanation, values = measured[number]
    found: dict[str, Comparison] = {c.name: c for c in compare(explanation, values)}
    assert set(COUNTERS) <= set(found) <= {*COUNTERS, *ASYNCHRONOUS}
    # An ncu that does not know the counters of copies past the registers leaves them out.
    wrong = [c for c in found.values() if c.agrees is False or (c.agrees is None and c.name in COUNTERS)]
    assert not wrong, wrong


def test_no_bound_exceeds_the_measured_time(measured: list[Any]) -> None:
    from gemmgen.analysis.counters import TIME

    for explanation, values in measured:
        assert explanation.bound.floor_s <= values[TIME] * 1.02, explanation.ir.name
