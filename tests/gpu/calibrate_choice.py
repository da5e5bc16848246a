"""Measures the pool on this GPU: the points that the constants of the choice are fitted to.

python tests/gpu/calibrate_choice.py [--out DIR] [--seconds 400] [--shapes 300] [--jobs N]

Writes DIR/points.json as it goes. Shapes are drawn with seeds that no judgement uses (those use 1 to 4).
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gemmgen.tune.calibrate import Case, Plan, calibrate  # noqa: E402 - the checkout, wherever this is started

SMALL = 0.15
"""Part of the shapes that are small all round."""


def cases(count: int, seed: int = 1001) -> list[Case]:
    """Sizes as people have them, from 16 to 12000, a side small in a third; every layout as often."""
    r = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        small = r.random() < SMALL
        low, high = (8, 700) if small else (96, 12000)
        sizes = []
        for _ in range(3):
            x = math.exp(r.uniform(math.log(low), math.log(high)))
            unit = r.choice((1, 4, 8, 64, 128, 128))
            sizes.append(max(unit, round(x / unit) * unit))
        kind = r.random()
        if kind < 1 / 3:
            sizes[r.choice((0, 0, 1, 1, 2))] = r.choice((1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64))
        elif kind > 0.92:
            sizes[2] = r.choice((32768, 65536, 100000, 262144))
            sizes[0], sizes[1] = min(sizes[0], 512), min(sizes[1], 512)
        m, n, k = sizes
        if not 2e4 <= 2 * m * n * k <= 2.5e11 or max(m * n, m * k, n * k) > 2e8:
            continue
        found.append(((m, n, k), ("nn", "nt", "tn", "tt")[len(found) % 4]))  # type: ignore[arg-type]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--shapes", type=int, default=320)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    plan = Plan(cases(given.shapes), given.seconds, given.jobs)
    calibrate(plan, given.out / "points.json", lambda text: print(text, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
