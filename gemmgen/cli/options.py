"""Arguments and options that several commands share, and how their text is read."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from gemmgen.cli.completion import complete_setting, complete_spec

LARGEST = 2**31 - 1
"""Sizes travel to kernels as 32-bit integers."""


class Size(NamedTuple):
    """Rows of C, columns of C, and the length of the sums."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return "x".join(str(part) for part in self)


def parse_size(text: str) -> Size:
    """``4096x4096x512`` is M x N x K; one number stands for all three. Raises typer.BadParameter."""
    match = re.fullmatch(r"([0-9]{1,10})(?:x([0-9]{1,10})x([0-9]{1,10}))?", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size; write MxNxK, like 4096x4096x512, or one number for all")
    parts = [int(part) for part in match.groups(match.group(1))]
    if max(parts) > LARGEST:
        raise typer.BadParameter(f"{text} is over the largest size, {LARGEST}")
    return Size(parts[0], parts[1], parts[2])


class Sizes(tuple[Size, ...]):
    """Several sizes."""


def parse_sizes(text: str) -> Sizes:
    """Sizes separated by commas: ``1024,2048,4096x4096x64``. Raises typer.BadParameter."""
    return Sizes(parse_size(part.strip()) for part in text.split(","))


def parse_arch(text: str) -> str:
    """A target such as ``sm_90`` or ``sm_90a``. Raises typer.BadParameter."""
    from gemmgen.spec.architecture import known_architectures, unknown_architecture

    if re.fullmatch(r"sm_[0-9]{2,3}[af]?", text) is None:
        raise typer.BadParameter(f"{text!r} is not an architecture; write it like sm_90; {known_architectures()}")
    if problem := unknown_architecture(text):
        raise typer.BadParameter(problem)
    return text


class Device(StrEnum):
    """Where a kernel runs."""

    auto = "auto"
    sim = "sim"
    cuda = "cuda"


class Emit(StrEnum):
    """What ``compile`` makes of a spec."""

    tile = "tile"
    ir = "ir"
    cuda = "cuda"
    ptx = "ptx"
    cubin = "cubin"
    sass = "sass"


def parse_variant(text: str) -> str:
    """A variant's name. Raises typer.BadParameter."""
    from gemmgen.ir.variant import VARIANTS, variant_of

    if variant_of(text) is None:
        raise typer.BadParameter(
            f"{text!r} is not one of {', '.join(VARIANTS)}, nor a name that gemmgen explain prints"
        )
    return text


SPEC_HELP = "A spec file, the name of a rung of the ladder, such as warptile, or - for stdin."
SPECS_HELP = "Spec files, names of rungs of the ladder, such as warptile, or - for stdin."

Specs = Annotated[list[str], typer.Argument(metavar="SPEC", help=SPECS_HELP, autocompletion=complete_spec)]
SomeSpecs = Annotated[
    list[str] | None,
    typer.Argument(metavar="SPEC", help=SPECS_HELP, show_default=False, autocompletion=complete_spec),
]
OneSpec = Annotated[str, typer.Argument(metavar="SPEC", help=SPEC_HELP, autocompletion=complete_spec)]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting of the spec: stages=2, block=128x64x16, float4=off. Repeat it for several; "
        "`gemmgen settings` lists them.",
        show_default=False,
        autocompletion=complete_setting,
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="sm_NN",
        parser=parse_arch,
        help="Architecture to compile for; default: this machine's GPU, or sm_90 where there is none.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")]
Folder = Annotated[
    str, typer.Option("--output", "-o", metavar="DIR", help="Directory for the CUDA; made where there is none.")
]
DeviceOption = Annotated[
    Device,
    typer.Option("--device", help="cuda: the GPU. sim: the simulator, on the CPU. auto: the GPU where there is one."),
]
