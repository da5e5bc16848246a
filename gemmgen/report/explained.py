"""An explanation as a person reads it: the bottleneck first, then the tables it follows from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from gemmgen.analysis.bottleneck import CAUSES, bottleneck, costs
from gemmgen.analysis.compiled import as_compiled, as_written
from gemmgen.analysis.counts import AccessCost
from gemmgen.analysis.explain import Explanation
from gemmgen.analysis.paragraph import counted
from gemmgen.analysis.sass import MainLoop
from gemmgen.analysis.traffic import compulsory_bytes
from gemmgen.ir.types import WARP
from gemmgen.isa.memory import SECTOR
from gemmgen.report.table import duration, format_table

WIDTH = 118

WHAT = {
    "compute": "multiply-adds",
    "tensor": "flops of the tensor cores",
    "issue": "issue slots: every instruction takes one of a scheduler",
    "shared": "shared memory: wavefronts, loads joined as the compiler does",
    "l1": "L1 tags: 128-byte lines that global requests touch",
    "l2": "bytes between the SMs and the L2, each block's tiles once",
    "dram": "bytes of DRAM, each matrix once",
    "latency": "exposed latency: what waiting adds to the largest of these",
}


def explanation_dict(e: Explanation) -> dict[str, Any]:
    """``to_dict`` and what else there is to say: the expected time, shared loads as written and as compiled, the main
    loop, warnings and the paragraph."""
    written, compiled = as_written(e.counts), as_compiled(e.counts, _loop(e))
    return {
        **e.to_dict(),
        "expected_s": e.bound.total_s,
        "fma_per_shared_load": _ratio(e.counts.fma, WARP * written.requests),
        "shared_loads": {
            "written": {"requests": written.requests, "wavefronts": written.wavefronts},
            "compiled": {"requests": compiled.requests, "wavefronts": compiled.wavefronts, "seen": compiled.seen},
        },
        "main_loop": loop.to_dict() if (loop := _loop(e)) else None,
        "copies": dict(e.copies),
        "warnings": list(e.warnings),
        "bottleneck": {**bottleneck(e).to_dict(), "costs_s": costs(e)},
        "paragraph": e.paragraph,
    }


def explanation_text(e: Explanation) -> str:
    """The whole explanation, for a terminal or a file."""
    parts = [heading(e), textwrap.fill(e.paragraph, WIDTH), accesses_text(e), resources_text(e)]
    parts += [traffic_text(e), bounds_text(e), loop_text(_loop(e))]
    return "\n\n".join(parts)


def heading(e: Explanation) -> str:
    m, n, k = e.size
    blocks = f"{counted(e.blocks, 'block')} of {counted(e.ir.threads, 'thread')}"
    if e.spec.persistent and e.blocks:
        most = -(-e.run.computed // e.blocks)
        blocks += f", at most {counted(most, 'tile')} of C each"
    return f"{e.ir.name} {m}x{n}x{k}, beta {e.beta:g}, on {e.gpu.title}: {e.ir.variant.label} variant, {blocks}"


def accesses_text(e: Explanation) -> str:
    """What each load and store asks of global and shared memory."""
    rows = list(_access_rows(e))
    if not rows:
        return "No access is executed."
    headers = [
        "access", "bytes a lane", "requests", "sectors", "a request", "bytes used", "wavefronts", "n-way", "spec line",
        "CUDA line",
    ]  # fmt: skip
    return f"{format_table(headers, rows)}\n{ACCESSES_EXPLAINED}"


ACCESSES_EXPLAINED = (
    "a request is one instruction of a warp; sectors are of 32 bytes, bytes used are those of them that it asks for;\n"
    "wavefronts are how often shared memory serves a warp, n-way how many times as many as without bank conflicts"
)


def _access_rows(e: Explanation) -> Iterator[list[object]]:
    located = iter(e.accesses())
    for a in e.counts.accesses:
        if a.cost.requests:
            row = next(located)
            yield [*_access_cells(a), _line(row["spec_line"]), _line(row["cuda_line"])]


def _access_cells(a: AccessCost) -> list[object]:
    c, name = a.cost, f"{a.op} {a.operand}, {a.space}"
    match a.space:
        case "shared":
            ways = f"{c.wavefronts / c.ideal_wavefronts:.3g}-way"
            return [name, a.item * a.width, c.requests, None, None, None, c.wavefronts, ways]
        case "global" | "tma":
            used = f"{c.bytes_used / (SECTOR * c.sectors):.0%}"
            moved = [c.requests, c.sectors, c.sectors / c.requests, used]
            label, width = (name, a.item * a.width) if a.space == "global" else (f"{name} boxes", None)
            return [label, width, *moved, None, None]


def _line(number: int | None) -> str | None:
    return None if number is None else str(number)


def resources_text(e: Explanation) -> str:
    """Multiply-adds a shared load; registers, spills, shared memory, occupancy and what limits it."""
    written, compiled = as_written(e.counts), as_compiled(e.counts, _loop(e))
    lines = [f"{e.counts.fma:,} multiply-adds of single threads ({e.flops:,} flop are asked for)"]
    if written.requests:
        lines.append(_per_load("as written", e.counts.fma, written.requests, written.wavefronts))
    if compiled.requests:  # none of an empty sum whose cluster fetches zeros from one another
        how = "as compiled" if compiled.seen else "as the compiler may join them (its code was not seen to)"
        lines.append(_per_load(how, e.counts.fma, compiled.requests, compiled.wavefronts))
    fits = e.occupancy
    registers = "registers not known: nothing was compiled"
    if e.compiled is not None:
        c = e.compiled
        registers = f"{c.registers} registers a thread, {c.spill_bytes} bytes spilled ({c.arch})"
    lines.append(f"{registers}; {e.ir.shared_bytes:,} bytes of shared memory a block")
    lines.append(
        f"occupancy: {counted(fits.blocks_per_sm, 'block')}, {counted(fits.warps_per_sm, 'warp')} an SM, "
        f"{fits.fraction:.0%}; limited by {fits.limiter}"
    )
    if e.copies:
        what = " and ".join(e.copies)
        lines.append(
            f"before it, {what} are copied into aligned rows, {_size(sum(e.copies.values()))}: not counted here"
        )
    lines += [f"warning: {w}" for w in e.warnings]
    return "\n".join(lines)


def _per_load(how: str, fma: int, requests: int, wavefronts: int) -> str:
    feeds = fma / (WARP * requests)
    cost = f"{counted(requests, 'request')}, {counted(wavefronts, 'wavefront')}"
    return f"shared loads {how}: {cost}, {feeds:.3g} FMAs a load"


def traffic_text(e: Explanation) -> str:
    """Bytes and intensity at each tier."""
    i = e.intensity
    asked = e.flops / i.block_tile if i.block_tile else 0.0
    sectors = SECTOR * (e.counts.total("global", "load").sectors + e.counts.total("global", "store").sectors)
    shared = sum(a.item * a.cost.elements for a in e.counts.accesses if (a.space, a.op) == ("shared", "load"))
    rows: list[list[object]] = [
        ["registers from shared memory", _size(shared), _ratio(e.flops, shared)],
        ["threads from global memory, as tiled", _size(asked), i.block_tile],
        ["warps from global memory, in sectors", _size(sectors), _ratio(e.flops, sectors)],
        ["DRAM with a perfect L2, each matrix once", _size(compulsory_bytes(e.size, e.beta, e.items)), i.ideal],
        ["for comparison: two loads a multiply-add", _size(e.flops * (e.items[0] + e.items[1]) // 2), i.naive],
    ]
    ridge = f"float32 needs {e.gpu.ridge:.1f} flop/byte of DRAM on this GPU to be bound by arithmetic"
    return f"{format_table(['traffic', 'bytes', 'flop/byte'], rows)}\n{ridge}"


def bounds_text(e: Explanation) -> str:
    """The time each resource needs, and which binds."""
    b = e.bound
    rows: list[list[object]] = []
    for r in b.resources:
        share = f"{b.seconds(r) / b.total_s:.0%}" if b.total_s else None
        rows.append([r, duration(b.seconds(r)), share, "binds" if r == b.by and b.total_s else "", WHAT[r]])
    rows.append(["expected", duration(b.total_s), None, "", "the largest bound and the exposed latency (modelled)"])
    return format_table(["resource", "at least", "of expected", "", "what is counted"], rows) + _lost_text(e)


def _lost_text(e: Explanation) -> str:
    """What the time is lost to, where the resource that binds does not say it; empty where it does."""
    if not bottleneck(e).cause:
        return ""
    found = sorted(costs(e).items(), key=lambda item: item[1], reverse=True)
    told = [f"{CAUSES[cause]} {duration(s)}" for cause, s in found if s > 0.005 * e.bound.total_s]
    return "\n" + textwrap.fill(f"saved if one of these cost nothing (modelled): {', '.join(told)}", WIDTH)


HAS_IT_READ = (
    "`pip install 'gemmgen[sass]'` has it read (with NVRTC), and what register ports and other instructions cost is "
    "then part of"
)


def unread_text(explanations: Iterable[Explanation]) -> str:
    """A line where a main loop among those of several kernels is not known; empty where all are."""
    if all(_loop(e) is not None for e in explanations if e.counts.fma):
        return ""
    return textwrap.fill(f"main loops as compiled: not known; {HAS_IT_READ} the expected times", WIDTH)


def loop_text(loop: MainLoop | None) -> str:
    """The main loop as compiled."""
    if loop is None:
        return textwrap.fill(f"main loop as compiled: not known; {HAS_IT_READ} what binds", WIDTH)
    moved = ", ".join(f"{n} {name}.{bits}" for (name, bits), n in sorted(loop.accesses.items())) or "none"
    spills = f"{loop.spills} instructions of spills in the kernel" if loop.spills else "no spills"
    return "\n".join(
        [
            f"main loop as compiled (SASS {loop.first:#x} to {loop.last:#x}): "
            f"{counted(loop.instructions, 'instruction')}, {loop.ffma} of them FFMA ({loop.share:.0%}), "
            f"{counted(loop.barriers, 'barrier')}",
            f"  accesses by bits a lane: {moved}",
            f"  register ports: {loop.port_cycles / loop.ffma:.3f} clocks a FFMA, {loop.port_stall:.1%} more than one "
            f"(two banks, one read of each a clock, reused operands free); {spills}",
        ]
    )


def _loop(e: Explanation) -> MainLoop | None:
    return None if e.compiled is None else e.compiled.loop


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _size(nbytes: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.0f} B"
