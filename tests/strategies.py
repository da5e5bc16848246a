"""Hypothesis strategies for legal specs, with any combination of toggles and any legal tile."""

from __future__ import annotations

from hypothesis import strategies as st

from gemmgen.spec.check import check
from gemmgen.spec.model import Operand, Spec

LANES = 32
LANE_SHAPES = [(32, 1), (16, 2), (8, 4), (4, 8), (2, 16), (1, 32)]
NAMES = ["k1", "x", "smem_k", "float4_test", "kernel_a", "Gemm"]


@st.composite
def specs(draw: st.DrawFn, *, max_threads: int = 256, max_sums: int = 64, max_bk: int = 17, max_size: int = 256,
          orders: tuple[str, ...] = ("row",)) -> Spec:
    """A legal spec. ``max_threads`` in a block, ``max_sums`` accumulators in a thread, ``max_bk`` and ``max_size``
    (of BM and BN) keep it small enough to simulate; ``orders`` are the memory orders that operands may have.

    Tiles are often no powers of two, thread counts no multiples of a warp or of a load's width.
    """
    use = {toggle for toggle in ("coalescing", "smem") if draw(st.booleans())}
    if "smem" in use:
        use |= {toggle for toggle in ("transposeA", "float4") if draw(st.booleans())}
    warptile = "smem" in use and max_threads >= LANES and draw(st.booleans())
    if warptile:
        use.add("warptile")
    kind = warp_tiles if warptile else thread_tiles
    tiles = draw(kind(max_threads, max_sums, max_size))
    bk = draw(st.one_of(st.sampled_from([4, 8, 16]), st.integers(1, max_bk)).filter(lambda k: k <= max_bk))
    operand = st.builds(Operand, order=st.sampled_from(orders))
    spec = Spec(
        name=draw(st.sampled_from(NAMES)),
        use=frozenset(use),
        A=draw(operand),
        B=draw(operand),
        C=draw(operand),
        **tiles | {"block": (*tiles["block"], bk)},
    )
    check(spec)
    return spec


@st.composite
def thread_tiles(draw: st.DrawFn, max_threads: int, max_sums: int, max_size: int) -> dict[str, object]:
    """Block and thread tiles with no warp tiles; at times with a warp tile that is not used."""
    tm = draw(st.one_of(st.sampled_from([1, 2, 4, 8]), st.integers(1, 9)).filter(lambda v: v <= max_sums))
    tn = draw(st.one_of(st.sampled_from([1, 2, 4, 8]), st.integers(1, 9)).filter(lambda v: tm * v <= max_sums))
    rows = draw(st.one_of(st.sampled_from([1, 8, 16]), st.integers(1, 20)).filter(lambda v: v <= max_threads))
    rows = min(rows, max_size // tm)
    columns = draw(st.one_of(st.sampled_from([1, 8, 16, 32]), st.integers(1, 20)))
    columns = max(1, min(columns, max_threads // rows, max_size // tn))
    warp = draw(st.sampled_from([None, None, None, (64, 32)]))
    return {"block": (tm * rows, tn * columns), "thread": (tm, tn), "warp": warp}


@st.composite
def warp_tiles(draw: st.DrawFn, max_threads: int, max_sums: int, max_size: int) -> dict[str, object]:
    """Block, warp and thread tiles with warptile, and m_iter and n_iter given, or either, or neither."""
    lanes = draw(st.sampled_from([s for s in LANE_SHAPES if max(s) <= max_size]))
    sums, sizes = max_sums, list(lanes)
    factors: list[int] = []
    for axis in (0, 1, 0, 1):  # TM, TN, m_iter, n_iter
        most = max(1, min(sums, max_size // sizes[axis]))
        value = draw(st.one_of(st.sampled_from([1, 2, 4]), st.integers(1, 5)).filter(lambda v, most=most: v <= most))
        factors.append(value)
        sums //= value
        sizes[axis] *= value
    tm, tn, m_iter, n_iter = factors
    warps = max_threads // LANES
    warps_m = draw(st.integers(1, max(1, min(4, warps, max_size // sizes[0]))))
    warps_n = draw(st.integers(1, max(1, min(4, warps // warps_m, max_size // sizes[1]))))
    given_m, given_n = draw(st.booleans()), draw(st.booleans())
    return {
        "block": (sizes[0] * warps_m, sizes[1] * warps_n),
        "warp": (sizes[0], sizes[1]),
        "thread": (tm, tn),
        "m_iter": m_iter if given_m else None,
        "n_iter": n_iter if given_n else None,
    }
