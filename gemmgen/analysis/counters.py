"""What a GPU's counters say beside what was predicted: which counter is which count, and whether they agree.

Counter names are Nsight Compute's. Pure functions: of its CSV text, and of an explanation.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemmgen.analysis.compiled import as_compiled, as_written
from gemmgen.analysis.counts import AccessCost, Counts
from gemmgen.analysis.explain import Explanation
from gemmgen.analysis.traffic import compulsory_bytes
from gemmgen.ir.nodes import Call
from gemmgen.ir.types import WARP

_L1 = "l1tex__{}_pipe_lsu_mem_global_op_{}.sum"
_SHARED = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"

TIME = "gpu__time_duration.sum"
DRAM_READ = "dram__bytes_read.sum"
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"

COUNTERS: Mapping[str, str] = {
    "global load requests": _L1.format("t_requests", "ld"),
    "global load sectors": _L1.format("t_sectors", "ld"),
    "global store requests": _L1.format("t_requests", "st"),
    "global store sectors": _L1.format("t_sectors", "st"),
    "multiply-adds": FFMA,
    "shared load requests": "smsp__inst_executed_op_shared_ld.sum",
    "shared load wavefronts": _SHARED.format("ld"),
    "shared store requests": "smsp__inst_executed_op_shared_st.sum",
    "shared store wavefronts": _SHARED.format("st"),
}
"""Counts and the counter that is each. Wavefronts are those of the instructions themselves."""

PIPE: Mapping[str, str] = {
    "load": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "store": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
"""Wavefronts of shared memory that passed its pipe: those of the instructions, and what a busy multiprocessor replays,
which is another number from run to run."""

_COPIES = "sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_{}.sum"

ASYNCHRONOUS: Mapping[str, tuple[str, ...]] = {
    "asynchronous copy requests": (_COPIES.format("access"), _COPIES.format("bypass")),
    "sectors by TMA": ("l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",),
}
"""Counts of copies past the registers, and the counters that are each together: those that stay in L1, and those that
pass it by. Their sectors are among those of all loads; the counters of them alone differ from run to run."""

ADDITIONS: Mapping[str, tuple[str, ...]] = {
    "global addition requests": (_L1.format("t_requests", "red"),),
    "global addition sectors": (_L1.format("t_sectors", "red"),),
}
"""Counts of additions that are made in memory, which are no stores to the counters."""

BUSY: Mapping[str, str] = {
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "compute": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "shared": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
}
"""How busy each resource is, in percent of its peak, where the profiler knows these names."""

BINDS = 80.0
"""Percent of its peak from which a resource is said to bind."""


@dataclass(frozen=True)
class Measured:
    """Counters of one launch, by their names; times in seconds, the rest in base units."""

    kernel: str
    values: Mapping[str, float]


def parse_ncu(text: str) -> list[Measured]:
    """The launches in Nsight Compute's CSV, in order: a row for each (``--page raw``), or one for each counter.

    Lines that are no CSV (``==PROF==``) are skipped, and so are values that are no numbers.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(lines))
    if not rows:
        return []
    header, *body = rows
    records = [dict(zip(header, row, strict=False)) for row in body]
    return list(_long(records) if "Metric Name" in header else _wide(records))


def _wide(records: Sequence[Mapping[str, str]]) -> Iterator[Measured]:
    units = next((r for r in records if not r.get("ID", "").strip()), {})
    for r in records:
        if r.get("ID", "").strip():
            values = {name: _value(text, units.get(name, "")) for name, text in r.items() if "." in name}
            yield Measured(r.get("Kernel Name", ""), {name: v for name, v in values.items() if v is not None})


def _long(records: Sequence[Mapping[str, str]]) -> Iterator[Measured]:
    launches: dict[str, tuple[str, dict[str, float]]] = {}
    for r in records:
        value = _value(r.get("Metric Value", ""), r.get("Metric Unit", ""))
        _, values = launches.setdefault(r.get("ID", ""), (r.get("Kernel Name", ""), {}))
        if value is not None:
            values[r["Metric Name"]] = value
    for kernel, values in launches.values():
        yield Measured(kernel, values)


_SCALE = {
    "s": 1.0, "second": 1.0, "ms": 1e-3, "msecond": 1e-3, "us": 1e-6, "usecond": 1e-6, "ns": 1e-9, "nsecond": 1e-9,
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12,
}  # fmt: skip


def _value(text: str, unit: str) -> float | None:
    try:
        return float(text.replace(",", "")) * _SCALE.get(unit.strip(), 1.0)
    except ValueError:
        return None


def total(launches: Sequence[Measured]) -> dict[str, float]:
    """The counters of several launches of one product: sums, and for percentages those of the longest launch."""
    longest = max(launches, key=lambda m: m.values.get(TIME, 0.0), default=Measured("", {}))
    out = {name: value for name, value in longest.values.items() if ".pct" in name}
    for m in launches:
        for name, value in m.values.items():
            if ".pct" not in name:
                out[name] = out.get(name, 0.0) + value
    return out


