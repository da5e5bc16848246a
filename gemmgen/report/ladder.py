"""The ladder as a table: the bottleneck that each rung removes, the one that is left, and its times or counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.ir.types import WARP
from gemmgen.isa.memory import SECTOR
from gemmgen.report.bench import Comparison, method
from gemmgen.report.table import duration, format_table
from gemmgen.target import GPUS
from gemmgen.text.wrap import wrapped

if TYPE_CHECKING:
    from gemmgen.runtime.timing import Timing


@dataclass(frozen=True)
class Rung:
    """A rung of the ladder: its spec, the bottleneck that it removes, and the bottleneck that is left.

    A side branch is for particular shapes: ``after`` names the rung that it starts from, and ``most`` is the largest
    (M, N, K) that it is for; None: any.
    """

    spec: str
    fixes: str
    leaves: str
    after: str = ""
    most: tuple[int | None, int | None, int | None] = (None, None, None)

    def size(self, whole: tuple[int, int, int]) -> tuple[int, int, int]:
        """The size at which a ladder of size ``whole`` shows it."""
        m, n, k = (extent if most is None else min(extent, most) for extent, most in zip(whole, self.most, strict=True))
        return m, n, k

    def label(self, number: int) -> str:
        """Its number in a table; "side" for a side branch."""
        return "side" if self.after else str(number)


RUNGS: tuple[Rung, ...] = (
    Rung("naive", "", "L1 tag lookups: uncoalesced loads, each warp load of A touches 32 rows"),
    Rung(
        "coalesced",
        "L1 tag lookups: coalesced, each warp load touches one row",
        "L1 tag lookups: two loads per FMA, no value is reused",
    ),
    Rung(
        "smem",
        "L1 tag lookups: the threads of a block share tiles in shared memory",
        "shared-memory bandwidth: two loads per FMA",
    ),
    Rung(
        "regblock1d",
        "shared-memory bandwidth: a value of B in a register feeds eight FMAs",
        "shared-memory bandwidth: nine loads per eight FMAs",
    ),
    Rung(
        "regblock2d",
        "shared-memory bandwidth: outer products in registers",
        "shared-memory bandwidth: bank conflicts; not modelled: 4-byte global loads, four times as many as needed",
    ),
    Rung(
        "vectorized",
        "global load instructions (not modelled): 16 bytes per access, also from shared memory, as A is transposed",
        "shared-memory bandwidth: the lanes of a warp read distant columns, which causes bank conflicts",
    ),
    Rung(
        "warptile",
        "shared-memory bandwidth: the lanes of a warp are neighbours and read fewer distinct values",
        "register-bank conflicts: three blocks per SM hide latency, but leave too few registers per thread to avoid "
        "bank conflicts",
    ),
    Rung(
        "doublebuffer",
        "register-bank conflicts: a second buffer hides latency, so two blocks per SM suffice and leave more registers "
        "per thread",
        "shared-memory latency: fragments are not loaded early",
    ),
    Rung(
        "cpasync",
        "shared-memory latency: prefetch loads fragments one step early; cp.async bypasses registers",
        "register-bank conflicts: in row order the operands of an FMA are often in one bank",
    ),
    Rung(
        "registerbanks",
        "register-bank conflicts: snake order reuses an operand of the previous FMA; the A tile is copied 16 bytes per "
        "access",
        "shared-memory bandwidth: the banks are busy while the schedulers stall; register-bank conflicts cost nearly "
        "as much, because the compiler mixes the FMAs of several steps",
    ),
    Rung(
        "tma",
        "register-bank conflicts: separators keep the FMA order of each step; one thread issues the TMA copies",
        "non-FMA instructions: separators add some; not modelled: all warps stall at the barrier of each tile",
    ),
    Rung(
        "pipelined",
        "barrier stalls (not modelled): each warp releases a stage by itself, and three stages are in flight",
        "non-FMA instructions: 7% of the main loop, because separators keep steps apart",
    ),
    Rung(
        "splitk",
        "idle SMs where C has few tiles: four blocks share each sum over K",
        "launch overhead: the product itself takes little time",
        after="vectorized",
        most=(512, 512, 512),
    ),
    Rung(
        "skinny",
        "unused tile rows where C has few rows: B is read once; global-memory latency: many loads are in flight",
        "shared-memory bandwidth: small thread tiles reuse each value few times; DRAM bandwidth for B costs as much",
        after="cpasync",
        most=(16, None, None),
    ),
)
"""``leaves`` starts with the name that the model gives the rung's bottleneck on an H200 at 4096x4096x4096."""
RECORDED_ON = "h200"
"""The GPU on which the ladder's times were recorded, and whose bottlenecks its words are about."""
WORDS_AT = (4096, 4096, 4096)
"""The size at which those are its bottlenecks."""
RUNGS_BF16: tuple[Rung, ...] = (
    Rung(
        "mma",
        "",
        "shared-memory bandwidth: fragments come 2 and 4 bytes at a time, with bank conflicts",
    ),
    Rung(
        "mma_ldmatrix",
        "non-mma instructions: one ldmatrix loads four 8x8 matrices, and transposes those of B",
        "shared-memory bandwidth: the eight rows of a matrix are in the same banks",
    ),
    Rung(
        "mma_swizzled",
        "shared-memory bandwidth: the pieces of each row are permuted, so that eight rows are in different banks",
        "shared-memory latency: fragments are not loaded early, and all warps stall while a tile arrives",
    ),
    Rung(
        "mma_pipelined",
        "global-memory latency: two tiles are in flight; shared-memory latency: fragments are loaded a step early",
        "tensor cores: mma.sync reaches 62% of the rate that sm_90's own instructions do",
    ),
    Rung(
        "wgmma",
        "tensor cores: sm_90's own instruction reads both tiles from shared memory, where TMA wrote them",
        "L2 bandwidth (modelled); measured, the warps that issue copies and store C leave the tensor cores idle",
    ),
    Rung(
        "wgmma_roles",
        "the warps that multiply issue no copies: one warp group brings tiles as stages become free",
        "L2 bandwidth (modelled); measured, a block's start and end leave the tensor cores idle",
    ),
    Rung(
        "wgmma_persistent",
        "a block goes on to the next tile of C, whose tiles of A and B arrive while it stores C",
        "L2 bandwidth (modelled); measured, stores of 4 bytes from registers",
    ),
    Rung(
        "wgmma_store",
        "C's tile passes through shared memory, and the TMA engine stores rows of 128 bytes",
        "L2 bandwidth (modelled); measured, the tensor cores at the clock that the power limit leaves",
    ),
)
LADDERS: Mapping[str, tuple[Rung, ...]] = {"f32": RUNGS, "bf16": RUNGS_BF16}
"""The ladders by the type that they multiply."""


