"""Every setting that ``--set`` takes: its values, default and meaning, read from ``spec/model.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.report.settings import choices
from gemmgen.spec.architecture import meaning_of
from gemmgen.spec.assign import NAMES, OPERANDS, SIZES, SWITCHES
from gemmgen.spec.model import DTYPES, ORDERS, SETTINGS, SUM_TYPES, TOGGLES
from gemmgen.spec.setting import Setting
from gemmgen.spec.tuning import TUNABLE, shown_value


@dataclass(frozen=True)
class Assignable:
    """One row: ``line`` is how a spec writes it, ``values`` what may stand after ``NAME=``, ``needs`` the toggles that
    it does not work without."""

    name: str
    line: str
    values: str
    example: str
    default: str
    meaning: str
    toggle: bool
    tunable: bool
    needs: tuple[str, ...] = ()


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
    **dict.fromkeys(OPERANDS, DTYPES[-1]),
}
"""Values to show, by setting or by what it takes."""
OPTION_MEANING = {
    "m_iter": "pieces of a thread's work along M in its warp tile",
    "n_iter": "pieces of a thread's work along N in its warp tile",
}


def _row(name: str, line: str, values: str, default: str, meaning: str, needs: tuple[str, ...] = ()) -> Assignable:
    example = EXAMPLES.get(name) or EXAMPLES.get(values) or values.split("|")[0]
    return Assignable(
        name, line, values, f"{name}={example}", default, meaning, name in SWITCHES, name in TUNABLE, needs
    )


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
            return choices(setting.choices) or "N"
        case _:
            return setting.example or "NAME"


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
