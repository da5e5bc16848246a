"""Arguments and options that several commands share, and how their text is read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from gemmgen.cli.exits import UsageError
from gemmgen.diagnostics import escaped

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


class VariantName(StrEnum):
    """Which text of a spec."""

    exact = "exact"
    guarded = "guarded"
    guarded_unaligned = "guarded_unaligned"


Specs = Annotated[
    list[str],
    typer.Argument(metavar="SPEC", help="Spec files, or names of the ladder's specs, such as warptile."),
]
OneSpec = Annotated[
    str, typer.Argument(metavar="SPEC", help="A spec file, or the name of one of the ladder's specs, such as warptile.")
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


def find_spec(argument: str) -> Path:
    """The file that an argument names: a path, or the bare name of one of the ladder's specs.

    Raises UsageError where there is no such file.
    """
    if not argument:
        raise UsageError("the name of a spec is empty; name a file, or a rung of the ladder, such as warptile")
    path, shown = Path(argument), escaped(argument)
    if path.is_file():
        with path.open("rb"):  # may it be read? A missing permission is no mistake in the spec
            return path
    if path.is_dir():
        raise UsageError(f"{shown} is a directory, not a spec; name the files, like {shown.rstrip('/')}/*.gemm")
    if re.fullmatch(r"[A-Za-z0-9_]+", argument):
        from gemmgen.spec.ladder import EXAMPLES, ladder_names, ladder_path

        if argument in (*ladder_names(), *EXAMPLES):
            return ladder_path(argument)
        raise UsageError(f"no file {shown}, and no such rung of the ladder; {_meant(argument, ladder_names())}")
    siblings = _names_beside(path)
    hint = f"; {_meant(path.name, siblings)}" if _near(path.name, siblings) else ""
    raise UsageError(f"no file {shown}{hint}")


def _meant(word: str, known: Sequence[str]) -> str:
    """Which of the known names was meant, or all of them."""
    near = _near(word, known)
    return f"did you mean {escaped(near[0])}?" if near else f"it has {', '.join(known)}"


def _near(word: str, known: Sequence[str]) -> list[str]:
    import difflib

    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in difflib.get_close_matches(word.lower(), by_lower, 1, 0.7)]


def _names_beside(path: Path) -> list[str]:
    """The specs that lie in a file's folder; none where it cannot be read."""
    try:
        return sorted(name for name in os.listdir(path.parent) if name.endswith(".gemm"))
    except OSError:
        return []
