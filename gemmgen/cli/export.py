"""``gemmgen export``: specs as a C++ project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.files import named
from gemmgen.cli.options import Arch, Json, Set, Size, parse_size
from gemmgen.cli.specs import load_specs
from gemmgen.diagnostics import escaped

OptionalSpecs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SPEC]...", help="Spec files, or names of the ladder's specs, such as warptile."),
]


def export(
    specs: OptionalSpecs = None,
    output_to: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory of the project, which is named as it.")
    ] = "kernels",
    arch: Arch = None,
    shapes: Annotated[
        str | None,
        typer.Option(
            "--shapes",
            metavar="FILE",
            help="A file with a size MxNxK per line: export the kernels that gemmgen.matmul uses for them, and their "
            "choice.",
        ),
    ] = None,
    settings: Set = None,
    json: Json = False,
) -> int:
    """Write specs as a C++ project: kernels compiled and embedded, a launcher, CMake files, and a check.

    The launcher is header-only and needs the CUDA driver alone, no NVRTC and no cudart. It picks the variant, grid,
    shared memory and tensor maps as gemmgen itself does. No GPU is needed to export. Examples:

      gemmgen export warptile -o kernels

      gemmgen export specs/warptile.gemm specs/splitk.gemm -o kernels --arch sm_90

      gemmgen export --shapes shapes.txt -o kernels
    """
    from gemmgen.export.project import export as write_project

    if not specs and shapes is None:
        raise exits.UsageError("there is nothing to export; name a spec, or give --shapes FILE")
    sizes = [] if shapes is None else read_shapes(named("--shapes", shapes))
    folder = named("--output", output_to)
    loaded = load_specs(specs or [], settings)
    with output.progress(f"compiling for {escaped(str(folder))}"):
        paths = write_project(loaded, folder, arch, shapes=[(s.m, s.n, s.k) for s in sizes])
    if json:
        output.print_json({"folder": str(folder), "files": [str(path) for path in paths]})
    else:
        size = sum(path.stat().st_size for path in paths)
        output.result(
            f"{escaped(str(folder))}: {len(paths)} files, {size / 1e6:.1f} MB; README.md says how to use them"
        )
    return exits.OK


def read_shapes(path: Path) -> list[Size]:
    """The sizes of a file, one per line; ``#`` starts a comment. Raises UsageError with the line, and OSError."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            found.append(parse_size(text))
        except typer.BadParameter as error:
            raise exits.UsageError(f"{escaped(str(path))}:{number}: {error.message}") from error
    if not found:
        raise exits.UsageError(f"{escaped(str(path))} has no size; write one per line, like 4096x4096x512")
    return found
