"""Batches as text: built by the host's compiler and run on matrices that lie apart, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from host_cuda import product
from host_cuda.harness import HostModule, build, missing
from test_batches import batched, random
from test_epilogue import WAYS

import gemmgen
from gemmgen.ir.kernel import KernelIR
from gemmgen.launch import GUARDED_UNALIGNED, plan
from gemmgen.lower import lower

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

CHAIN = "bias -> aux -> relu -> residual"
COUNT = 3
TRIED = [way for way in WAYS if way not in ("early", "cpasync")]


def kernel(way: str) -> KernelIR:
    return lower(batched(way, CHAIN), GUARDED_UNALIGNED)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> HostModule:
    return build(
        [text for way in TRIED for text in product.texts(way, kernel(way))], tmp_path_factory.mktemp("batches")
    )


@pytest.mark.parametrize("way", TRIED)
def test_the_text_computes_every_product(module: HostModule, way: str) -> None:
    spec, ir = batched(way, CHAIN), kernel(way)
    m, n, k = 21, 19, 13
    given: dict[str, Any] = {
        "A": random(COUNT, m + 1, k + 3)[:, :m, :k],
        "B": random(k, n, seed=1),
        "C": np.zeros((COUNT, m, n + 2), np.float32)[:, :, :n],
        "bias": random(COUNT, n, seed=2),
        "aux": np.zeros((COUNT, m, n), np.float32),
        "residual": random(COUNT, m, n, seed=3),
    }
    addresses = {name: int(x.__array_interface__["data"][0]) for name, x in given.items()}
    shapes = {name: x.shape for name, x in given.items()}
    strides = {name: tuple(s // x.itemsize for s in x.strides) for name, x in given.items()}
    made = plan(spec, shapes, strides, addresses, 0.75, 0.0, variant=GUARDED_UNALIGNED)
    partials = np.full(max(made.partials // given["C"].itemsize, 1), np.nan, np.float32)
    for step in made.steps:
        one = step.ir(ir)
        values: dict[str, Any] = {**addresses, **step.scalars, "W": partials}
        values |= {"C": partials} if step.output == "W" else {}
        name = way if one.part == "main" else f"{way}_{one.part}"
        module.run(name, step.grid, one.threads, [values[p.name] for p in one.params])
    beside = {name: given[name] for name in ("bias", "aux", "residual")}
    assert gemmgen.verify(given["C"], given["A"], given["B"], None, 0.75, 0.0, spec, **beside)
