"""Every pipeline of fixtures/valid at every number of K tiles, with whole numbers whose sums are exact."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_support import ROOT, Place, placed, torch

import gemmgen

PIPELINES = sorted((ROOT / "tests" / "fixtures" / "valid").glob("pipeline_*.gemm"))


def depths(spec: gemmgen.Spec) -> list[int]:
    """No tile, one, fewer than stages, as many, odd and even numbers of them, and remainders."""
    bk, stages = spec.block[2], spec.stages
    tiles = {0, 1, stages - 1, stages, stages + 1, 2 * stages, 2 * stages + 1}
    return sorted({t * bk for t in tiles} | {1, bk - 1, bk + 1, stages * bk - 1, stages * bk + 1, 9 * bk + bk // 2})


def ordered(values: Any, order: str, place: Place) -> Any:
    """A view with these values whose rows, or columns with "col", lie as ``place`` says."""
    return placed(values, place)[0] if order == "row" else placed(values.t(), place)[0].t()


@pytest.mark.parametrize("aligned", [True, False], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("path", PIPELINES, ids=lambda p: p.stem)
def test_sums_are_exact_at_every_number_of_tiles(path: object, aligned: bool) -> None:
    t = torch()
    spec = gemmgen.load(path)  # type: ignore[arg-type]
    kernel = gemmgen.compile(spec, device="cuda")
    m, n = 2 * spec.block[0] + 4, 3 * spec.block[1] + 8
    for k in depths(spec):
        k += -k % 4 if aligned else 0
        place = Place(0, 4) if aligned else Place(1, 3)
        whole = [t.randint(-8, 9, shape, device="cuda").float() for shape in ((m, k), (k, n))]
        blank = t.full((m, n), float("nan"), device="cuda")
        orders = spec.A.order, spec.B.order, spec.C.order
        a, b, c = (ordered(x, order, place) for x, order in zip((*whole, blank), orders, strict=True))
        kernel(a, b, c)
        assert t.equal(c, (whole[0].double() @ whole[1].double()).float()), k
