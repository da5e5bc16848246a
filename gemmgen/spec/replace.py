"""Changes to a spec from Python, brought into the model's types and checked."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from gemmgen.diagnostics import Problem, SpecError, quoted
from gemmgen.spec.check import notes, problems
from gemmgen.spec.epilogue import settled_chain
from gemmgen.spec.model import SETTINGS, TOGGLES, Operand, Spec
from gemmgen.spec.names import did_you_mean
from gemmgen.spec.setting import Setting
from gemmgen.spec.subject import Subject
from gemmgen.spec.tuning import settled_choices

_ROWS: dict[str, Setting] = {f: row for row in SETTINGS for f in row.fields}
_TEXT = ("comment", "filename")
_TOGGLES = frozenset(t.name for t in TOGGLES)


def replaced(spec: Spec, changes: Mapping[str, Any]) -> Spec:
    """``spec`` with ``changes``, checked. Raises SpecError, with no line, where a change or the result is not legal."""
    return legal(spec, settled(changes))


def tried(spec: Spec, **changes: Any) -> Spec:
    """``spec.replace(**changes)`` for who tries many: the errors are soon raised, and have no hints."""
    return legal(spec, settled(changes), hints=False)


def settled(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes as values of Spec's fields. Raises SpecError for an unknown setting or a value of the wrong kind."""
    found: list[Problem] = []
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name in _TOGGLES:
            found.append(_toggle_alone(name, value))
            continue
        if name not in _ROWS and name not in _TEXT:
            found.append(Problem(f"unknown setting {quoted(name)}", did_you_mean(name, (*_ROWS, *_TOGGLES))))
            continue
        try:
            values[name] = _value(name, value)
        except (TypeError, ValueError):
            found.append(Problem(f"{name} takes {_wanted(name)}, not {_given(value)}"))
    if found:
        raise SpecError(found)
    return values


def _toggle_alone(name: str, value: Any) -> Problem:
    """A toggle that is passed as if it were a setting."""
    changed = f"spec.use {'-' if value is False else '|'} {{{name!r}}}"
    hint = f"write use={changed}; with variants use=[spec.use, {changed}]"
    return Problem(f"{name} is a toggle: one of the names in use, and no setting of its own", hint)


def legal(spec: Spec, values: Mapping[str, Any], hints: bool = True) -> Spec:
    """``spec`` with ``values`` of the right kind. Raises SpecError where the result is not legal, with or without
    hints, which take longer than all else."""
    values = dict(values)
    block = values.get("block")
    no_bk = len(block) == 2 if block is not None else "tile block" in spec.spans and "BK" not in spec.spans
    if block is not None and no_bk:
        values["block"] = (*block, 1)
    use: frozenset[str] = values.get("use", frozenset(t.name for t in TOGGLES))
    for toggle in TOGGLES:
        if toggle.name not in use:
            values = dict.fromkeys(toggle.options) | values  # the options leave with their toggle
    same = all(name in ("name", *_TEXT) or getattr(spec, name) == value for name, value in values.items())
    fresh: dict[str, Any] = {"filename": "<spec>", "spans": {}, "comment": spec.comment if same else ""}
    result = dataclasses.replace(spec, **(fresh | values))
    if found := problems(Subject(result, no_bk=no_bk, trying=not hints)):
        raise SpecError(found, result.filename)
    return dataclasses.replace(result, notes=notes(result))


def _value(name: str, value: Any) -> Any:
    if name in _TEXT:
        return _text(value).replace("\r\n", "\n").replace("\r", "\n")
    row = _ROWS[name]
    if value is None and row.default is None and not row.required:
        return None
    match row.form:
        case "sizes":
            sizes = tuple(_whole(v) for v in value)
            if not len(row.parts) - row.optional <= len(sizes) <= len(row.parts):
                raise ValueError(name)
            return sizes
        case "toggles" if name != "use":
            return None if value is None else _whole(value)
        case "toggles":
            return _toggles(value)
        case "operands" if name != "accumulate":
            return value if isinstance(value, Operand) else _operand(*_text(value).split())
        case "number":
            return _whole(value)
        case "chain":
            return settled_chain(value)
        case "tune":
            return settled_choices(value)
        case _:
            return _text(value)


def _operand(dtype: str, order: str = "row") -> Operand:
    if order not in ("row", "col"):
        raise ValueError(order)
    return Operand(dtype, "row" if order == "row" else "col")


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(value)
    return operator.index(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _toggles(value: str | Iterable[str]) -> frozenset[str]:
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    return frozenset(_text(name) for name in names)


def _wanted(name: str) -> str:
    if name in _TEXT:
        return "text"
    row = _ROWS[name]
    match row.form:
        case "sizes":
            few = ", ".join(row.parts[: len(row.parts) - row.optional])
            return f"({', '.join(row.parts)})" + (f" or ({few})" if row.optional else "") + ", whole numbers"
        case "toggles":
            return "names of toggles" if name == "use" else "a whole number"
        case "operands":
            return "a type" if name == "accumulate" else "an Operand, or its text, such as 'f32 row'"
        case "number":
            return "a whole number"
        case "chain":
            return "entries joined with ->, such as 'bias -> gelu', or a tuple of them"
        case "tune":
            return "pairs of a setting and its values, such as {'stages': (2, 3)}"
        case _:
            return "text"


def _given(value: Any) -> str:
    return quoted(repr(value))
