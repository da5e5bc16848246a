"""``gemmgen settings``: every setting and toggle of a spec."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_name
from gemmgen.cli.options import Json

if TYPE_CHECKING:
    from gemmgen.report.assignable import Assignable


def settings(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="One setting, with its details.", show_default=False, autocompletion=complete_name
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

    found = assignables() if name is None else [named(name)]
    if json:
        output.print_json([{**asdict(row), "needs": list(row.needs)} for row in found])
    elif name is None:
        output.result(tables(found))
    else:
        output.result(sheet(found[0]))
    return exits.OK


def named(name: str) -> Assignable:
    """The row of that name. Raises UsageError with the nearest name."""
    from gemmgen.diagnostics import quoted
    from gemmgen.report.assignable import assignables
    from gemmgen.spec.names import did_you_mean

    rows = {row.name: row for row in assignables()}
    if name not in rows:
        raise exits.UsageError(f"{quoted(name)} is not a setting; {did_you_mean(name, rows)}")
    return rows[name]


def tables(rows: list[Assignable]) -> str:
    """One table of settings and one of toggles."""
    from gemmgen.report.table import format_table
    from gemmgen.text.wrap import wrapped

    plain = [[r.name, r.values, r.default, r.meaning] for r in rows if not r.toggle]
    toggles = [[r.name, ", ".join(r.needs) or None, r.meaning] for r in rows if r.toggle]
    return "\n\n".join(
        [
            format_table(("setting", "values", "default", "meaning"), plain),
            format_table(("toggle", "needs", "meaning"), toggles),
            wrapped(
                "Toggles are off by default; --set NAME=on turns one on. docs/language.md shows the lines of a spec."
            ),
        ]
    )


def sheet(row: Assignable) -> str:
    """One setting, a line for each fact."""
    from gemmgen.text.wrap import wrapped

    facts = [
        ("line of a spec", row.line if row.toggle or "(" in row.line else f"{row.line} {row.values}"),
        ("command line", f"--set {row.example}"),
        ("values", row.values),
        ("default", row.default),
        ("needs", ", ".join(row.needs)),
        ("tuning", f"gemmgen tune SPEC --set {row.name}=..., or a tune line" if row.tunable else ""),
    ]
    lines = [f"  {key:<15} {text}" for key, text in facts if text]
    return "\n".join([wrapped(f"{row.name}: {row.meaning}"), *lines])
