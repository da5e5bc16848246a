"""Tunes every shape of the float32 suite on this GPU, then compares with cuBLAS: what ships comes from one such run.

python tests/gpu/tune_h200.py [--out DIR] [--minutes 7.5] [--timings 40] [--shapes 4096x4096x4096,...] [--bench-only]

Writes, as it goes, DIR/records.sqlite (resumable: a second run with the same DIR goes on), DIR/h200.json (for
gemmgen/records) and DIR/f32.json (for generated/h200). Candidates run in processes of their own: whatever one of them
does, the rest goes on. The budget of time is kept: shapes that do not fit keep their nearest neighbour's kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gemmgen.cli.machine import machine  # noqa: E402 - the checkout, wherever this is started
from gemmgen.dispatch.shipped import FOLDER, document, winners  # noqa: E402
from gemmgen.tune.backend import Care, Compiled, Failed, Measured  # noqa: E402
from gemmgen.tune.families import default_specs  # noqa: E402
from gemmgen.tune.gpu import GpuBackend  # noqa: E402
from gemmgen.tune.process import Patience  # noqa: E402
from gemmgen.tune.records import Records  # noqa: E402
from gemmgen.tune.search import Problem, first_batch  # noqa: E402
from gemmgen.tune.shapes import Shape  # noqa: E402
from gemmgen.tune.space import Candidate, Ranked, ranked, space  # noqa: E402
from gemmgen.tune.suite import F32  # noqa: E402
from gemmgen.tune.tuner import Options, features  # noqa: E402
from gemmgen.tune.tuning import tune  # noqa: E402

# The shapes with demands of their own first: if time runs out, it runs out on the others.
FIRST = ((4096,) * 3, (8192,) * 3, (2048,) * 3, (1024,) * 3, (512,) * 3, (8, 4096, 4096), (16, 4096, 4096))
SCREENING = Care(rounds=5, sample_s=0.003, warm_up_s=0.03)
FINAL = Care(rounds=11, sample_s=0.006, warm_up_s=0.1)
NAME = "matmul"
"""Of all kernels: the same kernel for two shapes is then compiled once."""
AHEAD = 4
"""Shapes whose first candidates are compiled before they are needed, the one that is being timed counted."""
BENCH_S = 100.0
"""Kept back for the comparison with cuBLAS."""


class Prepared:
    """A backend whose compilations were all started before: each kernel is compiled once for all shapes that use it."""

    def __init__(self, backend: GpuBackend, jobs: int) -> None:
        self._backend = backend
        self._pool = ThreadPoolExecutor(jobs)
        self._built: dict[tuple[Any, ...], Future[Compiled | Failed]] = {}
        self.machine, self.gpu = backend.machine, backend.gpu
        self.clock_hz, self.sms = backend.clock_hz, backend.sms

    def start(self, candidate: Candidate, shape: Shape) -> Future[Compiled | Failed]:
        from gemmgen.tune.compiling import variants_for

        key = (candidate.key, tuple(variants_for(candidate.spec, shape)))
        if key not in self._built:
            self._built[key] = self._pool.submit(self._backend.compile, candidate, shape)
        return self._built[key]

    def compile(self, candidate: Candidate, shape: Shape) -> Compiled | Failed:
        return self.start(candidate, shape).result()

    def measure(self, batch: Any, shape: Shape, care: Care, *, warm: bool) -> list[Measured | Failed]:
        return self._backend.measure(batch, shape, care, warm=warm)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._backend.close()

    @property
    def counts(self) -> str:
        done = sum(f.done() for f in self._built.values())
        return f"{done} of {len(self._built)} kernels compiled"


def candidates(shape: Shape, gpu: Any) -> Ranked:
    """The default space for a shape, in the model's order."""
    return ranked(space(default_specs(shape, NAME)), shape, gpu)


def shown(shape: Shape) -> str:
    return "x".join(map(str, shape))


def first_to_compile(order: Ranked, count: int) -> list[Candidate]:
    problem = Problem(tuple(features(c) for c in order.candidates), order.seconds, count, 0)
    return [order.candidates[i] for i in dict.fromkeys([*first_batch(problem, 16), *range(count)]) if i < len(problem)]


def tune_all(
    shapes: list[Shape], out: Path, deadline: float, timings: int, jobs: int, ship: Path = FOLDER
) -> list[str]:
    backend = Prepared(GpuBackend(0, Patience(check_s=45.0, turn_s=20.0)), jobs)
    lines: list[str] = []
    start = time.perf_counter()
    try:
        with Records(out / "records.sqlite") as records:
            for i, shape in enumerate(shapes):
                for soon in shapes[i : i + AHEAD]:  # compiled while others are timed; more would keep those waiting
                    for candidate in first_to_compile(candidates(soon, backend.gpu), 12):
                        backend.start(candidate, soon)
                if time.perf_counter() > deadline:
                    lines.append(f"{shown(shape)}: no time left")
                    continue
                lines.append(tune_one(shape, backend, records, timings, jobs))
                print(f"{time.perf_counter() - start:6.1f} s  {lines[-1]}  ({backend.counts})", flush=True)
                write_winners((out, ship), records, backend)
    finally:
        backend.close()
    return lines


