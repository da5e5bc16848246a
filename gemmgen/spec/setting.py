"""What a setting is: a field of Spec as ``setting()`` makes it, and the row of the table that is read from it."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field
from typing import Any, Literal

Form = Literal["name", "sizes", "toggles", "operands", "number", "word", "math", "roles", "chain", "tune"]


def setting(default: Any, doc: str, *, line: str, form: Form, **how: Any) -> Any:
    """A field of Spec that is also (part of) a row of SETTINGS.

    ``line`` is how a line that gives it starts, ``form`` how the rest of that line reads. ``how``: for sizes
    ``parts`` (their names) and ``optional`` (how many of the last may be left out); for a number or word ``choices``,
    for a number ``most``, for a word ``pattern`` and ``example``.
    """
    return field(default=default, metadata={"doc": doc, "line": line, "form": form, **how})


@dataclass(frozen=True)
class Setting:
    """A row of the table of settings: the line ``name ...`` gives the ``fields`` of Spec, and reads as ``form``."""

    name: str
    form: Form
    fields: tuple[str, ...]
    doc: str
    default: Any
    required: bool
    parts: tuple[str, ...] = ()
    optional: int = 0
    choices: tuple[Any, ...] = ()
    most: int | None = None
    pattern: str = ""
    example: str = ""


def row_of(line: str, group: list[Field[Any]]) -> Setting:
    """The row of a line that gives these fields of Spec."""
    first = group[0]
    how = {k: v for k, v in first.metadata.items() if k not in ("line", "form", "doc")}
    return Setting(
        name=line,
        form=first.metadata["form"],
        fields=tuple(f.name for f in group),
        doc=first.metadata["doc"] if len(group) == 1 or line == "use" else "element type and order of each matrix",
        default=None if first.default is MISSING else first.default,
        required=first.default is MISSING,
        **how,
    )
