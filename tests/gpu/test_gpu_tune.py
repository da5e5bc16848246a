"""Tuning and ``gemmgen.matmul`` on a GPU: real failures in real processes, right results, the cost of a call."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_support import check, torch

import gemmgen
from gemmgen.dispatch.matmul import choice_for, forget
from gemmgen.tune.backend import Care, Failed, Measured
from gemmgen.tune.gpu import GpuBackend
from gemmgen.tune.process import Patience
from gemmgen.tune.space import space
from gemmgen.tune.suite import F32

WARPTILE = """kernel tried
tile block 128x128x16
tile warp 64x64
tile thread 8x4
use coalescing, smem, transposeA, float4, warptile
tune stages in {1, 2}
tune prefetch in {on, off}
tune pad_a in {0, 4}
"""


def test_the_best_of_a_small_space_is_found_recorded_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMGEN_RECORDS", str(tmp_path / "r.sqlite"))
    spec = gemmgen.parse(WARPTILE)
    found = gemmgen.tune(spec, 1000, 1024, 520)
    assert found.measured and found.trials[0].final and found.timings > 0
    assert {t.status for t in found.trials} == {"ok"}, [t.reason for t in found.trials]
    assert all(t.registers for t in found.trials)
    again = gemmgen.tune(spec, 1000, 1024, 520)
    assert again.timings == 0 and again.best == found.best


def test_two_tunings_agree_within_noise(tmp_path: Path) -> None:
    one, other = (gemmgen.tune(gemmgen.parse(WARPTILE), 2048, 2048, 2048, records=False) for _ in range(2))
    times = {t.spec: t.seconds for t in other.trials}
    assert times[one.best] == pytest.approx(other.best_s, rel=0.03)


def test_real_failures_are_answered_and_the_rest_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that never ends, one that reaches past its memory and one that is wrong, made by changed text."""
    import sys
    import textwrap

    from gemmgen.tune import process

    program = textwrap.dedent("""
        import sys
        import gemmgen.cuda.emit as emit
        honest = emit.emit_cuda
        def changed(ir):
            text = honest(ir)
            start = text.index("// 1. ")
            if ir.name == "tried_hang":
                text = text[:start] + "while (K) if (*(volatile float*)A == 1e30f) break;\\n" + text[start:]
            if ir.name == "tried_wild":
                text = text[:start] + "C += (size_t)1 << 44;\\n" + text[start:]
            if ir.name == "tried_wrong":
                text = text[:start] + "alpha *= 1.01f;\\n" + text[start:]
            return text
        emit.emit_cuda = changed
        from gemmgen.tune import worker
        sys.exit(worker.main())
    """)
    backend = GpuBackend(0, Patience(check_s=25.0, turn_s=10.0))
    backend._worker = process.WorkerProcess(patience=Patience(25.0, 10.0), command=(sys.executable, "-c", program))
    base = gemmgen.parse(WARPTILE).replace(tune=())
    batch = [
        space([base.replace(name=name)]).candidates[0]
        for name in ("tried_a", "tried_wrong", "tried_hang", "tried_wild", "tried_b")
    ]
    try:
        found = backend.measure(batch, (512, 512, 512), Care(3, 0.001, 0.0), warm=True)
    finally:
        backend.close()
    kinds = [f.kind if isinstance(f, Failed) else "ok" for f in found]
    assert kinds == ["ok", "wrong", "hang", "launch", "ok"], found
    times = [f.samples for f in found if isinstance(f, Measured)]
    assert all(len(samples) == 3 and min(samples) > 0 for samples in times)


@pytest.mark.parametrize("shape", F32, ids=lambda s: "x".join(map(str, s)))
def test_matmul_is_right_at_every_shape_of_the_suite(shape: tuple[int, int, int]) -> None:
    t = torch()
    m, n, k = shape
    a, b = (t.randn(s, device="cuda") for s in ((m, k), (k, n)))
    c = t.full((m, n), float("nan"), device="cuda")
    assert gemmgen.matmul(a, b, c) is c
    check(c, a, b)
    again = t.empty_like(c)
    gemmgen.matmul(a, b, again)
    assert bool((again == c).all()), "the same sums in the same order"
    before = t.randn((m, n), device="cuda")
    kept = before.clone()
    gemmgen.matmul(a, b, before, 0.5, -2.0)
    check(before, a, b, kept, 0.5, -2.0)


def test_matmul_of_views_and_odd_alignments() -> None:
    t = torch()
    wide = t.randn((300, 263), device="cuda")
    for rows, cols in ((slice(0, 257), slice(1, 130)), (slice(3, 67), slice(2, 131)), (slice(0, 1), slice(0, 129))):
        a, b = wide[rows, cols], t.randn((129, 75), device="cuda")
        check(gemmgen.matmul(a, b), a, b)
        check(gemmgen.matmul(b.t(), a.t()), b.t(), a.t())


def test_a_warm_call_costs_at_most_25_microseconds() -> None:
    t = torch()
    a, b, c = (t.randn((256, 256), device="cuda") for _ in range(3))
    gemmgen.matmul(a, b, c)
    best = float("inf")
    for _ in range(20):
        t.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            gemmgen.matmul(a, b, c)
        best = min(best, (time.perf_counter() - start) / 200)
    print(f"{best * 1e6:.1f} us a call")
    assert best <= 25e-6


def test_matmul_takes_numpy_and_can_be_captured() -> None:
    t = torch()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((100, 60), (60, 80)))
    assert gemmgen.verify(gemmgen.matmul(a, b), a, b).ok
    x, y, z = (t.randn((128, 128), device="cuda") for _ in range(3))
    gemmgen.matmul(x, y, z)
    t.cuda.synchronize()
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph):
        gemmgen.matmul(x, y, z)
    z.zero_()
    graph.replay()
    t.cuda.synchronize()
    check(z, x, y)


def test_shipped_winners_spill_nothing() -> None:
    forget()
    for shape in F32:
        choice: Any = choice_for(*shape)
        assert gemmgen.compile(choice.spec, "cuda").resources.spill_bytes == 0, (shape, choice)
