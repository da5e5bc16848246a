"""Every spec of the ladder is right on the GPU, at every size, place and factor."""

from __future__ import annotations

import pytest
from gpu_support import LADDER, Place, check, kernel, placed, torch, untouched

# Each of 1, 17, 127, 128, 129, 1000, 4092, 4095, 4096, 4097 as M, as N and as K.
SIZES = [
    (1, 1, 1), (1, 4097, 17), (17, 1, 4096), (4096, 17, 1), (127, 128, 129), (128, 128, 128), (129, 127, 4095),
    (1000, 1000, 1000), (4092, 129, 1000), (1000, 4092, 127), (4095, 1000, 128), (128, 4095, 4092), (4097, 127, 129),
    (127, 4096, 4097), (4096, 4096, 4096), (4092, 4092, 4092), (4095, 4095, 4095), (4097, 4097, 4097), (17, 4096, 1000),
    (1, 1000, 4097),
]  # fmt: skip
FACTORS = [(1.0, 0.0), (0.5, -1.5), (1.0, 1.0), (-2.0, 0.0)]


def test_the_sizes_are_those_that_are_asked_for() -> None:
    wanted = {1, 17, 127, 128, 129, 1000, 4092, 4095, 4096, 4097}
    assert all({size[i] for size in SIZES} >= wanted for i in range(3))


def run(name: str, size: tuple[int, int, int], alpha: float, beta: float, places: dict[str, Place]) -> None:
    t = torch()
    m, n, k = size
    t.manual_seed(m * 31 + n * 17 + k)
    a, _ = placed(t.randn(m, k, device="cuda"), places.get("A", Place()))
    b, _ = placed(t.randn(k, n, device="cuda"), places.get("B", Place()))
    c0 = t.randn(m, n, device="cuda") if beta != 0.0 else t.full((m, n), float("nan"), device="cuda")
    c, buffer = placed(c0, places.get("C", Place()))
    assert kernel(name)(a, b, c, alpha=alpha, beta=beta) is c
    check(c, a, b, c0, alpha, beta)
    untouched(buffer, c, places.get("C", Place()))


@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("name", LADDER)
def test_right_at_every_size(name: str, size: tuple[int, int, int]) -> None:
    alpha, beta = FACTORS[SIZES.index(size) % len(FACTORS)]
    run(name, size, alpha, beta, {})


@pytest.mark.parametrize("alpha, beta", FACTORS)
@pytest.mark.parametrize("name", LADDER)
def test_right_with_every_factor(name: str, alpha: float, beta: float) -> None:
    for size in ((256, 256, 64), (129, 257, 65)):
        run(name, size, alpha, beta, {})


@pytest.mark.parametrize("operand", ["A", "B", "C"])
@pytest.mark.parametrize("place", [Place(0, 4), Place(4, 0), Place(1, 0), Place(2, 3), Place(3, 1), Place(8, 128)])
@pytest.mark.parametrize("name", LADDER)
def test_g04_d_right_for_views_and_misaligned_bases(name: str, place: Place, operand: str) -> None:
    for size in ((256, 128, 64), (130, 127, 66)):
        run(name, size, 1.0, 0.5, {operand: place})
    run(name, (128, 256, 32), 1.0, 0.0, dict.fromkeys("ABC", place))


@pytest.mark.parametrize("name", LADDER)
def test_the_result_repeats_bit_by_bit(name: str) -> None:
    t = torch()
    a, b = t.randn(515, 1021, device="cuda"), t.randn(1021, 389, device="cuda")
    first = kernel(name)(a, b)
    assert all(t.equal(kernel(name)(a, b), first) for _ in range(5))
