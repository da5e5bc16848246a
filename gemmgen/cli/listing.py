"""``gemmgen settings``: every setting and toggle of a spec."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_name
from gemmgen.cli.options import Json

if TYPE_CHECKING:
    from gemmgen.report.assignable import Assignable


LONG = 45
"""Characters of values from which a line of a spec shows an example instead."""


def settings(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A setting, or the first word of a line of a spec, with its details.",
            show_default=False,
            autocompletion=complete_name,
        ),
    ] = None,
    json: Json = False,
) -> int:
    """List the settings and toggles of a spec: values, default, meaning.

    Each is a line of a spec, and can be changed on the command line with --set NAME=VALUE. Examples:

      gemmgen settings

      gemmgen settings stages

      gemmgen settings --json
    """
    from gemmgen.report.assignable import assignables

    found = assignables() if name is None else named(name)
    if json:
        output.print_json([{**asdict(row), "needs": list(row.needs), "details": dict(row.details)} for row in found])
    elif name is None or name == "use":
        output.result(tables(found))
    else:
        output.result("\n\n".join(map(sheet, found)))
    return exits.OK


def named(name: str) -> list[Assignable]:
    """The row of that name, or those of the line of a spec that starts so: A, B and C of ``operands``.

    Raises UsageError with the nearest name.
    """
    from gemmgen.diagnostics import quoted
    from gemmgen.report.assignable import assignables, group_of
    from gemmgen.spec.names import did_you_mean

    rows = {row.name: row for row in assignables()}
    wanted = [name] if name in rows else group_of(name)
    if name == "tune":
        why = "a spec has a line for each setting that gemmgen tune chooses"
        raise exits.UsageError(f"tune takes no value of its own: {why}; write it like 'tune stages in {{1, 2}}'")
    if not wanted:
        raise exits.UsageError(f"{quoted(name)} is not a setting; {did_you_mean(name, rows)}")
    return [rows[x] for x in wanted]


def tables(rows: list[Assignable]) -> str:
    """One table of settings and one of toggles."""
    from gemmgen.report.table import format_table
    from gemmgen.text.wrap import wrapped

    plain = [[r.name, r.values, r.default, r.meaning] for r in rows if not r.toggle]
    toggles = [[r.name, ", ".join(r.needs) or None, r.meaning] for r in rows if r.toggle]
    return "\n\n".join(
        [
            *([format_table(("setting", "values", "default", "meaning"), plain)] if plain else []),
            format_table(("toggle", "needs", "meaning"), toggles),
            wrapped(
                "Toggles are off by default; --set NAME=on turns one on. docs/language.md shows the lines of a spec."
            ),
        ]
    )


def sheet(row: Assignable) -> str:
    """One setting, a line for each fact."""
    from gemmgen.text.wrap import wrapped

    short = row.values if len(row.values) < LONG else row.example.partition("=")[2]
    facts = [
        ("line of a spec", row.line if row.toggle or "(" in row.line else f"{row.line} {short}"),
        ("command line", f"--set {quote(row.example)}"),
        ("values", row.values),
        ("default", row.default),
        ("needs", ", ".join(row.needs)),
        ("tuning", f"gemmgen tune SPEC --set {row.name}=..., or a tune line" if row.tunable else ""),
    ]
    wide = max(15, *(len(key) for key, _ in row.details)) if row.details else 15
    shown = [*((key, text) for key, text in facts if text), *row.details]
    lines = [wrapped(text, first=f"  {key:<{wide}} ", rest=" " * (wide + 3)) for key, text in shown]
    return "\n".join([wrapped(f"{row.name}: {row.meaning}"), *lines])
