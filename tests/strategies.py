"""Hypothesis strategies for legal specs, with any combination of toggles and any legal tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gemmgen.spec.check import check
from gemmgen.spec.model import Operand, Spec

LANES = 32
LANE_SHAPES = [(32, 1), (16, 2), (8, 4), (4, 8), (2, 16), (1, 32)]
NAMES = ["k1", "x", "smem_k", "float4_test", "kernel_a", "Gemm"]


@st.composite
def specs(
    draw: st.DrawFn,
    *,
    max_threads: int = 256,
    max_sums: int = 64,
    max_bk: int = 17,
    max_size: int = 256,
    orders: tuple[str, ...] = ("row",),
    way: str | None = None,
    split: bool = False,
    cluster: bool = False,
    dependent: bool = False,
    atomics: bool = False,
) -> Spec:
    """A legal spec. ``max_threads`` in a block, ``max_sums`` accumulators in a thread, ``max_bk`` and ``max_size``
    (of BM and BN) keep it small enough to simulate; ``orders`` are the memory orders that operands may have. ``way``:
    tiles pass through shared memory, and are brought so ("plain", "cpasync", "tma"; TMA may need larger tiles).
    ``split``: several blocks may share a sum, which takes a second kernel. ``cluster``: or they may add it up as a
    cluster, which takes none. ``atomics``: or they may add to C in memory, which takes a first kernel. ``dependent``:
    the second kernel may be launched while the first runs.

    Tiles are often no powers of two, thread counts no multiples of a warp or of a load's width.
    """
    use = {toggle for toggle in ("coalescing", "smem") if draw(st.booleans())} | ({"smem"} if way else set())
    if "smem" in use:
        use |= {toggle for toggle in ("transposeA", "float4") if draw(st.booleans())}
    warptile = "smem" in use and max_threads >= LANES and draw(st.booleans())
    if warptile:
        use.add("warptile")
    kind = warp_tiles if warptile else thread_tiles
    if way == "tma":  # its tiles may grow eightfold both ways, and a box has 256 elements at most
        max_sums, max_size = min(max_sums, 16), min(max_size, 32)
    tiles = draw(kind(max_threads, max_sums, max_size))
    bk = draw(st.one_of(st.sampled_from([4, 8, 16]), st.integers(1, max_bk)).filter(lambda k: k <= max_bk))
    order = st.sampled_from(orders)
    operands = {x: Operand(order=draw(order)) for x in "ABC"}
    if way == "tma":
        bk = -(-bk // 4) * 4
        operands["B"] = Operand()
        use = (use | {"float4"}) - {"transposeA"} | ({"transposeA"} if operands["A"].order == "col" else set())
        tiles = grown(tiles, bk)
    spec = Spec(
        name=draw(st.sampled_from(NAMES)), use=frozenset(use), **operands, **tiles | {"block": (*tiles["block"], bk)}
    )
    spec = replace(spec, **draw(pipelines(spec, way)), split_k=draw(st.sampled_from([1, 1, 2, 3, 5])) if split else 1)
    spec = replace(spec, cta_swizzle=draw(st.sampled_from([0, 0, 1, 2, 3, 8])))
    if cluster and spec.has("smem") and draw(st.booleans()):
        spec = replace(spec, use=spec.use | {"clusterReduce"}, split_k=draw(st.sampled_from([2, 3, 4, 8])))
    if atomics and spec.split_k > 1 and not spec.has("clusterReduce") and draw(st.booleans()):
        spec = replace(spec, use=spec.use | {"atomics"}, arch=draw(st.sampled_from([None, None, "sm_80"])))
        spec = replace(spec, arch=None) if spec.has("tma") else spec
    if not spec.has("clusterReduce"):
        spec = replace(spec, persistent=draw(st.sampled_from([0, 0, 1, 2, 3])))
    if dependent and spec.split_k > 1 and not spec.has("clusterReduce") and draw(st.booleans()):
        spec = replace(spec, use=spec.use | {"dependentLaunch"}, arch=None)
    apart = spec.has("clusterReduce") or (spec.has("tma") and spec.persistent > 0)
    if spec.has("smem") and not apart and draw(st.booleans()):
        spec = replace(spec, use=spec.use | {"stageC"})
    if spec.has("smem") and spec.stages > 1 and not spec.has("directB") and draw(st.booleans()):
        spec = replace(spec, use=spec.use | {"raggedFirst"})
    check(spec)
    return spec


def grown(tiles: dict[str, Any], bk: int) -> dict[str, Any]:
    """Tiles with more rows and columns a thread, until TMA can copy them: rows of 16 bytes, tiles of 128."""
    found = dict(tiles)
    for axis in (0, 1):
        extent = tiles["block"][axis]
        by = next(f for f in (1, 2, 4, 8) if extent * f % 4 == 0 and extent * f * bk % 32 == 0)
        for name in ("block", "thread", "warp"):
            if tiles[name] is not None:
                found[name] = tuple(v * by if i == axis else v for i, v in enumerate(found[name]))
    return found


@st.composite
def pipelines(draw: st.DrawFn, spec: Spec, way: str | None = None) -> dict[str, object]:
    """How tiles are brought, and what the steps along k look like: any settings that fit the rest of a spec."""
    use = set(spec.use)
    bk = spec.block[2]

    def toggle(name: str, legal: bool = True) -> bool:
        if legal and draw(st.booleans()):
            use.add(name)
        return name in use

    toggle("snake")
    if "smem" not in use:
        return {"use": frozenset(use)}
    along = toggle("alongK", "float4" in use and "transposeA" not in use)
    toggle("smemSwizzle", along and spec.block[0] % 8 == 0)
    prefetch = toggle("prefetch", bk % 2 == 0)
    toggle("separators", prefetch)
    toggle("directB")
    pads = {"pad_a": draw(st.sampled_from([0, 0, 1, 2, 4])), "pad_b": draw(st.sampled_from([0, 0, 1, 2, 4]))}
    way = way or draw(st.sampled_from(["plain", "cpasync"]))
    if way != "plain":
        use.add(way)
    if way == "tma":
        pads = {}
        toggle("release")
    stages = draw(st.integers(1, 2 if way == "plain" else 4))
    toggle("spread", way == "cpasync" and stages > 1)
    run = next(w for w in (4, 2, 1) if bk % w == 0 and (bk + pads.get("pad_a", 0)) % w == 0) if along else 1
    turn = max(run, 2 if prefetch else 1)
    unrolls = [0, 0, *(d for d in range(1, bk + 1) if bk % d == 0 and d % turn == 0)]
    return {
        "use": frozenset(use), "stages": stages, "unroll": draw(st.sampled_from(unrolls)), **pads,
        "min_blocks": draw(st.sampled_from([0, 0, 1, 2])),
    }  # fmt: skip


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
