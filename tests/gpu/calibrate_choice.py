"""Measures the pool on this GPU: the points that the constants of the choice are fitted to.

python tests/gpu/calibrate_choice.py [--out DIR] [--seconds 400] [--shapes 300] [--jobs N]

Writes DIR/points.json as it goes. Shapes are drawn with seeds that no judgement uses (those use 1 to 4).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gemmgen.tune.calibrate import Plan, calibrate  # noqa: E402 - the checkout, wherever this is started
from gemmgen.tune.suite import drawn  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--shapes", type=int, default=320)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    plan = Plan(drawn(given.shapes), given.seconds, given.jobs)
    calibrate(plan, given.out / "points.json", lambda text: print(text, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
