"""Every setting that ``--set`` takes: its values, default and meaning, read from ``spec/model.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.isa.epilogue import ROWS, Row
from gemmgen.isa.math import MATHS
from gemmgen.report.settings import choices, form, ways
from gemmgen.spec.architecture import meaning_of
from gemmgen.spec.assign import NAMES, OPERANDS, SIZES, SWITCHES
from gemmgen.spec.model import DTYPES, ORDERS, SETTINGS, SUM_TYPES, TOGGLES
from gemmgen.spec.setting import Setting
from gemmgen.spec.tuning import TUNABLE, shown_value
from gemmgen.target import ARCHS


@dataclass(frozen=True)
class Assignable:
    """One row: ``line`` is how a spec writes it, ``values`` what may stand after ``NAME=``, ``needs`` the toggles that
    it does not work without, ``details`` what there is to say of single values."""

    name: str
    line: str
    values: str
    example: str
    default: str
    meaning: str
    toggle: bool
    tunable: bool
    needs: tuple[str, ...] = ()
    details: tuple[tuple[str, str], ...] = ()


def assignables() -> list[Assignable]:
    """The settings in the order of a spec's lines, then the toggles and their options."""
    found = [row for setting in SETTINGS for row in _settings(setting)]
    for toggle in TOGGLES:
        needs = toggle.needs
        found.append(_row(toggle.name, f"use {toggle.name}", "on|off", "off", meaning_of(toggle), needs))
        for option in toggle.options:
            line = f"use {toggle.name}({option}=N)"
            meaning = OPTION_MEANING[option]
            found.append(_row(option, line, "N", "automatic", meaning, (toggle.name,)))
    return [row for row in found if row.name in NAMES]


EXAMPLES = {
    "N": "2",
    "on|off": "on",
    "NAME": "mine",
    "block": "128x128x16",
    "warp": "64x64",
    "thread": "8x4",
    "stages": "2",
    **{row.name: row.example for row in SETTINGS if row.example},
    **dict.fromkeys(OPERANDS, "bf16 col"),
}
"""Values to show, by setting or by what it takes."""
OPTION_MEANING = {
    "m_iter": "pieces of a thread's work along M in its warp tile",
    "n_iter": "pieces of a thread's work along N in its warp tile",
}


def _row(name: str, line: str, values: str, default: str, meaning: str, needs: tuple[str, ...] = ()) -> Assignable:
    number = "N" if values.startswith("0..") else values
    example = EXAMPLES.get(name) or EXAMPLES.get(number) or values.split("|")[-1]
    return Assignable(
        name,
        line,
        values,
        f"{name}={example}",
        default,
        meaning,
        name in SWITCHES,
        name in TUNABLE,
        needs,
        _details(name),
    )


def _details(name: str) -> tuple[tuple[str, str], ...]:
    """What there is to say of single values: of ``math`` the types it multiplies, of ``epilogue`` its entries."""
    if name == "math":
        return tuple(
            (way, f"of {', '.join(types)}{_columns(' as ' in way) if 'N' in way else ''}") for way, types in ways()
        )
    return tuple((_entry(row), row.doc) for row in ROWS.values()) if name == "epilogue" else ()


def _columns(split: bool) -> str:
    """The columns of a product of warp groups; those of parts are fewer."""
    n = sorted({row.shape[1] for row in MATHS.values() if row.by_group and bool(row.split) is split})
    return f"; N is {n[0]}, {n[1]}, ... {n[-1]}"


def group_of(word: str) -> list[str]:
    """The settings of a line of a spec, by its first word: of ``operands`` A, B, C and accumulate. Empty for others."""
    found = [name for row in SETTINGS if row.name.split()[0] == word for name in row.fields]
    return [name for name in found if name in NAMES] if word != "use" else list(SWITCHES)


def _settings(setting: Setting) -> Iterator[Assignable]:
    if setting.form in ("toggles", "tune"):
        return
    for name in setting.fields:
        line = f"{setting.name} {name}" if setting.form == "operands" else setting.name
        yield _row(name, line, _values(setting, name), _default(setting, name), _meaning(setting, name))


def _values(setting: Setting, name: str) -> str:
    match setting.form:
        case "sizes":
            return SIZES[name]
        case "operands":
            return " ".join(["|".join(DTYPES), "|".join(ORDERS)]) if name in OPERANDS else "|".join(SUM_TYPES)
        case "number":
            return choices(setting.choices) or ("N" if setting.most is None else f"0..{setting.most}")
        case "chain":
            return f"ENTRY -> ..., of {', '.join(map(_entry, ROWS.values()))}"
        case "word" if setting.name == "arch":
            return ", ".join(ARCHS)
        case "name":
            return "NAME"
        case _:
            return form(setting)


def _entry(row: Row) -> str:
    return f"{row.name}({', '.join(row.parameters)})" if row.parameters else row.name


def _meaning(setting: Setting, name: str) -> str:
    if name in OPERANDS:
        return f"element type and order of {name}"
    return "type of the running sums" if name == "accumulate" else setting.doc


def _default(setting: Setting, name: str) -> str:
    if setting.required:
        return "required"
    if name in OPERANDS:
        return f"{DTYPES[0]} {ORDERS[0]}"
    if name == "accumulate":
        return SUM_TYPES[0]
    return "none" if setting.default in (None, ()) else shown_value(setting.default)
