"""``gemmgen check``: read specs and say everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmgen.cli import exits, output
from gemmgen.cli.options import Json, Set, Specs
from gemmgen.cli.specs import load_spec, sources
from gemmgen.diagnostics import SpecError, escaped

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec


def check(specs: Specs, settings: Set = None, json: Json = False) -> int:
    """Read specs and report every mistake in them, with its place and what to do.

    Nothing is compiled. Examples:

      gemmgen check specs/warptile.gemm

      gemmgen check warptile --set stages=2

      gemmgen check specs/*.gemm --json
    """
    rows: list[dict[str, Any]] = []
    sizes: dict[str, Sequence[int]] = {}
    for source in sources(specs):
        file = "<stdin>" if source is None else str(source)
        try:
            spec = load_spec(source, settings)
            sizes[file] = spec.block_given
            rows.append({"file": file, "ok": True, **facts(spec), "errors": []})
        except SpecError as error:
            output.say(exits.message_of(error))
            rows.append({"file": file, "ok": False, "errors": [described(e) for e in error.errors]})
    if json:
        output.print_json(rows)
    else:
        for row in rows:
            if row["ok"]:
                output.result(summary(row, sizes[row["file"]]))
    return exits.OK if all(row["ok"] for row in rows) else exits.USAGE


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


def summary(row: dict[str, Any], given: Sequence[int]) -> str:
    """One line on a spec that is right, with the block's sizes as they are given, and one for each of its notes."""
    tile, file = "x".join(str(n) for n in given), escaped(row["file"])
    line = f"{file}: {row['kernel']}: OK, block {tile}, {row['threads']} threads"
    return "\n".join([line, *(f"{file}: note: {note}" for note in row["notes"])])


def described(error: SpecError) -> dict[str, Any]:
    return {"line": error.line, "column": error.column, "message": error.message, "hint": error.hint}
