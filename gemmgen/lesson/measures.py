"""What an exercise can ask of a spec: figures that need no GPU, each with its unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.analysis.occupancy import named_registers
from gemmgen.ir.types import F32, WARP

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation


@dataclass(frozen=True)
class Measure:
    """A figure of an explanation. ``unit`` follows the number, and may be empty. ``compiled``: the explanation is made
    with a compiler, where there is one; all others are made without."""

    name: str
    unit: str
    of: Callable[[Explanation], float]
    compiled: bool = False

    def said(self, value: float, digits: int = 3) -> str:
        """A value with its unit."""
        if not value and self.unit == "million":
            return "0"
        after = self.unit if self.unit.startswith(("-", "%")) else f" {self.unit}" if self.unit else ""
        return number(value, digits) + after


def number(value: float, digits: int = 3) -> str:
    """A number for people: whole from a thousand on, else with so many digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{digits}g}"


def spilled(e: Explanation) -> float:
    """Bytes per thread that the compiler spills; without a compiler, at least those of the values that the program
    names beyond the registers that ``min_blocks`` leaves."""
    if e.compiled is not None:
        return e.compiled.spill_bytes
    limits, blocks = e.gpu.limits, e.ir.min_blocks or 1
    left = min(limits.registers // (blocks * e.ir.threads), limits.registers_per_thread)
    return F32.bytes * max(0, named_registers(e.ir.body) - left)


def ways(e: Explanation, op: str) -> float:
    """Wavefronts of the shared accesses over those without bank conflicts; of the worst access."""
    costs = [a.cost for a in e.counts.accesses if a.space == "shared" and a.op == op and a.cost.ideal_wavefronts]
    return max((c.wavefronts / c.ideal_wavefronts for c in costs), default=1.0)


def sectors_per_request(e: Explanation, operand: str) -> float:
    costs = [a.cost for a in e.counts.accesses if (a.space, a.op, a.operand) == ("global", "load", operand)]
    return max((c.sectors / c.requests for c in costs if c.requests), default=0.0)


def fma_per_load(e: Explanation) -> float:
    requests = e.counts.total("shared", "load").requests
    return e.counts.fma / (WARP * requests) if requests else 0.0


def share_of_cublas(e: Explanation) -> float:
    """The expected speed, in percent of the recorded cuBLAS of the H200 at 4096 x 4096 x 4096."""
    return 100 * e.flops / e.bound.total_s / 1e12 / CUBLAS_TFLOPS


CUBLAS_TFLOPS = 51.2
"""cuBLAS in float32 on an H200 at 4096 x 4096 x 4096, as measured (docs/measured.md)."""

MEASURES: Mapping[str, Measure] = {
    m.name: m
    for m in (
        Measure("threads per block", "", lambda e: e.ir.threads),
        Measure("shared memory per block", "bytes", lambda e: e.ir.shared_bytes),
        Measure("registers named per thread", "", lambda e: named_registers(e.ir.body)),
        Measure("spills", "bytes per thread", spilled, compiled=True),
        Measure("blocks per SM", "", lambda e: e.occupancy.blocks_per_sm),
        Measure("occupancy", "%", lambda e: 100 * e.occupancy.fraction),
        Measure("blocks", "", lambda e: e.blocks),
        Measure("sectors per request of A", "", lambda e: sectors_per_request(e, "A")),
        Measure("sectors per request of B", "", lambda e: sectors_per_request(e, "B")),
        Measure("flop per byte of global memory", "", lambda e: e.intensity.block_tile or 0.0),
        Measure("flop per value from shared memory", "", lambda e: e.intensity.flop_per_shared_load or 0.0),
        Measure("FMAs per shared load", "", fma_per_load),
        Measure("bank conflict of shared loads", "-way", lambda e: ways(e, "load")),
        Measure("bank conflict of shared stores", "-way", lambda e: ways(e, "store")),
        Measure("global load requests", "million", lambda e: e.counts.total("global", "load").requests / 1e6),
        Measure("FMAs computed per FMA needed", "", lambda e: 2 * e.counts.fma / e.flops),
        Measure("exposed latency", "% of the expected time", lambda e: 100 * e.bound.latency_s / e.bound.total_s),
        Measure("expected time", "us", lambda e: 1e6 * e.bound.total_s),
        Measure("speed", "% of cuBLAS (modelled)", share_of_cublas),
    )
}
