"""Tiles that come asynchronously, tensor maps, and sums over K that blocks share: right, in place, and in graphs."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_support import Place, check, kernel_of, placed, torch, untouched

ALL = "coalescing, smem, transposeA, float4"
WARP = "tile block 128x128x16\ntile warp 64x64\ntile thread 8x4\n"
ENGINE = (
    "tile block 128x128x32\ntile warp 32x128\ntile thread 1x4\n"
    "use coalescing, smem, float4, warptile(m_iter=8, n_iter=4), tma, alongK, smemSwizzle"
)
MANY = "stages 3\nunroll 8\nmin_blocks 2\ncta_swizzle 8\npersistent 264\n"
TEXTS = {
    "double": f"kernel double_buffer\ntile block 128x128x8\ntile thread 8x8\nuse {ALL}, prefetch\nstages 2\n",
    "async": f"kernel asynchronous\n{WARP}use {ALL}, warptile, cpasync\nstages 3\npad_a 4\n",
    "async_dynamic": f"kernel asynchronous4\n{WARP}use {ALL}, warptile, cpasync, prefetch, spread\nstages 4\npad_a 4\n",
    "tma": f"kernel engine\n{ENGINE}\nstages 3\n",
    "tma_one": f"kernel engine1\n{ENGINE}\nstages 1\n",
    "tma_pipe": f"kernel pipe\n{ENGINE}, prefetch, snake, separators\nstages 3\nunroll 8\nmin_blocks 2\n",
    "split": f"kernel shared_sum\ntile block 64x64x8\ntile thread 8x8\nuse {ALL}\nsplit_k 4\n",
    "split_tma": f"kernel shared_engine\n{ENGINE}\nstages 3\nsplit_k 3\n",
    "early": f"kernel early_sum\ntile block 64x64x8\ntile thread 8x8\nuse {ALL}, dependentLaunch\nsplit_k 4\n",
    "early_tma": f"kernel early_engine\n{ENGINE}, dependentLaunch\nstages 3\nsplit_k 3\n",
    "cluster": f"kernel cluster_sum\ntile block 64x64x8\ntile thread 8x8\nuse {ALL}, clusterReduce\nsplit_k 8\n",
    "cluster_tma": f"kernel cluster_engine\n{ENGINE}, prefetch, clusterReduce\nstages 3\nsplit_k 3\n",
    "staged_c": f"kernel lines\ntile block 64x64x8\ntile thread 8x1\nuse {ALL}, stageC\n",
    "staged_c_async": f"kernel lines2\n{WARP}use {ALL}, warptile, cpasync, prefetch, stageC\nstages 3\nsplit_k 2\n",
    "staged_c_tma": f"kernel lines3\n{ENGINE}, release, prefetch, stageC\nstages 2\n",
    "adds": f"kernel adds\ntile block 64x64x8\ntile thread 8x8\nuse {ALL}, atomics\nsplit_k 4\n",
    "adds_single": "kernel adds_one\ntile block 64x64x8\ntile thread 8x8\nuse coalescing, smem, atomics\nsplit_k 5\n",
    "adds_early": f"kernel adds_early\n{ENGINE}, atomics, dependentLaunch\nstages 3\nsplit_k 3\ncta_swizzle 2\n",
    "ragged": f"kernel ragged\n{WARP}use {ALL}, warptile, cpasync, prefetch, raggedFirst\nstages 3\nsplit_k 2\n",
    "ragged_plain": f"kernel ragged2\ntile block 64x64x12\ntile thread 8x4\nuse {ALL}, raggedFirst\nstages 2\n",
    "grouped": f"kernel grouped\ntile block 64x64x8\ntile thread 8x8\nuse {ALL}\nsplit_k 2\ncta_swizzle 3\n",
    "grouped_tma": f"kernel grouped_engine\n{ENGINE}, release, clusterReduce\nstages 3\nsplit_k 2\ncta_swizzle 2\n",
    "stays": f"kernel stays\ntile block 64x64x8\ntile thread 8x8\nuse {ALL}\nstages 2\nsplit_k 2\npersistent 7\n",
    "stays_async": f"kernel stays_async\n{WARP}use {ALL}, warptile, cpasync, spread\nstages 3\npad_a 4\npersistent 3\n",
    "stays_tma": f"kernel stays_engine\n{ENGINE}\nstages 3\ncta_swizzle 2\npersistent 5\n",
    "stays_release": f"kernel stays_release\n{ENGINE}, release, prefetch\nstages 3\npersistent 5\n",
    "stays_one": f"kernel stays_one\n{ENGINE}, release, dependentLaunch\nstages 1\nsplit_k 2\npersistent 1\n",
    "stays_many": f"kernel stays_many\n{ENGINE}, release, prefetch, snake, separators\n{MANY}",
}
REPEATING = [name for name, text in TEXTS.items() if "atomics" not in text]
SIZES = [
    (128, 128, 32), (256, 384, 96), (512, 256, 4096), (132, 260, 36), (1, 4, 4), (127, 129, 131), (1000, 1000, 1000),
    (4096, 17, 100), (4, 4096, 8), (64, 64, 7),
]  # fmt: skip
FACTORS = [(1.0, 0.0), (0.5, -1.5)]


@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("name", TEXTS)
def test_right_at_every_size(name: str, size: tuple[int, int, int]) -> None:
    t = torch()
    m, n, k = size
    a, b = t.randn(m, k, device="cuda"), t.randn(k, n, device="cuda")
    for alpha, beta in FACTORS:
        c0 = t.randn(m, n, device="cuda") if beta else t.full((m, n), float("nan"), device="cuda")
        c = c0.clone()
        kernel_of(TEXTS[name])(a, b, c, alpha, beta)
        check(c, a, b, c0, alpha, beta)


@pytest.mark.parametrize("place", [Place(0, 4), Place(4, 0), Place(1, 0), Place(3, 1), Place(8, 128)])
@pytest.mark.parametrize("name", TEXTS)
def test_g04_d_right_for_views_and_misaligned_bases(name: str, place: Place) -> None:
    t = torch()
    for m, n, k in ((256, 128, 64), (130, 132, 68)):
        a, _ = placed(t.randn(m, k, device="cuda"), place)
        b, _ = placed(t.randn(k, n, device="cuda"), place)
        c, buffer = placed(t.full((m, n), float("nan"), device="cuda"), place)
        kernel_of(TEXTS[name])(a, b, c)
        check(c, a, b)
        untouched(buffer, c, place)


@pytest.mark.parametrize("name", TEXTS)
def test_g07_k_zero_and_alpha_zero(name: str) -> None:
    t = torch()
    made, c0 = kernel_of(TEXTS[name]), t.randn(128, 128, device="cuda")
    c = c0.clone()
    made(t.zeros(128, 0, device="cuda"), t.zeros(0, 128, device="cuda"), c, 1.0, 2.0)
    assert t.equal(c, 2 * c0)
    nan = t.full((128, 128), float("nan"), device="cuda")
    made(nan, nan, c, 0.0, 0.0)
    assert bool((c == 0).all())


@pytest.mark.parametrize("name", REPEATING)
def test_the_result_repeats_bit_by_bit_wherever_the_operands_are(name: str) -> None:
    """Also where every call has other addresses: a tensor map is of the address of its own call."""
    t = torch()
    a, b = t.randn(256, 516, device="cuda"), t.randn(516, 384, device="cuda")
    first = kernel_of(TEXTS[name])(a, b)
    check(first, a, b)
    kept = []
    for _ in range(5):
        kept.append((a.clone(), b.clone()))
        assert t.equal(kernel_of(TEXTS[name])(*kept[-1]), first)


@pytest.mark.parametrize("name", ["adds", "adds_early"])
def test_additions_follow_the_kernel_that_makes_c_ready_call_after_call(name: str) -> None:
    """Whole numbers, of which every order gives the same sum: one addition too early or lost would show."""
    t = torch()
    a = t.randint(-3, 4, (300, 4100), device="cuda").float()
    b = t.randint(-3, 4, (4100, 260), device="cuda").float()
    c = t.full((300, 260), float("nan"), device="cuda")
    made, want = kernel_of(TEXTS[name]), (a.double() @ b.double()).float()
    for turn in range(200):
        made(a, b, c, 1.0, 0.0 if turn % 3 == 0 else -1.0)
        assert t.equal(c, want if turn % 3 != 1 else t.zeros_like(want))
        if turn % 3 == 2:
            made(a, b, c, 1.0, 1.0)
            assert t.equal(c, 2 * want)


@pytest.mark.parametrize("name", ["tma", "split", "split_tma", "early", "early_tma", "adds", "adds_early"])
def test_a_call_is_captured_in_a_cuda_graph(name: str) -> None:
    t = torch()
    a, b, c = t.randn(256, 512, device="cuda"), t.randn(512, 256, device="cuda"), t.zeros(256, 256, device="cuda")
    made = kernel_of(TEXTS[name])
    made(a, b, c)
    t.cuda.synchronize()
    graphs = []
    for _ in range(2):
        graphs.append(t.cuda.CUDAGraph())
        with t.cuda.graph(graphs[-1]):
            made(a, b, c)
    a.copy_(t.randn(256, 512, device="cuda"))
    for graph in graphs * 3:
        c.fill_(float("nan"))
        graph.replay()
        t.cuda.synchronize()
        check(c, a, b)


def test_split_k_on_two_streams_at_once() -> None:
    """Neither call may use the other's workspace."""
    t = torch()
    made: Any = kernel_of(TEXTS["split"])
    streams = [t.cuda.Stream() for _ in range(2)]
    operands = [(t.randn(512, 2048, device="cuda"), t.randn(2048, 512, device="cuda")) for _ in streams]
    results: list[list[Any]] = [[], []]
    t.cuda.synchronize()
    for _ in range(20):
        for stream, (a, b), found in zip(streams, operands, results, strict=True):
            with t.cuda.stream(stream):
                found.append(made(a, b))
    t.cuda.synchronize()
    for (a, b), found in zip(operands, results, strict=True):
        check(found[0], a, b)
        assert all(t.equal(x, found[0]) for x in found)


def test_a_negated_view_is_not_mistaken_for_its_memory() -> None:
    """The same address, shape and strides as a tensor that was seen before, with its sign pending."""
    from gemmgen.diagnostics import ArgumentError

    t = torch()
    made, z = kernel_of(TEXTS["double"]), t.randn(128, 128, dtype=t.complex64, device="cuda")
    negated, b, c = z.conj().imag, t.eye(128, device="cuda"), t.zeros(128, 128, device="cuda")
    assert negated.is_neg()
    plain = z.imag
    made(plain, b, c)
    check(c, plain, b)
    with pytest.raises(ArgumentError, match="sign pending"):
        made(negated, b, c)
