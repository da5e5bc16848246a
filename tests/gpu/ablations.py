"""Measures every rung of the ladder with each of its toggles and settings taken away in turn.

    python tests/gpu/ablations.py [FILE]     on a GPU: times the specs at two sizes, writes FILE

FILE is generated/h200/ablations.json by default; ``ablate``, ``diff`` and the page show its times beside the model's. A
rung and its ablations are timed in one run, in turn, each checked before. What was measured is written after each rung.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import gemmgen  # noqa: E402 - the checkout, wherever this is started
from gemmgen.cli.machine import machine  # noqa: E402
from gemmgen.diagnostics import GemmgenError  # noqa: E402
from gemmgen.ir.variant import EXACT  # noqa: E402
from gemmgen.report.ablation import Ablation, ablations  # noqa: E402
from gemmgen.report.ladder import RUNGS, Rung  # noqa: E402
from gemmgen.runtime.device import required  # noqa: E402
from gemmgen.runtime.timing import KernelSide, Plan, Timing, bench  # noqa: E402

RECORD = ROOT / "generated" / "h200" / "ablations.json"
SIZES = ((4096, 4096, 4096), (1024, 1024, 1024))
PLAN = Plan(samples=9, sample_s=0.008, side_s=0.8, warm_up_s=0.1)
COMPILERS = 14

Size = tuple[int, int, int]


def legal(rung: Rung) -> list[Ablation]:
    return [one for one in ablations(gemmgen.load(rung.spec)) if one.spec is not None]


def compiled_first() -> None:
    """Fill the cache of kernels, several compilers at a time."""
    gpu = required()
    specs = [s for rung in RUNGS for s in (gemmgen.load(rung.spec), *(one.spec for one in legal(rung))) if s]

    def made(spec: gemmgen.Spec) -> None:
        from gemmgen.cuda.emit import emit_cuda
        from gemmgen.runtime.build import compile_for

        try:
            ir = gemmgen.lower(spec, EXACT)
            compile_for(emit_cuda(ir), gpu, name=ir.name)
        except GemmgenError as error:
            print(f"not compiled: {spec.name}: {error}", file=sys.stderr)

    with ThreadPoolExecutor(COMPILERS) as workers:
        list(workers.map(made, specs))


def timed(specs: Sequence[gemmgen.Spec], size: Size) -> list[Timing]:
    sides = [KernelSide(spec.name, gemmgen.compile(spec, "cuda")) for spec in specs]
    return list(bench(sides, size, plan=PLAN).timings)


def rows(rung: Rung, whole: Size) -> Iterator[dict[str, Any]]:
    """A row for each ablation of a rung; of each by itself where one of them fails."""
    spec, size, found = gemmgen.load(rung.spec), rung.size(whole), legal(rung)
    groups = [found]
    if not found:
        return
    try:
        times = [timed([spec, *(one.spec for one in found if one.spec)], size)]
    except GemmgenError:
        groups, times = [], []
        for one in found:
            assert one.spec is not None
            try:
                times.append(timed([spec, one.spec], size))
                groups.append([one])
            except GemmgenError as error:
                print(f"left out: {one.spec.name} at {size}: {error}", file=sys.stderr)
    for group, (before, *after) in zip(groups, times, strict=True):
        for one, t in zip(group, after, strict=True):
            assert one.spec is not None
            yield {
                "kernel": rung.spec,
                "change": f"without {one.without}",
                "also": list(one.also),
                "size": list(size),
                "before_s": before.median_s,
                "after_s": t.median_s,
                "spread": max(before.spread, t.spread),
                "spec": one.spec.to_text(comment=False),
            }


def main(path: Path) -> None:
    start = time.perf_counter()
    compiled_first()
    print(f"compiled after {time.perf_counter() - start:.0f} s", flush=True)
    found: list[dict[str, Any]] = []
    done: set[tuple[str, Size]] = set()
    for whole in SIZES:
        for rung in RUNGS:
            if (rung.spec, rung.size(whole)) in done:
                continue
            done.add((rung.spec, rung.size(whole)))
            found += rows(rung, whole)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({**machine(), "rows": found}, indent=1) + "\n", encoding="utf-8")
            print(f"{rung.spec} {rung.size(whole)}: {len(found)} rows, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD)