def tune_one(shape: Shape, backend: Prepared, records: Records, timings: int, jobs: int) -> str:
    options = Options("guided", timings, 0, True, jobs, SCREENING, FINAL)
    try:
        found = tune(default_specs(shape, NAME), *shape, backend=backend, records=records, options=options, warm=True)
    except Exception:  # one shape's failure is not the others'
        traceback.print_exc()
        return f"{shown(shape)}: failed"
    failed = [t for t in found.trials if t.status == "failed"]
    for trial in failed[:6]:
        print(f"      failed: {trial.spec.to_text(comment=False)!r}: {trial.reason[:160]}", flush=True)
    for trial in found.trials[:3]:
        if trial.seconds is not None:
            print(f"      {trial.seconds * 1e6:9.2f} us  {trial.spec.to_text(comment=False)!r}", flush=True)
    best = found.trials[0]
    return (
        f"{shown(shape)}: {found.best_s * 1e6:.2f} us, {found.gflops / 1e3:.1f} TFLOP/s, spread "
        f"{100 * (best.spread or 0):.1f}%, {found.timings} timings, {len(failed)} failed, {len(found.pruned)} pruned"
    )


def write_winners(folders: tuple[Path, ...], records: Records, backend: Prepared) -> None:
    """The best of every shape so far, in the form that ships."""
    made = machine()
    facts = {key: made[key] for key in ("gpu", "driver", "commit", "versions")}
    rows = winners(records.best(backend.machine.gpu, machine=backend.machine))
    text = document(rows, arch=backend.gpu.arch, nvrtc=backend.machine.nvrtc, **facts)
    for folder in folders:  # the comparison at the end reads what would ship
        folder.mkdir(exist_ok=True)
        (folder / "h200.json").write_text(text, encoding="utf-8")


def compare(shapes: list[Shape], out: Path, deadline: float) -> None:
    """gemmgen.matmul beside cuBLAS, a process for a few shapes at a time, so that none can spoil the others."""
    whole: dict[str, Any] = {}
    for start in range(0, len(shapes), 7):
        part = shapes[start : start + 7]
        sizes = ",".join("x".join(map(str, s)) for s in part)
        command = [sys.executable, "-m", "gemmgen", "bench", "--suite", "f32", "--sizes", sizes, "--json"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        left = max(20.0, deadline - time.perf_counter())
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=left, check=False)
            found = json.loads(done.stdout)
        except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
            said = getattr(error, "stderr", None) or (done.stderr if "done" in locals() else "")
            print(f"comparison of {sizes} failed: {type(error).__name__} {str(said)[-2000:]}", flush=True)
            continue
        rows = [*whole.get("rows", []), *found["rows"]]
        whole = found | {"rows": rows}
        write_comparison(whole, out)


def write_comparison(whole: dict[str, Any], out: Path) -> None:
    ratios = [row["ratio"] for row in whole["rows"] if "ratio" in row]
    product = 1.0
    for ratio in ratios:
        product *= ratio
    whole |= {
        "geometric_mean": product ** (1 / len(ratios)) if ratios else None,
        "at_least_1": sum(r >= 1 for r in ratios),
        "shapes": len(whole["rows"]),
    }
    (out / "f32.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def table(path: Path) -> str:
    if not path.is_file():
        return "no comparison was made"
    found = json.loads(path.read_text(encoding="utf-8"))
    lines = [f"{found['gpu']}, driver {found['driver']}, {found['baseline']}"]
    for row in found["rows"]:
        shape = f"{row['m']}x{row['n']}x{row['k']}"
        if "error" in row:
            lines.append(f"{shape:18s} {row['error'][:90]}")
            continue
        spec = " ".join(row["spec"].split("\n", 1)[1].split())
        lines.append(
            f"{shape:18s} {row['gemmgen_s'] * 1e6:10.2f} us {row['cublas_s'] * 1e6:10.2f} us  {row['ratio']:.3f}  "
            f"{100 * row['spread']:4.1f}%  {row['tflops']:5.1f}T {row['method']} {row['from']}: {spec}"
        )
    return "\n".join([*lines, f"geometric mean {found['geometric_mean']}, {found['at_least_1']} of {found['shapes']}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ROOT / "generated" / "h200")))
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--timings", type=int, default=40)
    parser.add_argument("--shapes", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bench-only", action="store_true")
    parser.add_argument("--ship", type=Path, default=FOLDER, help="where h200.json goes beside DIR")
    given = parser.parse_args()
    start = time.perf_counter()
    given.out.mkdir(parents=True, exist_ok=True)
    chosen = [tuple(int(x) for x in s.split("x")) for s in given.shapes.split(",") if s] or list(F32)
    shapes: list[Any] = sorted(chosen, key=lambda s: FIRST.index(s) if s in FIRST else len(FIRST))
    end = start + 60 * given.minutes
    if not given.bench_only:
        tune_all(shapes, given.out, end - BENCH_S, given.timings, given.jobs, given.ship)
    compare([s for s in F32 if s in shapes] or shapes, given.out, end + 20)
    print(table(given.out / "f32.json"), flush=True)
    print(f"took {time.perf_counter() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
