"""The specs of a command line: files, rungs of the ladder, stdin, and the settings given beside them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gemmgen.cli import exits, output
from gemmgen.cli.exits import UsageError
from gemmgen.diagnostics import SpecError, escaped

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

STDIN = "-"


def load_specs(arguments: Sequence[str], settings: Sequence[str] | None = None) -> list[Spec]:
    """The specs of a command line, each with the settings of its ``--set``.

    Raises SpecError with the mistakes of the first that has any, after the mistakes of all the others have been
    printed; UsageError for a missing file, or for stdin given twice.
    """
    specs: list[Spec] = []
    errors: list[SpecError] = []
    for source in sources(arguments):
        try:
            specs.append(load_spec(source, settings))
        except SpecError as error:
            errors.append(error)
    if errors:
        for other in errors[1:]:
            output.say(exits.message_of(other))
        raise errors[0]
    return specs


def sources(arguments: Sequence[str]) -> list[Path | None]:
    """Where each spec is read from: a file, or stdin (None). Raises UsageError where one is missing."""
    if list(arguments).count(STDIN) > 1:
        raise UsageError("- is given twice; stdin holds one spec")
    return [None if argument == STDIN else find_spec(argument) for argument in arguments]


def load_spec(source: Path | None, settings: Sequence[str] | None = None) -> Spec:
    """The spec of a file, or of stdin for None, with the settings. Raises SpecError."""
    import gemmgen

    spec = gemmgen.load(source) if source is not None else read_stdin()
    return with_settings(spec, settings) if settings else spec


def with_settings(spec: Spec, settings: Sequence[str]) -> Spec:
    """The spec with every ``NAME=VALUE``, if that fits a GPU. Raises SpecError that names the settings."""
    from gemmgen.api.specs import checked
    from gemmgen.spec.assign import assigned

    return checked(assigned(spec, settings))


def read_stdin() -> Spec:
    """The spec on stdin. Raises SpecError."""
    from gemmgen.api.specs import checked, fits_some_gpu
    from gemmgen.spec.parse import read

    return checked(read(sys.stdin.buffer, "<stdin>", fits_some_gpu))


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
    if path.exists() and not path.is_dir():  # a pipe or a device: read once, when the spec is
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


def find_rung(name: str) -> Path:
    """The file of a rung of the ladder. Raises UsageError with the nearest name."""
    from gemmgen.spec.ladder import ladder_names, ladder_path

    if name not in ladder_names():
        raise UsageError(f"{escaped(name)} is not a rung of the ladder; {_meant(name, ladder_names())}")
    return ladder_path(name)


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
