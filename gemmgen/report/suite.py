"""``gemmgen.matmul`` beside cuBLAS on a suite of shapes, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
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
class HostTimes:
    """Seconds of host time: of the first call of a shape, of one that repeats with C given, and of torch.mm's."""

    first_call_s: float
    eager_s: float
    torch_s: float


@dataclass(frozen=True)
class Row:
    """One shape. ``bench.timings`` has gemmgen first and cuBLAS second."""

    bench: Bench
    choice: Choice
    unordered: bool = False
    layout: str = "nn"
    host: HostTimes | None = None

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
            "layout": self.layout,
            "expected_s": self.choice.expected_s,
            "first_call_s": self.host and self.host.first_call_s,
            "eager_s": self.host and self.host.eager_s,
            "torch_eager_s": self.host and self.host.torch_s,
            "method": self.bench.method,
            "verified": [check.ok for check in self.bench.checks],
            "max_error": self.bench.checks[0].max_error,
        }  # fmt: skip


@dataclass(frozen=True)
class Broken:
    """A shape that could not be compared, and why."""

    size: tuple[int, int, int]
    why: str
    layout: str = "nn"

    def to_dict(self) -> dict[str, Any]:
        m, n, k = self.size
        found = {"m": m, "n": n, "k": k, "error": self.why}
        return found if self.layout == "nn" else {**found, "layout": self.layout}


def geometric_mean(rows: Sequence[Row]) -> float | None:
    """Geometric mean of the ratios; None without rows."""
    return exp(sum(log(row.ratio) for row in rows) / len(rows)) if rows else None


def distribution(rows: Sequence[Row]) -> dict[str, float]:
    """Share of the shapes at 1 or above, the lowest ratio, the 5th percentile; medians of the host times, where they
    were measured. Empty without rows."""
    if not rows:
        return {}
    ratios = sorted(row.ratio for row in rows)
    found = {
        "share_at_least_1": sum(r >= 1 for r in ratios) / len(ratios),
        "lowest": ratios[0],
        "percentile_5": ratios[int(0.05 * (len(ratios) - 1))],
    }
    host = [row.host for row in rows if row.host is not None]
    for name in ("first_call_s", "eager_s", "torch_s") if host else ():
        found[f"median_{name}"] = median(getattr(h, name) for h in host)
    return found


def said(rows: Sequence[Row]) -> str:
    """The distribution as a sentence."""
    found = distribution(rows)
    if not found:
        return ""
    text = (
        f"{100 * found['share_at_least_1']:.0f}% at 1 or above, lowest {found['lowest']:.3f}, "
        f"5th percentile {found['percentile_5']:.3f}"
    )
    if "median_eager_s" in found:
        text += (
            f"; median host time: first call {duration(found['median_first_call_s'])}, "
            f"later calls {duration(found['median_eager_s'])}, torch.mm {duration(found['median_torch_s'])}"
        )
    return text


COLUMNS, LINES = 64, 16


def scatter(rows: Sequence[Row]) -> str:
    """Ratio over work as text: a column per range of work, on a logarithmic scale, a digit for the shapes in a cell."""
    if not rows:
        return "nothing to plot"
    work = [log(2.0 * row.bench.size[0] * row.bench.size[1] * row.bench.size[2]) for row in rows]
    low, span = min(work), max(work) - min(work) or 1.0
    top = max(2.0, *(row.ratio for row in rows))
    cells = [[0] * COLUMNS for _ in range(LINES)]
    for x, row in zip(work, rows, strict=True):
        cells[LINES - 1 - int((LINES - 1) * row.ratio / top)][int((COLUMNS - 1) * (x - low) / span)] += 1
    level = LINES - 1 - int((LINES - 1) / top)
    lines = []
    for y, cell in enumerate(cells):
        empty = "-" if y == level else " "
        label = f"{top * (LINES - 1 - y) / (LINES - 1):5.2f} |"
        lines.append(label + "".join(empty if not c else str(min(c, 9)) for c in cell))
    ends = f"{exp(low):.2g} flop", f"{exp(low + span):.2g} flop"
    return "\n".join(["ratio to cuBLAS", *lines, f"      {ends[0]}{ends[1]:>{COLUMNS - len(ends[0])}}"])


def scatter_image(rows: Sequence[Row], kind: str) -> bytes:
    """The same as an image, "svg" or "png". Raises GemmgenError where matplotlib is missing."""
    from io import BytesIO

    from gemmgen.report.tuning import require_plot

    require_plot()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for layout in sorted({row.layout for row in rows}):
        these = [row for row in rows if row.layout == layout]
        work = [2.0 * row.bench.size[0] * row.bench.size[1] * row.bench.size[2] for row in these]
        axes.plot(work, [row.ratio for row in these], "o", alpha=0.6, markersize=4, label=layout)
    axes.axhline(1.0, color="#888888", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("work, flop")
    axes.set_ylabel("speed relative to cuBLAS")
    axes.set_ylim(bottom=0)
    axes.legend()
    out = BytesIO()
    figure.savefig(out, format=kind)
    return out.getvalue()


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
        **distribution(good),
        "rows": [row.to_dict() for row in rows],
    }


def suite_table(baseline: str, rows: Sequence[Row | Broken]) -> str:
    """Shapes in order, then the geometric mean."""
    good = [row for row in rows if isinstance(row, Row)]
    body = [_cells(row) for row in rows]
    mean = geometric_mean(good)
    level = sum(row.ratio >= 1 for row in good)
    mean_text = "" if mean is None else f"geometric mean {mean:.3f}, {level} of {len(rows)} shapes at 1 or above; "
    lines = [f"{mean_text}baseline {baseline}", *([said(good)] if good else []), method(good)]
    return "\n".join([format_table(HEADERS, body), *map(wrapped, lines)])


def _cells(row: Row | Broken) -> list[object]:
    size = row.bench.size if isinstance(row, Row) else row.size
    shape = "x".join(map(str, size)) + ("" if row.layout == "nn" else f" {row.layout}")
    if isinstance(row, Broken):
        return [shape, row.why[:60], "-", "-", "-", "-", "-"]
    block = "x".join(map(str, row.choice.spec.block))
    mark = " (unordered)" if row.unordered else ""
    spread = max(row.ours.spread, row.theirs.spread)
    return [
        shape, f"{block} {row.choice.source}{mark}", duration(row.ours.median_s), duration(row.theirs.median_s),
        f"{row.ratio:.3f}", f"{100 * spread:.1f}%", f"{row.ours.gflops(*size) / 1e3:.1f}",
    ]  # fmt: skip