@dataclass(frozen=True)
class Comparison:
    """A count as predicted and as measured; None where it was not measured, or where there is nothing to expect."""

    name: str
    predicted: int | None
    measured: int | None

    @property
    def agrees(self) -> bool | None:
        """Whether they are equal; None where one of them is missing."""
        if self.predicted is None or self.measured is None:
            return None
        return self.measured == self.predicted

    @property
    def off(self) -> float | None:
        """How much more was measured, as a part of what was predicted."""
        if not self.predicted or self.measured is None:
            return None
        return self.measured / self.predicted - 1


def predicted(e: Explanation) -> dict[str, int]:
    """What each counter should show. Shared loads are as compiled; so are multiply-adds, of which the scaling by beta
    takes one for each element of C that is read, unless a kernel before does nothing but scale. Copies by cp.async
    are loads of global memory to the counters, and counted by themselves too; they are no stores to shared memory."""
    ordinary = replace(e.counts, accesses=tuple(a for a in e.counts.accesses if not isinstance(a.statement, Call)))
    alone, stores = ordinary.total("global", "load"), ordinary.total("global", "store")
    added = replace(e.counts, accesses=tuple(a for a in e.counts.accesses if _adds(a))).total("global", "store")
    shared = as_compiled(e.counts, e.loop)
    kept = ordinary.total("shared", "store")
    loads, boxes = e.counts.total("global", "load"), e.counts.total("tma", "load")
    return {
        "global load requests": loads.requests,
        "global load sectors": loads.sectors,
        "global store requests": stores.requests,
        "global store sectors": stores.sectors,
        "multiply-adds": e.counts.fma + (_scalings(e.counts) if e.ir.first is None else 0),
        "shared load requests": shared.requests + _idle(e),
        "shared load wavefronts": shared.wavefronts,
        "shared store requests": kept.requests,
        "shared store wavefronts": kept.wavefronts,
        "asynchronous copy requests": loads.requests - alone.requests,
        "sectors by TMA": boxes.sectors,
        "global addition requests": added.requests,
        "global addition sectors": added.sectors,
    }


def _adds(a: AccessCost) -> bool:
    """Whether an access adds to what is in memory."""
    return isinstance(a.statement, Call) and a.statement.row.adds


def _idle(e: Explanation) -> int:
    """Requests of loads that load nothing, which the compiler puts before the asynchronous copies of each tile."""
    if e.loop is None or not is_asynchronous(e):
        return 0
    spec = e.spec
    tiles = -(-e.size[2] // spec.block[2])  # of all the blocks together that share a sum
    return e.loop.idle_loads * tiles * (e.run.computed // spec.split_k) * -(-e.ir.threads // WARP)


def _scalings(counts: Counts) -> int:
    """Elements of C that are read, to be scaled by beta and added."""
    return sum(a.cost.elements for a in counts.accesses if (a.operand, a.op, a.space) == ("C", "load", "global"))


def compare(e: Explanation, values: Mapping[str, float]) -> list[Comparison]:
    """Every count beside its counter."""
    expected = predicted(e)
    counters = {name: (counter,) for name, counter in COUNTERS.items()} | {
        name: of for name, of in {**ASYNCHRONOUS, **ADDITIONS}.items() if expected[name]
    }
    rows = []
    for name, of in counters.items():
        known = all(counter in values for counter in of)
        measured = round(sum(values[counter] for counter in of)) if known else None
        rows.append(Comparison(name, expected[name], measured))
    return rows


def binding(busy: Mapping[str, float | None]) -> str | None:
    """The resource that the counters say binds: the busiest, where it is busy enough; None where they say of none."""
    name, percent = max(((r, p or 0.0) for r, p in busy.items()), key=lambda row: row[1], default=("", 0.0))
    return name if percent >= BINDS else None


def is_asynchronous(e: Explanation) -> bool:
    """Whether the kernel moves data by instructions that the counters of loads and stores do not count."""
    calls = (a for a in e.counts.accesses if isinstance(a.statement, Call) and not _adds(a))
    return any(a.space != "shared" or a.op == "store" for a in calls)


def profile_dict(e: Explanation, values: Mapping[str, float]) -> dict[str, Any]:
    """Plain data: every count with its counter, the shared loads as written, times, and how busy each resource was."""
    written = as_written(e.counts)
    compiled = as_compiled(e.counts, e.loop)
    return {
        "kernel": e.ir.name,
        "variant": e.variant,
        "size": list(e.size),
        "beta": e.beta,
        "counts": [
            {"name": c.name, "predicted": c.predicted, "measured": c.measured, "agrees": c.agrees}
            for c in compare(e, values)
        ],
        "shared_loads_as_written": {"requests": written.requests, "wavefronts": written.wavefronts},
        "widths_seen": compiled.seen,
        "asynchronous_copies": is_asynchronous(e),
        "seconds": values.get(TIME),
        "expected_s": e.bound.total_s,
        "bound": e.bound.to_dict(),
        "dram_read_bytes": values.get(DRAM_READ),
        "compulsory_bytes": compulsory_bytes(e.size, e.beta, e.items, e.beside),
        "busy_percent": {r: values.get(name) for r, name in BUSY.items()},
        "replayed_wavefronts": {
            op: round(values[pipe] - values[COUNTERS[f"shared {op} wavefronts"]])
            for op, pipe in PIPE.items()
            if pipe in values and COUNTERS[f"shared {op} wavefronts"] in values
        },
    }
