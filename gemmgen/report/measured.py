"""Recorded results of ``gemmgen ladder --json`` and ``gemmgen bench --suite --json`` as Markdown, for the pages of the
documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmgen.report.ladder import RUNGS
from gemmgen.report.settings import markdown

WORDS = {rung.spec: (rung.fixes, rung.leaves) for rung in RUNGS}
"""Today's words for each rung; a record has those of its day."""


def measured_markdown(recorded: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """One table per recorded run: GFLOP/s and share of cuBLAS of each rung, with GPU, driver and commit."""
    runs = [recorded] if isinstance(recorded, Mapping) else recorded
    return "\n\n".join(suite(run) if "suite" in run else one(run) for run in runs)


def suite(run: Mapping[str, Any]) -> str:
    """``gemmgen.matmul`` beside cuBLAS, one row per shape."""
    rows = [r for r in run["rows"] if "ratio" in r]
    heading = (
        f"gemmgen.matmul beside {run['baseline']} at {len(rows)} shapes on {run['gpu']}, driver {run['driver']} "
        f"(commit {run['commit'][:12]}). Speed relative to cuBLAS: geometric mean {run['geometric_mean']:.2f}, "
        f"at least 1.00 at {sum(r['ratio'] >= 1 for r in rows)} shapes:"
    )
    table = [
        [
            f"{r['m']}x{r['n']}x{r['k']}",
            f"{1e6 * r['gemmgen_s']:,.1f}",
            f"{1e6 * r['cublas_s']:,.1f}",
            f"{r['ratio']:.2f}",
            f"{100 * r['spread']:.1f}%",
        ]
        for r in rows
    ]
    return "\n".join([heading, "", *markdown(["M x N x K", "gemmgen us", "cuBLAS us", "ratio", "spread"], table)])


def one(run: Mapping[str, Any]) -> str:
    size = "x".join(map(str, run["size"]))
    baseline = run["baseline"]
    against = f", beside {baseline['description']} in the same run" if baseline else ""
    commit = f" (commit {run['commit'][:12]})" if run["commit"] else ""
    heading = f"{size} on {run['gpu']}, driver {run['driver']}{against}{commit}:"
    rows = [row(rung, run["size"]) for rung in run["rungs"] if not rung.get("skipped")]
    if baseline:
        rows.append(["cuBLAS", milliseconds(baseline), f"{baseline['gflops']:,.0f}", "100%", "", ""])
    headers = ["kernel", "ms", "GFLOP/s", "of cuBLAS", "bottleneck fixed", "new bottleneck"]
    return "\n".join([heading, "", *markdown(headers, rows)])


def row(rung: Mapping[str, Any], size: Sequence[int]) -> list[str]:
    own = rung.get("size", size)
    name = rung["kernel"] if list(own) == list(size) else f"{rung['kernel']}, {'x'.join(map(str, own))}"
    percent = rung["percent_of_cublas"]
    share = "" if percent is None else f"{percent:.1f}%"
    recorded = (rung["bottleneck_fixed"] or "", rung["new_bottleneck"])
    return [name, milliseconds(rung), f"{rung['gflops']:,.0f}", share, *WORDS.get(rung["kernel"], recorded)]


def milliseconds(timing: Mapping[str, Any]) -> str:
    return f"{1000 * timing['median_s']:.4g}"
