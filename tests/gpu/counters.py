"""Measures the counters of every spec on the GPU, beside what is predicted, and writes them down.

    python tests/gpu/counters.py [FILE]        FILE is generated/h200/counters.json by default

Every spec in specs/ at 1024^3 and 1023x1025x1027, beta 0 and 1, in one process under Nsight Compute.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import gemmgen  # noqa: E402 - the checkout, wherever this is started
from gemmgen.analysis.counters import profile_dict  # noqa: E402
from gemmgen.cli.machine import answer, machine  # noqa: E402
from gemmgen.cli.options import Size  # noqa: E402
from gemmgen.cli.profile import Job, measured  # noqa: E402

SIZES = (Size(1024, 1024, 1024), Size(1023, 1025, 1027))
BETAS = (0.0, 1.0)


def jobs(names: list[str] | None = None) -> list[Job]:
    """Every spec of the checkout, or those named, at every size and beta."""
    paths = sorted((ROOT / "specs").glob("*.gemm"))
    specs = [gemmgen.load(path) for path in paths if names is None or path.stem in names]
    return [(spec, size, beta) for spec in specs for size in SIZES for beta in BETAS]


def differing(rows: list[dict[str, Any]]) -> list[str]:
    """What disagrees, a line each."""
    return [
        f"{row['kernel']} {row['size']} beta {row['beta']:g}: {c['name']}: predicted {c['predicted']}, "
        f"measured {c['measured']}"
        for row in rows
        for c in row["counts"]
        if c["agrees"] is False
    ]


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]) if arguments else ROOT / "generated" / "h200" / "counters.json"
    start = time.perf_counter()
    rows = [profile_dict(e, values) for e, values in measured(jobs())]
    told = (answer(["ncu", "--version"]) or "").splitlines()
    record = {**machine(), "ncu": told[-1] if told else None, "runs": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    wrong = differing(rows)
    print("\n".join(wrong) or "all agree")
    print(f"{len(rows)} launches, {len(wrong)} counts differ, {time.perf_counter() - start:.0f} s; wrote {path}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
