"""The epilogue's chain: what becomes of alpha * acc + beta * C in float32 before it is stored.

Each entry is a step on the registers that hold the values of one store; an operand is loaded as widely as it lies
beside them. The tile kernels and the second kernel of split-K lower it alike: they differ in where an element is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.kernel import Param
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Compute,
    FBin,
    FCall,
    FConst,
    FExpr,
    For,
    LetPointer,
    Load,
    Pointer,
    Read,
    Ref,
    Stmt,
    Store,
)
from gemmgen.ir.types import VECTOR_BYTES, DType, EpilogueOperand, Matrix
from gemmgen.isa.epilogue import Entry
from gemmgen.lower.nest import nest
from gemmgen.tile.program import TileProgram

ORIGIN = "epilogue"


@dataclass(frozen=True)
class Element:
    """Where the first value of a store belongs: its ``row`` and ``col``, counted from where ``memory`` begins, which is
    an operand's array or a pointer into it, by its name."""

    row: Expr
    col: Expr
    memory: Mapping[str, Array | Pointer]

    def of(self, x: EpilogueOperand) -> Ref:
        """What lies beside that value in an operand."""
        match x.dims:
            case ():
                index: Expr = Const(0)
            case ("m",):
                index = self.row
            case ("n",):
                index = self.col
            case _:
                slow, fast = (self.row, self.col) if x.order == "row" else (self.col, self.row)
                index = slow * leading(x) + fast
        return Ref(self.memory[x.name], (index,))


def leading(x: EpilogueOperand) -> Var:
    """The kernel's parameter that says how many elements apart an operand's lines are."""
    assert x.matrix is not None
    return Var(x.matrix.leading, 0, None, uniform=True, dtype="i64")


def arrays(beside: Iterable[EpilogueOperand]) -> dict[str, Array | Pointer]:
    """The operands of a chain in global memory."""
    return {x.name: Array(x.name, "global", x.dtype, None, const=not x.written) for x in beside}


def params(beside: Sequence[EpilogueOperand]) -> list[Param]:
    """What a kernel takes for the operands of its chain."""
    found: list[Param] = []
    for x in beside:
        array = arrays((x,))[x.name]
        assert isinstance(array, Array)
        found.append(Param(x.name, "pointer", array, why=x.why))
        if x.matrix is not None:
            found.append(Param(x.matrix.leading, "size", why=x.matrix.leading_counts))
    return [*found, *strides(x for x in beside if x.batch)]


def strides(operands: Iterable[Matrix | EpilogueOperand]) -> Iterator[Param]:
    """What a kernel takes for batches."""
    for x in operands:
        yield Param(x.stride, "size", why=f"elements from one {x.name} of the batch to the next; 0: the same for all")


def pointers(
    beside: Iterable[EpilogueOperand], first_row: Expr, first_col: Expr, offset: Mapping[str, Expr]
) -> tuple[list[Stmt], dict[str, Array | Pointer]]:
    """Where a tile's parts of the operands begin, and the statements that say so. ``offset`` is added, by name."""
    out: list[Stmt] = []
    memory = arrays(beside)
    for x in beside:
        at = Element(first_row, first_col, memory).of(x)
        begin = at.index[0] + offset[x.name] if x.name in offset else at.index[0]
        if begin == Const(0):
            continue
        pointer = Pointer(camel(f"block_{x.name}"), memory[x.name], begin)
        out.append(LetPointer(pointer, f"this tile's part of {x.name}"))
        memory[x.name] = pointer
    return out, memory


