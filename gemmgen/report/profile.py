"""Hardware counters beside predicted counts, as a table."""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.analysis.bottleneck import RESOURCES
from gemmgen.analysis.compiled import as_compiled, as_written
from gemmgen.analysis.counters import BUSY, DRAM_READ, TIME, Comparison, compare, is_asynchronous
from gemmgen.analysis.explain import Explanation
from gemmgen.analysis.traffic import compulsory_bytes
from gemmgen.report.table import duration, format_table
from gemmgen.text.wrap import wrapped


def profile_text(e: Explanation, values: Mapping[str, float]) -> str:
    """Counts, the time and the utilisation of each resource, predicted and measured."""
    m, n, k = e.size
    head = f"{e.ir.name} {m}x{n}x{k}, beta {e.beta:g}, {e.variant} variant"
    rows = [_row(c) for c in compare(e, values)]
    table = format_table(["count", "predicted", "measured", "difference", ""], rows)
    return "\n".join([wrapped(head), table, *(wrapped(line) for line in (*_notes(e), *_times(e, values)))])


def _row(c: Comparison) -> list[object]:
    off = None if c.off is None else f"{c.off:+.2%}"
    mark = {True: "agrees", False: "DIFFERS", None: "not measured"}[c.agrees]
    return [c.name, _number(c.predicted), _number(c.measured), off, mark]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _notes(e: Explanation) -> list[str]:
    written, compiled = as_written(e.counts), as_compiled(e.counts, e.loop)
    lines = []
    if written.requests:
        how = (
            "as the load widths in the SASS say" if compiled.seen else "merged as far as possible (SASS not inspected)"
        )
        lines.append(
            f"shared loads as written: {written.requests:,} requests, {written.wavefronts:,} wavefronts; "
            f"the table counts them as compiled, {how}"
        )
    if is_asynchronous(e):
        lines.append("asynchronous copies are counted separately: the counters do not count them as loads or stores")
    return lines


def _times(e: Explanation, values: Mapping[str, float]) -> list[str]:
    lines = []
    if TIME in values:
        expected, measured = e.bound.total_s, values[TIME]
        lines.append(
            f"time: {duration(measured)} measured under the profiler, {duration(expected)} expected "
            f"({expected / measured - 1:+.0%}); limited by: {RESOURCES[e.bound.by]} (modelled)"
        )
    if DRAM_READ in values:
        least = compulsory_bytes(e.size, e.beta, e.items, e.beside) - e.items[2] * e.size[0] * e.size[1]
        lines.append(f"DRAM: {values[DRAM_READ]:,.0f} bytes read, at least {least:,} needed")
    busy = {r: values[name] for r, name in BUSY.items() if name in values}
    if busy:
        lines.append("utilisation, of the peak: " + ", ".join(f"{r} {percent:.0f}%" for r, percent in busy.items()))
    return lines
