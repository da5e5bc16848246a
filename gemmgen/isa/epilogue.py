"""The entries of an epilogue: one row each, its text, its meaning, its operands, its error bound, its cost.

An entry takes a float32 value ``x`` of each element of C, and what lies beside it in its operands, and gives the value
that the next entry takes; the last one is rounded to the type of C. A new entry is one more row of ROWS.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.ir.types import BF16, ELEMENT_TYPES, F16, F32, Dim, DType, EpilogueOperand, Matrix
from gemmgen.isa.functions import CLAMP, GELU, GELU_TANH, RELU, SILU, Function

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

Kind = Literal["tensor", "row", "column", "matrix"]
DIMS: Mapping[str, tuple[Dim, ...]] = {"tensor": (), "row": ("m",), "column": ("n",), "matrix": ("m", "n")}
"""The dimensions of C along which an operand has elements, by its kind."""
OF_C = ""
"""The type of an operand that has C's."""


@dataclass(frozen=True)
class Input:
    """An operand of an entry: one element for all of C ("tensor"), one per row, one per column, or one per element
    ("matrix"). ``dtype`` is its type by name, or OF_C. ``written``: the entry stores x there, and reads nothing."""

    name: str
    kind: Kind
    dtype: str = OF_C
    written: bool = False
    why: str = ""


@dataclass(frozen=True)
class Error:
    """|computed - exact| <= u (result |f(x)| + value |x|) + absolute, with u the unit roundoff of float32."""

    result: float = 0.0
    value: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True)
class Row:
    """An entry of an epilogue.

    It computes ``x op operand``, or calls ``function`` with x, its operands and its parameters; with neither the value
    stays as it is. ``lipschitz`` bounds |f(x) - f(y)| / |x - y|: a number, the name of the operand whose size it is, or
    None, where it is found from the meaning around x. ``error`` is what rounding adds to that; ``flops`` its cost per
    element. ``parameters`` are the names of the numbers (or of the type) in brackets.
    """

    name: str
    doc: str
    operands: tuple[Input, ...] = ()
    parameters: tuple[str, ...] = ()
    op: Literal["", "+", "*"] = ""
    function: Function | None = None
    lipschitz: float | str | None = 1.0
    error: Error = Error()
    flops: int = 0


ROUNDED = Error(result=1.0)
"""One operation, rounded."""

ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        Row("bias", "x + bias[column]", (Input("bias", "column", why="added to each column of C"),), (), "+",
            error=ROUNDED, flops=1),
        Row("scale", "x * scale", (Input("scale", "tensor", F32.name, why="one factor for all of C"),), (), "*",
            lipschitz="scale", error=ROUNDED, flops=1),
        Row("scale_a", "x * scale_a[row]", (Input("scale_a", "row", F32.name, why="a factor for each row of C"),), (),
            "*", lipschitz="scale_a", error=ROUNDED, flops=1),
        Row("scale_b", "x * scale_b[column]",
            (Input("scale_b", "column", F32.name, why="a factor for each column of C"),), (), "*",
            lipschitz="scale_b", error=ROUNDED, flops=1),
        Row("residual", "x + residual[row, column]", (Input("residual", "matrix", why="added to C"),), (), "+",
            error=ROUNDED, flops=1),
        Row("relu", "x, or 0 where x is negative", function=RELU, flops=1),
        Row("gelu", "x * (1 + erf(x / sqrt(2))) / 2", function=GELU, lipschitz=1.13, error=Error(2, 5), flops=24),
        Row("gelu_tanh", "GELU by its tanh approximation", function=GELU_TANH, lipschitz=1.13, error=Error(2, 6),
            flops=24),
        Row("silu", "x / (1 + exp(-x))", function=SILU, lipschitz=1.1, error=Error(8, 0, 1e-36), flops=12),
        Row("clamp", "x between lo and hi", parameters=("lo", "hi"), function=CLAMP, flops=2),
        Row("cast", "x rounded to a type, and back to float32", parameters=("type",), flops=2),
        Row("aux", "stores x",
            (Input("aux", "matrix", written=True, why="where the epilogue stores the value on its way"),)),
    )
}  # fmt: skip
"""The entries that come with the language, by name."""

CAST_TYPES: Mapping[str, DType] = {t.name: t for t in (F16, BF16)}


