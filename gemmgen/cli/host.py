"""``gemmgen bench --host``: how quick gemmgen itself is, on this machine's CPU."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gemmgen
from gemmgen.cli import output

SIMULATED = """
import json, resource, sys, time
import numpy as np
import gemmgen
from gemmgen.spec.ladder import ladder_path
spec = gemmgen.load(ladder_path("warptile"))
random = np.random.default_rng(0)
a, b = (random.standard_normal((256, 256), dtype=np.float32) for _ in "ab")
start = time.perf_counter()
done = gemmgen.simulate(spec, a, b)
seconds = time.perf_counter() - start
assert not done.faults and gemmgen.verify(done.C, a, b, spec=spec).ok
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([seconds, peak / 1e6]))
"""
"""Run in a process of its own, so that its peak of memory is the simulation's."""

TEXT_SECONDS = 2.0
WARM_RUNS = 5
COLD_RUNS = 3


@dataclass(frozen=True)
class Measured:
    """One figure: what was aimed at and what was measured, in ``unit``; ``at_most`` or at least."""

    what: str
    target: float
    measured: float
    unit: str
    at_most: bool = True

    @property
    def bound(self) -> str:
        return "at most" if self.at_most else "at least"

    @property
    def verdict(self) -> str:
        return "met" if self.met else "missed"

    @property
    def met(self) -> bool:
        return self.measured <= self.target if self.at_most else self.measured >= self.target


def measure_host() -> list[Measured]:
    """Every figure, one after the other, each on an otherwise idle process."""
    with output.progress("simulating warptile at 256x256x256") as shown:
        seconds, megabytes = simulated()
        shown.update("specs to CUDA text")
        texts = texts_per_second(TEXT_SECONDS)
        shown.update("gemmgen compile, as a whole process")
        cold, warm = compile_process()
    return [
        Measured("simulate warptile at 256x256x256, all checks and counts", 1.5, seconds, "s"),
        Measured("peak memory of that process", 500, megabytes, "MB"),
        Measured("specs to CUDA text, one core", 200, texts, "a second", at_most=False),
        Measured("gemmgen compile warptile, whole process, cache cold", 1.5, cold, "s"),
        Measured("gemmgen compile warptile, whole process, cache warm", 0.5, warm, "s"),
    ]


def environment(cache: str) -> dict[str, str]:
    """This process's environment, with this gemmgen first on the path and a cache folder of its own."""
    here = str(Path(gemmgen.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "GEMMGEN_CACHE_DIR": cache}


def simulated() -> tuple[float, float]:
    """(seconds, megabytes at the peak) of simulating ``warptile`` at 256^3."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-c", SIMULATED], env=environment(cache), stdout=subprocess.PIPE, text=True, check=True
        )
    seconds, megabytes = json.loads(done.stdout)
    return seconds, megabytes


def texts_per_second(seconds: float) -> float:
    """Specs turned from text to CUDA a second: the ladder's, each under a new name, so that nothing is remembered."""
    from gemmgen.spec.ladder import ladder_names, ladder_path

    originals = [gemmgen.load(ladder_path(name)).to_text() for name in ladder_names()]
    names = ladder_names()
    made, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        which = made % len(names)
        renamed = originals[which].replace(f"kernel {names[which]}", f"kernel {names[which]}_text{made}", 1)
        gemmgen.emit(gemmgen.parse(renamed))
        made += 1
    return made / (time.perf_counter() - start)


def compile_process() -> tuple[float, float]:
    """Median seconds of a whole ``gemmgen compile`` of ``warptile``: with an empty cache, and with a filled one."""
    from gemmgen.spec.ladder import ladder_path

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gemmgen", "compile", str(ladder_path("warptile")), "-o", f"{folder}/out"]
        cold = median(lambda i: timed(command, environment(f"{folder}/cache{i}")), COLD_RUNS)
        warm = median(lambda _: timed(command, environment(f"{folder}/cache0")), WARM_RUNS)
    return cold, warm


def median(measure: Callable[[int], float], runs: int) -> float:
    return statistics.median(measure(i) for i in range(runs))


def timed(command: Sequence[str], env: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=env, capture_output=True, check=True)
    return time.perf_counter() - start


def host_json(rows: Sequence[Measured]) -> list[dict[str, Any]]:
    return [{**asdict(row), "met": row.met} for row in rows]


def host_table(rows: Sequence[Measured]) -> str:
    from gemmgen.report.table import format_table

    body = [
        [row.what, f"{row.bound} {row.target:g} {row.unit}", f"{row.measured:.3g} {row.unit}", row.verdict]
        for row in rows
    ]
    return format_table(["what", "target", "measured", ""], body)
