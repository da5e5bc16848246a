"""gemmgen.matmul beside cuBLAS on random shapes and layouts that were never tuned.

python tests/gpu/judge_choice.py [--out DIR] [--seeds 1,2,3,4] [--count 70] [--near 6] [--calls 400]

Every result is checked against float64 on the GPU. Beside the choice, as many of the kernels that the model puts next
as ``--near`` says are timed, which tells what the choice cost. Writes DIR/f32_random.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gemmgen.cli.machine import machine  # noqa: E402 - the checkout, wherever this is started
from gemmgen.diagnostics import GemmgenError  # noqa: E402
from gemmgen.dispatch.autotune import candidates  # noqa: E402
from gemmgen.dispatch.matmul import choice_for, matmul  # noqa: E402
from gemmgen.runtime import device as devices  # noqa: E402
from gemmgen.runtime.baseline import Cublas  # noqa: E402
from gemmgen.runtime.nvrtc import supported_archs  # noqa: E402
from gemmgen.runtime.target import choose_target  # noqa: E402
from gemmgen.tune import cost  # noqa: E402
from gemmgen.tune.bench import Bench  # noqa: E402
from gemmgen.tune.calibrate import is_aligned  # noqa: E402
from gemmgen.tune.gpu import gpu_of  # noqa: E402
from gemmgen.tune.shapes import packed  # noqa: E402
from gemmgen.tune.suite import F32  # noqa: E402


def draw(seed: int, count: int) -> list[tuple[int, int, int, str]]:
    """Log-uniform sizes, rounded to what people have: multiples of 1, 4, 8, 64, 128; small sides in a third of them."""
    r = random.Random(seed)
    out: list[tuple[int, int, int, str]] = []
    while len(out) < count:
        sizes = []
        for _ in range(3):
            x = math.exp(r.uniform(math.log(96), math.log(12000)))
            unit = r.choice((1, 4, 8, 64, 128, 128))
            sizes.append(max(unit, round(x / unit) * unit))
        kind = r.random()
        if kind < 1 / 3:
            sizes[r.choice((0, 0, 1, 2))] = r.choice((1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64))
        if kind > 0.9:
            sizes[2] = r.choice((32768, 65536, 100000, 262144))
            sizes[0], sizes[1] = min(sizes[0], 512), min(sizes[1], 512)
        m, n, k = sizes
        work = 2 * m * n * k
        if not 1e6 <= work <= 1.2e12 or max(m * n, m * k, n * k) > 4e8:
            continue
        out.append((m, n, k, r.choice(("nn", "nn", "nt", "nt", "tn", "tt"))))
    return out


def wrong(a: Any, b: Any, c: Any) -> float:
    """The largest error of C by what rounding allows, on the GPU in float64, in slabs of rows."""
    import torch

    torch.cuda.synchronize()
    ta, tb, tc = (torch.as_tensor(x, device="cuda") for x in (a, b, c))
    k, worst = ta.shape[1], 0.0
    step = max(1, min(ta.shape[0], int(2e8 // max(tb.shape[1], k, 1))))
    wide = tb.double()
    size = wide.abs()
    for i in range(0, ta.shape[0], step):
        rows = ta[i : i + step].double()
        bound = 2 * (k + 1) * 2.0**-24 * (rows.abs() @ size) + 1e-30
        off = ((tc[i : i + step].double() - rows @ wide).abs() / bound).nan_to_num(nan=math.inf).max()
        worst = max(worst, float(off))
    return worst


def row_of(bench: Bench, cublas: Cublas, shape: Any, layout: Any, near: int, target: Any, gpu: Any) -> dict[str, Any]:
    import numpy as np

    a, b, c = bench.operands(shape, layout)
    if c.shape[0] * c.shape[1] < 1 << 26:
        c.set(np.full(c.shape, np.nan, np.float32))
    start = time.perf_counter()
    call = partial(matmul, a, b, c, 1.0, 0.0, bench.stream)
    call()
    first = time.perf_counter() - start
    error = wrong(a, b, c)
    theirs = partial(cublas.enqueue, a, b, c, 1.0, 0.0, bench.stream)
    sides: list[list[float]] = [[], []]
    for side, run in ((0, call), (1, theirs)):
        bench.once(run)
        del side
    for turn in range(4):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            run = (call, theirs)[side]
            sides[side].append(bench.replayed(run, max(2e-6, bench.once(run))))
    ours_s, theirs_s = (statistics.median(x) for x in sides)
    choice = choice_for(*shape, layout=layout)
    others = {}
    for spec in candidates(shape, packed(shape, layout), layout, gpu)[:near]:
        try:
            gemm = bench.gemm(spec, cost.GUARDED if is_aligned(shape, layout) else cost.UNALIGNED, target)
            run = bench.call_of(gemm, shape, layout)
            others[spec.to_text(comment=False)] = bench.replayed(run, max(2e-6, bench.once(run)))
        except GemmgenError as failure:
            others[spec.to_text(comment=False)] = None
            print(f"      {failure}"[:150], flush=True)
    timed = [s for s in others.values() if s is not None]
    m, n, k = shape
    return {
        "m": m, "n": n, "k": k, "layout": layout, "gemmgen_s": ours_s, "cublas_s": theirs_s,
        "ratio": theirs_s / ours_s, "first_call_s": first, "expected_s": choice.expected_s, "from": choice.source,
        "swapped": choice.swapped, "spec": choice.spec.to_text(comment=False), "error_over_bound": error,
        "best_near_s": min([ours_s, *timed]), "best_near": min(others, key=lambda x: others[x] or 1.0, default=None),
    }  # fmt: skip


def summary(name: str, rows: list[dict[str, Any]]) -> str:
    ratios = sorted(r["ratio"] for r in rows)
    if not ratios:
        return f"{name}: nothing"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))

    def share(level: float) -> float:
        return sum(r >= level for r in ratios) / len(ratios)

    regret = math.exp(sum(math.log(r["gemmgen_s"] / r["best_near_s"]) for r in rows) / len(rows))
    return (
        f"{name}: {len(rows)} shapes, geometric mean {mean:.3f}, at least 1.00: {share(1.0):.3f}, "
        f"at least 0.90: {share(0.9):.3f}, "
        f"lowest {ratios[0]:.3f}, 5th percentile {ratios[int(0.05 * len(ratios))]:.3f}, regret {regret:.3f}, "
        f"wrong {sum(r['error_over_bound'] > 1 for r in rows)}, "
        f"first call median {statistics.median(r['first_call_s'] for r in rows) * 1e3:.2f} ms"
    )


def new_shapes(count: int) -> str:
    """Host times of calls of shapes that were never seen."""
    import torch

    r, times = random.Random(99), []
    for _ in range(count):
        m, n, k = (r.choice((0, 1, r.randrange(4098), r.randrange(4098), r.randrange(300))) for _ in range(3))
        a = torch.empty((m, k), device="cuda") if r.random() < 0.5 else torch.empty((k, m), device="cuda").T
        b = torch.empty((k, n), device="cuda") if r.random() < 0.5 else torch.empty((n, k), device="cuda").T
        c = torch.empty((m, n), device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        matmul(a, b, c)
        times.append(time.perf_counter() - start)
        torch.cuda.synchronize()
    times.sort()
    a, b, c = (torch.empty((256, 256), device="cuda") for _ in range(3))
    eager = []
    for run in (lambda: matmul(a, b, c), lambda: torch.mm(a, b, out=c)):
        run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(500):
            run()
        eager.append((time.perf_counter() - start) / 500)
        torch.cuda.synchronize()
    return (
        f"new shapes: median {times[count // 2] * 1e3:.2f} ms, 99th percentile "
        f"{times[int(0.99 * count)] * 1e3:.2f} ms, "
        f"longest {times[-1] * 1e3:.0f} ms; eager call {eager[0] * 1e6:.1f} us, torch.mm {eager[1] * 1e6:.1f} us"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seeds", default="1,2,3,4")
    parser.add_argument("--count", type=int, default=70)
    parser.add_argument("--near", type=int, default=6)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=140)
    given = parser.parse_args()
    import torch

    torch.empty(1, device="cuda")  # makes the context that everything below uses
    device = devices.required()
    target, gpu = choose_target(device.cc, supported_archs()), gpu_of(device)
    bench, cublas = Bench(device, (4 * 10**8,) * 3), Cublas(device)
    end, rows = time.perf_counter() + given.seconds, []
    groups: list[tuple[str, list[Any]]] = [(f"seed {s}", draw(int(s), given.count)) for s in given.seeds.split(",")]
    groups.append(("named, four layouts", [(*s, x) for s in F32 for x in ("nn", "nt", "tn", "tt")]))
    for name, cases in groups:
        these: list[dict[str, Any]] = []
        for m, n, k, layout in cases:
            if time.perf_counter() > end:
                break
            try:
                these.append({"group": name, **row_of(bench, cublas, (m, n, k), layout, given.near, target, gpu)})
            except GemmgenError as error:
                print(f"{m}x{n}x{k} {layout}: {type(error).__name__} {error}"[:300], flush=True)
                continue
            r = these[-1]
            if r["ratio"] < 1 or r["error_over_bound"] > 1:
                spec = " ".join(r["spec"].split("\\n", 1)[-1].split())[:230]
                best, took, wanted = (
                    r["cublas_s"] / r["best_near_s"],
                    r["gemmgen_s"] * 1e6,
                    (r["expected_s"] or 0) * 1e6,
                )
                print(
                    f"{m}x{n}x{k} {layout} {r['ratio']:.3f} near {best:.3f} {took:.1f} us, expected {wanted:.1f} "
                    f"{r['from']} error {r['error_over_bound']:.2g}: {spec}",
                    flush=True,
                )
        rows += these
        print(summary(name, these), flush=True)
        whole = {**machine(), "rows": rows}
        (given.out / "f32_random.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(summary("random", [r for r in rows if r["group"].startswith("seed")]), flush=True)
    print(new_shapes(given.calls), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
