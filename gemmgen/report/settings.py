"""The table of settings as Markdown, read from ``spec/model.py``, for docs/language.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from gemmgen.isa.math import MATHS
from gemmgen.isa.wgmma import REGISTERS
from gemmgen.spec.architecture import meaning_of
from gemmgen.spec.model import DTYPES, ORDERS, SETTINGS, SUM_TYPES, TOGGLES, Toggle
from gemmgen.spec.setting import Setting


def settings_markdown() -> str:
    """Two tables: the lines of a spec, and the toggles of its ``use`` line."""
    lines = [[f"`{setting.name} {form(setting)}`", setting.doc, default(setting)] for setting in SETTINGS]
    toggles = [[f"`{t.name}`", with_options(meaning_of(t), t.options), needed(t)] for t in TOGGLES]
    return "\n".join(
        [
            *markdown(["line", "meaning", "default"], lines),
            "",
            *markdown(["`use`", "meaning", "needs"], toggles),
        ]
    )


def needed(t: Toggle) -> str:
    """The toggles that one needs, with those that only plain multiply-adds ask for."""
    return ", ".join([*(f"`{n}`" for n in t.needs), *(f"`{n}` (with `math fma`)" for n in t.fma_needs)])


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headers)} |"
    yield f"|{'---|' * len(headers)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def form(setting: Setting) -> str:
    """The form of the rest of a setting's line."""
    match setting.form:
        case "name":
            return "NAME"
        case "sizes":
            needed = len(setting.parts) - setting.optional
            return "x".join(setting.parts[:needed]) + "".join(f"[x{part}]" for part in setting.parts[needed:])
        case "toggles":
            return "TOGGLE, ..."
        case "operands":
            return f"A {'|'.join(DTYPES)} {'|'.join(ORDERS)}, ..., accumulate {'|'.join(SUM_TYPES)}"
        case "number":
            return choices(setting.choices) or setting.example or "N"
        case "math":
            return choices([name for name, _ in ways()])
        case "roles":
            return f"producer 1, consumers {choices(sorted(map(str, REGISTERS)))}"
        case "word":
            return choices(setting.choices) or one_letter(setting.pattern) or setting.example or "WORD"
        case "chain":
            return "ENTRY -> ..."
        case "tune":
            return "SETTING in {VALUE, ...}"
        case _:
            assert_never(setting.form)


def ways() -> list[tuple[str, tuple[str, ...]]]:
    """Every form of ``math`` with the element types that it multiplies; N of wgmma stands for the columns."""
    types: dict[str, list[str]] = {}
    for (name, dtype), row in MATHS.items():
        shape = "x".join(str(x) if i != 1 else "N" for i, x in enumerate(row.shape))
        parts = f" as {row.split.name}" if row.split else ""
        types.setdefault(f"wgmma {shape}{parts}" if row.by_group else name, []).append(dtype.name)
    return [(name, tuple(dict.fromkeys(found))) for name, found in types.items()]


def one_letter(pattern: str) -> str:
    """The values of a pattern that is one letter of several."""
    found = re.fullmatch(r"\[([a-z]+)\]", pattern)
    return "|".join(found[1]) if found else ""


def choices(values: Sequence[object]) -> str:
    """``1..8`` for consecutive numbers, else every choice."""
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) == len(values) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}..{numbers[-1]}"
    return "|".join(map(str, values))


def default(setting: Setting) -> str:
    """The value where a spec lacks the line, as the line would have it."""
    if setting.required:
        return "required"
    match setting.form:
        case "operands":
            return f"`{DTYPES[0]} {ORDERS[0]}` each"
        case "sizes" if setting.default is not None:
            return "`{}`".format("x".join(map(str, setting.default)))
        case "number" | "math":
            return f"`{setting.default}`"
        case _:
            return "none"


def with_options(doc: str, options: Sequence[str]) -> str:
    return doc + (f"; `({', '.join(f'{name}=' for name in options)})` sets them" if options else "")
