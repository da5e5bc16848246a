"""The ladder as a table: what each rung repairs and what it leaves, with what was timed or counted of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.report.bench import Comparison, method
from gemmgen.report.table import format_table

if TYPE_CHECKING:
    from gemmgen.runtime.timing import Timing


@dataclass(frozen=True)
class Rung:
    """A rung of the ladder: its spec, the bottleneck it removes, and the one that then shows."""

    spec: str
    fixes: str
    leaves: str


RUNGS: tuple[Rung, ...] = (
    Rung("naive", "", "uncoalesced global memory"),
    Rung("coalesced", "wasted global bandwidth", "global traffic, as nothing is used twice"),
    Rung("smem", "global traffic: a block shares its tiles", "shared-memory bandwidth: two loads a multiply-add"),
    Rung("regblock1d", "shared bandwidth: a value of B stays in a register", "shared-memory bandwidth, still"),
    Rung("regblock2d", "shared bandwidth: outer products in registers", "width of global and shared accesses"),
    Rung(
        "vectorized", "access width: 16 bytes an access, A transposed", "movement of data between warps and registers"
    ),
    Rung("warptile", "reuse and scheduling within a warp", "latency: one buffer, two barriers a step"),
)


@dataclass(frozen=True)
class Counted:
    """Counts of one kernel in the simulator, over the whole product."""

    global_load_requests: int
    global_load_sectors: int
    global_load_bytes_used: int
    shared_load_requests: int
    shared_load_wavefronts: int
    shared_load_ideal_wavefronts: int
    fma: int

    @classmethod
    def of(cls, counters: Mapping[str, Any]) -> Counted:
        """From ``Simulation.counters``."""
        loads, shared = counters["global"]["load"], counters["shared"]["load"]
        return cls(
            loads["requests"],
            loads["sectors"],
            loads["bytes_used"],
            shared["requests"],
            shared["wavefronts"],
            shared["ideal_wavefronts"],
            counters["fma"],
        )


@dataclass(frozen=True)
class RungResult:
    """One line of the ladder. ``timed`` on a GPU; elsewhere ``counted``, where the kernel can be."""

    rung: Rung
    verified: bool
    timed: Timing | None = None
    counted: Counted | None = None


@dataclass(frozen=True)
class LadderResult:
    """The ladder at one size, on one machine: ``machine`` says where. ``comparison`` is the run on a GPU, cuBLAS
    included where it is there; None in the simulator."""

    size: tuple[int, int, int]
    machine: Mapping[str, Any]
    rungs: Sequence[RungResult]
    comparison: Comparison | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON: times in seconds, rates in GFLOP/s."""
        m, n, k = self.size
        run = self.comparison
        base = run and run.base
        return {
            "size": [m, n, k],
            "flops": 2 * m * n * k,
            "device": "cuda" if run else "sim",
            **self.machine,
            **(run.method_dict() if run else {}),
            "baseline": run and base and {"description": run.baseline, **run.timing_dict(base)},
            "rungs": [self._row(result) for result in self.rungs],
        }

    def _row(self, result: RungResult) -> dict[str, Any]:
        timed, run = result.timed, self.comparison
        measured = run.timing_dict(timed) if run and timed else {}
        return {
            "kernel": result.rung.spec,
            "verified": result.verified,
            **measured,
            "percent_of_cublas": measured.get("percent_of_baseline"),
            "counts": result.counted and asdict(result.counted),
            "bottleneck_fixed": result.rung.fixes or None,
            "new_bottleneck": result.rung.leaves,
        }


def ladder_table(result: LadderResult) -> str:
    """The lesson's table: times where there is a GPU, counts where there is none."""
    return counted_table(result) if result.comparison is None else timed_table(result, result.comparison)


def timed_table(result: LadderResult, run: Comparison) -> str:
    rows: list[list[object]] = []
    for number, line in enumerate(result.rungs):
        assert line.timed is not None
        rows.append([number, line.rung.spec, *run.cells(line.timed), line.rung.fixes or None, line.rung.leaves])
    if run.base is not None:
        rows.append([None, "cuBLAS", *run.cells(run.base), None, None])
    headers = ["#", "kernel", "time", "spread", "GFLOP/s", "of cuBLAS", "bottleneck fixed", "new bottleneck"]
    return f"{format_table(headers, rows)}\n{method(run)}"


def counted_table(result: LadderResult) -> str:
    rows: list[list[object]] = []
    for number, line in enumerate(result.rungs):
        c, rung = line.counted, line.rung
        if c is None:  # nobody knows how to count this kernel
            rows.append([number, rung.spec, None, None, None, None, rung.fixes or None, rung.leaves])
            continue
        used = f"{c.global_load_bytes_used / max(1, 32 * c.global_load_sectors):.0%}"
        a_load = f"{c.fma / max(1, 32 * c.shared_load_requests):.1f}" if c.shared_load_requests else None
        counts = [c.global_load_sectors, used, c.shared_load_wavefronts, a_load]
        rows.append([number, rung.spec, *counts, rung.fixes or None, rung.leaves])
    headers = [
        "#", "kernel", "global sectors", "of them used", "shared wavefronts", "FMA a shared load", "bottleneck fixed",
        "new bottleneck",
    ]  # fmt: skip
    return f"{format_table(headers, rows)}\n{COUNTS_EXPLAINED}"


COUNTS_EXPLAINED = (
    "loads only: 32-byte sectors read from global memory, and the part of their bytes that the warps asked for;\n"
    "wavefronts are the turns that shared memory takes to serve the warps; FMA a shared load is for one thread"
)
