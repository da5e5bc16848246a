"""One measurement, and the row of the file of records that keeps it: written, read back, checked, brought up to date.

A row is checked when it is read, since the file is the user's and may be damaged, edited, or written by another
gemmgen. A row that does not hold raises ValueError that says what is wrong with which of its columns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from gemmgen.diagnostics import SpecError, quoted
from gemmgen.spec.model import RENAMED
from gemmgen.tune.shapes import Align, Shape

Row = Sequence[Any]
"""The values of COLUMNS, as SQLite has them."""


@dataclass(frozen=True)
class Machine:
    """What a measurement holds for: the GPU by its name, its driver, and the compiler."""

    gpu: str
    driver: str
    nvrtc: str


@dataclass(frozen=True)
class Record:
    """One kernel at one shape on one machine. ``status`` "ok", or how it failed ("wrong", "hang", ...) and ``reason``.

    ``seconds`` is the median of ``samples``, ``spread`` the quartiles' distance as a part of it; ``level`` how
    carefully it was timed: 0 in passing, 1 in the final comparison. ``screened`` is what it took in passing, brought to
    the scale of the other candidates of its search. ``warm`` says whether operands stayed in the L2 cache.
    """

    machine: Machine
    shape: Shape
    types: str
    align: Align
    warm: bool
    key: str
    spec: str
    status: str
    seconds: float | None = None
    spread: float | None = None
    samples: int = 0
    discarded: int = 0
    level: int = 0
    screened: float | None = None
    registers: int | None = None
    reason: str = ""
    made_by: str = ""
    when: float = 0.0

    @property
    def gflops(self) -> float | None:
        m, n, k = self.shape
        return None if self.seconds is None else 2.0 * m * n * k / self.seconds / 1e9

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "gflops": self.gflops}


_FACTS = tuple(
    f.name
    for f in fields(Record)
    if f.name not in ("machine", "shape", "types", "align", "warm", "key", "level", "seconds")
)
KEY_COLUMNS = ("gpu", "driver", "nvrtc", "m", "n", "k", "types", "align", "warm", "key")
COLUMNS = (*KEY_COLUMNS, "level", "seconds", "facts")


def row_of(r: Record) -> tuple[Any, ...]:
    facts = json.dumps({name: getattr(r, name) for name in _FACTS})
    key = (*asdict(r.machine).values(), *r.shape, r.types, shown_align(r.align), int(r.warm), r.key)
    return (*key, r.level, r.seconds, facts)


def shown_align(align: Align) -> str:
    return ",".join(map(str, align))


def record_of(row: Row) -> Record:
    """The record that a row holds. Raises ValueError for a row that holds none."""
    column = dict(zip(COLUMNS, row, strict=True))
    for name in COLUMNS:
        _check(name, column[name])
    facts = _facts(column["facts"])
    if facts["status"] == "ok" and column["seconds"] is None:
        raise ValueError("status is 'ok', and seconds is missing")
    a, b, c = (int(x) for x in column["align"].split(","))
    return Record(
        Machine(column["gpu"], column["driver"], column["nvrtc"]), (column["m"], column["n"], column["k"]),
        column["types"], (a, b, c), bool(column["warm"]), column["key"],
        seconds=column["seconds"], level=column["level"], **facts,
    )  # fmt: skip


def described(row: Row) -> str:
    """Which row it is, for a person: its shape, its GPU and its key, as far as they can be read."""
    column = dict(zip(COLUMNS, row, strict=True))
    size = "x".join(_shown(column[name]) for name in "mnk")
    return f"{size} on {_shown(column['gpu'])}, key {_shown(column['key'])}"


def _shown(value: Any) -> str:
    text = quoted(value if isinstance(value, str) else repr(value))[1:-1]
    return text.encode("ascii", "backslashreplace").decode()


def _facts(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("facts are not JSON") from None
    if not isinstance(facts, dict):
        raise ValueError("facts are not a JSON object")
    for name in ("spec", "status"):
        if name not in facts:
            raise ValueError(f"facts lack {name}")
    for name, value in facts.items():
        if name not in _FACTS:
            raise ValueError(f"facts have {_shown(name)}, which no record has")
        _check(name, value)
    return facts


def _check(name: str, value: Any) -> None:
    what, holds = _KINDS[name]
    if not holds(value):
        raise ValueError(f"{name} is {_shown(value)}, wanted {what}")


# --- What each column and fact may be -------------------------------------------------------------------------------

Kind = tuple[str, Callable[[Any], bool]]


def _text(value: Any) -> bool:
    """Text that can be encoded: SQLite's bytes that are no UTF-8 are read as lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _whole(least: int, most: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _or_none(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


def _time(value: Any) -> bool:
    return _number(value) and value > 0


_ALIGN = re.compile(r"(1|2|4|8|16),(1|2|4|8|16),(1|2|4|8|16)")
_TEXT: Kind = ("text", _text)
_SIZE: Kind = ("a whole number of 1 or more", _whole(1))
_COUNT: Kind = ("a whole number of 0 or more", _whole(0))
_SECONDS: Kind = ("a time above 0", _or_none(_time))
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("gpu", "driver", "nvrtc", "types", "key", "facts"), _TEXT),
    **dict.fromkeys("mnk", _SIZE),
    "align": ("three alignments in bytes, as 16,16,16", lambda v: isinstance(v, str) and bool(_ALIGN.fullmatch(v))),
    "warm": ("0 or 1", _whole(0, 1)),
    "level": ("0 or 1", _whole(0, 1)),
    "seconds": _SECONDS,
    "screened": _SECONDS,
    **dict.fromkeys(("spec", "status", "reason", "made_by"), _TEXT),
    "spread": ("a number of 0 or more", _or_none(_number)),
    "samples": _COUNT,
    "discarded": _COUNT,
    "registers": ("a whole number of 0 or more", _or_none(_whole(0))),
    "when": ("a time", _number),
}


# --- Rows of format 1 -----------------------------------------------------------------------------------------------


def migrated(row: Row) -> Row:
    """A row of format 1 with the names of settings that format 2 has: in its spec, and so in its key.

    A row that is damaged is left as it is.
    """
    facts = row[COLUMNS.index("facts")]
    if not isinstance(facts, str) or not any(old in facts for old in RENAMED):
        return row
    try:
        record = record_of(row)
    except ValueError:
        return row
    spec = with_new_names(record.spec)
    if spec == record.spec:
        return row
    changed = json.dumps({**json.loads(facts), "spec": spec})
    values = {**dict(zip(COLUMNS, row, strict=True)), "key": _key(spec) or record.key, "facts": changed}
    return tuple(values[name] for name in COLUMNS)


def _key(spec: str) -> str | None:
    from gemmgen.spec.parse import parse
    from gemmgen.tune.space import key_of

    try:
        return key_of(parse(spec))
    except SpecError:
        return None


_OLD = re.compile(rf"\b({'|'.join(map(re.escape, RENAMED))})\b")


def with_new_names(spec: str) -> str:
    """The text of a spec, the toggles in it as they are called today; its name and its comments as they are."""
    return "\n".join(_renamed(line) for line in spec.split("\n"))


def _renamed(line: str) -> str:
    said, mark, comment = line.partition("#")
    if said.split()[:1] not in (["use"], ["tune"]):
        return line
    return _OLD.sub(lambda found: RENAMED[found[0]], said) + mark + comment
