"""``gemmgen export``: specs as a C++ project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.files import named
from gemmgen.cli.options import Arch, Json, Set
from gemmgen.cli.shapes import read_shapes
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
            help="Export the kernels that gemmgen.matmul uses for a file of shapes, and their choice. A line: MxNxK.",
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
    sizes = [] if shapes is None else rows_only(named("--shapes", shapes))
    folder = named("--output", output_to)
    loaded = load_specs(specs or [], settings)
    with output.progress(f"compiling for {escaped(str(folder))}"):
        paths = write_project(loaded, folder, arch, shapes=sizes)
    if json:
        output.print_json({"folder": str(folder), "files": [str(path) for path in paths]})
    else:
        size = sum(path.stat().st_size for path in paths)
        output.result(
            f"{escaped(str(folder))}: {len(paths)} files, {size / 1e6:.1f} MB; README.md says how to use them"
        )
    return exits.OK


def rows_only(path: Path) -> list[tuple[int, int, int]]:
    """The sizes of a file of shapes. Raises UsageError for a layout that an export does not choose for."""
    found = read_shapes(path)
    for shape, layout in found:
        if layout != "nn":
            size = "x".join(map(str, shape))
            raise exits.UsageError(f"{escaped(str(path))}: {size} {layout}: an export chooses for A and B by rows, nn")
    return [shape for shape, _ in found]
