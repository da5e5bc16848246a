"""``gemmgen check``: read specs and say everything that is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemmgen.cli import exits, output
from gemmgen.cli.options import Json, Specs, find_spec
from gemmgen.diagnostics import SpecError

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec


def check(specs: Specs, json: Json = False) -> int:
    """Read specs and report every mistake in them, with its place and what to do.

    Nothing is compiled. Examples:

      gemmgen check specs/warptile.gemm

      gemmgen check specs/*.gemm --json
    """
    rows: list[dict[str, Any]] = []
    for argument in specs:
        path = find_spec(argument)
        try:
            rows.append({"file": str(path), "ok": True, **facts(load(str(path))), "errors": []})
        except SpecError as error:
            output.say(exits.message_of(error))
            rows.append({"file": str(path), "ok": False, "errors": [described(e) for e in error.errors]})
    if json:
        output.print_json(rows)
    else:
        for row in rows:
            if row["ok"]:
                output.result(summary(row))
    return exits.OK if all(row["ok"] for row in rows) else exits.USAGE


def load(path: str) -> Spec:
    """The spec in a file, checked. Raises SpecError."""
    import gemmgen

    return gemmgen.load(path)


def facts(spec: Spec) -> dict[str, Any]:
    return {
        "kernel": spec.name,
        "block": list(spec.block),
        "warp": list(spec.warp) if spec.warp else None,
        "thread": list(spec.thread),
        "use": sorted(spec.use),
        "threads": spec.threads,
        "notes": list(spec.notes),
    }


def summary(row: dict[str, Any]) -> str:
    """One line on a spec that is right, and one for each of its notes."""
    tile = "x".join(str(n) for n in row["block"])
    line = f"{row['file']}: {row['kernel']} is fine: block {tile}, {row['threads']} threads"
    return "\n".join([line, *(f"{row['file']}: note: {note}" for note in row["notes"])])


def described(error: SpecError) -> dict[str, Any]:
    return {"line": error.line, "column": error.column, "message": error.message, "hint": error.hint}
