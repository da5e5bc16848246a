"""The verdict on a kernel: what limits it, why, and the change of the spec that reduces that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.analysis.ablated import TOO_SMALL, measured_change, too_small
from gemmgen.analysis.advice import Advice
from gemmgen.analysis.bottleneck import MEANS, RESOURCES, Bottleneck, bottleneck
from gemmgen.analysis.counts import Counts
from gemmgen.ir.types import WARP
from gemmgen.isa.memory import SECTOR
from gemmgen.spec.replace import tried
from gemmgen.text.numbers import counted, time_text

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation


LIMIT = {
    "shared": "the 32 banks of each SM deliver at most 128 bytes per clock",
    "l1": "each 128-byte line that a request touches takes one clock of its SM",
    "l2": "data that an SM does not hold in L1 or shared memory comes from the L2",
    "latency": "tiles, fragments or the launch itself are in flight, and too few warps are resident to hide that",
    "issue": "each scheduler of an SM issues at most one instruction per clock",
}
"""What is scarce where a resource limits a kernel."""


def paragraph(e: Explanation) -> str:
    """The verdict as one paragraph: what limits the kernel, by how much, why, and what to change."""
    if not has_work(e):
        return f"{e.ir.name} has nothing to multiply at this size."
    m, n, k = e.size
    text = f"{e.ir.name} at {m}x{n}x{k} on {e.gpu.title} is limited by {limit_text(e)}. {why_text(e)} {advice_text(e)}"
    return " ".join((text, *(f"Warning: {w}." for w in e.warnings)))


def has_work(e: Explanation) -> bool:
    """Whether the product has anything to multiply."""
    return e.blocks > 0 and e.counts.products > 0


def limit_text(e: Explanation) -> str:
    """The bottleneck and its cost: "L1 tag lookups: 2.1 ms of the 2.3 ms expected, 91% (modelled)"."""
    of = bottleneck(e)
    return f"{of.name}: {time_text(of.seconds)} of the {time_text(of.total_s)} expected, {of.share:.0%} (modelled)"


def why_text(e: Explanation) -> str:
    """Why it limits the kernel: the mechanism, the time beside it, and the counts behind it."""
    of = bottleneck(e)
    parts = (_mechanism(of), _times(e, of), _why(e, of))
    return " ".join(part for part in parts if part)


def _mechanism(of: Bottleneck) -> str:
    return _sentence(MEANS[of.cause] if of.cause else LIMIT.get(of.resource, ""))


def _times(e: Explanation, of: Bottleneck) -> str:
    """What the FMAs need, and the exposed latency where that is not the bottleneck's own time."""
    what, seconds = ("tensor cores", e.bound.tensor_s) if e.counts.mma else ("FMAs", e.bound.compute_s)
    text = f"The {what} alone need {time_text(seconds)}"
    latency = time_text(e.bound.latency_s)
    if of.cause and of.resource == "latency":
        return f"{text}; exposed latency is {latency} in total."
    if not of.cause and of.resource != "latency" and e.bound.latency_s:
        return f"{text}; {latency} of the expected time are exposed latency."
    return f"{text}."


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}." if clause else ""


def _why(e: Explanation, of: Bottleneck) -> str:
    if of.cause == "idle":
        return _why_idle(e)
    match of.resource:
        case "l1":
            return _why_l1(e.counts)
        case "l2":
            tiled = e.intensity.block_tile or 0.0
            return f"With these tiles, each byte loaded from global memory feeds {tiled:.3g} flop."
        case "shared":
            return _why_shared(e.counts, e.intensity.flop_per_shared_load)
        case "dram":
            ideal = e.intensity.ideal or 0.0
            return f"Moving each matrix once gives {ideal:.1f} flop/byte; this GPU needs {e.ridge:.1f}."
        case "latency":
            return _why_latency(e)
        case _:
            return _why_issue(e, of)


