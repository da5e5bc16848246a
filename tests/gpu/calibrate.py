"""Calibrates the model's waits on specs that are not rungs of the ladder.

    python tests/gpu/calibrate.py measure [FILE]     on a GPU: times the specs, writes FILE
    python tests/gpu/calibrate.py fit [FILE]         anywhere: fits the waits to FILE

FILE is generated/h200/calibration.json by default. The fit prints the constants for gemmgen/analysis/latency.py, and
how far the ladder's recorded times lie from what they make of it.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import gemmgen  # noqa: E402 - the checkout, wherever this is started
from gemmgen.analysis.latency import WAITS, Waits  # noqa: E402
from gemmgen.analysis.model import Run, bounds  # noqa: E402
from gemmgen.cli.machine import machine  # noqa: E402
from gemmgen.cli.options import Size  # noqa: E402
from gemmgen.diagnostics import GemmgenError, SpecError  # noqa: E402

RECORD = ROOT / "generated" / "h200" / "calibration.json"
SIZES = (2048, 768)

PLAIN = "coalescing, smem"
WIDE = "coalescing, smem, transposeA, float4"
WARP = f"{WIDE}, warptile"
ASYNC = f"{WARP}, cpasync"

# (block, warp, thread, use, other lines)
SPECS: tuple[tuple[str, str, str, str, str], ...] = (
    ("16x16", "", "1x1", "coalescing", ""),
    ("32x16", "", "1x1", "coalescing", ""),
    ("16x64", "", "1x1", "coalescing", ""),
    ("32x64", "", "2x2", "coalescing", ""),
    ("16x16", "", "1x1", "", ""),
    ("16x16x16", "", "1x1", PLAIN, ""),
    ("32x32x16", "", "1x1", PLAIN, ""),
    ("16x32x32", "", "1x1", PLAIN, ""),
    ("16x64x16", "", "1x1", PLAIN, ""),
    ("32x64x8", "", "4x1", PLAIN, ""),
    ("64x64x16", "", "8x1", PLAIN, ""),
    ("128x64x8", "", "16x1", PLAIN, ""),
    ("64x64x16", "", "4x1", PLAIN, ""),
    ("64x64x8", "", "4x4", PLAIN, ""),
    ("64x64x16", "", "8x8", PLAIN, ""),
    ("128x64x8", "", "8x8", PLAIN, ""),
    ("128x128x16", "", "8x8", PLAIN, ""),
    ("128x64x16", "", "8x4", PLAIN, ""),
    ("64x128x8", "", "4x8", PLAIN, ""),
    ("64x64x8", "", "8x8", WIDE, ""),
    ("64x64x16", "", "4x4", WIDE, ""),
    ("128x64x8", "", "8x8", WIDE, ""),
    ("128x128x16", "", "8x8", WIDE, ""),
    ("128x128x32", "", "8x8", WIDE, ""),
    ("64x128x16", "", "8x4", WIDE, ""),
    ("256x128x8", "", "8x8", WIDE, ""),
    ("64x64x16", "32x32", "4x4", WARP, ""),
    ("128x64x16", "64x32", "8x4", WARP, ""),
    ("128x128x8", "64x32", "8x4", WARP, ""),
    ("128x128x8", "64x64", "8x4", WARP, ""),
    ("128x128x16", "32x64", "4x4", WARP, ""),
    ("128x256x16", "64x64", "8x8", WARP, ""),
    ("64x128x32", "32x64", "8x4", WARP, ""),
    ("128x128x8", "", "8x8", WIDE, "stages 2"),
    ("64x64x16", "", "4x4", WIDE, "stages 2"),
    ("128x128x16", "64x32", "8x4", WARP, "stages 2"),
    ("128x128x8", "", "8x8", f"{WIDE}, prefetch", "stages 2"),
    ("128x128x16", "64x32", "8x4", f"{WARP}, prefetch", ""),
    ("128x128x16", "64x32", "8x4", ASYNC, "stages 3\npad_a 4"),
    ("64x64x16", "32x32", "4x4", ASYNC, "stages 4\npad_a 4"),
    ("128x128x16", "64x64", "8x4", f"{ASYNC}, prefetch", "stages 3\npad_a 4"),
)


def specs() -> Iterator[gemmgen.Spec]:
    """The specs that are legal; those that are not are named on stderr."""
    rungs = {replace(gemmgen.load(path), name="x") for path in (ROOT / "specs").glob("*.gemm")}
    for i, (block, warp, thread, use, more) in enumerate(SPECS):
        lines = [f"kernel c{i}", f"tile block {block}", f"tile thread {thread}"]
        lines += [f"tile warp {warp}"] * bool(warp) + [f"use {use}"] * bool(use) + [more]
        try:
            spec = gemmgen.parse("\n".join(lines) + "\n")
        except SpecError as error:
            print(f"left out: {' / '.join(lines)}: {error.message}", file=sys.stderr)
            continue
        assert replace(spec, name="x") not in rungs, f"{spec.name} is a rung of the ladder"
        yield spec


def measure(path: Path) -> int:
    """Time every spec at every size, and write the times down."""
    start = time.perf_counter()
    rows: list[dict[str, Any]] = []
    chosen = list(specs())
    for n in SIZES:
        for group in (chosen[i : i + 10] for i in range(0, len(chosen), 10)):
            rows += timed(group, n)
        print(f"{n}: {len(rows)} times after {time.perf_counter() - start:.0f} s", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**machine(), "runs": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    return 0


def timed(group: Sequence[gemmgen.Spec], n: int) -> list[dict[str, Any]]:
    """Times of specs in one run; of each on its own where one of them fails."""
    from gemmgen.cli.timing import Baseline, compare

    try:
        done = compare(group, Size(n, n, n), warm=False, progress=lambda _: None, baseline=Baseline.none)
    except GemmgenError as error:
        if len(group) > 1:
            return [row for spec in group for row in timed([spec], n)]
        print(f"left out: {group[0].name} at {n}: {error}", file=sys.stderr)
        return []
    pairs = zip(group, done.kernels, strict=True)
    return [{"spec": spec.to_text(), "size": [n, n, n], "seconds": timing.median_s} for spec, timing in pairs]


Sample = tuple[str, Run, float]


def samples(path: Path) -> list[Sample]:
    """What was measured: a name, what the model looks at, and seconds."""
    out = []
    for row in json.loads(path.read_text(encoding="utf-8"))["runs"]:
        spec = gemmgen.parse(row["spec"])
        m, n, k = row["size"]
        out.append((f"{spec.name} {m}", gemmgen.explain(spec, m, n, k).run, row["seconds"]))
    return out


def off(sample: Sample, waits: Waits) -> float:
    """How far the expected time lies from the measured one, as the logarithm of their ratio."""
    _, run, seconds = sample
    return math.log(bounds(run, waits).total_s / seconds)


def loss(found: Sequence[Sample], waits: Waits) -> float:
    """The mean square, each error beyond 50% counted as 50%: a kernel that spills should not decide."""
    return sum(min(abs(off(s, waits)), 0.5) ** 2 for s in found) / len(found)


def fitted(found: Sequence[Sample], start: Waits = WAITS) -> Waits:
    """The waits of least loss, one constant moved at a time by ever smaller factors."""
    best, least = start, loss(found, start)
    names = ("step", "direct", "fragment", "apart", "sharpness", "launch_s")
    for factor in (1.4, 1.2, 1.1, 1.05, 1.02):
        moved = True
        while moved:
            moved = False
            for name in names:
                for by in (factor, 1 / factor):
                    tried = replace(best, **{name: getattr(best, name) * by})
                    if 1 <= tried.sharpness <= 12 and tried.apart <= 1 and (now := loss(found, tried)) < least - 1e-9:
                        best, least, moved = tried, now, True
    return best


def fit(path: Path) -> int:
    """Fit, and say how well the specs and the ladder are met."""
    found = samples(path)
    best = fitted(found)
    print("Waits(" + ", ".join(f"{name}={value:.4g}" for name, value in asdict(best).items()) + ")")
    for label, waits in (("as they are", WAITS), ("fitted", best)):
        errors = sorted(abs(math.expm1(off(s, waits))) for s in found)
        within = sum(e <= 0.3 for e in errors) / len(errors)
        print(f"{label}: median {errors[len(errors) // 2]:.1%}, within 30%: {within:.0%} of {len(errors)}")
    for sample in sorted(found, key=lambda s: -abs(off(s, best)))[:8]:
        print(f"  {sample[0]}: {math.expm1(off(sample, best)):+.0%}")
    for name, seconds, n in ladder():
        run = gemmgen.explain(gemmgen.load(ROOT / "specs" / f"{name}.gemm"), n, n, n).run
        told = [f"{bounds(run, w).total_s / seconds - 1:+.0%}" for w in (WAITS, best)]
        print(f"  ladder {name} {n}: {told[0]} as they are, {told[1]} fitted")
    return 0


def ladder() -> Iterator[tuple[str, float, int]]:
    """The ladder's recorded times, where there are any: name, seconds, size. They take no part in the fit."""
    path = ROOT / "generated" / "h200" / "ladder.json"
    if path.is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
        for row in record.get("rungs", []):
            if row.get("median_s"):
                yield row["kernel"], row["median_s"], record["size"][0]


def main(arguments: list[str]) -> int:
    commands: dict[str, Callable[[Path], int]] = {"measure": measure, "fit": fit}
    if not arguments or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    return commands[arguments[0]](Path(arguments[1]) if len(arguments) > 1 else RECORD)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
