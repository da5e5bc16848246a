"""``gemmgen compile``: specs to CUDA, with registers, spills, shared memory and occupancy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmgen.cli import artifacts, exits, output
from gemmgen.cli.artifacts import Text
from gemmgen.cli.files import named
from gemmgen.cli.options import Arch, Emit, Json, Set, Specs, parse_variant
from gemmgen.cli.specs import load_specs

STDOUT = "-"
DEFAULT_FOLDER = "generated"
PRINTED_BY_DEFAULT = (Emit.tile, Emit.ir, Emit.ptx, Emit.sass)

OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR|-",
        help="Directory for the files (default: generated), or - for stdout. Forms that are text other than CUDA go to "
        "stdout unless a directory is given.",
    ),
]


def compile_specs(
    specs: Specs,
    output_to: OutputOption = None,
    arch: Arch = None,
    emit: Annotated[
        Emit,
        typer.Option(
            "--emit",
            help="tile: the decisions, one screen. ir: the program of one thread. cuda: CUDA C++. "
            "ptx, cubin, sass: what the compiler makes of it.",
        ),
    ] = Emit.cuda,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="NAME",
            parser=parse_variant,
            help="exact, guarded, guarded_unaligned, or as gemmgen explain names it; default: exact and guarded, on "
            "stdout exact.",
        ),
    ] = None,
    settings: Set = None,
    json: Json = False,
) -> int:
    """Turn specs into CUDA C++ and show registers, spills, shared memory and occupancy.

    Writes NAME.cu, for sizes that the tiles divide, and NAME_guarded.cu, for any size (with float4 of rows of whole 16
    bytes; --variant guarded_unaligned has the kernel for the rest; with split_k also NAME_reduce.cu, which adds up the
    parts of each sum; with atomics NAME_scale.cu, which comes first), and prints the registers, spills, shared memory,
    threads and blocks per SM of each. No GPU is needed. Examples:

      gemmgen compile specs/warptile.gemm

      gemmgen compile specs/warptile.gemm --emit tile

      gemmgen compile warptile --set stages=2 --set cpasync=on -o -

      gemmgen compile specs/*.gemm -o /tmp/cuda --arch sm_80
    """
    if output_to is None and emit in PRINTED_BY_DEFAULT:
        output_to = STDOUT
    if output_to == STDOUT and json:
        raise exits.UsageError("stdout takes the text or the JSON, not both; name a directory with -o")
    printed = output_to == STDOUT
    names = [variant] if variant else list(artifacts.WRITTEN[:1] if printed else artifacts.WRITTEN)
    wanted = artifacts.texts(load_specs(specs, settings), arch, names)
    folder = named("--output", DEFAULT_FOLDER if output_to is None else output_to)
    if not printed:
        artifacts.check_folder(wanted, folder, emit)
    made = list(artifacts.rendered(wanted, emit))
    files: list[Path] = []
    if printed:
        for _, data in made:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
    else:
        files = artifacts.write(made, folder, emit)
    if emit is Emit.cuda:
        show_resources(wanted, files, json=json, quiet=printed)
    elif json:
        output.print_json([described(text, path) for (text, _), path in zip(made, files, strict=True)])
    return exits.OK


def show_resources(wanted: Sequence[Text], files: Sequence[Path], *, json: bool, quiet: bool) -> None:
    """Print the table of resources (on stderr with ``quiet``, as stdout holds the text), or why there is none.

    Raises CompileError where NVRTC refuses a text.
    """
    rows, why = measured(wanted)
    if json:
        found = [asdict(row) for row in rows] or [{"registers": None, "why": why}] * len(wanted)
        output.print_json([described(t, p) | row for t, p, row in zip(wanted, files, found, strict=True)])
    elif rows:
        show = output.say if quiet else output.result
        show(artifacts.resource_table(rows))
    if why:
        output.say(f"no table of resources: {why}")


def measured(wanted: Sequence[Text]) -> tuple[list[artifacts.Resources], str]:
    """The rows of the table of resources; none, and the reason, where NVRTC cannot be had."""
    from gemmgen.runtime.nvrtc import NvrtcMissing

    try:
        compiled = artifacts.compile_all(wanted)
    except NvrtcMissing as missing:
        return [], str(missing)
    return [artifacts.resources_of(text, done) for text, done in zip(wanted, compiled, strict=True)], ""


def described(text: Text, path: Path) -> dict[str, Any]:
    from gemmgen.cuda.header import launch_dict

    found = {"kernel": text.ir.name, "variant": text.variant, "file": str(path)}
    return found | {"launch": launch_dict(text.ir)}
