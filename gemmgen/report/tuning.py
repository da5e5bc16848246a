"""What tuning found, as tables, as JSON, and as plots of GFLOP/s against each parameter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.report.table import duration, format_table
from gemmgen.spec.model import TOGGLES
from gemmgen.spec.tuning import TUNABLE, shown_value

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.tune.records import Record
    from gemmgen.tune.tuner import Trial, TuneResult

SHOWN = 10
BAR = 40
ELSEWHERE = ("kernel", "tile", "use", "tune")
"""Lines of a spec that a label says otherwise, or not at all."""


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


def result_text(result: TuneResult) -> str:
    """The winner, the runners-up, what failed, and what was left out."""
    size = "x".join(map(str, result.shape))
    parts = [f"{size} on {result.gpu}{'' if result.measured else ', by the model alone: nothing was measured'}", ""]
    parts += [_trials_table(result), "", _left_out(result)]
    failed = [t for t in result.trials if t.status == "failed"]
    if failed:
        shown = failed[:SHOWN]
        named = zip(labels([t.spec for t in shown]), shown, strict=True)
        parts += ["", f"{len(failed)} failed:", *(f"  {label}: {t.reason[:140]}" for label, t in named)]
    return "\n".join([*parts, "", result.best.to_text(comment=False).rstrip()])


def _trials_table(result: TuneResult) -> str:
    good = [t for t in result.trials if t.status != "failed"][:SHOWN]
    specs = [t.spec for t in good]
    named = list(zip(labels(specs), good, strict=True))
    if result.measured:
        headers: Sequence[str] = ("kernel", "time", "spread", "GFLOP/s", "registers", "timed", "")
        rows = [[label, *_timed(result, t)] for label, t in named]
    else:
        headers = ("kernel", "modelled", "GFLOP/s")
        rows = [[label, duration(t.modelled_s), _rate(result, t.modelled_s)] for label, t in named]
    return "\n".join(filter(None, (format_table(headers, rows), shared_text(specs))))


def _timed(result: TuneResult, t: Trial) -> list[object]:
    seconds = t.seconds or 0.0
    how = ["final" if t.final else "screened", "recorded" if t.recorded else ""]
    return [duration(seconds), f"{100 * (t.spread or 0):.1f}%", _rate(result, seconds), t.registers, *how]


def _rate(result: TuneResult, seconds: float) -> str:
    m, n, k = result.shape
    return f"{2.0 * m * n * k / seconds / 1e9:,.0f}"


def _left_out(result: TuneResult) -> str:
    tried = len(result.trials)
    left, done = ("before compiling", "tried") if result.measured else ("by rule or model", "modelled; none was run")
    looked_at = f"{result.combinations} combinations"
    if result.possible > result.combinations:
        drawn = "drawn at random (give fewer values to try all)"
        looked_at = f"{result.combinations} of {result.possible} combinations, {drawn}"
    said = f"{looked_at}, {len(result.pruned)} left out {left}, {tried} {done}"
    noise = sum(t.discarded for t in result.trials)
    if result.measured:
        said += f", {result.timings} timings in {result.wall_s:.1f} s, {noise} contended samples discarded"
    return "\n".join([said, *(f"  {count} by the {by}: {why}" for by, why, count in result.pruning[:SHOWN])])


def labels(specs: Sequence[Spec]) -> list[str]:
    """Each of the specs that are listed together in a line: its tiles, and of all else that is on what not all have."""
    rows = [_parts(spec) for spec in specs]
    shared = _shared(rows)
    return [
        " ".join([*tiles(spec), *(part for part in row if part not in shared)])
        for spec, row in zip(specs, rows, strict=True)
    ]


def shared_text(specs: Sequence[Spec]) -> str:
    """What the labels of several specs leave out; empty where that is nothing."""
    shared = _shared([_parts(spec) for spec in specs])
    return f"all of them: {', '.join(shared)}" if shared else ""


def tiles(spec: Spec) -> list[str]:
    """The sizes of a spec's tiles: of its block, of a warp (w), of a thread (t) and the pieces that it has of them."""
    sizes = ["x".join(map(str, spec.block))]
    if spec.warp is not None and spec.has("warptile"):
        sizes.append("w" + "x".join(map(str, spec.warp)))
    sizes.append("t" + "x".join(map(str, spec.thread)))
    pieces = "x".join(map(str, spec.warp_iterations))
    return [*sizes, f"{pieces} pieces"] if pieces != "1x1" else sizes


def _parts(spec: Spec) -> list[str]:
    """All but the tiles, as the language's tables have it: what is on, then lines that are not at their default."""
    lines = [line for line in spec.to_text(comment=False).splitlines() if line.split()[0] not in ELSEWHERE]
    return [t.name for t in TOGGLES if spec.has(t.name)] + [" ".join(line.split()) for line in lines]


def _shared(rows: Sequence[Sequence[str]]) -> list[str]:
    return [part for part in rows[0] if all(part in row for row in rows)] if rows else []


def records_table(records: Sequence[Record]) -> str:
    """Recorded results, one a row; with several machines each row says which."""
    specs = [spec_of(r) for r in records]
    known = [spec for spec in specs if spec is not None]
    told = iter(labels(known))
    named = [r.key if spec is None else next(told) for r, spec in zip(records, specs, strict=True)]
    headers = ("shape", "kernel", "time", "spread", "GFLOP/s", "timed", "L2", "status", "machine")
    rows = [_record_row(label, r) for label, r in zip(named, records, strict=True)]
    return "\n".join(filter(None, (format_table(headers, rows), shared_text(known))))


def spec_of(record: Record) -> Spec | None:
    """None where this gemmgen has no such spec any more."""
    from gemmgen.api.specs import parse

    try:
        return parse(record.spec)
    except GemmgenError:
        return None


def _record_row(label: str, r: Record) -> list[object]:
    seconds = "-" if r.seconds is None else duration(r.seconds)
    rate = "-" if r.gflops is None else f"{r.gflops:,.0f}"
    spread = "-" if r.spread is None else f"{100 * r.spread:.1f}%"
    timed, cache = "final" if r.level else "screened", "warm" if r.warm else "cold"
    machine = f"{r.machine.gpu}, {r.machine.driver}, NVRTC {r.machine.nvrtc}"
    return ["x".join(map(str, r.shape)), label, seconds, spread, rate, timed, cache, r.status, machine]


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


def only_left(result: TuneResult) -> list[str]:
    """A line for each setting of which one value is left in the plot, as kernels with the others have no time."""
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
    """Bars of text: the best GFLOP/s with each value of each parameter, under a heading where there is a ``title``."""
    head = [f"{title}: GFLOP/s of the fastest kernel with each value", ""] if title else []
    return "\n".join([*head, _bars(found), *notes])


def _bars(found: Sequence[Points]) -> str:
    highest = max((rate for p in found for rate in p.best.values()), default=1.0)
    lines = []
    for p in found:
        width = max(map(len, p.values))
        lines += [p.name]
        lines += [f"  {v:<{width}}  {'#' * round(BAR * r / highest):<{BAR}} {r:,.0f}" for v, r in p.best.items()]
    return "\n".join(lines) if lines else "nothing differs between the kernels that were timed"


def require_plot() -> None:
    """Raises GemmgenError that says what to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        hint = "pip install 'gemmgen[tune]', or draw it as text with --plot -"
        raise GemmgenError(f"a plot needs matplotlib ({error}); {hint}") from error


def plot_image(found: Sequence[Points], title: str, kind: str) -> bytes:
    """The same as an image, "svg" or "png": a panel a parameter, a dot a trial. Raises GemmgenError where matplotlib is
    missing."""
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
