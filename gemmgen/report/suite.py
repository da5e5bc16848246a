"""``gemmgen.matmul`` beside cuBLAS on a suite of shapes, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any

from gemmgen.report.table import duration, format_table
from gemmgen.text.wrap import wrapped

if TYPE_CHECKING:
    from gemmgen.dispatch.select import Choice
    from gemmgen.runtime.timing import Bench, Timing

METHOD = (
    "each shape in one run: {how} of gemmgen.matmul's kernel and of cuBLAS, alternating, on one set of operands "
    "(warm L2), random normal data, medians of {samples} samples; each result verified in float64 before it is timed"
)
HEADERS = ("shape", "kernel", "gemmgen", "cuBLAS", "ratio", "spread", "TFLOP/s")


@dataclass(frozen=True)
class Row:
    """One shape. ``bench.timings`` has gemmgen first and cuBLAS second."""

    bench: Bench
    choice: Choice
    unordered: bool = False

    @property
    def ours(self) -> Timing:
        return self.bench.timings[0]

    @property
    def theirs(self) -> Timing:
        return self.bench.timings[1]

    @property
    def ratio(self) -> float:
        """Speed relative to cuBLAS: above 1 is faster."""
        return self.theirs.median_s / self.ours.median_s

    def to_dict(self) -> dict[str, Any]:
        """As JSON: times in seconds; ``spread`` between quartiles, the larger of both sides."""
        m, n, k = self.bench.size
        return {
            "m": m, "n": n, "k": k,
            "spec": self.choice.spec.to_text(comment=False),
            "from": self.choice.source,
            "tuned_for": self.choice.tuned_for and list(self.choice.tuned_for),
            "gemmgen_s": self.ours.median_s,
            "cublas_s": self.theirs.median_s,
            "ratio": self.ratio,
            "spread": max(self.ours.spread, self.theirs.spread),
            "gemmgen_spread": self.ours.spread,
            "cublas_spread": self.theirs.spread,
            "tflops": self.ours.gflops(m, n, k) / 1e3,
            "unordered": self.unordered,
            "method": self.bench.method,
            "verified": [check.ok for check in self.bench.checks],
            "max_error": self.bench.checks[0].max_error,
        }  # fmt: skip


@dataclass(frozen=True)
class Broken:
    """A shape that could not be compared, and why."""

    size: tuple[int, int, int]
    why: str

    def to_dict(self) -> dict[str, Any]:
        m, n, k = self.size
        return {"m": m, "n": n, "k": k, "error": self.why}


def geometric_mean(rows: Sequence[Row]) -> float | None:
    """Geometric mean of the ratios; None without rows."""
    return exp(sum(log(row.ratio) for row in rows) / len(rows)) if rows else None


def method(rows: Sequence[Row]) -> str:
    """How the times were measured, as a sentence."""
    captured = all(row.bench.method == "graph" for row in rows)
    how = "graph replay" if captured else "graph replay, or events around launches (see each row's method),"
    samples = sorted({t.samples for row in rows for t in row.bench.timings}) or [0]
    return METHOD.format(how=how, samples=" to ".join(str(s) for s in dict.fromkeys((samples[0], samples[-1]))))


def suite_dict(name: str, baseline: str, rows: Sequence[Row | Broken]) -> dict[str, Any]:
    """As JSON, without the machine."""
    good = [row for row in rows if isinstance(row, Row)]
    return {
        "suite": name,
        "baseline": baseline,
        "method": method(good),
        "geometric_mean": geometric_mean(good),
        "at_least_1": sum(row.ratio >= 1 for row in good),
        "shapes": len(rows),
        "rows": [row.to_dict() for row in rows],
    }


def suite_table(baseline: str, rows: Sequence[Row | Broken]) -> str:
    """Shapes in order, then the geometric mean."""
    good = [row for row in rows if isinstance(row, Row)]
    body = [_cells(row) for row in rows]
    mean = geometric_mean(good)
    level = sum(row.ratio >= 1 for row in good)
    said = "" if mean is None else f"geometric mean {mean:.3f}, {level} of {len(rows)} shapes at 1 or above; "
    return "\n".join([format_table(HEADERS, body), wrapped(f"{said}baseline {baseline}"), wrapped(method(good))])


def _cells(row: Row | Broken) -> list[object]:
    size = row.bench.size if isinstance(row, Row) else row.size
    shape = "x".join(map(str, size))
    if isinstance(row, Broken):
        return [shape, row.why[:60], "-", "-", "-", "-", "-"]
    block = "x".join(map(str, row.choice.spec.block))
    mark = " (unordered)" if row.unordered else ""
    spread = max(row.ours.spread, row.theirs.spread)
    return [
        shape, f"{block} {row.choice.source}{mark}", duration(row.ours.median_s), duration(row.theirs.median_s),
        f"{row.ratio:.3f}", f"{100 * spread:.1f}%", f"{row.ours.gflops(*size) / 1e3:.1f}",
    ]  # fmt: skip
