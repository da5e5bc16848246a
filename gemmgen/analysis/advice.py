"""The bottleneck in plain words, and the line of the spec that would move it.

What is advised is tried: each setting that exists and could help is put in, the program is lowered and counted
again, and the one that lowers the expected time most is named with what it gains. Nothing is advised that does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gemmgen.analysis.accesses import launch_grid
from gemmgen.analysis.counts import Counts, count
from gemmgen.analysis.explain import Explanation, named_registers, register_limit
from gemmgen.analysis.model import Bounds, Run, bounds
from gemmgen.analysis.occupancy import occupancy_of
from gemmgen.diagnostics import GemmgenError
from gemmgen.ir.nodes import KernelIR
from gemmgen.lower import lower
from gemmgen.spec.model import Spec
from gemmgen.tile.variant import EXACT, GUARDED_UNALIGNED

WORTH = 0.97
"""A setting is advised where it leaves less than this of the expected time."""

_LIMIT = {
    "compute": "the rate of float32 multiply-adds",
    "issue": "instruction issue: each scheduler of an SM starts one instruction a clock",
    "shared": "shared memory: its banks deliver 128 bytes a clock to each SM, and no more",
    "l1": "look-ups in the L1 cache: each 128-byte line that a request touches takes a clock of its SM",
    "l2": "traffic between the SMs and the L2 cache",
    "dram": "DRAM bandwidth",
    "latency": "waiting: a step's loads must arrive before its multiply-adds begin, and too few blocks fill the wait",
}
NAMES = {
    "compute": "arithmetic", "issue": "instruction issue", "shared": "shared memory", "l1": "look-ups in L1",
    "l2": "traffic to the L2", "dram": "DRAM bandwidth", "latency": "waiting",
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A change of one setting: the words for it, the setting whose line it is on, and what to pass to ``replace``."""

    words: str
    setting: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Advice:
    """A change that lowers the expected time; the bounds ``before`` and ``after``, both of the program as written."""

    change: Change
    before: Bounds
    after: Bounds


def paragraph(e: Explanation) -> str:
    """One paragraph: what binds, by how much, why, and what would move it."""
    if e.blocks == 0 or e.counts.fma == 0:
        return f"{e.ir.name} has nothing to multiply at this size."
    m, n, k = e.size
    bound = e.bound
    text = (
        f"{e.ir.name} at {m}x{n}x{k} on {e.gpu.title} is bound by {_LIMIT[bound.by]}. "
        f"{_share(bound)}, and its multiply-adds alone need {_time(bound.compute_s)} (modelled)."
    )
    return " ".join(part for part in (text, _why(e), _advice_text(e), *(f"Warning: {w}." for w in e.warnings)) if part)


def _share(bound: Bounds) -> str:
    """How much of the expected time what binds takes."""
    if bound.by == "latency":
        return f"Of the {_time(bound.total_s)} that are expected, {_time(bound.latency_s)} are waited"
    if bound.latency_s < 0.02 * bound.total_s:
        return f"That takes the {_time(bound.total_s)} that are expected"
    return (
        f"That alone takes {_time(bound.floor_s)} of the {_time(bound.total_s)} that are expected, waiting the other "
        f"{_time(bound.latency_s)}"
    )


def _why(e: Explanation) -> str:
    match e.bound.by:
        case "l1":
            return _why_l1(e.counts)
        case "l2":
            tiled = e.intensity.block_tile or 0.0
            return f"As tiled, a byte fetched from global memory feeds {tiled:.3g} flop."
        case "shared":
            return _why_shared(e.counts, e.intensity.flop_per_shared_load)
        case "dram":
            ideal = e.intensity.ideal or 0.0
            return f"Moving each matrix once gives {ideal:.1f} flop/byte, and this GPU needs {e.gpu.ridge:.1f}."
        case "latency":
            fits = e.occupancy
            return (
                f"{fits.blocks_per_sm} blocks of {e.ir.threads} threads fit on an SM, {fits.fraction:.0%} of its "
                f"warps, limited by {fits.limiter}."
            )
        case "issue" | "compute":
            return _why_issue(e)
        case _:
            return ""


