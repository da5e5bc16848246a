"""Pieces of the statements that ``gemmgen.cuda.statements`` prints: heads of loops, calls, arguments, types."""

from __future__ import annotations

from collections.abc import Iterable

from gemmgen.cuda.layout import INDENT, WIDTH
from gemmgen.cuda.terms import INDEX_TYPES, Env, address, expression, first_address, reference
from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Array, Call, Compute, Fma, For, Load, MapRef, Ref, Stmt, Store
from gemmgen.isa.table import WHOLE


def memory_of(s: Load | Store) -> Array:
    """The array that an access goes to or comes from, as against the registers on its other side."""
    return (s.src if isinstance(s, Load) else s.dst).array


def loop_head(s: For, env: Env, more: Iterable[str] = ()) -> str:
    name = s.var.name
    step = f"++{name}" if s.step == Const(1) else f"{name} += {expression(s.step, env)}"
    start, stop = expression(s.start, env), expression(s.stop, env)
    return f"for ({INDEX_TYPES[s.var.dtype]} {name} = {start}; {name} < {stop}; {', '.join((step, *more))})"


def called(name: str, arguments: list[str]) -> list[str]:
    """``name(a, b);`` as pieces that may go to lines of their own."""
    if not arguments:
        return [f"{name}();"]
    *first, last = arguments
    return [f"{name}({first[0]},", *(f"{a}," for a in first[1:]), f"{last});"] if first else [f"{name}({last});"]


def argument(a: Ref | Expr | MapRef, env: Env, run: int = 1) -> str:
    """An argument of a hardware operation: memory, tensor maps and runs of registers by address, single registers and
    numbers as they are."""
    if isinstance(a, MapRef):
        return f"&{a.name}"
    if isinstance(a, Ref):
        if run == WHOLE:
            return a.memory.name
        if a.array.space == "register":
            return reference(a, env) if run == 1 else first_address(a, env)
        return address(a, env)
    return expression(a, env)


def broken(depth: int, pieces: list[str]) -> list[str]:
    """The pieces of an assignment, with what its first part is too long for on a line of its own."""
    first, *rest = pieces
    if len(INDENT * depth + first) <= WIDTH or not rest or " = " not in first:
        return pieces
    target, _, value = first.partition(" = ")
    return [f"{target} =", value, *rest]


def pointer_type(array: Array) -> str:
    return f"{'const ' if array.const else ''}{array.dtype.c}*"


def writes(s: Stmt, array: Array) -> bool:
    """Whether a statement may change a register array."""
    match s:
        case Load(dst=dst) | Compute(dst=dst):
            return dst.memory == array
        case Fma(acc=acc):
            return acc.memory == array
        case Call(args=args):
            return any(isinstance(a, Ref) and a.memory == array for a in args)
        case _:
            return False