FLOPS = 2
"""Of a multiply-add."""


@dataclass(frozen=True)
class Counted:
    """Exact counts of one kernel for the whole product; ``fma`` are multiply-adds, those of tensor cores included."""

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
        """From ``Simulation.counters`` or an explanation's."""
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
            counters["fma"] + counters.get("tensor", 0) // FLOPS,
        )


@dataclass(frozen=True)
class RungResult:
    """One row of the ladder. ``timed`` on a GPU; elsewhere ``counted``, where the kernel can be counted.

    ``comparison`` is the run at the rung's own size, where that is not the ladder's; ``skipped`` says why a rung was
    not run on this GPU. ``expected_s`` is the modelled time, ``recorded_s`` a time measured earlier on the same GPU,
    each where it is known.
    """

    rung: Rung
    verified: bool
    timed: Timing | None = None
    counted: Counted | None = None
    comparison: Comparison | None = None
    skipped: str = ""
    expected_s: float | None = None
    recorded_s: float | None = None


@dataclass(frozen=True)
class LadderResult:
    """The ladder at one size on one machine, which ``machine`` describes. ``comparison`` is the run on a GPU, with
    cuBLAS where it is installed; None in the simulator. ``modelled`` names the GPU of expected and recorded times."""

    size: tuple[int, int, int]
    machine: Mapping[str, Any]
    rungs: Sequence[RungResult]
    comparison: Comparison | None = None
    modelled: str = ""

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
            "bottlenecks_of": {"gpu": RECORDED_ON, "size": list(WORDS_AT)},
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
        """The run that timed a rung."""
        return result.comparison or self.comparison

    def lead(self, number: int) -> list[object]:
        """Number and name of a rung, with its size where that differs from the ladder's."""
        rung = self.rungs[number].rung
        own = rung.size(self.size)
        name = rung.spec if own == tuple(self.size) else f"{rung.spec} {'x'.join(map(str, own))}"
        return [rung.label(number), name]


