"""The bottleneck in plain words: its name, its number, why, and the line of the spec that would move it."""

from __future__ import annotations

from gemmgen.analysis.advice import Advice
from gemmgen.analysis.bottleneck import MEANS, RESOURCES, Bottleneck, bottleneck
from gemmgen.analysis.counts import Counts
from gemmgen.analysis.explain import Explanation
from gemmgen.ir.types import WARP
from gemmgen.isa.memory import SECTOR

LIMIT = {
    "shared": "its banks deliver 128 bytes a clock to each SM, and no more",
    "l1": "each 128-byte line that a request touches takes a clock of its SM",
    "l2": "a byte that an SM has not kept comes from there",
    "latency": "tiles, fragments or the launch itself are on their way, and too few blocks fill the wait",
    "issue": "each scheduler of an SM starts one instruction a clock",
}
"""What is scarce where a resource binds."""


def paragraph(e: Explanation) -> str:
    """One paragraph: what binds, by how much, why, and what would move it."""
    if e.blocks == 0 or e.counts.fma == 0:
        return f"{e.ir.name} has nothing to multiply at this size."
    m, n, k = e.size
    of = bottleneck(e)
    what = of.name if of.cause or of.resource not in LIMIT else f"{of.name}: {LIMIT[of.resource]}"
    text = f"{e.ir.name} at {m}x{n}x{k} on {e.gpu.title} is bound by {what}. {share_text(e, of)}"
    parts = (text, _why(e, of), _advice_text(e), *(f"Warning: {w}." for w in e.warnings))
    return " ".join(part for part in parts if part)


def share_text(e: Explanation, of: Bottleneck) -> str:
    """How much of the expected time the bottleneck takes."""
    alone = f"its multiply-adds alone need {time_text(e.bound.compute_s)}"
    if of.cause:
        return (
            f"That costs {time_text(of.seconds)} of the {time_text(of.total_s)} that are expected, {of.share:.0%}, "
            f"where {alone}{_waited(e, of)} (modelled): {MEANS[of.cause]}."
        )
    if of.resource == "latency":
        return (
            f"Of the {time_text(of.total_s)} that are expected, {time_text(of.seconds)} are waited, and {alone} "
            "(modelled)."
        )
    if not e.bound.latency_s:
        return f"That takes the {time_text(of.total_s)} that are expected, and {alone} (modelled)."
    return (
        f"That takes {time_text(of.seconds)} of the {time_text(of.total_s)} that are expected, {of.share:.0%}; the "
        f"other {time_text(e.bound.latency_s)} are waited, and {alone} (modelled)."
    )


def _waited(e: Explanation, of: Bottleneck) -> str:
    """All the waiting, of which the cause is a part."""
    return f" and {time_text(e.bound.latency_s)} are waited in all" if of.resource == "latency" else ""


def _why(e: Explanation, of: Bottleneck) -> str:
    if of.cause == "idle":
        return _why_idle(e)
    match of.resource:
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
            return _why_waiting(e)
        case _:
            return _why_issue(e, of)


def _why_waiting(e: Explanation) -> str:
    fits = e.occupancy
    return (
        f"{counted(fits.blocks_per_sm, 'block')} of {e.ir.threads} threads fit{'s' if fits.blocks_per_sm == 1 else ''} "
        f"on an SM, {fits.fraction:.0%} of its warps, limited by {fits.limiter}."
    )


def _why_idle(e: Explanation) -> str:
    asks, held = e.spec.persistent, e.run.computed // e.blocks
    by = f", as persistent {asks} asks for" if asks and held > 1 else ""
    return f"{counted(e.blocks, 'block')} {'is' if e.blocks == 1 else 'are'} launched on {e.gpu.sms} SMs{by}."


def _why_issue(e: Explanation, of: Bottleneck) -> str:
    loop = e.compiled.loop if e.compiled else None
    if of.cause in ("fragments", "loads"):
        return _why_waiting(e)
    if loop is None:
        return ""
    return (
        f"Of its main loop's instructions {loop.share:.0%} are multiply-adds, and register ports make each of them "
        f"{loop.port_stall:.1%} longer" + (", which other warps fill only in part." if loop.port_stall > 0.005 else ".")
    )


def _why_l1(counts: Counts) -> str:
    asked = [a for a in counts.accesses if a.space == "global" and a.cost.requests]
    worst = max(asked, key=lambda a: a.cost.lines)
    per_request = worst.cost.sectors / worst.cost.requests
    if per_request > WARP * worst.item / SECTOR:  # more than a warp's neighbouring elements take
        used = worst.cost.bytes_used / (SECTOR * worst.cost.sectors)
        return (
            f"A request of the {worst.op} of {worst.operand} touches {per_request:.3g} sectors of {SECTOR} bytes, "
            f"and uses {used:.0%} of each: consecutive threads do not touch neighbouring elements."
        )
    each = sum(a.cost.lines for a in asked) * WARP / counts.fma
    return f"Each multiply-add of a warp takes {each:.3g} such look-ups, since its operands come from global memory."


def _why_shared(counts: Counts, flop_per_load: float | None) -> str:
    shared = [a for a in counts.accesses if a.space == "shared" and a.cost.requests]
    worst = max(shared, key=lambda a: a.cost.merged_wavefronts)
    ways = worst.cost.wavefronts / worst.cost.ideal_wavefronts
    conflict = f"{ways:.3g}-way bank conflicts as written" if ways > 1 else "no bank conflicts"
    feeds = f"A value read from shared memory feeds {flop_per_load:.3g} flop; " if flop_per_load else ""
    return f"{feeds}the {worst.op} of the {worst.operand} tile, with {conflict}, takes the most wavefronts."


def _advice_text(e: Explanation) -> str:
    found = e.advice
    return "No single setting that was tried lowers it at this size." if found is None else _advised(e, found)


def _advised(e: Explanation, found: Advice) -> str:
    change, after = found.change, found.after
    span = e.spec.spans.get(change.setting)
    where = f" (line {span.line})" if span else ""
    words = f"{change.head}{where}{change.rest}"
    saved = 1 - after.total_s / found.before.total_s
    if found.together:
        words = f"No single setting that was tried lowers it at this size, but several do together: {words}"
    words = words[0].upper() + words[1:]
    then = f"and what binds is then {RESOURCES[after.by]}"
    how = "as compiled" if found.compiled else "as written"
    return f"{words} would lower the expected time by {saved:.0%} {how}, {then}."


def counted(number: int, noun: str) -> str:
    """ "1 block", "1,024 blocks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def time_text(seconds: float) -> str:
    """A time with three digits and its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
