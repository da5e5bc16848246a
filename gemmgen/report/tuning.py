"""Results of tuning as JSON, records as a table, and plots of GFLOP/s against each parameter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.report.table import duration, format_table
from gemmgen.spec.tuning import TUNABLE, shown_value
from gemmgen.text.wrap import wrapped
from gemmgen.tune.printed import labels, shared_text

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.tune.records import Record
    from gemmgen.tune.tuner import Trial, TuneResult

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
        "possible": max(result.possible, result.combinations),
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


def records_table(records: Sequence[Record]) -> str:
    """Recorded results, one per row, and the machines on which they were measured."""
    specs = [spec_of(r) for r in records]
    known = [spec for spec in specs if spec is not None]
    told = iter(labels(known))
    named = [r.key if spec is None else next(told) for r, spec in zip(records, specs, strict=True)]
    headers = ("shape", "kernel", "time", "spread", "GFLOP/s", "timed", "L2", "status", "machine")
    machines = list(dict.fromkeys(map(_machine, records)))
    cells = [
        [*_record_cells(r, label), machines.index(_machine(r)) + 1] for label, r in zip(named, records, strict=True)
    ]
    several = len(machines) > 1
    rows = cells if several else [row[:-1] for row in cells]
    notes = [f"machine{f' {i}' if several else ''}: {machine}" for i, machine in enumerate(machines, 1)]
    notes += filter(None, [shared_text(known)])
    return "\n".join([format_table(headers[: len(rows[0])], rows), *(wrapped(n, first="", rest="  ") for n in notes)])


def _machine(r: Record) -> str:
    return f"{r.machine.gpu}, driver {r.machine.driver}, NVRTC {r.machine.nvrtc}"


def spec_of(record: Record) -> Spec | None:
    """None where this version of gemmgen refuses the recorded spec."""
    from gemmgen.api.specs import parse

    try:
        return parse(record.spec)
    except GemmgenError:
        return None


def _record_cells(r: Record, label: str) -> list[object]:
    seconds = "-" if r.seconds is None else duration(r.seconds)
    rate = "-" if r.gflops is None else f"{r.gflops:,.0f}"
    spread = "-" if r.spread is None else f"{100 * r.spread:.1f}%"
    timed, cache = "final" if r.level else "screened", "warm" if r.warm else "cold"
    return ["x".join(map(str, r.shape)), label, seconds, spread, rate, timed, cache, r.status]


# --- Plots ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Points:
    """One parameter: its values in order, and the GFLOP/s of every trial with each value."""

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
    """(spec, GFLOP/s) of every trial with a time; modelled times where nothing was measured."""
    m, n, k = result.shape
    timed = [(t.spec, t.seconds if result.measured else t.modelled_s) for t in result.trials]
    return [(spec, 2.0 * m * n * k / seconds / 1e9) for spec, seconds in timed if seconds]


def only_left(result: TuneResult) -> list[str]:
    """A line per setting with one value left in the plot, because no kernel with another value has a time."""
    kept: dict[str, set[str]] = {}
    gone: dict[str, set[str]] = {}
    timed = {t.label for t in result.trials if t.seconds or not result.measured}
    for label in (*(t.label for t in result.trials), *(p.label for p in result.pruned)):
        into = kept if label in timed else gone
        for name, _, value in (choice.partition(" ") for choice in label.split(", ")):
            into.setdefault(name, set()).add(value)
    return [
        f"{name}: only {next(iter(values))} has times; every kernel with {_in_order(others)} was left out or failed"
        for name, values in kept.items()
        if len(values) == 1 and (others := gone.get(name, set()) - values)
    ]


def _in_order(values: Iterable[str]) -> str:
    return " or ".join(sorted(values, key=lambda v: ([int(n) for n in re.findall("[0-9]+", v)], v)))


def plot_text(found: Sequence[Points], title: str = "", notes: Sequence[str] = ()) -> str:
    """Bars of text: the best GFLOP/s for each value of each parameter, under a heading where there is a ``title``."""
    head = [wrapped(f"{title}: GFLOP/s of the fastest kernel with each value"), ""] if title else []
    return "\n".join([*head, _bars(found), *(wrapped(note, first="", rest="  ") for note in notes)])


def _bars(found: Sequence[Points]) -> str:
    highest = max((rate for p in found for rate in p.best.values()), default=1.0)
    lines = []
    for p in found:
        width = max(map(len, p.values))
        lines += [p.name]
        lines += [f"  {v:<{width}}  {'#' * round(BAR * r / highest):<{BAR}} {r:,.0f}" for v, r in p.best.items()]
    return "\n".join(lines) if lines else "the timed kernels differ in no setting"


def require_plot() -> None:
    """Raises GemmgenError that says what to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        hint = "pip install 'gemmgen[tune]', or draw it as text with --plot -"
        raise GemmgenError(f"a plot needs matplotlib ({error}); {hint}") from error


def plot_image(found: Sequence[Points], title: str, kind: str) -> bytes:
    """The same as an image, "svg" or "png": one panel per parameter, one dot per trial. Raises GemmgenError where
    matplotlib is missing."""
    require_plot()
    import matplotlib

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
