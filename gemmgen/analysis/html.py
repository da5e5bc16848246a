"""An explanation in a notebook: the verdict, the time of each resource as bars, and every access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.analysis.printed import explanation_text, heading, verdict
from gemmgen.text import html
from gemmgen.text.numbers import duration

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation


def explanation_html(e: Explanation) -> html.Html:
    parts = [html.heading(" ".join(heading(e).split())), html.table((), verdict(e))]
    if e.bound.total_s:
        parts.append(html.table(("time by resource (modelled)", ""), _bars(e)))
    return html.joined(*parts, html.closed("The whole explanation", html.pre(explanation_text(e))))


def _bars(e: Explanation) -> list[tuple[object, ...]]:
    b = e.bound
    rows: list[tuple[object, ...]] = []
    for r in sorted(b.resources, key=b.seconds, reverse=True):
        limits = " limits" if r == b.by else ""
        rows.append((r, html.bar(b.seconds(r) / b.total_s, f"{duration(b.seconds(r))}{limits}")))
    return [*rows, ("expected", html.bar(1.0, duration(b.total_s)))]