def _why_latency(e: Explanation) -> str:
    fits = e.occupancy
    return (
        f"Occupancy is {fits.fraction:.0%}: {counted(fits.blocks_per_sm, 'block')} of {e.ir.threads} threads per SM, "
        f"limited by {fits.limiter}."
    )


def _why_idle(e: Explanation) -> str:
    asks, held = e.spec.persistent, e.run.computed // e.blocks
    by = f", because persistent is {asks}" if asks and held > 1 else ""
    return f"The launch has {counted(e.blocks, 'block')} for {e.gpu.sms} SMs{by}."


def _why_issue(e: Explanation, of: Bottleneck) -> str:
    loop = e.loop
    if of.cause in ("fragments", "loads"):
        return _why_latency(e)
    if loop is None:
        return ""
    text = f"{'mma' if e.counts.mma else 'FMAs'} are {loop.share:.0%} of the instructions in the main loop"
    if loop.port_stall <= 0.005:
        return f"{text}."
    return (
        f"{text}, and register-bank conflicts lengthen them by {loop.port_stall:.1%}, which other warps hide in part."
    )


def _why_l1(counts: Counts) -> str:
    asked = [a for a in counts.accesses if a.space == "global" and a.cost.requests]
    worst = max(asked, key=lambda a: a.cost.lines)
    per_request = worst.cost.sectors / worst.cost.requests
    if per_request > WARP * worst.item / SECTOR:  # more than a warp's neighbouring elements need
        used = worst.cost.bytes_used / (SECTOR * worst.cost.sectors)
        return (
            f"Each request of the {worst.op} of {worst.operand} touches {per_request:.3g} sectors of {SECTOR} bytes "
            f"and uses {used:.0%} of them: the access is not coalesced."
        )
    each = sum(a.cost.lines for a in asked) * WARP / counts.products
    return f"Each FMA of a warp needs {each:.3g} lookups, because its operands come from global memory."


def _why_shared(counts: Counts, flop_per_load: float | None) -> str:
    shared = [a for a in counts.accesses if a.space == "shared" and a.cost.requests]
    worst = max(shared, key=lambda a: a.cost.merged_wavefronts)
    ways = worst.cost.wavefronts / worst.cost.ideal_wavefronts
    conflict = f"{ways:.3g}-way bank conflicts as written" if ways > 1 else "no bank conflicts"
    feeds = f"Each value read from shared memory feeds {flop_per_load:.3g} flop. " if flop_per_load else ""
    return f"{feeds}The {worst.op} of the {worst.operand} tile takes the most wavefronts, with {conflict}."


def advice_text(e: Explanation) -> str:
    """The change to try, what it saves, and what limits the kernel then."""
    found = e.advice
    return NO_ADVICE if found is None else _advised(e, found)


NO_ADVICE = "No change that was tried lowers the expected time at this size."


def _advised(e: Explanation, found: Advice) -> str:
    change, after = found.change, found.after
    span = e.spec.spans.get(change.setting)
    where = f" (line {span.line})" if span else ""
    lead = "No single change helps. Try together:" if found.together else "Try:"
    saved = 1 - after.total_s / found.before.total_s
    how = "as compiled" if found.compiled else "as written"
    again, now = found.before.by == after.by, RESOURCES[after.by]
    then = f"the kernel is then {'still ' if again else ''}limited by {now}"
    source = f"modelled; {TOO_SMALL}" if too_small(after.total_s / found.before.total_s) else "modelled"
    told = f"{lead} {change.head}{where}{change.rest}. Expected time: {saved:.0%} lower {how} ({source}); {then}."
    return f"{told}{_measured_advice(e, found)}"


def _measured_advice(e: Explanation, found: Advice) -> str:
    """What the change did where it was measured; empty where it was not."""
    if e.beta:
        return ""
    row = measured_change(e.spec, tried(e.spec, **found.change.fields), e.size, e.gpu)
    if row is None:
        return ""
    saved = 1 - row.ratio
    return f" Measured time: {abs(saved):.0%} {'lower' if saved > 0 else 'higher'} ({row.source})."
