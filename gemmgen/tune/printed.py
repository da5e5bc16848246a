"""The text of a tuning result, which ``gemmgen tune`` prints; and labels that tell specs of a list apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemmgen.spec.model import TOGGLES
from gemmgen.text.numbers import duration
from gemmgen.text.table import format_table
from gemmgen.text.wrap import wrapped

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.tune.tuner import Trial, TuneResult

SHOWN = 10
ELSEWHERE = ("kernel", "tile", "use", "tune")
"""Lines of a spec that its label states in another way, or leaves out."""


def result_text(result: TuneResult) -> str:
    """The fastest kernels, what was left out and why, what failed, and the spec of the winner."""
    size = "x".join(map(str, result.shape))
    parts = [wrapped(f"{size} on {result.gpu}{'' if result.measured else ', modelled only: nothing was measured'}"), ""]
    parts += [_trials_table(result), "", _left_out(result)]
    failed = [t for t in result.trials if t.status == "failed"]
    if failed:
        shown = failed[:SHOWN]
        named = zip(labels([t.spec for t in shown]), shown, strict=True)
        parts += ["", f"{len(failed)} failed:"]
        parts += [wrapped(f"{label}: {t.reason[:140]}", first="  ", rest="    ") for label, t in named]
    return "\n".join([*parts, "", result.best.to_text(comment=False).rstrip()])


def result_html(result: TuneResult) -> str:
    """The result in a notebook: the fastest kernels as a table, the winner's spec, and what was left out."""
    from gemmgen.text import html

    size = "x".join(map(str, result.shape))
    headers, rows, specs = _trials(result)
    parts = [html.heading(f"{size} on {result.gpu}{'' if result.measured else ', modelled only'}")]
    parts += [html.table(headers, rows), html.pre(shared_text(specs))]
    left_out = html.closed("Left out", html.pre(_left_out(result)))
    return html.joined(*parts, html.closed("The fastest spec", html.pre(result.best.to_text(comment=False))), left_out)


def _trials_table(result: TuneResult) -> str:
    headers, rows, specs = _trials(result)
    return "\n".join(filter(None, (format_table(headers, rows), wrapped(shared_text(specs), rest="  ", first=""))))


def _trials(result: TuneResult) -> tuple[Sequence[str], list[list[object]], list[Spec]]:
    """The fastest kernels as a table's headers and rows, and their specs."""
    good = [t for t in result.trials if t.status != "failed"][:SHOWN]
    specs = [t.spec for t in good]
    named = list(zip(labels(specs), good, strict=True))
    if result.measured:
        headers: Sequence[str] = ("kernel", "time", "spread", "GFLOP/s", "registers", "timed", "")
        return headers, [[label, *_timed(result, t)] for label, t in named], specs
    rows: list[list[object]] = [[label, duration(t.modelled_s), _rate(result, t.modelled_s)] for label, t in named]
    return ("kernel", "modelled", "GFLOP/s"), rows, specs


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
    said = f"{looked_at}: {len(result.pruned)} left out {left}, {tried} {done}"
    noise = sum(t.discarded for t in result.trials)
    if result.measured:
        said += f", {result.timings} timings in {result.wall_s:.1f} s, {noise} contended samples discarded"
    reasons = (f"{count} by the {by}: {why}" for by, why, count in result.pruning[:SHOWN])
    return "\n".join([wrapped(said, first="", rest="  "), *(wrapped(r, first="  ", rest="    ") for r in reasons)])


def labels(specs: Sequence[Spec]) -> list[str]:
    """A label per spec of a list: its tiles, and the settings that not all specs of the list have."""
    rows = [_parts(spec) for spec in specs]
    shared = _shared(rows)
    return [
        " ".join([*tiles(spec), *(part for part in row if part not in shared)])
        for spec, row in zip(specs, rows, strict=True)
    ]


def shared_text(specs: Sequence[Spec]) -> str:
    """The settings that all specs of a list have, which their labels leave out; empty where there are none."""
    shared = _shared([_parts(spec) for spec in specs])
    return f"all of them: {', '.join(shared)}" if shared else ""


def tiles(spec: Spec) -> list[str]:
    """The tile sizes of a spec: block, warp (w), thread (t), and the pieces per thread."""
    sizes = ["x".join(map(str, spec.block))]
    if spec.warp is not None and spec.has("warptile"):
        sizes.append("w" + "x".join(map(str, spec.warp)))
    sizes.append("t" + "x".join(map(str, spec.thread)))
    pieces = "x".join(map(str, spec.warp_iterations))
    return [*sizes, f"{pieces} pieces"] if pieces != "1x1" else sizes


def _parts(spec: Spec) -> list[str]:
    """The settings other than tiles: toggles, then lines that are not at their default."""
    lines = [line for line in spec.to_text(comment=False).splitlines() if line.split()[0] not in ELSEWHERE]
    return [t.name for t in TOGGLES if spec.has(t.name)] + [" ".join(line.split()) for line in lines]


def _shared(rows: Sequence[Sequence[str]]) -> list[str]:
    return [part for part in rows[0] if all(part in row for row in rows)] if rows else []
