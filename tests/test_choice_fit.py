"""The model of time: that constants come back from times they made, and that a cover is small and near the best."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmgen.target import GPUS
from gemmgen.tune import cost
from gemmgen.tune.cover import cover_for, document
from gemmgen.tune.features import base_of, guess, kernels_of
from gemmgen.tune.fit import cover, fitted, modelled, read, table
from gemmgen.tune.pool import pool, swaps

SHAPES = [tuple(round(2 ** random.Random(i * 3 + j).uniform(5, 13)) // 4 * 4 for j in range(3)) for i in range(60)]


@pytest.fixture(scope="module")
def points() -> Any:
    """A file of points whose times the model itself made, of constants that differ from the guess."""
    specs = [s for s in pool("nn")[:60] if s.split_k in (1, 4)][:20]
    made = kernels_of(specs)
    rng = np.random.default_rng(1)
    bases = {base_of(s): np.exp(rng.normal(0, 0.15, made.constants.shape[1])) for s in specs}
    for i, s in enumerate(specs):
        made.constants[i] *= bases[base_of(s)]
    rows, cases = [], []
    for m, n, k in SHAPES:
        cases.append([m, n, k, "nn", 1e6])
        for i, s in enumerate(specs):
            one = cost.Kernels(*(getattr(made, x)[[i]] for x in ("block", "parts", "how", "resident", "constants")))
            size = (n, m, k) if swaps(s) else (m, n, k)
            seconds = float(cost.seconds(one, tuple(np.array([x]) for x in size), np.array([1]), cost.Rates())[0])
            rows.append([i, 1, m, n, k, seconds * 1e6])
    facts = {"gpu": "GPU", "driver": "1", "nvrtc": "13", "sms": 132, "failed": {}, "copies": []}
    registers = [[i, 1, 128] for i in range(len(specs))]
    return json.dumps(
        {**facts, "specs": [s.to_text() for s in specs], "registers": registers, "points": rows, "baseline": cases}
    )


def test_times_of_other_shapes_are_near_once_constants_are_fitted(points: str) -> None:
    found = read(points)
    kernels, rates = fitted(found, rounds=2)
    before = np.abs(np.log(modelled(kernels_of(found.specs, None, found.resident), found.points, cost.Rates())
                           / found.points.seconds))  # fmt: skip
    after = np.abs(np.log(modelled(kernels, found.points, rates) / found.points.seconds))
    assert np.median(after) < 0.06 and np.median(after) < 0.5 * np.median(before)


def test_a_cover_is_near_the_best_with_few_kernels(points: str) -> None:
    found = read(points)
    times = table(found)
    few = cover(times, found.baseline, 6)
    assert len(few) == 6 == len(set(few))
    assert np.median(times[:, few].min(1) / times.min(1)) < 1.05


def test_a_cover_comes_back_from_its_file(points: str, tmp_path: Path) -> None:
    found = read(points)
    kernels = kernels_of(found.specs, None, found.resident)
    text = document(found.specs, kernels, cost.Rates(), gpu="NVIDIA H200", arch="sm_90")
    (tmp_path / "h200.json").write_text(text)
    back = cover_for(GPUS["h200"], tmp_path)
    assert back is not None and back.specs == found.specs and back.rates == cost.Rates()
    assert np.allclose(back.kernels.constants, kernels.constants, rtol=1e-3)
    faster = cover_for(GPUS["h100"], tmp_path)
    assert faster is not None and faster.scaled_from == GPUS["h200"].title
    assert cover_for(GPUS["t4"], tmp_path) is None


def test_more_work_never_takes_less_time() -> None:
    kernels = kernels_of(pool("nn")[:40])
    ones = np.ones(40, int)
    before = cost.seconds(kernels, (64, 64, 64), ones, cost.Rates())
    for size in ((128, 64, 64), (128, 128, 64), (128, 128, 4096), (4096, 4096, 4096)):
        after = cost.seconds(kernels, size, ones, cost.Rates())
        assert (after >= 0.999 * before).all()
        before = after
    assert (cost.seconds(kernels, (0, 0, 0), ones, cost.Rates()) > 0).all()


def test_a_guess_is_longer_for_a_larger_tile() -> None:
    small, large = (
        next(s for s in pool("nn") if s.block == b and s.has("tma")) for b in ((32, 64, 32), (128, 128, 32))
    )
    assert guess(small)[2] < guess(large)[2]