def _why_issue(e: Explanation) -> str:
    loop = e.compiled.loop if e.compiled else None
    if loop is None:
        return ""
    return (
        f"Of its main loop's instructions {loop.share:.0%} are multiply-adds, and register ports make each of them "
        f"{loop.port_stall:.1%} longer."
    )


def _why_l1(counts: Counts) -> str:
    asked = [a for a in counts.accesses if a.space == "global" and a.cost.requests]
    worst = max(asked, key=lambda a: a.cost.lines)
    per_request = worst.cost.sectors / worst.cost.requests
    if per_request > 4:  # more than 32 neighbouring elements take
        used = worst.cost.bytes_used / (32 * worst.cost.sectors)
        return (
            f"A request of the {worst.op} of {worst.operand} touches {per_request:.3g} sectors of 32 bytes, "
            f"and uses {used:.0%} of each: consecutive threads do not touch neighbouring elements."
        )
    each = sum(a.cost.lines for a in asked) * 32 / counts.fma
    return f"Each multiply-add of a warp takes {each:.3g} such look-ups, since its operands come from global memory."


def _why_shared(counts: Counts, flop_per_load: float | None) -> str:
    shared = [a for a in counts.accesses if a.space == "shared" and a.cost.requests]
    worst = max(shared, key=lambda a: a.cost.merged_wavefronts)
    ways = worst.cost.wavefronts / worst.cost.ideal_wavefronts
    conflict = f"{ways:.3g}-way bank conflicts" if ways > 1 else "no bank conflicts"
    feeds = f"A value read from shared memory feeds {flop_per_load:.3g} flop; " if flop_per_load else ""
    return f"{feeds}the {worst.op} of the {worst.operand} tile, with {conflict}, takes the most wavefronts."


def _advice_text(e: Explanation) -> str:
    found = advise(e)
    if found is None:
        return "No single setting that was tried lowers it at this size."
    change, after = found.change, found.after
    span = e.ir.spec.spans.get(change.setting)
    where = f" (line {span.line})" if span else ""
    words = change.words[0].upper() + change.words[1:]
    return (
        f"{words}{where} would lower the expected time by {1 - after.total_s / found.before.total_s:.0%}, and what "
        f"binds is then {NAMES[after.by]}."
    )


def advise(e: Explanation) -> Advice | None:
    """The setting that lowers the expected time most, or None where none does."""
    before = _tried(e, {})
    if before is None:
        return None
    best: Advice | None = None
    for change in _changes(e.ir.spec, e.bound.by):
        after = _tried(e, change.fields)
        if after is None or after.total_s > WORTH * before.total_s:
            continue
        if best is None or after.total_s < best.after.total_s:
            best = Advice(change, before, after)
    return best


def _changes(spec: Spec, by: str) -> Iterator[Change]:
    """Settings that bear on a resource, those that cost least to write first."""
    use = spec.use
    bm, bn, bk = spec.block
    if "coalescing" not in use and by in ("l1", "l2", "latency"):
        yield _toggle(spec, "coalescing")
        return  # the rest is worth looking at once rows are walked along
    if "smem" not in use and by not in ("compute", "dram"):
        yield _toggle(spec, "smem", block=(bm, bn, max(bk, 32)))
    if "smem" in use and by in ("shared", "issue", "latency"):
        yield from _larger_thread_tiles(spec)
        missing = [t for t in ("transposeA", "float4") if t not in use and "alongK" not in use]
        if missing:
            yield _toggle(spec, *missing)
        yield from _warp_tiles(spec)
        yield from _pipelines(spec)
    if by in ("l2", "dram"):
        yield Change(f"tile block {2 * bm}x{2 * bn}x{bk}", "tile block", {"block": (2 * bm, 2 * bn, bk)})
    if by == "latency" and "smem" in use:
        yield Change(f"tile block {bm}x{bn}x{2 * bk}", "tile block", {"block": (bm, bn, 2 * bk)})


