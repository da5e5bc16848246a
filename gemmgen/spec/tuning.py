"""``tune SETTING in {a, b, c}``: which settings a tuner may choose, and how their values read and print.

A choice is kept in ``Spec.tune`` as the setting's field, or the toggle's name, and its values: whole numbers, tuples
of them for tiles, True and False for toggles ("on" and "off" in the text).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gemmgen.diagnostics import Problem, Span, quoted
from gemmgen.spec.lines import Word
from gemmgen.spec.model import SETTINGS, TOGGLES, Spec
from gemmgen.spec.names import did_you_mean
from gemmgen.spec.setting import Setting
from gemmgen.spec.suggest import MAX_SIZE

Choice = tuple[str, tuple[Any, ...]]
Wrong = Callable[[Span, str, str], None]

_SWITCH = {"on": True, "off": False}
_WHOLE = re.compile(r"[0-9]{1,9}")
_ROWS: Mapping[str, Setting] = {row.fields[0]: row for row in SETTINGS if row.form in ("sizes", "number")}
_OPTIONS = tuple(option for toggle in TOGGLES for option in toggle.options)
_TOGGLES = tuple(toggle.name for toggle in TOGGLES)
TUNABLE: tuple[str, ...] = (*_ROWS, *_OPTIONS, *_TOGGLES)
"""What may stand between ``tune`` and ``in``, by field; a tile also by its line, as in ``tune tile block in {...}``."""


def read_choice(words: tuple[Word, ...], wrong: Wrong) -> tuple[Choice, Span] | None:
    """The choice that the words after ``tune`` make, and where its setting stands; None after a mistake."""
    tile = words[0].text == "tile" and len(words) > 1 and words[1].text in ("block", "warp", "thread")
    named = words[1:] if tile else words
    name = named[0]
    if name.text not in TUNABLE:
        wrong(name.span, f"{quoted(name.text)} is not a setting that can be tuned", did_you_mean(name.text, TUNABLE))
        return None
    if len(named) != 3 or named[1].text != "in" or not named[2].members:
        wrong(name.span, f"tune {name.text} needs a set of values", f"write it like '{example(name.text)}'")
        return None
    values, fine = [], True
    for member in named[2].members:
        value = _read(name.text, member)
        if value is None:
            shown = " ".join(w.text for w in member)
            hint = f"write it like '{example(name.text)}'"
            wrong(member[0].span, f"{quoted(shown)} is not a value of {name.text}", hint)
            fine = False
        else:
            values.append(value)
    return ((name.text, tuple(values)), name.span) if fine else None


def _read(name: str, member: tuple[Word, ...]) -> Any:
    """The value of one member of a set; None where it is none."""
    return value_of(name, member[0].text) if len(member) == 1 else None


def value_of(name: str, text: str) -> Any:
    """The value of a setting that a word says; None where it says none."""
    if name in _TOGGLES:
        return _SWITCH.get(text)
    pieces = text.split("x") if name in _ROWS and _ROWS[name].form == "sizes" else [text]
    if not all(_WHOLE.fullmatch(p) for p in pieces):
        return None
    sizes = tuple(int(p) for p in pieces)
    value = sizes if name in _ROWS and _ROWS[name].form == "sizes" else sizes[0]
    return value if fits(name, value) else None


def fits(name: str, value: Any) -> bool:
    """Whether a value is of the kind that the setting takes."""
    if name in _TOGGLES:
        return isinstance(value, bool)
    row = _ROWS.get(name)
    if row is not None and row.form == "sizes":
        few = len(row.parts) - row.optional
        return isinstance(value, tuple) and few <= len(value) <= len(row.parts) and all(_whole(v) for v in value)
    return _whole(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def settled_choices(value: Any) -> tuple[Choice, ...]:
    """Choices from Python: a mapping or pairs of setting and values. Raises TypeError or ValueError for anything
    else."""
    pairs = value.items() if isinstance(value, Mapping) else value
    found = []
    for name, values in pairs:
        if not isinstance(name, str) or isinstance(values, str):
            raise TypeError(name)
        found.append((name, tuple(tuple(v) if isinstance(v, list) else v for v in values)))
    return tuple(found)


def choice_problems(spec: Spec) -> Iterator[Problem]:
    """What is wrong with the ``tune`` lines of a spec, each alone: whether values go together is for the tuner."""
    seen: set[str] = set()
    for name, values in spec.tune:
        span = spec.spans.get(f"tune {name}")
        if name not in TUNABLE:
            message = f"{quoted(name)} is not a setting that can be tuned"
            yield Problem(message, did_you_mean(name, TUNABLE), span)
            continue
        if name in seen:
            yield Problem(f"tune {name} is given twice", "put all values into one set", span)
        seen.add(name)
        yield from _value_problems(name, values, span)


def _value_problems(name: str, values: tuple[Any, ...], span: Span | None) -> Iterator[Problem]:
    if not values:
        yield Problem(f"tune {name} has no values to choose from", f"write it like '{example(name)}'", span)
    seen: set[Any] = set()
    for value in values:
        shown = shown_value(value)
        if not fits(name, value):
            yield Problem(f"tune {name}: {quoted(shown)} is not a value of it", f"write '{example(name)}'", span)
        elif value in seen:
            yield Problem(f"tune {name}: {shown} stands in the set twice", "keep one of the two", span)
        elif out := value_problem(name, value):
            yield Problem(f"tune {name}: {shown} {out}", "take it out of the set", span)
        else:
            seen.add(value)


def value_problem(name: str, value: Any) -> str:
    """What is wrong with a value of the right kind, to follow it in a sentence; empty for a good one."""
    row = _ROWS.get(name)
    if row is not None and row.choices and value not in row.choices:
        return f"is not supported; {', '.join(str(c) for c in row.choices)} is"
    if row is not None and row.form == "number" and not row.choices:
        if value < (least := min(row.default, 1)):
            return f"is below the least, {least}"
        if row.most is not None and value > row.most:
            return f"is over the limit of {row.most}"
    if name not in _TOGGLES and (row is None or row.form == "sizes"):
        sizes = value if isinstance(value, tuple) else (value,)
        if not all(1 <= size <= MAX_SIZE for size in sizes):
            return f"has a size outside 1 to {MAX_SIZE}"
    return ""


def choice_lines(spec: Spec) -> Iterator[str]:
    """The ``tune`` lines of a spec, as they are written."""
    for name, values in spec.tune:
        yield f"tune   {_line_name(name)} in {{{', '.join(shown_value(v) for v in values)}}}"


def shown_value(value: Any) -> str:
    """A value as it is written in a set."""
    match value:
        case bool():
            return "on" if value else "off"
        case tuple():
            return "x".join(str(v) for v in value)
        case _:
            return str(value)


def example(name: str) -> str:
    """A line that tunes the setting."""
    if name in _TOGGLES:
        return f"tune {name} in {{on, off}}"
    row = _ROWS.get(name)
    if row is not None and row.form == "sizes":
        sizes = ["x".join(s[: len(row.parts)]) for s in (("64", "64", "8"), ("128", "128", "16"))]
        return f"tune {_line_name(name)} in {{{', '.join(sizes)}}}"
    return f"tune {name} in {{2, 4}}"


def _line_name(name: str) -> str:
    return _ROWS[name].name if name in _ROWS else name


def with_choice(spec: Spec, chosen: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The changes to ``spec`` (for ``replace``) that make one combination of choices."""
    changes: dict[str, Any] = {}
    use = set(spec.use)
    for name, value in chosen:
        if name in _TOGGLES:
            (use.add if value else use.discard)(name)
        else:
            changes[name] = value
    return {**changes, "use": frozenset(use), "tune": ()}
