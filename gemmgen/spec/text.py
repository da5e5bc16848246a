"""Spec -> text."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.spec.model import SETTINGS, TOGGLES, Operand, Spec
from gemmgen.spec.setting import Setting
from gemmgen.spec.tuning import choice_lines


def to_text(spec: Spec, comment: bool = True) -> str:
    """The spec in its canonical text: settings in the table's order, defaults left out. Parses to an equal spec."""
    lines = [f"# {line}".rstrip() for line in spec.comment.split("\n")] if comment and spec.comment.strip() else []
    for row in (row for row in SETTINGS if row.form != "tune"):
        if (value := "".join(_value(row, spec))) and (row.required or _differs(row, spec)):
            first, _, second = row.name.partition(" ")
            head = f"{first:<6} {second:<6}" if second else f"{first:<6}"
            lines.append(f"{head} {value}")
    return "\n".join([*lines, *choice_lines(spec)]) + "\n"


def _differs(row: Setting, spec: Spec) -> bool:
    """Whether any field of the row is not at its default."""
    defaults = {f.name: f.default for f in type(spec).__dataclass_fields__.values()}
    return any(getattr(spec, name) != defaults[name] for name in row.fields)


def _value(row: Setting, spec: Spec) -> Iterator[str]:
    value = getattr(spec, row.fields[0])
    match row.form:
        case "sizes":
            if row.name == "tile block":
                value = spec.block_given
            yield "x".join(str(v) for v in value or ())
        case "toggles":
            yield ", ".join(_toggles(spec))
        case "operands":
            yield ", ".join(_operand(name, getattr(spec, name)) for name in row.fields)
        case "chain":
            yield " -> ".join(value)
        case "name" | "number" | "word" | "math" | "roles":
            yield "" if value is None else str(value)


def _toggles(spec: Spec) -> Iterator[str]:
    for toggle in (t for t in TOGGLES if spec.has(t.name)):
        options = [f"{o}={v}" for o in toggle.options if (v := getattr(spec, o)) is not None]
        yield f"{toggle.name}({', '.join(options)})" if options else toggle.name


def _operand(name: str, value: Operand | str) -> str:
    return f"{name} {value}" if isinstance(value, str) else f"{name} {value.dtype} {value.order}"
