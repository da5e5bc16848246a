"""Templates filled in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.analysis.ablated import UNCERTAINTY
from gemmgen.report.page import lesson
from gemmgen.report.page.argument import last_rungs, summary
from gemmgen.report.page.context import cublas_bars, peak_bars, rooflines, rung_context, tensor, time_of
from gemmgen.report.page.glossary import GLOSSARY
from gemmgen.report.page.words import times
from gemmgen.text.numbers import time_text

if TYPE_CHECKING:
    from gemmgen.report.page.facts import RungFacts
    from gemmgen.report.page.recorded import Measured
    from gemmgen.target import Gpu

TEMPLATES = Path(__file__).parent / "templates"


def render(
    rungs: Sequence[RungFacts], size: tuple[int, int, int], gpu: Gpu, run: Measured | None, ladder: bool = True
) -> str:
    from gemmgen.version import __version__

    last = last_rungs(rungs, run, size) if ladder else []
    contexts = [rung_context(rungs, at, run, ladder) for at in range(len(rungs))]
    html: str = (
        _environment()
        .get_template("page.html.j2")
        .render(
            ladder=ladder,
            rungs=contexts,
            size="\u00d7".join(map(str, size)),
            gpu=gpu,
            run=run,
            same_size=run is not None and run.size == size,
            rooflines=rooflines(rungs, gpu, size, run),
            last=last,
            uncertainty=f"{UNCERTAINTY:.0%}",
            last_summary=summary(last) if last else "",
            bars=cublas_bars(rungs, run),
            peaks=peak_bars(rungs),
            off_the_roof=[facts.name for facts in rungs if tensor(facts)],
            times_of=[time_of(facts, run) for facts in rungs],
            lesson=lesson,
            glossary=GLOSSARY,
            version=__version__,
            css=_template("page.css"),
            picture_css=_template("picture.css"),
            script=_template("page.js"),
        )
    )
    return "\n".join(line.rstrip() for line in html.splitlines() if line.strip()) + "\n"


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    env.filters |= {"count": count, "figure": figure, "times": times, "ms": milliseconds, "raw": Markup}
    return env


def count(value: float | None) -> str:
    """A whole number: exact up to seven digits, then in millions, billions or trillions."""
    if value is None:
        return "\u2013"
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= 10 * scale or (abs(value) >= scale and scale > 1e6):
            return f"{value / scale:,.4g}\u202f{unit}"
    return f"{value:,.0f}"


def figure(value: float | None) -> str:
    """A count, or a number with three digits."""
    if value is None:
        return "\u2013"
    return count(value) if abs(value) >= 10_000 else f"{value:,.3g}"


def milliseconds(value: float) -> str:
    """Milliseconds in the unit that suits them."""
    return time_text(value / 1e3).replace(" ", "\u202f")
