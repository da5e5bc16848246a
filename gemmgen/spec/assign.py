"""``NAME=VALUE``: one setting of a spec given beside its text, as on the command line.

A toggle is on or off; ``block``, ``warp`` and ``thread`` are sizes; ``A``, ``B`` and ``C`` an element type, an order or
both. Anything else reads as its line in a spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote
from typing import Any

from gemmgen.diagnostics import Problem, SpecError, quoted
from gemmgen.spec.model import DTYPES, ORDERS, SETTINGS, SUM_TYPES, TOGGLES, Operand, Spec
from gemmgen.spec.names import did_you_mean

SIZES: Mapping[str, str] = {"block": "BMxBNxBK", "warp": "WMxWN", "thread": "TMxTN"}
NUMBERS = tuple(row.fields[0] for row in SETTINGS if row.form == "number")
WORDS = tuple(row.fields[0] for row in SETTINGS if row.form in ("word", "name", "math", "roles"))
OPTIONS = tuple(option for toggle in TOGGLES for option in toggle.options)
SWITCHES = tuple(toggle.name for toggle in TOGGLES)
OPERANDS = ("A", "B", "C")
CHAINS = tuple(row.fields[0] for row in SETTINGS if row.form == "chain")
NAMES: tuple[str, ...] = (*SIZES, *NUMBERS, *OPTIONS, *WORDS, *CHAINS, *OPERANDS, "accumulate", *SWITCHES)
"""What may stand before the ``=``."""
TOGGLE_HINT = "name the toggle itself, like --set float4=on"


def assigned(spec: Spec, settings: Iterable[str]) -> Spec:
    """``spec`` with each ``NAME=VALUE``, checked. Raises SpecError for one that cannot be read, or where the result is
    not legal; a setting that is given twice is a mistake too."""
    settings = tuple(settings)
    changes: dict[str, Any] = {}
    use, found, seen = set(spec.use), list[Problem](), set[str]()
    for text in settings:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or not value:
            found.append(Problem(f"--set {quoted(text)} is not NAME=VALUE", "write it like --set stages=2"))
        elif name not in NAMES:
            hint = TOGGLE_HINT if name == "use" else did_you_mean(name, NAMES)
            found.append(Problem(f"--set {quoted(text)}: unknown setting {quoted(name)}", hint))
        elif name in seen:
            found.append(Problem(f"--set {name} is given twice", "keep one of the two"))
        elif name in SWITCHES:
            found += _switch(use, name, value)
        else:
            found += _value(changes, spec, name, value)
        seen.add(name)
    if found:
        raise SpecError(found, spec.filename)
    if use != set(spec.use):
        changes["use"] = frozenset(use)
    changes = {name: value for name, value in changes.items() if getattr(spec, name) != value}
    if not changes:
        return spec
    return spec.replace(**changes, filename=" --set ".join([spec.filename, *map(quote, settings)]))


def _switch(use: set[str], name: str, value: str) -> list[Problem]:
    if value not in ("on", "off"):
        return [Problem(f"--set {name}={value}: {name} is a toggle", f"write {name}=on or {name}=off")]
    (use.add if value == "on" else use.discard)(name)
    return []


def _value(changes: dict[str, Any], spec: Spec, name: str, value: str) -> list[Problem]:
    """Enters the value of a setting that is no toggle, or says why it is none."""
    if name in CHAINS:
        changes[name] = None if value == "none" else value
        return []
    if "," in value and name != "roles":
        hint = f"give one value, as in {name}={value.split(',')[0].strip()}; `gemmgen tune` takes several"
        return [Problem(f"--set {name}={value}: several values", hint)]
    if name in SIZES:
        return _sizes(changes, name, value)
    if name in OPERANDS:
        return _operand(changes, spec, name, value)
    if name == "accumulate" and value not in SUM_TYPES:
        return [Problem(f"--set accumulate={value}: not supported", f"write accumulate={SUM_TYPES[0]}")]
    if name in WORDS or name == "accumulate":
        changes[name] = None if value == "none" and name in ("arch", "roles") else value
        return []
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        return [Problem(f"--set {name}={value}: {quoted(value)} is not a whole number", f"write it like {name}=2")]
    changes[name] = int(value)
    return []


def _sizes(changes: dict[str, Any], name: str, value: str) -> list[Problem]:
    parts = value.split("x")
    counts = (2, 3) if name == "block" else (2,)
    if name == "warp" and value == "none":
        changes[name] = None
    elif len(parts) in counts and all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        changes[name] = tuple(int(p) for p in parts)
    else:
        example = {"block": "block=128x128x16", "warp": "warp=64x64", "thread": "thread=8x4"}[name]
        return [Problem(f"--set {name}={value}: {name} takes {SIZES[name]}", f"write it like {example}")]
    return []


def _operand(changes: dict[str, Any], spec: Spec, name: str, value: str) -> list[Problem]:
    """An element type, an order, or both: what is not given stays."""
    now: Operand = getattr(spec, name)
    dtype, order = now.dtype, now.order
    for word in value.split():
        if word in DTYPES:
            dtype = word
        elif word in ORDERS:
            order = "row" if word == "row" else "col"
        else:
            types, orders = ", ".join(DTYPES), " or ".join(ORDERS)
            return [Problem(f"--set {name}={value}: unknown {quoted(word)}", f"types are {types}; orders {orders}")]
    changes[name] = Operand(dtype, order)
    return []