def ladder_table(result: LadderResult) -> str:
    """Times where there is a GPU, counts where there is none."""
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
    notes = [method(run), SIDE_EXPLAINED, _words_explained(result)]
    return "\n".join([format_table(headers, rows, keys=2), "", *(wrapped(note) for note in notes if note)])


def counted_table(result: LadderResult) -> str:
    rows: list[list[object]] = []
    for number, line in enumerate(result.rungs):
        c, rung = line.counted, line.rung
        counts: list[object] = [None] * 4
        if c is not None:  # else the kernel cannot be counted
            moved = c.global_load_sectors + c.tma_load_sectors
            used = f"{(c.global_load_bytes_used + c.tma_load_bytes) / max(1, SECTOR * moved):.0%}"
            a_load = f"{c.fma / max(1, WARP * c.shared_load_requests):.1f}" if c.shared_load_requests else None
            counts = [moved, used, c.shared_load_wavefronts, a_load]
        rows.append(
            [
                *result.lead(number),
                *_known_times(result, line),
                *counts,
                rung.fixes or None,
                line.skipped or rung.leaves,
            ]
        )
    headers: list[str] = [
        "#", "kernel", *filter(None, _known_times(result)), "global sectors", "bytes used", "shared wavefronts",
        "FMAs per shared load", "bottleneck fixed", "new bottleneck",
    ]  # fmt: skip
    notes = [COUNTS_EXPLAINED, _times_explained(result), SIDE_EXPLAINED, _words_explained(result)]
    return "\n".join([format_table(headers, rows, keys=2), "", *(wrapped(note) for note in notes if note)])


def _known_times(result: LadderResult, line: RungResult | None = None) -> list[str | None]:
    """The expected and the measured time of a row, or their headers; a time that no row has is left out."""
    found: list[str | None] = []
    if any(r.expected_s is not None for r in result.rungs):
        found.append("expected" if line is None else _time(line.expected_s))
    if any(r.recorded_s is not None for r in result.rungs):
        found.append("measured" if line is None else _time(line.recorded_s))
    return found


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)


def _times_explained(result: LadderResult) -> str:
    """On which GPU the times are modelled and were measured; empty where there are none."""
    what = [name for name in ("expected", "measured") if name in _known_times(result)]
    how = {"expected": "modelled for", "measured": "recorded on"}
    return "; ".join(f"{name}: time {how[name]} an {result.modelled}" for name in what)


def _words_explained(result: LadderResult) -> str:
    """Where the bottlenecks that are named are those of a kernel; empty where that is this very run."""
    gpu = GPUS[RECORDED_ON]
    machine = str(result.machine.get("gpu") or "") if result.comparison else result.modelled
    if result.size == WORDS_AT and (gpu.name in machine.lower() or gpu.title == machine):
        return ""
    at, size = "x".join(map(str, WORDS_AT)), "x".join(map(str, result.size))
    other = next((x.name for x in GPUS.values() if x.title == result.modelled and x.name != RECORDED_ON), "")
    asked = f"--size {size}{other and f' --gpu {other}'}"
    return (
        f"The bottlenecks are those on an {gpu.title} at {at}, where the product fills the GPU. "
        f"`gemmgen explain NAME {asked}` shows what limits a kernel here."
    )


SIDE_EXPLAINED = "side: a branch for particular shapes, shown at no more than the shape that it is for"
COUNTS_EXPLAINED = (
    "Counts are of loads. Global sectors: 32 bytes each, TMA boxes included; bytes used: share of the sectors' bytes "
    "that lanes request; wavefronts: passes of the shared-memory banks; FMAs per shared load: of one thread."
)
