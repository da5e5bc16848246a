"""The ladder as one page of HTML that needs nothing else: ``gemmgen ladder --report ladder.html``.

Everything on it is computed: texts from the specs, pictures from the tile programs, the accesses of each lane from the
kernel IR, counts and limits from the analysis, times from a run on a GPU where there is one. Every figure is labelled
as measured, simulated or modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError

if TYPE_CHECKING:
    from gemmgen.report.page.facts import RungFacts
    from gemmgen.report.page.recorded import Measured
    from gemmgen.target import Gpu

NEEDED = {"jinja2": "Jinja2", "pygments": "Pygments"}


def require() -> None:
    """Raises GemmgenError with the packages to install where one is missing."""
    missing = [title for module, title in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise GemmgenError(f"the report needs {' and '.join(missing)}: pip install 'gemmgen[report]'")


def page(
    rungs: Sequence[RungFacts],
    size: tuple[int, int, int],
    gpu: Gpu,
    run: Measured | None = None,
    ladder: bool = True,
) -> str:
    """The page as HTML, of the ladder or of specs of one's own. ``gpu`` is the modelled GPU; ``run`` are measured
    times, where there are any."""
    from gemmgen.report.page.render import render

    return render(rungs, size, gpu, run, ladder)


def modelled_gpu(driver_name: str | None) -> Gpu:
    """The row of the table for a GPU by its driver's name; the H200 where there is no GPU or no row for it."""
    from gemmgen.target import GPUS, gpu

    key = _key(driver_name or "")
    found = [row for row in GPUS.values() if row.name in key]
    return max(found, key=lambda row: len(row.name), default=gpu("h200"))


def _key(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


__all__: list[Any] = ["modelled_gpu", "page", "require"]
