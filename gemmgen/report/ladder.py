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
    """A rung of the ladder: its spec, the bottleneck it removes, and the one that then shows.

    A side branch is for shapes of its own: ``after`` names the rung that it leaves from, and ``most`` is the largest
    (M, N, K) that it is for, None where that does not matter.
    """

    spec: str
    fixes: str
    leaves: str
    after: str = ""
    most: tuple[int | None, int | None, int | None] = (None, None, None)

    def size(self, whole: tuple[int, int, int]) -> tuple[int, int, int]:
        """The size at which it is shown on a ladder of that size."""
        m, n, k = (extent if most is None else min(extent, most) for extent, most in zip(whole, self.most, strict=True))
        return m, n, k

    def label(self, number: int) -> str:
        """What stands before its name in a table."""
        return "side" if self.after else str(number)


RUNGS: tuple[Rung, ...] = (
    Rung("naive", "", "look-ups in L1: uncoalesced global memory, a warp's loads of A touch 32 rows"),
    Rung(
        "coalesced",
        "look-ups in L1: coalesced, a warp's loads touch one row",
        "look-ups in L1: two loads a multiply-add, as nothing is used twice",
    ),
    Rung("smem", "look-ups in L1: a block shares its tiles", "shared memory: two loads a multiply-add"),
    Rung(
        "regblock1d",
        "shared memory: a value of B stays in a register",
        "shared memory, still: nine loads for eight multiply-adds",
    ),
    Rung(
        "regblock2d",
        "shared memory: outer products in registers",
        "shared memory: bank conflicts; and, unseen by the model, four times the global loads that are needed",
    ),
    Rung(
        "vectorized",
        "global loads, unseen by the model: each moves 16 bytes, as shared loads do with A transposed",
        "shared memory: the lanes of a warp lie far apart, and meet in banks",
    ),
    Rung(
        "warptile",
        "shared memory: the lanes of a warp lie close, and read fewer values",
        "register ports: three blocks an SM, to fill one another's waits, leave a thread few registers to choose from",
    ),
    Rung(
        "doublebuffer",
        "register ports: a second buffer fills the waits, and two blocks an SM leave a thread more registers",
        "latency of shared memory: no fragment is fetched ahead",
    ),
    Rung(
        "cpasync",
        "latency of shared memory: prefetch has fragments fetched a step ahead; cpasync, copies past the registers",
        "register ports: products in plain order often find their operands in one bank",
    ),
    Rung(
        "registerbanks",
        "register ports: in snake order a product finds an operand of the one before at hand; A's tile is copied 16 "
        "bytes an access",
        "shared memory: its banks are busy while the schedulers are not; register ports cost nearly as much, as the "
        "compiler mixes the steps",
    ),
    Rung(
        "tma",
        "register ports: each step is closed, and keeps its order; and one thread starts the copy of a whole tile",
        "other instructions: closed steps take some more; and, unseen by the model, all warps wait for one another at "
        "each tile's barrier",
    ),
    Rung(
        "pipelined",
        "waits at barriers, unseen by the model: each warp releases a tile by itself, and three are in flight",
        "other instructions: 7 in 100 of the main loop, as steps stay closed",
    ),
    Rung(
        "splitk",
        "idle multiprocessors where C has few tiles: four blocks share a sum",
        "the launch itself: a product so small is soon done",
        after="vectorized",
        most=(512, 512, 512),
    ),
    Rung(
        "skinny",
        "wasted rows of the tile where C has few: B is read once; and latency of global memory: much of it on its way",
        "shared memory: small pieces use what they read few times; and DRAM bandwidth, as much: the bytes of B",
        after="cpasync",
        most=(16, None, None),
    ),
)
"""What a rung leaves starts with the name that the model gives its bottleneck on an H200 at 4096x4096x4096."""


@dataclass(frozen=True)
class Counted:
    """Counts of one kernel in the simulator, over the whole product."""

    global_load_requests: int
    global_load_sectors: int
    global_load_bytes_used: int
    tma_load_sectors: int
    tma_load_bytes: int
    shared_load_requests: int
    shared_load_wavefronts: int
    shared_load_ideal_wavefronts: int
    fma: int

    @classmethod
    def of(cls, counters: Mapping[str, Any]) -> Counted:
        """From ``Simulation.counters``, or an explanation's."""
        loads, shared = counters["global"]["load"], counters["shared"]["load"]
        boxes = [a for a in counters["accesses"] if a["space"] == "tma"]
        return cls(
            loads["requests"],
            loads["sectors"],
            loads["bytes_used"],
            sum(a["sectors"] for a in boxes),
            sum(a["bytes"] for a in boxes),
            shared["requests"],
            shared["wavefronts"],
            shared["ideal_wavefronts"],
            counters["fma"],
        )


