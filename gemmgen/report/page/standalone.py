"""Pictures as files: the SVG of each, with the rules of the style sheet that it needs and plain colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gemmgen.report.page.lanemap import lane_map
from gemmgen.report.page.patterns import patterns
from gemmgen.report.page.tiles import pictures
from gemmgen.report.page.timeline import timeline

if TYPE_CHECKING:
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.tile.program import TileProgram

KINDS = ("block", "warp", "thread", "timeline", "banks", "sectors")
STYLE = Path(__file__).parent / "templates" / "picture.css"
HATCH = (
    '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="5" height="5" class="hatch-ground"/><rect width="1.6" height="5" class="hatch-line"/>'
    "</pattern></defs>"
)


def drawn(p: TileProgram, ir: KernelIR, kinds: tuple[str, ...] = KINDS) -> Iterator[tuple[str, str]]:
    """(file name, SVG) of each picture of a kernel: tiles, the timeline of its stages, banks and sectors."""
    m, n, k = (max(1, part) for part in p.block)
    for kind, picture in zip(KINDS, (*pictures(p, p.name), timeline(p, p.name)), strict=False):
        if picture is not None and kind in kinds:
            yield f"{p.name}-{kind}.svg", whole(picture.svg)
    sizes = {"M": m, "N": n, "K": k, "lda": max(m, k), "ldb": max(n, k), "ldc": max(m, n)}
    for number, (access, pattern) in enumerate(patterns(ir, {**sizes, "alpha": 1.0, "beta": 0.0})):
        kind = "banks" if access.array.space == "shared" else "sectors"
        if pattern is not None and kind in kinds:
            what = f"{access.op} of {access.array.name}, {access.lane_bytes} bytes per lane"
            name = f"{p.name}-access-{number}-{kind}"
            yield f"{name}.svg", whole(lane_map(pattern, name, what).svg)


def whole(svg: str) -> str:
    """A drawing of the page as a file of its own."""
    style = f"<style>{plain(STYLE.read_text(encoding='utf-8'))} svg {{ background: #ffffff; }}</style>"
    head, tag, rest = svg.partition("</desc>")
    return head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + tag + style + HATCH + rest + "\n"


def plain(css: str) -> str:
    """The style sheet with its light colours in place of names, so that any viewer reads it."""
    colours = dict(re.findall(r"(--[\w-]+): light-dark\((#\w+), #\w+\);", css))
    rules = re.sub(r":root[^{]*\{[^}]*\}|@media print \{.*\}\s*\}", "", css)
    return " ".join(re.sub(r"var\((--[\w-]+)\)", lambda m: colours[m[1]], rules).split())
