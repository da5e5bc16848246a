"""Field cases on the GPU, by number."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_support import LADDER, kernel, kernel_of, ones_of, torch

import gemmgen
from gemmgen.diagnostics import ArgumentError, GemmgenError, SpecError

ALL = "coalescing, smem, transposeA, float4"


def text(block: str, thread: str, use: str, name: str = "field") -> str:
    return f"kernel {name}\ntile block {block}\ntile thread {thread}\nuse {use}\n"


@pytest.mark.parametrize(
    ("block", "use", "m", "n"),
    [("64x64x8", "smem, transposeA, float4", 64, 64), ("32x128x8", "smem", 32, 128), ("64x48x8", "smem", 64, 48)],
)
def test_g01_loads_cover_the_tile(block: str, use: str, m: int, n: int) -> None:
    a, b, c = ones_of(m, n, 8)
    kernel_of(text(block, "8x8", use))(a, b, c)
    assert bool((c == 8.0).all())


@pytest.mark.parametrize(("m", "n", "k"), [(6, 6, 6), (8, 8, 6), (8, 6, 8), (64, 64, 64)])
@pytest.mark.parametrize("shifted", ["", "A", "B", "C"])
def test_g04_float4_where_rows_or_bases_are_not_aligned(m: int, n: int, k: int, shifted: str) -> None:
    t = torch()

    def matrix(name: str, values: object) -> object:
        buffer = t.empty(values.numel() + 1, device="cuda")
        start = 1 if name in shifted else 0
        view = buffer[start : start + values.numel()].view(values.shape)
        view.copy_(values)
        return view

    rows = t.arange(1.0, m + 1, device="cuda")[:, None]
    columns = t.arange(1.0, n + 1, device="cuda")[None, :]
    a, b = matrix("A", rows.expand(m, k)), matrix("B", columns.expand(k, n))
    c = matrix("C", t.ones(m, n, device="cuda"))
    kernel_of(text("64x64x8", "8x8", "smem, transposeA, float4"))(a, b, c, alpha=1.0, beta=1.0)
    assert t.equal(c, 1 + k * rows * columns)


@pytest.mark.parametrize("name", LADDER)
def test_g07_k_zero_and_no_elements(name: str) -> None:
    t = torch()
    a, b = t.zeros(3, 0, device="cuda"), t.zeros(0, 3, device="cuda")
    start = t.arange(1.0, 10.0, device="cuda").view(3, 3)
    assert t.equal(kernel(name)(a, b, start.clone(), beta=1.0), start)
    assert t.equal(kernel(name)(a, b, start.clone(), beta=2.0), 2 * start)
    nan = t.full((3, 3), float("nan"), device="cuda")
    assert t.equal(kernel(name)(a, b, nan, beta=0.0), t.zeros(3, 3, device="cuda"))
    for m, n in ((0, 3), (3, 0)):
        empty = kernel(name)(t.zeros(m, 5, device="cuda"), t.zeros(5, n, device="cuda"))
        assert empty.shape == (m, n)
    two, three, ten = (t.full((1, 1), v, device="cuda") for v in (2.0, 3.0, 10.0))
    assert kernel(name)(two, three, ten, alpha=1.0, beta=0.5).item() == 11.0


def test_g13_factors_of_every_number_type() -> None:
    t = torch()
    made = kernel_of(text("32x32x8", "4x4", "smem"))
    for alpha, beta, want in (
        (2.0, 3.0, 67.0), (2, 3, 67.0), (np.float64(0.5), 3, 19.0), (np.float32(0.5), np.float32(3), 19.0)
    ):  # fmt: skip
        a, b, _ = ones_of(32, 32, 32)
        c = t.ones(32, 32, device="cuda")
        made(a, b, c, alpha=alpha, beta=beta)
        assert bool((c == want).all())


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16"])
def test_g13_wrong_element_types_are_named(dtype: str) -> None:
    t = torch()
    made = kernel_of(text("32x32x8", "4x4", "smem"))
    for position, name in enumerate("ABC"):
        operands = [t.ones(32, 32, device="cuda") for _ in range(3)]
        operands[position] = operands[position].to(getattr(t, dtype))
        with pytest.raises(ArgumentError, match=f"{name}.*{dtype}.*float32"):
            made(*operands)


def test_g14_inputs_of_every_stride() -> None:
    t = torch()
    made = kernel_of(text("32x32x8", "4x4", "smem"))
    x = t.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
    b = t.tensor([[1.0, 0.0], [0.0, 10.0]], device="cuda")
    wide = t.tensor([[1.0, 9.0, 3.0, 9.0], [2.0, 9.0, 4.0, 9.0]], device="cuda")
    row = t.tensor([[1.0, 3.0]], device="cuda")

    def product(a: object, b: object = b) -> list[list[float]]:
        return made(a, b).tolist()

    assert product(x.T) == [[1, 30], [2, 40]]
    assert product(x, b.T.contiguous().T) == [[1, 20], [3, 40]]
    assert product(wide[:, ::2]) == [[1, 30], [2, 40]]
    assert product(row.expand(2, 2)) == [[1, 30], [1, 30]]
    host = x.cpu().numpy()
    assert made(host[::-1], b.cpu().numpy()).tolist() == [[3, 40], [1, 20]]
    with pytest.raises(ArgumentError, match="C"):
        made(x, b, t.zeros(2, 2, device="cuda").T)


@pytest.mark.parametrize("name", LADDER)
def test_g16_alpha_zero_and_infinities(name: str) -> None:
    t = torch()
    nan, inf = float("nan"), float("inf")
    full = lambda value: t.full((32, 32), value, device="cuda")  # noqa: E731
    assert bool((kernel(name)(full(nan), full(inf), full(2.0), alpha=0.0, beta=3.0) == 6.0).all())
    assert bool((kernel(name)(full(nan), full(nan), full(nan), alpha=0.0, beta=0.0) == 0.0).all())
    a, b = t.tensor([[inf, 1.0]], device="cuda"), t.tensor([[0.0], [5.0]], device="cuda")
    assert bool(kernel(name)(a, b).isnan().all())
    a = t.ones(4, 4, device="cuda")
    a[1, 2] = nan
    c = kernel(name)(a, t.ones(4, 4, device="cuda"))
    assert bool(c[1].isnan().all()) and bool((c[[0, 2, 3]] == 4.0).all())


def test_g22_a_more_threads_than_a_block_holds() -> None:
    with pytest.raises(SpecError, match="4096"):
        kernel_of(text("128x128x8", "2x2", "smem"))


def test_g22_b_a_block_of_1024_threads_with_large_tiles() -> None:
    """Right numbers under a launch bound of 1024, or a typed refusal; never the driver's error 701."""
    a, b, c = ones_of(256, 256, 8)
    try:
        kernel_of(text("256x256x8", "8x8", "smem"))(a, b, c)
    except GemmgenError as e:
        assert "701" not in str(e) and "OUT_OF_RESOURCES" not in str(e)
        return
    assert bool((c == 8.0).all())