def camel(name: str) -> str:
    """A name as the text has names of its own: ``scaleA`` of ``scale_a``."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


@dataclass(frozen=True)
class Values:
    """The float32 registers of one store: ``width`` neighbours along the dimension ``along`` of C, from ``at`` on."""

    array: Array
    width: int
    along: str
    at: Element

    def each(self, v: Expr) -> Ref:
        return Ref(self.array, (v,) if self.array.shape else ())


def apply(p: TileProgram, chain: tuple[Entry, ...], x: Values) -> list[Stmt]:
    """The steps of a chain, in its order."""
    return [s for i, e in enumerate(chain) for s in _step(p, e, x, i)]


def _step(p: TileProgram, e: Entry, x: Values, number: int) -> list[Stmt]:
    out: list[Stmt] = []
    beside: list[Callable[[Expr], FExpr]] = []
    for operand in e.operands(p.matrix("C")):
        if operand.written:
            return _because(e, stored(x, operand))
        steps, each = _loaded(x, operand)
        out += steps
        beside.append(each)
    if (cast := e.cast) is not None:
        return _because(e, _cast(x, cast, f"narrow{number or ''}"))
    if not e.row.op and e.row.function is None:
        return []

    def one(v: Expr) -> list[Stmt]:
        value: FExpr = Read(x.each(v))
        given = [each(v) for each in beside]
        if e.row.function is not None:
            value = FCall(e.row.function, (value, *given, *map(FConst, e.numbers)))
        else:
            value = FBin(e.row.op, value, given[0])
        return [Compute(x.each(v), value)]

    return _because(e, [*out, *nest([("v", x.width, 1)], one)])


def _because(e: Entry, body: list[Stmt]) -> list[Stmt]:
    """The steps of an entry with its meaning above them."""
    first, *rest = body
    why = f"{e.text or e.row.name}: {e.row.doc}"
    return [replace(first, why=why), *rest] if isinstance(first, Alloc | For | Compute | Store) else body


def _loaded(x: Values, operand: EpilogueOperand) -> tuple[list[Stmt], Callable[[Expr], FExpr]]:
    """What lies beside the values, in registers; and the one beside each."""
    name = f"{camel(operand.name)}Value"
    if x.along not in operand.dims or x.width == 1:
        one = Array(name, "register", operand.dtype)
        return [Alloc(one), Load(Ref(one), x.at.of(operand), 1, None, ORIGIN)], lambda v: Read(Ref(one))
    several = Array(name, "register", operand.dtype, (Const(x.width),))
    step = min(x.width, operand.dtype.elements(VECTOR_BYTES))

    def load(v: Expr) -> list[Stmt]:
        return [Load(Ref(several, (v,)), _along(x.at.of(operand), v), step, None, ORIGIN)]

    return [Alloc(several), *nest([("v", x.width, step)], load)], lambda v: Read(Ref(several, (v,)))


def _along(ref: Ref, v: Expr) -> Ref:
    return Ref(ref.memory, (ref.index[0] + v,))


def _cast(x: Values, dtype: DType, name: str) -> list[Stmt]:
    """The values rounded to a type and back."""
    narrow = Array(name, "register", dtype, x.array.shape)

    def one(v: Expr) -> list[Stmt]:
        at = Ref(narrow, (v,) if narrow.shape else ())
        return [Compute(at, Read(x.each(v))), Compute(x.each(v), Read(at))]

    return [Alloc(narrow), *nest([("v", x.width, 1)], one)]


def stored(x: Values, operand: EpilogueOperand) -> list[Stmt]:
    """The values stored in an operand of C's type, rounded to it."""
    first = (Const(0),) if x.array.shape else ()
    to = x.at.of(operand)
    if operand.dtype == x.array.dtype:
        return [Store(to, Ref(x.array, first), x.width, None, ORIGIN)]
    kept = Array(f"{camel(operand.name)}Value", "register", operand.dtype, x.array.shape)

    def one(v: Expr) -> list[Stmt]:
        return [Compute(Ref(kept, (v,) if kept.shape else ()), Read(x.each(v)))]

    return [
        Alloc(kept),
        *nest([("v", x.width, 1)], one),
        Store(to, Ref(kept, first), x.width, None, ORIGIN),
    ]
