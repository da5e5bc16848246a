"""Runs every kernel of the ladder and every shipped winner, exact and guarded, at small sizes: for compute-sanitizer.

    compute-sanitizer --tool memcheck  --error-exitcode 9 python tests/gpu/sanitize.py
    compute-sanitizer --tool racecheck --error-exitcode 9 python tests/gpu/sanitize.py [NAME...]

A NAME is a rung, "winner MxNxK", or the stem of a file in tests/fixtures/valid; "settings" stands for those of them
that have what no rung and no winner has.
Operands lie in allocations of exactly their size, so that an access past the end of one is seen.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import gemmgen  # noqa: E402 - the checkout, wherever this is started
from gemmgen.dispatch.shipped import shipped  # noqa: E402
from gemmgen.runtime import device  # noqa: E402
from gemmgen.runtime.memory import DeviceArray  # noqa: E402
from gemmgen.spec.model import Spec  # noqa: E402

SETTINGS = ("pipeline_persistent*", "pipeline_adds*", "pipeline_stagec*", "pipeline_ragged*", "pipeline_cluster*")
"""Which of the fixtures those are."""
SIZES = [(128, 128, 32), (256, 128, 64), (129, 127, 33), (130, 132, 36), (1, 1, 1), (17, 65, 5)]


def specs(arch: str) -> dict[str, Spec]:
    """The rungs by their names, and the winners that ship for an architecture by the first shape each has won."""
    found = {path.stem: gemmgen.load(path) for path in sorted((ROOT / "specs").glob("*.gemm"))}
    won: dict[str, str] = {}
    winners = shipped(arch)
    for row in () if winners is None else winners.rows:
        won.setdefault(row.spec, "x".join(map(str, row.shape)))
    return found | {f"winner {shape}": gemmgen.parse(text) for text, shape in won.items()}


def fixtures(names: list[str]) -> dict[str, Spec]:
    """The fixtures of these names."""
    folder = ROOT / "tests" / "fixtures" / "valid"
    patterns = [p for name in names for p in (SETTINGS if name == "settings" else (name,))]
    return {p.stem: gemmgen.load(p) for pattern in patterns for p in sorted(folder.glob(f"{pattern}.gemm"))}


def main(names: list[str]) -> int:
    here = device.required()
    rng = np.random.default_rng(0)
    wrong = 0
    known = specs(here.arch)
    chosen = {name: known[name] for name in names if name in known} | fixtures(names) if names else known
    for name, spec in chosen.items():
        kernel = gemmgen.compile(spec, device="cuda")
        for m, n, k in SIZES:
            kinds = [x.dtype.numpy for x in spec.matrices]
            host = [
                rng.standard_normal(s, dtype=np.float32).astype(x.dtype.numpy_dtype)
                for s, x in zip(((m, k), (k, n), (m, n)), spec.matrices, strict=True)
            ]
            orders = (spec.A.order, spec.B.order, spec.C.order)
            a, b, c = (
                DeviceArray.empty(x.shape, kind, here.ordinal, order=order)
                for x, kind, order in zip(host, kinds, orders, strict=True)
            )
            for array, values in zip((a, b, c), host, strict=True):
                array.set(values)
            kernel(a, b, c, 0.5, 2.0)
            verdict = gemmgen.verify(c.numpy(), host[0], host[1], host[2], 0.5, 2.0, spec=spec)
            print(name, f"{m}x{n}x{k}", verdict, flush=True)
            wrong += not verdict.ok
            for array in (a, b, c):
                array.free()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
