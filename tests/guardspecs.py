"""A seeded generator of legal specs over the whole language, for the guard: see guard.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

LANE_GRIDS = ((32, 1), (16, 2), (8, 4), (4, 8), (2, 16), (1, 32))
SMALL = (1, 1, 2, 2, 4, 4, 4, 8, 8, 3, 5, 6)
MAX_SUMS = 128
MAX_EXTENT = 256


def random_specs(seed: int, count: int, legal: Callable[[str], bool]) -> Iterator[str]:
    """``count`` different spec texts that ``legal`` accepts. The same seed gives the same texts."""
    rng = random.Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        text = random_spec(rng, f"gemm_{len(seen)}")
        shape = text.partition("\n")[2]
        if shape not in seen and legal(text):
            seen.add(shape)
            yield text


def random_spec(rng: random.Random, name: str) -> str:
    """A spec that is often legal: its tiles divide, and toggles come with those that they need."""
    smem = rng.random() < 0.9
    via = rng.choice(("plain", "cpasync", "tma")) if smem else "plain"
    use = _toggles(rng, via) if smem else {t for t in ("coalescing", "snake") if rng.random() < 0.5}
    bk = rng.choice((4, 8, 8, 16, 16, 32)) if rng.random() < 0.8 else rng.randint(1, 17)
    orders = {x: rng.choice(("row", "row", "col")) for x in "ABC"}
    if via == "tma":
        bk = rng.choice((4, 8, 16, 32))
        orders["B"] = "row"
        use = use - {"transposeA"} | ({"transposeA"} if orders["A"] == "col" else set())
    tiles = _warp_tiles(rng) if "warptile" in use else _thread_tiles(rng)
    lines = [f"kernel {name}", f"tile block {tiles['block']}" + (f"x{bk}" if smem or rng.random() < 0.3 else "")]
    lines += [f"tile {level} {tiles[level]}" for level in ("warp", "thread") if level in tiles]
    lines += _settings(rng, use, via, bk)
    toggles = [f"warptile{tiles.get('pieces', '')}" if t == "warptile" else t for t in sorted(use)]
    lines += [f"use {', '.join(toggles)}"] if toggles else []
    if set(orders.values()) != {"row"}:
        lines.append("operands " + ", ".join(f"{x} f32 {order}" for x, order in orders.items()))
    return "\n".join(lines) + "\n"


def _toggles(rng: random.Random, via: str) -> set[str]:
    use = {"smem"}

    def maybe(toggle: str, chance: float = 0.5, when: bool = True) -> bool:
        if when and rng.random() < chance:
            use.add(toggle)
        return toggle in use

    maybe("coalescing", 0.8)
    maybe("float4", 1.0 if via == "tma" else 0.7)
    maybe("transposeA", 0.4)
    maybe("warptile", 0.6)
    maybe("snake", 0.4)
    maybe("alongK", 0.4, "float4" in use and "transposeA" not in use)
    maybe("smem_swizzle", 0.5, "alongK" in use)
    maybe("prefetch", 0.5)
    maybe("separators", 0.4, "prefetch" in use)
    maybe("directB", 0.2)
    maybe("stageC", 0.25)
    maybe("raggedFirst", 0.3, "directB" not in use)
    if via != "plain":
        use.add(via)
    maybe("spread", 0.4, via == "cpasync")
    maybe("release", 0.5, via == "tma")
    return use


def _settings(rng: random.Random, use: set[str], via: str, bk: int) -> list[str]:
    """Lines of numbers; and the toggles that depend on them are added to ``use``."""
    lines = []
    split = rng.choice((1, 1, 1, 2, 3, 4, 5, 8))
    persistent = rng.choice((0, 0, 0, 1, 3, 132))
    if split > 1:
        if "smem" in use and "stageC" not in use and rng.random() < 0.4:
            use.add("clusterReduce")
            persistent = 0
        else:
            use |= {t for t in ("atomics", "dependentLaunch") if rng.random() < 0.4}
        lines.append(f"split_k {split}")
    if persistent and not (via == "tma" and "stageC" in use):
        lines.append(f"persistent {persistent}")
    if "smem" in use:
        stages = rng.choice((1, 2)) if via == "plain" else rng.randint(1, 5)
        stages = max(2, stages) if use & {"raggedFirst", "spread"} else stages
        lines += [f"stages {stages}"] if stages > 1 else []
        unroll = rng.choice([0, 0, *(d for d in range(1, bk + 1) if bk % d == 0)])
        lines += [f"unroll {unroll}"] if unroll else []
        if via != "tma":
            lines += [f"pad_{x} {pad}" for x in "ab" if (pad := rng.choice((0, 0, 0, 1, 2, 4)))]
    lines += [f"min_blocks {n}" for n in [rng.choice((0, 0, 1, 2, 3))] if n]
    lines += [f"cta_swizzle {n}" for n in [rng.choice((0, 0, 0, 1, 2, 3, 8))] if n]
    lines += ["arch sm_80"] if not use & {"tma", "clusterReduce", "dependentLaunch"} and rng.random() < 0.1 else []
    return lines


def _thread_tiles(rng: random.Random) -> dict[str, str]:
    """Threads side by side, with no warp tiles. Thread counts need not be whole warps."""
    tm, tn = rng.choice(SMALL), rng.choice(SMALL)
    rows = min(rng.choice((1, 4, 8, 8, 16, 16, 32, rng.randint(1, 20))), MAX_EXTENT // tm)
    columns = min(rng.choice((1, 4, 8, 16, 16, 32, rng.randint(1, 20))), MAX_EXTENT // tn, 1024 // rows)
    return {"block": f"{tm * rows}x{tn * columns}", "thread": f"{tm}x{tn}"}


def _warp_tiles(rng: random.Random) -> dict[str, str]:
    """Warps side by side, each of 32 lanes in m_iter x n_iter pieces."""
    lanes = rng.choice(LANE_GRIDS)
    sums, sizes, factors = MAX_SUMS, list(lanes), []
    for axis in (0, 1, 0, 1):  # TM, TN, m_iter, n_iter
        value = rng.choice([v for v in SMALL if v <= min(sums, max(1, MAX_EXTENT // sizes[axis]))])
        factors.append(value)
        sums //= value
        sizes[axis] *= value
    tm, tn, m_iter, n_iter = factors
    warps_m = rng.choice([w for w in (1, 1, 2, 2, 3, 4) if w == 1 or w * sizes[0] <= MAX_EXTENT])
    warps_n = rng.choice([w for w in (1, 2, 2, 3, 4) if w == 1 or w * sizes[1] <= MAX_EXTENT])
    given = [f"{o}={v}" for o, v in (("m_iter", m_iter), ("n_iter", n_iter)) if rng.random() < 0.6]
    return {
        "block": f"{sizes[0] * warps_m}x{sizes[1] * warps_n}",
        "warp": f"{sizes[0]}x{sizes[1]}",
        "thread": f"{tm}x{tn}",
        "pieces": f"({', '.join(given)})" if given else "",
    }