SETS = ["", "coalescing", "smem", "coalescing, smem", "smem, transposeA", ALL]


@pytest.mark.parametrize("use", SETS)
@pytest.mark.parametrize(("block", "thread"), [("32x32x8", "4x4"), ("128x128x8", "8x8")])
def test_g24_matrices_smaller_than_the_tile(block: str, thread: str, use: str) -> None:
    t = torch()
    made = kernel_of(text(block, thread, use) if use else f"kernel field\ntile block {block}\ntile thread {thread}\n")
    for m, n, k in (
        (4, 8, 64), (3, 3, 431), (35, 79, 19), (33, 32, 32), (100, 100, 100), (256, 128, 256), (1, 1000, 7),
        (1000, 1, 7), (257, 1, 1),
    ):  # fmt: skip
        columns = t.arange(1.0, n + 1, device="cuda")
        a, b, c = t.ones(m, k, device="cuda"), columns.expand(k, n).contiguous(), ones_of(m, n, 1)[2]
        for _ in range(2):
            made(a, b, c)
            assert t.equal(c, (k * columns).expand(m, n)), (m, n, k)


def memory_for(gigabytes: float) -> None:
    free, _ = torch().cuda.mem_get_info()
    if free < gigabytes * 1e9:
        pytest.skip(f"needs {gigabytes} GB of GPU memory")


@pytest.mark.parametrize("m", [65537, 131073])
@pytest.mark.parametrize("name", ["coalesced", "smem", "vectorized", "warptile"])
def test_g28_a_b_more_than_two_to_the_31_elements(name: str, m: int) -> None:
    memory_for(m * 32768 * 4 / 1e9 + 2)
    t = torch()
    a = (t.arange(m, device="cuda") % 7 + 1).float()[:, None].contiguous()
    b = (t.arange(32768, device="cuda") % 5 + 1).float()[None, :].contiguous()
    c = t.full((m, 32768), float("nan"), device="cuda")
    kernel(name)(a, b, c)
    assert c[0, 0].item() == 1.0 and c[65536, 32767].item() == 9.0
    for first in range(0, m, 8192):
        assert t.equal(c[first : first + 8192], a[first : first + 8192] * b)


def test_g28_an_offset_past_two_to_the_31_in_a_view() -> None:
    """Few elements, but rows far apart: only the offsets are large."""
    memory_for(20)
    t = torch()
    pitch = 1 << 21
    wide = t.full((2000, pitch), float("nan"), device="cuda")
    c, a = wide[:, :64], wide[:, 128:144]
    a.copy_((t.arange(2000, device="cuda") % 7 + 1).float()[:, None].expand(2000, 16))
    b = t.ones(16, 64, device="cuda")
    kernel("vectorized")(a, b, c)
    assert t.equal(c, (16 * a[:, :1]).expand(2000, 64))


def test_g28_c_more_row_blocks_than_a_grid_holds() -> None:
    m = 1_048_561
    a, b, c = ones_of(m, 16, 8)
    kernel_of(text("16x16x8", "1x1", "smem"))(a, b, c)
    assert bool((c == 8.0).all())


def test_s1_text_of_a_spec_does_not_break_the_program() -> None:
    made = gemmgen.compile(gemmgen.parse("# tile A\\\n# a */ b\n" + text("32x32x8", "4x4", "smem")), device="cuda")
    a, b, c = ones_of(32, 32, 8)
    made(a, b, c)
    assert bool((c == 8.0).all())


@pytest.mark.parametrize("name", LADDER)
def test_s2_denormals_are_kept(name: str) -> None:
    t = torch()
    a, b = t.tensor([[1e-40]], device="cuda"), t.ones(1, 1, device="cuda")
    assert kernel(name)(a, b).view(t.int32).item() == 0x000116C2
    e = 2.0**-12
    a = t.tensor([[1.0, 1 + e]], device="cuda")
    b = t.tensor([[-(1 + 2 * e)], [1 + e]], device="cuda")
    assert kernel(name)(a, b).item() in (0.0, 2.0**-24)


def test_more_than_48_kb_of_shared_memory_is_opted_into() -> None:
    spec = gemmgen.parse(text("128x128x64", "8x8", ALL))  # 64 KB
    made = gemmgen.compile(spec, device="cuda")
    assert made.resources.shared_bytes == 65536
    a, b, c = ones_of(256, 256, 128)
    made(a, b, c)
    assert bool((c == 128.0).all())