@dataclass(frozen=True)
class RungResult:
    """One line of the ladder. ``timed`` on a GPU; elsewhere ``counted``, where the kernel can be.

    ``comparison`` is the run at the rung's own size, where that is not the ladder's; ``skipped`` says why a rung was
    not run on this GPU.
    """

    rung: Rung
    verified: bool
    timed: Timing | None = None
    counted: Counted | None = None
    comparison: Comparison | None = None
    skipped: str = ""


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
        timed, run = result.timed, self.run_of(result)
        measured = run.timing_dict(timed) if run and timed else {}
        return {
            "kernel": result.rung.spec,
            "size": list(result.rung.size(self.size)),
            "verified": result.verified,
            "skipped": result.skipped or None,
            **measured,
            "percent_of_cublas": measured.get("percent_of_baseline"),
            "counts": result.counted and asdict(result.counted),
            "bottleneck_fixed": result.rung.fixes or None,
            "new_bottleneck": result.rung.leaves,
        }

    def run_of(self, result: RungResult) -> Comparison | None:
        """The run in which a rung was timed."""
        return result.comparison or self.comparison

    def lead(self, number: int) -> list[object]:
        """Number and name of a rung, with its size where that is its own."""
        rung = self.rungs[number].rung
        own = rung.size(self.size)
        name = rung.spec if own == tuple(self.size) else f"{rung.spec} {'x'.join(map(str, own))}"
        return [rung.label(number), name]


def ladder_table(result: LadderResult) -> str:
    """The lesson's table: times where there is a GPU, counts where there is none."""
    return counted_table(result) if result.comparison is None else timed_table(result, result.comparison)


def timed_table(result: LadderResult, run: Comparison) -> str:
    rows: list[list[object]] = []
    for number, line in enumerate(result.rungs):
        own = result.run_of(line)
        assert own is not None
        cells = [None] * 4 if line.timed is None else own.cells(line.timed)
        rows.append([*result.lead(number), *cells, line.rung.fixes or None, line.skipped or line.rung.leaves])
    if run.base is not None:
        rows.append([None, "cuBLAS", *run.cells(run.base), None, None])
    headers = ["#", "kernel", "time", "spread", "GFLOP/s", "of cuBLAS", "bottleneck fixed", "new bottleneck"]
    return f"{format_table(headers, rows)}\n{method(run)}\n{SIDE_EXPLAINED}"


def counted_table(result: LadderResult) -> str:
    rows: list[list[object]] = []
    for number, line in enumerate(result.rungs):
        c, rung = line.counted, line.rung
        counts: list[object] = [None] * 4
        if c is not None:  # else nobody knows how to count this kernel
            moved = c.global_load_sectors + c.tma_load_sectors
            used = f"{(c.global_load_bytes_used + c.tma_load_bytes) / max(1, 32 * moved):.0%}"
            a_load = f"{c.fma / max(1, 32 * c.shared_load_requests):.1f}" if c.shared_load_requests else None
            counts = [moved, used, c.shared_load_wavefronts, a_load]
        rows.append([*result.lead(number), *counts, rung.fixes or None, rung.leaves])
    headers = [
        "#", "kernel", "global sectors", "of them used", "shared wavefronts", "FMA a shared load", "bottleneck fixed",
        "new bottleneck",
    ]  # fmt: skip
    return f"{format_table(headers, rows)}\n{COUNTS_EXPLAINED}\n{SIDE_EXPLAINED}"


SIDE_EXPLAINED = "side: a branch for shapes of its own; in each dimension no larger than what it is for"
COUNTS_EXPLAINED = (
    "loads only: 32-byte sectors read from global memory, TMA's boxes among them, and the part of their bytes that\n"
    "was asked for; wavefronts are how often shared memory serves a warp; FMA a shared load is for one thread"
)
