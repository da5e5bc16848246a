"""``gemmgen new``: a spec to start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_rung
from gemmgen.cli.files import named, write_file
from gemmgen.cli.options import Set
from gemmgen.diagnostics import escaped

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

DEFAULT_RUNG = "warptile"
STDOUT = "-"


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The kernel's name; the file is NAME.gemm.")],
    rung: Annotated[
        str,
        typer.Option("--from", metavar="RUNG", help="The rung of the ladder to copy.", autocompletion=complete_rung),
    ] = DEFAULT_RUNG,
    settings: Set = None,
    output_to: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE|-", help="The file to write, or - for stdout; default: NAME.gemm."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> int:
    """Write a spec to start from: a copy of a rung of the ladder under a new name.

    Edit its lines, then check and run it. Examples:

      gemmgen new mine

      gemmgen new mine --from vectorized --set block=64x64x16

      gemmgen new mine --from naive -o specs/mine.gemm
    """
    text = text_of(name, rung, settings or [])
    if output_to == STDOUT:
        output.result(text.rstrip("\n"))
        return exits.OK
    path = named("--output", f"{name}.gemm" if output_to is None else output_to)
    if path.is_dir():
        path = path / f"{name}.gemm"
    if path.is_file() and not force:
        raise exits.UsageError(
            f"{escaped(str(path))} exists; add --force to replace it, or choose another file with -o"
        )
    write_file(path, text.encode())
    output.wrote(path)
    output.say(f"next: gemmgen run {escaped(shown(path))}")
    return exits.OK


def text_of(name: str, rung: str, settings: list[str]) -> str:
    """The text of the new spec, with the comments of the rung's lines; after changes, with those that still hold."""
    import gemmgen
    from gemmgen.cli.specs import find_rung, with_settings

    path = find_rung(rung)
    base = gemmgen.load(path)
    start = base.replace(name=name, filename=f"{name}.gemm", comment=f"Made from {base.name}.")
    changed = with_settings(start, settings) if settings else start
    if not settings:
        return commented(changed, base, path)
    return still_commented(changed.replace(comment=start.comment), base, path)


def commented(spec: Spec, base: Spec, path: Path) -> str:
    """The rung's own text under the new name, with its comments."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    at = base.spans["kernel"].line - 1
    lines[at] = lines[at].replace(base.name, spec.name, 1)
    return "".join([f"# A copy of {base.name}:\n", *lines])


def still_commented(spec: Spec, base: Spec, path: Path) -> str:
    """The text of a changed spec, with the rung's comments behind its lines: the names of a tile's sizes hold for any;
    what else is said of a line holds where neither it nor a tile or a toggle has changed. What the rung is about is
    left out."""
    from gemmgen.spec.model import PARTS

    said: dict[str, tuple[list[str], str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        words, mark, comment = line.partition("#")
        if mark and words.strip():
            said[_start(words)] = words.split(), f"#{comment}"
    same = (spec.block, spec.warp, spec.thread, spec.use) == (base.block, base.warp, base.thread, base.use)
    lines = []
    for line in spec.to_text().splitlines():
        was, comment = said.get(_start(line), ([], ""))
        legend = line.startswith("tile") and any(part in comment for part in PARTS)
        kept = comment if comment and (legend or (same and was == line.split())) else ""
        lines.append(f"{line:<29} {kept}".rstrip())
    return "\n".join(lines) + "\n"


def _start(line: str) -> str:
    """How the line of a setting begins, which tells it from the others."""
    words = line.split()
    return " ".join(words[:2] if words[:1] == ["tile"] else words[:1])


def shown(path: Path) -> str:
    """The path as an argument of the shell."""
    import shlex

    return shlex.quote(str(path))
