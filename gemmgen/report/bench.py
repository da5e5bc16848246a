"""Times of several kernels, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.report.table import duration, format_table
from gemmgen.text.wrap import wrapped

if TYPE_CHECKING:
    from gemmgen.runtime.timing import Bench, Timing
    from gemmgen.spec.model import Spec

HEADERS = ("kernel", "time", "spread", "GFLOP/s", "of baseline")


@dataclass(frozen=True)
class Comparison:
    """One run at one size: kernels in order, the baseline last where there is one. ``baseline`` describes it; None
    without one. ``template`` are the parameters of a baseline that is a template, under its own names: they are shown
    beside the settings of ``specs``."""

    bench: Bench
    baseline: str | None = None
    specs: tuple[Spec, ...] = ()
    template: Mapping[str, Any] | None = None

    @property
    def kernels(self) -> Sequence[Timing]:
        return self.bench.timings[:-1] if self.baseline else self.bench.timings

    @property
    def base(self) -> Timing | None:
        return self.bench.timings[-1] if self.baseline else None

    def percent(self, timing: Timing) -> float | None:
        """Speed as a percentage of the baseline's in the same run; None without a baseline."""
        return 100 * self.base.median_s / timing.median_s if self.base else None

    def timing_dict(self, timing: Timing) -> dict[str, Any]:
        rates = {"gflops": timing.gflops(*self.bench.size), "percent_of_baseline": self.percent(timing)}
        return {**asdict(timing), "spread": timing.spread, **rates}

    def method_dict(self) -> dict[str, Any]:
        """How the times were measured."""
        b = self.bench
        return {
            "method": b.method,
            "why_events": b.why_events,
            "warm": b.warm,
            "buffers": b.buffers,
            "rotated_bytes": b.rotated_bytes,
            "alpha": b.alpha,
            "beta": b.beta,
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON: times in seconds, rates in GFLOP/s."""
        return {
            "size": list(self.bench.size),
            **self.method_dict(),
            "baseline": self.base
            and {"description": self.baseline, "template": self.template, **self.timing_dict(self.base)},
            "kernels": [
                {**self.timing_dict(t), "verified": check.ok, "max_error": check.max_error, "compared": check.how}
                for t, check in zip(self.kernels, self.bench.checks, strict=False)
            ],
        }

    def cells(self, timing: Timing) -> list[object]:
        """Time, spread, GFLOP/s and share of the baseline as text."""
        gflops, percent = timing.gflops(*self.bench.size), self.percent(timing)
        return [
            duration(timing.median_s),
            f"{duration(timing.low_s)} to {duration(timing.high_s)}",
            f"{gflops:,.0f}",
            None if percent is None else f"{percent:.1f}%",
        ]


def comparison_table(comparison: Comparison) -> str:
    """Kernels in order, the baseline last."""
    rows = [[timing.name, *comparison.cells(timing)] for timing in comparison.bench.timings]
    beside = "" if comparison.template is None else f"\n{settings_beside(comparison.specs, comparison.template)}\n"
    return f"{format_table(HEADERS, rows)}\n{beside}{wrapped(method(comparison))}"


def settings_beside(specs: Sequence[Spec], template: Mapping[str, Any]) -> str:
    """The settings of kernels beside the equivalent template parameters of CUTLASS."""

    def tiles(spec: Spec) -> list[object]:
        warp = None if spec.warp is None or not spec.has("warptile") else "x".join(map(str, spec.warp))
        return ["x".join(map(str, spec.block)), warp, "1x1x1", spec.stages]

    names = ("tile block [ThreadblockShape]", "tile warp [WarpShape]", "math [InstructionShape]", "stages [kStages]")
    columns = [tiles(spec) for spec in specs] + [list(template.values())]
    headers = ["setting [CUTLASS's name]", *(spec.name for spec in specs), "cutlass"]
    return format_table(headers, [[name, *(str(c[i] or "-") for c in columns)] for i, name in enumerate(names)])


def method(comparison: Comparison) -> str:
    """How the times were measured, as a sentence."""
    b = comparison.bench
    why = f" ({b.why_events})" if b.why_events else ""
    how = "graph replay" if b.method == "graph" else f"events around launches{why}"
    buffers = (
        "one set of operands (warm L2)"
        if b.warm
        else f"{b.buffers} sets of operands in turn, {b.rotated_bytes / 1e6:,.0f} MB"
    )
    spread = f"medians of {b.timings[0].samples} samples, spread between quartiles" if b.timings else ""
    against = f"; baseline {comparison.baseline}" if comparison.baseline else ""
    return f"{how}, {buffers}; {spread}{against}"
