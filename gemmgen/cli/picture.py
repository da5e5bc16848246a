"""``gemmgen picture``: the pictures of a kernel as SVG files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.files import check_writable, named, write_file
from gemmgen.cli.options import OneSpec, Set
from gemmgen.cli.specs import load_specs

Out = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Directory; made where there is none.")]
Only = Annotated[
    str | None,
    typer.Option(metavar="KINDS", help="Some of block, warp, thread, timeline, banks and sectors, with commas."),
]


def picture(spec: OneSpec, out: Out = ".", only: Only = None, settings: Set = None) -> int:
    """Write the pictures of a kernel as SVG files, for slides and documents.

    Its block, warp and thread tiles, the timeline of its stages, and for each access to memory which lane meets which
    bank or sector. Examples:

      gemmgen picture pipelined -o pictures

      gemmgen picture vectorized --only banks -o pictures
    """
    import gemmgen
    from gemmgen.ir.variant import EXACT
    from gemmgen.report.page.standalone import KINDS, drawn
    from gemmgen.tile import build

    kinds = tuple(part.strip() for part in only.split(",")) if only is not None else KINDS
    if unknown := next((kind for kind in kinds if kind not in KINDS), None):
        raise exits.UsageError(f"--only has {unknown!r}; the kinds are {', '.join(KINDS)}")
    folder = named("--output", out)
    [loaded] = load_specs([spec], settings)
    pictures = list(drawn(build(loaded, EXACT), gemmgen.lower(loaded), kinds))
    if not pictures:
        output.say(f"{loaded.name} has none of these pictures: {', '.join(kinds)} (a timeline needs stages)")
    for name, svg in pictures:
        path = Path(folder) / name
        check_writable(path)
        write_file(path, svg.encode())
        output.wrote(path)
    return exits.OK
