"""What tuning found, as tables, as JSON, and as plots of GFLOP/s against each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.report.table import duration, format_table
from gemmgen.spec.model import SETTINGS
from gemmgen.spec.tuning import TUNABLE, shown_value

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.tune.records import Record
    from gemmgen.tune.tuner import Trial, TuneResult

SHOWN = 10
WAYS = ("tma", "cpasync", "spread", "prefetch", "alongK", "directB", "snake", "separators")
"""Toggles that tell fast kernels apart."""
BAR = 40


def result_dict(result: TuneResult) -> dict[str, Any]:
    """As JSON: times in seconds."""
    return {
        "size": list(result.shape),
        "gpu": result.gpu,
        "measured": result.measured,
        "best": {
            "spec": result.best.to_text(comment=False),
            "seconds": result.best_s,
            "gflops": result.gflops,
            "spread": result.trials[0].spread,
        },
        "combinations": result.combinations,
        "pruned": [{"by": by, "why": why, "count": count} for by, why, count in result.pruning],
        "timings": result.timings,
        "wall_s": result.wall_s,
        "trials": [_trial_dict(t) for t in result.trials],
    }


def _trial_dict(t: Trial) -> dict[str, Any]:
    return {
        "label": t.label, "status": t.status, "seconds": t.seconds, "spread": t.spread, "samples": t.samples,
        "discarded": t.discarded, "final": t.final, "recorded": t.recorded, "registers": t.registers,
        "modelled_s": t.modelled_s, "reason": t.reason, "spec": t.spec.to_text(comment=False),
    }  # fmt: skip


def result_text(result: TuneResult) -> str:
    """The winner, the runners-up, what failed, and what was left out."""
    size = "x".join(map(str, result.shape))
    parts = [f"{size} on {result.gpu}{'' if result.measured else ', by the model alone: nothing was measured'}", ""]
    parts += [_trials_table(result), "", _left_out(result)]
    failed = [t for t in result.trials if t.status == "failed"]
    if failed:
        parts += ["", f"{len(failed)} failed:", *(f"  {brief(t.spec)}: {t.reason[:140]}" for t in failed[:SHOWN])]
    return "\n".join([*parts, "", result.best.to_text(comment=False).rstrip()])


def _trials_table(result: TuneResult) -> str:
    good = [t for t in result.trials if t.status != "failed"][:SHOWN]
    if not result.measured:
        rows = [[brief(t.spec), duration(t.modelled_s), _rate(result, t.modelled_s)] for t in good]
        return format_table(("kernel", "modelled", "GFLOP/s"), rows)
    timed: list[list[object]] = [
        [
            brief(t.spec), duration(t.seconds or 0.0), f"{100 * (t.spread or 0):.1f}%", _rate(result, t.seconds or 0.0),
            t.registers, "final" if t.final else "screened", "recorded" if t.recorded else "",
        ]
        for t in good
    ]  # fmt: skip
    return format_table(("kernel", "time", "spread", "GFLOP/s", "registers", "timed", ""), timed)


def _rate(result: TuneResult, seconds: float) -> str:
    m, n, k = result.shape
    return f"{2.0 * m * n * k / seconds / 1e9:,.0f}"


def _left_out(result: TuneResult) -> str:
    tried = len(result.trials)
    said = f"{result.combinations} combinations, {len(result.pruned)} left out before compiling, {tried} tried"
    noise = sum(t.discarded for t in result.trials)
    if result.measured:
        said += f", {result.timings} timings in {result.wall_s:.1f} s, {noise} contended samples discarded"
    return "\n".join([said, *(f"  {count} by the {by}: {why}" for by, why, count in result.pruning[:SHOWN])])


def brief(spec: Spec) -> str:
    """A spec in a line: its tiles, then what is on, then its numbers."""
    tiles = ["x".join(map(str, spec.block))]
    if spec.warp is not None and spec.has("warptile"):
        tiles.append("w" + "x".join(map(str, spec.warp)))
    tiles.append("t" + "x".join(map(str, spec.thread)))
    ways = [toggle for toggle in WAYS if spec.has(toggle)]
    names = ("stages", "unroll", "split_k", "min_blocks", "cta_swizzle", "persistent")
    defaults = {row.name: row.default for row in SETTINGS if row.name in names}
    numbers = [f"{name} {getattr(spec, name)}" for name in names if getattr(spec, name) != defaults[name]]
    return " ".join([*tiles, *ways, *numbers])


def records_table(records: Sequence[Record]) -> str:
    """Recorded results, one a row; with several machines each row says which."""
    from gemmgen.api import parse

    rows = []
    for r in records:
        seconds = "-" if r.seconds is None else duration(r.seconds)
        rate = "-" if r.gflops is None else f"{r.gflops:,.0f}"
        spread = "-" if r.spread is None else f"{100 * r.spread:.1f}%"
        try:
            kernel = brief(parse(r.spec))
        except GemmgenError:
            kernel = r.key
        rows.append(
            ["x".join(map(str, r.shape)), kernel, seconds, spread, rate, "final" if r.level else "screened",
             "warm" if r.warm else "cold", r.status, f"{r.machine.gpu}, {r.machine.driver}, NVRTC {r.machine.nvrtc}"]
        )  # fmt: skip
    return format_table(("shape", "kernel", "time", "spread", "GFLOP/s", "timed", "L2", "status", "machine"), rows)


# --- Plots ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Points:
    """One parameter: its values in order, and the GFLOP/s of every trial that has each."""

    name: str
    values: Mapping[str, tuple[float, ...]]

    @property
    def best(self) -> dict[str, float]:
        return {value: max(rates) for value, rates in self.values.items()}


def points(trials: Sequence[tuple[Spec, float]]) -> list[Points]:
    """GFLOP/s against each setting and toggle that differs between specs."""
    found: list[Points] = []
    columns = {name: [_setting(spec, name) for spec, _ in trials] for name in _parameters(trials)}
    for name, column in columns.items():
        distinct = sorted(set(column), key=lambda v: (isinstance(v, str), v))
        if len(distinct) > 1:
            values = {
                shown_value(v) or "none": tuple(rate for own, (_, rate) in zip(column, trials, strict=True) if own == v)
                for v in distinct
            }
            found.append(Points(name, values))
    return found


def _parameters(trials: Sequence[tuple[Spec, float]]) -> list[str]:
    return [*TUNABLE, "threads"] if trials else []


def _setting(spec: Spec, name: str) -> Any:
    if name in ("m_iter", "n_iter"):
        return spec.warp_iterations[name == "n_iter"]
    if not hasattr(spec, name):
        return spec.has(name)
    value = getattr(spec, name)
    return () if value is None else value


def rates(result: TuneResult) -> list[tuple[Spec, float]]:
    """(spec, GFLOP/s) of every trial that has a time; modelled ones where nothing was measured."""
    m, n, k = result.shape
    timed = [(t.spec, t.seconds if result.measured else t.modelled_s) for t in result.trials]
    return [(spec, 2.0 * m * n * k / seconds / 1e9) for spec, seconds in timed if seconds]


def plot_text(found: Sequence[Points]) -> str:
    """Bars of text: the best GFLOP/s with each value of each parameter."""
    highest = max((rate for p in found for rate in p.best.values()), default=1.0)
    lines = []
    for p in found:
        width = max(map(len, p.values))
        lines += [p.name]
        lines += [f"  {v:<{width}}  {'#' * round(BAR * r / highest):<{BAR}} {r:,.0f}" for v, r in p.best.items()]
    return "\n".join(lines) if lines else "nothing differs between the kernels that were timed"


def plot_image(found: Sequence[Points], title: str, kind: str) -> bytes:
    """The same as an image, "svg" or "png": a panel a parameter, a dot a trial. Raises GemmgenError where matplotlib is
    missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise GemmgenError(f"a plot needs matplotlib ({error}); pip install 'gemmgen[report]'") from error
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    columns = min(3, max(1, len(found)))
    rows = max(1, -(-len(found) // columns))
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    for i, p in enumerate(found):
        axes = figure.add_subplot(rows, columns, i + 1)
        for x, values in enumerate(p.values.values()):
            axes.plot([x] * len(values), values, "o", color="#4477aa", alpha=0.5, markersize=4)
        axes.plot(range(len(p.values)), list(p.best.values()), color="#cc6677")
        axes.set_xticks(range(len(p.values)), list(p.values), rotation=30 if len(p.values) > 3 else 0, fontsize=8)
        axes.set_title(p.name, fontsize=10)
        axes.set_ylabel("GFLOP/s", fontsize=8)
        axes.set_ylim(bottom=0)
    figure.suptitle(title)
    out = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "gemmgen", "svg.fonttype": "none"}):
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()
