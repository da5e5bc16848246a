"""The text of an explanation, which ``gemmgen explain`` prints: the verdict first, then the tables behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gemmgen.analysis.bottleneck import CAUSES, bottleneck, costs
from gemmgen.analysis.compiled import as_compiled, as_written
from gemmgen.analysis.counts import AccessCost, Counts
from gemmgen.analysis.paragraph import advice_text, has_work, limit_text, paragraph, why_text
from gemmgen.analysis.recorded import measured
from gemmgen.analysis.sass import MainLoop
from gemmgen.analysis.traffic import compulsory_bytes, ratio
from gemmgen.ir.types import F32
from gemmgen.isa.epilogue import chain_of
from gemmgen.isa.memory import SECTOR
from gemmgen.text.numbers import counted, duration, listed, size_text, time_text
from gemmgen.text.table import format_table
from gemmgen.text.wrap import wrapped

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation


WHAT = {
    "compute": "FMAs",
    "tensor": "flops of the tensor cores",
    "issue": "issue slots, one per instruction",
    "shared": "shared-memory wavefronts, as compiled",
    "l1": "128-byte lines that global requests touch",
    "l2": "bytes between SMs and L2, tiles once",
    "dram": "bytes of DRAM, each matrix once",
    "latency": "exposed latency, on top of the largest",
}
"""What is counted for the time of each resource."""


def explanation_text(e: Explanation) -> str:
    """The whole explanation, for a terminal or a file."""
    parts = [heading(e), verdict_text(e), *accesses_text(e), resources_text(e)]
    parts += [traffic_text(e), bounds_text(e), loop_text(e.loop)]
    return "\n\n".join(part for part in parts if part)


def heading(e: Explanation) -> str:
    """The kernel, the product, the GPU and the launch."""
    m, n, k = e.size
    blocks = f"{counted(e.blocks, 'block')} of {counted(e.ir.threads, 'thread')}"
    if e.spec.persistent and e.blocks:
        most = -(-e.run.computed // e.blocks)
        blocks += f", at most {counted(most, 'tile')} of C per block"
    return wrapped(f"{e.ir.name} {m}x{n}x{k}, beta {e.beta:g}, on {e.gpu.title}: {e.variant} variant, {blocks}")


def verdict_text(e: Explanation) -> str:
    """What limits the kernel, why, what to change, and the measured time where one is recorded."""
    if not has_work(e):
        return wrapped(paragraph(e))
    return "\n".join(wrapped(f"{label}: {text}", first="", rest="  ") for label, text in verdict(e))


def verdict(e: Explanation) -> list[tuple[str, str]]:
    """The verdict as labels and sentences."""
    if not has_work(e):
        return [("limited by", paragraph(e))]
    told = [("limited by", limit_text(e)), ("why", why_text(e)), ("to change", advice_text(e))]
    told += [("measured", found)] if (found := measured_text(e)) else []
    return told + [("warning", w) for w in e.warnings]


def measured_text(e: Explanation) -> str:
    """The measured time beside the expected one, with its source; empty where none is recorded."""
    found = measured(e)
    if found is None:
        return ""
    ratio = f", {found.seconds / e.bound.total_s:.2f} times the expected time" if e.bound.total_s else ""
    return f"{time_text(found.seconds)}{ratio} ({found.source})"


# --- Accesses -------------------------------------------------------------------------------------------------------


def accesses_text(e: Explanation) -> list[str]:
    """A table of the accesses to global memory and one of those to shared memory, where there are any."""
    located = list(zip((a for a in e.counts.accesses if a.cost.requests), e.accesses(), strict=True))
    rows = [(a, [row["spec_line"], row["cuda_line"]]) for a, row in located]
    if not rows:
        return ["No access is executed."]
    outer = [[*_global_cells(a), *map(_line, lines)] for a, lines in rows if a.space != "shared"]
    inner = [[*_shared_cells(a), *map(_line, lines)] for a, lines in rows if a.space == "shared"]
    found = []
    if outer:
        found.append(f"{format_table([*GLOBAL_HEADERS, *LINES], outer)}\n{wrapped(GLOBAL_EXPLAINED)}")
    if inner:
        found.append(f"{format_table([*SHARED_HEADERS, *LINES], inner)}\n{wrapped(SHARED_EXPLAINED)}")
    return found


GLOBAL_HEADERS = ("global access", "bytes per lane", "requests", "sectors", "sectors per request", "bytes used")
SHARED_HEADERS = ("shared access", "bytes per lane", "requests", "wavefronts", "bank conflicts")
LINES = ("spec line", "CUDA line")
GLOBAL_EXPLAINED = (
    "request: one instruction of one warp; sector: 32 bytes; bytes used: share of the sectors' bytes that lanes request"
)
SHARED_EXPLAINED = (
    "wavefront: one pass of the banks; n-way: n times the wavefronts of the same access without bank conflicts"
)


def _global_cells(a: AccessCost) -> list[object]:
    c = a.cost
    used = f"{c.bytes_used / (SECTOR * c.sectors):.0%}"
    boxes = a.space == "tma"
    name = f"{a.op} {a.operand}{', TMA boxes' if boxes else ''}"
    return [name, None if boxes else a.item * a.width, c.requests, c.sectors, c.sectors / c.requests, used]


def _shared_cells(a: AccessCost) -> list[object]:
    c = a.cost
    ways = c.wavefronts / c.ideal_wavefronts
    name = f"{a.op} {a.operand} tile"
    return [name, a.item * a.width, c.requests, c.wavefronts, "none" if ways == 1 else f"{ways:.3g}-way"]


def _line(number: int | None) -> str | None:
    return None if number is None else str(number)


# --- Resources ------------------------------------------------------------------------------------------------------


def resources_text(e: Explanation) -> str:
    """FMAs per shared load; registers, spills, shared memory, occupancy and its limiter."""
    return "\n".join(wrapped(line, first="", rest="  ") for line in _resource_lines(e))


def _resource_lines(e: Explanation) -> Iterator[str]:
    written, compiled = as_written(e.counts), as_compiled(e.counts, e.loop)
    if e.counts.mma:
        yield f"{e.counts.mma:,} mma of single warps; the product needs {e.flops:,} flop"
    else:
        yield f"{e.counts.fma:,} FMAs of single threads; the product needs {e.flops:,} flop"
    if written.requests:
        yield _per_load("as written", e.counts, written.requests, written.wavefronts)
    if compiled.requests:  # none for an empty sum whose cluster reads zeros from its blocks
        how = "as compiled" if compiled.seen else "merged as far as possible (SASS not inspected)"
        yield _per_load(how, e.counts, compiled.requests, compiled.wavefronts)
    registers = "registers: unknown, the kernel was not compiled"
    if e.compiled is not None:
        c = e.compiled
        spills = f"{c.spill_bytes} bytes per thread spilled" if c.spill_bytes else "no spills"
        registers = f"registers: {c.registers} per thread, {spills} ({c.arch})"
    shared = f"; shared memory: {e.ir.shared_bytes:,} bytes per block" if e.ir.shared_bytes else ""
    yield f"{registers}{shared}"
    fits = e.occupancy
    yield (
        f"occupancy: {fits.fraction:.0%}, {counted(fits.blocks_per_sm, 'block')} and "
        f"{counted(fits.warps_per_sm, 'warp')} per SM, limited by {fits.limiter}"
    )
    if e.spec.epilogue:
        flops = sum(x.row.flops for x in chain_of(e.spec.epilogue))
        beside = f", {size_text(sum(e.beside.values()))} of {listed(list(e.beside))}" if e.beside else ""
        yield f"epilogue: {' -> '.join(e.spec.epilogue)}: about {counted(flops, 'flop')} per element of C{beside}"
    if e.copies:
        what, verb = listed(list(e.copies)), "is" if len(e.copies) == 1 else "are"
        moved = size_text(sum(e.copies.values()))
        yield f"before the launch {what} {verb} copied to aligned rows, {moved}; counts and times leave the copies out"


def _per_load(how: str, counts: Counts, requests: int, wavefronts: int) -> str:
    feeds, what = counts.issued / requests, "mma" if counts.mma else "FMAs"
    cost = f"{counted(requests, 'request')}, {counted(wavefronts, 'wavefront')}"
    return f"shared loads {how}: {cost}, {feeds:.3g} {what} per shared load"


def traffic_text(e: Explanation) -> str:
    """Bytes and arithmetic intensity at each level of memory."""
    i = e.intensity
    asked = e.flops / i.block_tile if i.block_tile else 0.0
    sectors = SECTOR * (e.counts.total("global", "load").sectors + e.counts.total("global", "store").sectors)
    shared = sum(a.item * a.cost.elements for a in e.counts.accesses if (a.space, a.op) == ("shared", "load"))
    rows: list[list[object]] = [
        ["shared memory to registers", size_text(shared), ratio(e.flops, shared)],
        ["global memory, requested by threads", size_text(asked), i.block_tile],
        ["global memory, in sectors", size_text(sectors), ratio(e.flops, sectors)],
        ["DRAM, each matrix once", size_text(compulsory_bytes(e.size, e.beta, e.items, e.beside)), i.ideal],
        ["for comparison: two loads per FMA", size_text(e.flops * (e.items[0] + e.items[1]) // 2), i.naive],
    ]
    by = F32.numpy if e.spec.way.plain else f"{e.spec.A.dtype} by {e.spec.math.split()[0]}"
    ridge = f"On this GPU, {by} is limited by arithmetic from {e.ridge:.1f} flop/byte of DRAM traffic on."
    return f"{format_table(['traffic', 'bytes', 'flop/byte'], rows)}\n{wrapped(ridge)}"


# --- Times ----------------------------------------------------------------------------------------------------------


def bounds_text(e: Explanation) -> str:
    """The time that each resource needs, the one that limits, and the expected and the measured time."""
    b = e.bound
    rows: list[list[object]] = []
    for r in b.resources:
        share = f"{b.seconds(r) / b.total_s:.0%}" if b.total_s else None
        rows.append([r, duration(b.seconds(r)), share, "limits" if r == b.by and b.total_s else "", WHAT[r]])
    rows.append(["expected", duration(b.total_s), None, "", "largest plus exposed latency (modelled)"])
    if found := measured(e):
        share = f"{found.seconds / b.total_s:.0%}" if b.total_s else None
        rows.append(["measured", duration(found.seconds), share, "", found.source])
    return format_table(["resource", "time", "of expected", "", "counted"], rows) + _lost_text(e)


def _lost_text(e: Explanation) -> str:
    """What the kernel loses time to, where the limiting resource does not say it; empty where it does."""
    if not bottleneck(e).cause:
        return ""
    found = sorted(costs(e).items(), key=lambda item: item[1], reverse=True)
    told = [f"{CAUSES[cause]} {duration(s)}" for cause, s in found if s > 0.005 * e.bound.total_s]
    return "\n" + wrapped(f"time saved without one of these (modelled): {', '.join(told)}", first="", rest="  ")


HOW_TO_INSPECT = "`pip install nvidia-cuda-nvdisasm` installs nvdisasm, which reads it (with NVRTC)"


def unread_text(explanations: Iterable[Explanation]) -> str:
    """A line where the SASS of several kernels was not inspected; empty where all of it was."""
    if all(e.loop is not None for e in explanations if e.counts.products):
        return ""
    return wrapped(
        "SASS not inspected: expected times leave out register-bank conflicts and non-FMA instructions; "
        f"{HOW_TO_INSPECT}"
    )


def loop_text(loop: MainLoop | None) -> str:
    """The main loop as compiled."""
    if loop is None:
        return wrapped(
            f"main loop: SASS not inspected, so the verdict lacks register-bank conflicts and non-FMA instructions; "
            f"{HOW_TO_INSPECT}"
        )
    return "\n".join(wrapped(line, first="", rest="  ") for line in _loop_lines(loop))


def _loop_lines(loop: MainLoop) -> Iterator[str]:
    moved = ", ".join(f"{n} {name}.{bits}" for (name, bits), n in sorted(loop.accesses.items())) or "none"
    yield (
        f"main loop (SASS {loop.first:#x} to {loop.last:#x}): {counted(loop.instructions, 'instruction')}, "
        f"{loop.ffma} {loop.multiplies} ({loop.share:.0%})"
        + (f", {counted(loop.barriers, 'barrier')}" if loop.barriers else "")
    )
    yield f"  accesses, by bits per lane: {moved}"
    conflicts = (
        f"{loop.port_cycles / loop.ffma:.3f} clocks per FFMA, {loop.port_stall:.1%} more than without conflicts"
        if loop.port_stall > 0.0005
        else "none"
    )
    yield f"  register-bank conflicts: {conflicts}"
    if loop.spills:
        yield f"  spills: {counted(loop.spills, 'instruction')} in the kernel"