class Registered:
    """Entries that a program has added, by name. One of a name that exists is refused where it differs."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Row, tuple[object, ...]]] = {}
        self._lock = threading.Lock()

    def add(self, row: Row, key: tuple[object, ...]) -> bool:
        """Adds a row; False where it is there already. ``key`` is what must be equal for two to be the same. Raises
        ValueError where another has the name."""
        with self._lock:
            known = self._rows.get(row.name)
            if row.name in ROWS or (known is not None and known[1] != key):
                raise ValueError(row.name)
            self._rows.setdefault(row.name, (row, key))
            return known is None

    def get(self, name: str) -> Row | None:
        with self._lock:
            found = self._rows.get(name)
        return None if found is None else found[0]

    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._rows)


REGISTERED = Registered()
"""What ``gemmgen.epilogue`` added."""


def row_named(name: str) -> Row | None:
    """The row of an entry; None where there is none."""
    return ROWS.get(name) or REGISTERED.get(name)


def known_names() -> tuple[str, ...]:
    """The entries that there are."""
    return (*ROWS, *REGISTERED.names())


_ENTRY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\((.*)\))?")


@dataclass(frozen=True)
class Entry:
    """A row with its parameters, as one spec has it."""

    row: Row
    parameters: tuple[float | str, ...] = ()
    text: str = field(default="", compare=False)

    @property
    def cast(self) -> DType | None:
        """The type that x is rounded to; None where the entry is no cast."""
        return CAST_TYPES[str(self.parameters[0])] if self.row.name == "cast" else None

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        return tuple(float(v) for v in self.parameters) if self.row.name != "cast" else ()

    def operands(self, c: Matrix) -> Iterator[EpilogueOperand]:
        """Its operands beside a matrix C."""
        for x in self.row.operands:
            dtype = c.dtype if x.dtype == OF_C else ELEMENT_TYPES[x.dtype]
            yield EpilogueOperand(x.name, DIMS[x.kind], dtype, c.order, x.written, x.why, c.batch)

    def value(self, x: Any, operands: Mapping[str, Any]) -> Any:
        """f(x) in the type of x, which is float32 or float64."""
        if (cast := self.cast) is not None:
            return x.astype(cast.numpy_dtype).astype(x.dtype)
        beside = [operands[o.name].astype(x.dtype) for o in self.row.operands if not o.written]
        if self.row.function is not None:
            return self.row.function.meaning(x, *beside, *(x.dtype.type(F32.numpy_dtype.type(v)) for v in self.numbers))
        if self.row.op:
            return x + beside[0] if self.row.op == "+" else x * beside[0]
        return x

    def error(self, x: Doubles, error: Doubles, operands: Mapping[str, Any]) -> Doubles:
        """How far f of a float32 value may be from f(x), where that value may be ``error`` from x."""
        import numpy as np

        found = self.value(x, operands)
        match self.row.lipschitz:
            case None:
                around = (np.abs(self.value(x + s * error, operands) - found) for s in (-1.0, -0.5, 0.5, 1.0))
                spread: Doubles = np.max(np.stack(list(around)), axis=0)
            case str() as name:
                spread = np.abs(operands[name].astype(np.float64)) * error
            case factor:
                spread = factor * error
        own, u = self.row.error, F32.unit_roundoff
        if (cast := self.cast) is not None:
            own = Error(2 * cast.unit_roundoff / u, 2 * cast.unit_roundoff / u, cast.tiny)
            spread = spread * (1 + 2 * cast.unit_roundoff)
        bound: Doubles = spread + own.absolute
        for units, size in ((own.result, np.abs(found)), (own.value, np.abs(x) + error)):
            bound = bound + units * u * size if units else bound
        return bound


class EntryError(ValueError):
    """An entry that cannot be read: what is wrong, and what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def entry(text: str) -> Entry:
    """The entry that a text says: ``gelu``, ``clamp(0, 6)``. Raises EntryError."""
    match = _ENTRY.fullmatch(text.strip())
    row = row_named(match[1]) if match else None
    if match is None or row is None:
        raise EntryError(f"unknown epilogue entry '{text.strip()[:60]}'", "")
    given = [] if match[2] is None else [p.strip() for p in match[2].split(",")]
    like = f"write it like '{example(row)}'"
    if len(given) != len(row.parameters):
        takes = f"takes {', '.join(row.parameters)}" if row.parameters else "takes no brackets"
        raise EntryError(f"{row.name} {takes}", like)
    if row.name == "cast":
        if given[0] not in CAST_TYPES:
            raise EntryError(f"cast: '{given[0][:60]}' is not a type to round to", f"write {' or '.join(CAST_TYPES)}")
        return Entry(row, (given[0],), f"cast({given[0]})")
    numbers: list[float] = []
    for name, word in zip(row.parameters, given, strict=True):
        try:
            numbers.append(float(word))
        except ValueError:
            raise EntryError(f"{row.name}: {name} is '{word[:60]}', which is not a number", like) from None
    if any(v != v for v in numbers) or (row.name == "clamp" and numbers[0] > numbers[1]):
        raise EntryError(f"{row.name}: lo {given[0]} is above hi {given[1]}", "swap the two")
    shown = f"{row.name}({', '.join(map(_shown, numbers))})" if numbers else row.name
    return Entry(row, tuple(numbers), shown)


def _shown(v: float) -> str:
    short = f"{v:g}"
    return short if float(short) == v else repr(v)


def example(row: Row) -> str:
    """An entry of a row as it is written."""
    values = {"lo": "0", "hi": "6", "type": "bf16"}
    return f"{row.name}({', '.join(values.get(p, '1') for p in row.parameters)})" if row.parameters else row.name


def chain_of(texts: tuple[str, ...]) -> tuple[Entry, ...]:
    """The entries of a checked spec."""
    return tuple(entry(text) for text in texts)


def operands_of(chain: tuple[Entry, ...], c: Matrix) -> tuple[EpilogueOperand, ...]:
    """What a chain reads and writes beside A, B and C, in its order."""
    return tuple(x for e in chain for x in e.operands(c))