def _pipelines(spec: Spec) -> Iterator[Change]:
    """Tiles on their way while others are multiplied, and fragments fetched a step ahead."""
    if spec.stages == 1:
        yield Change("stages 2", "stages", {"stages": 2})
        yield _toggle(spec, "cpasync", words=" with stages 3", stages=3)
    if "prefetch" not in spec.use:
        yield _toggle(spec, "prefetch")


def _toggle(spec: Spec, *names: str, words: str = "", **others: Any) -> Change:
    return Change(f"adding {' and '.join(names)} to use{words}", "use", {"use": spec.use | set(names), **others})


def _larger_thread_tiles(spec: Spec) -> Iterator[Change]:
    """More outputs a thread, so that a value from shared memory feeds more multiply-adds; the block grows with it."""
    tm, tn = spec.thread
    bm, bn, bk = spec.block
    for thread, block in (
        ((8, 1), (64, 64, 8)),
        ((8, 8), (128, 128, 8)),
        ((2 * tm, tn), (2 * bm, bn, bk)),
        ((tm, 2 * tn), (bm, 2 * bn, bk)),
    ):
        if thread[0] * thread[1] > tm * tn:
            words = f"tile thread {thread[0]}x{thread[1]} with tile block {block[0]}x{block[1]}x{block[2]}"
            yield Change(
                words, "tile thread", {"thread": thread, "block": block, "warp": None, "use": spec.use - {"warptile"}}
            )


def _warp_tiles(spec: Spec) -> Iterator[Change]:
    if "warptile" in spec.use:
        return
    bm, bn, bk = spec.block
    for warp, thread, bk_ in (((64, 64), (8, 4), max(bk, 16)), ((bm // 2, bn // 2), spec.thread, bk)):
        words = f"adding warptile to use, with tile warp {warp[0]}x{warp[1]} and tile thread {thread[0]}x{thread[1]}"
        fields = {"warp": warp, "thread": thread, "block": (bm, bn, bk_), "use": spec.use | {"warptile"}}
        yield Change(words, "use", fields)


def _tried(e: Explanation, fields: dict[str, Any]) -> Bounds | None:
    """The bounds with some settings changed, or None where the spec would not be legal or no block would fit."""
    try:
        spec = e.ir.spec.replace(**fields)
    except GemmgenError:
        return None
    m, n, k = e.size
    bm, bn, bk = spec.block
    whole = m % bm == 0 and n % bn == 0 and k % bk == 0 and k % 4 == 0 and n % 4 == 0 and m % 4 == 0
    ir = lower(spec, EXACT if whole else GUARDED_UNALIGNED)
    fits = occupancy_of(e.gpu.limits, ir.threads, _registers(e, ir), ir.shared_bytes)
    if not fits.blocks_per_sm:
        return None
    leading = {f"ld{x.lower()}": pitch for x, pitch in zip("ABC", pitches(spec, e.size), strict=True)}
    scalars = {"alpha": 1.0, "beta": e.beta, "M": m, "N": n, "K": k, **leading}
    grid = launch_grid(ir, scalars)
    blocks, launches = grid[0] * grid[1] * grid[2], 1 if ir.then is None else 2
    return bounds(Run(ir, e.size, count(ir, scalars, grid), blocks, e.gpu, fits, e.beta, launches=launches))


def _registers(e: Explanation, ir: KernelIR) -> int:
    """Registers a thread that a program which was not compiled may take: its own, and as many more as this one does."""
    named = named_registers(ir.body)
    if e.compiled is None or bool(ir.shared) != bool(e.ir.shared):
        return named
    more = max(0, e.compiled.registers - named_registers(e.ir.body))
    return max(named, min(named + more, register_limit(ir, e.gpu)))


def pitches(spec: Spec, size: tuple[int, int, int]) -> tuple[int, int, int]:
    """Leading dimensions of packed A, B and C, in elements."""
    m, n, k = size
    rows, columns = (m, k, m), (k, n, n)
    orders = (spec.A.order, spec.B.order, spec.C.order)
    a, b, c = (max(1, columns[i] if orders[i] == "row" else rows[i]) for i in range(3))
    return a, b, c


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
