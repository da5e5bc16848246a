"""The ladder as a bar chart: an SVG of a recorded run, one bar per rung, cuBLAS as a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemmgen.report.page.svg import Drawing

WIDTH, LEFT, RIGHT, TOP = 720, 120, 80, 46
BAR, GAP = 18, 8
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 11px; fill: #59636e; }
.title { font-size: 15px; font-weight: 600; }
.bar { fill: #2f6fb3; }
.past { fill: #2a7f4f; }
.axis { stroke: #59636e; stroke-width: 1; stroke-dasharray: 4 3; }
.ground { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9198a1; }
  .bar { fill: #5b9bd8; }
  .past { fill: #56b07e; }
  .axis { stroke: #9198a1; }
  .ground { fill: #0d1117; }
}
"""


def ladder_chart(run: Mapping[str, Any]) -> str:
    """The SVG of a recorded ``gemmgen ladder --json`` run on a GPU, with a newline at its end.

    A bar's length is the rung's share of cuBLAS; rungs that have a size of their own are left out. Raises ValueError
    for a run without a baseline.
    """
    if not run["baseline"]:
        raise ValueError("the run has no baseline: record the ladder on a GPU")
    rungs = [r for r in run["rungs"] if not r.get("skipped") and list(r["size"]) == list(run["size"])]
    longest = max(100.0, *(r["percent_of_cublas"] for r in rungs))
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = TOP + len(rungs) * (BAR + GAP) + 34
    size = "x".join(map(str, run["size"]))
    drawing = Drawing(WIDTH, height)
    drawing.rect(0, 0, WIDTH, height, "ground")
    drawing.text(12, 22, f"Float32 GEMM {size} on {run['gpu']}: share of cuBLAS", "title")
    full = LEFT + 100 * scale
    drawing.line((full, TOP - 8), (full, height - 28), "axis")
    drawing.text(full - 26, height - 12, "cuBLAS", "small")
    for at, rung in enumerate(rungs):
        _bar(drawing, TOP + at * (BAR + GAP), rung, scale)
    drawing.text(12, height - 12, f"median of one run, commit {run['commit'][:12]}", "small")
    text = "; ".join(f"{r['kernel']} {r['percent_of_cublas']:.1f}%" for r in rungs)
    svg = drawing.render("ladder", f"The ladder at {size} on {run['gpu']}", text)
    svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return svg.replace("</title>", f"</title><style>{STYLE}</style>", 1) + "\n"


def _bar(drawing: Drawing, y: float, rung: Mapping[str, Any], scale: float) -> None:
    share = rung["percent_of_cublas"]
    drawing.text(12, y + BAR - 5, rung["kernel"])
    title = f"{rung['gflops']:,.0f} GFLOP/s"
    drawing.rect(LEFT, y, max(1.0, share * scale), BAR, "past" if share >= 100 else "bar", title, radius=2)
    drawing.text(LEFT + share * scale + 6, y + BAR - 5, f"{share:.1f}%", "small")
