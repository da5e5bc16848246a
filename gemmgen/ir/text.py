"""The kernel IR as text: one statement a line, for ``gemmgen compile --emit ir`` and ``str(ir)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from gemmgen.ir.expr import Expr, show, value_of
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Call,
    Compute,
    FBin,
    FCall,
    FConst,
    FExpr,
    Fma,
    For,
    If,
    Let,
    LetPointer,
    Load,
    MapRef,
    Pinned,
    Read,
    Ref,
    Roles,
    Scalar,
    Section,
    Stmt,
    Store,
    Sync,
    accesses,
)


def print_body(body: tuple[Stmt, ...]) -> list[str]:
    """The statements, one per line. Accesses are numbered as the simulator and the counts number them."""
    return list(_Printer().body(body, 0))


class _Printer:
    def __init__(self) -> None:
        self.accesses = 0

    def body(self, body: tuple[Stmt, ...], depth: int) -> Iterator[str]:
        for s in body:
            yield from self.statement(s, depth)

    def statement(self, s: Stmt, depth: int) -> Iterator[str]:
        pad = "  " * depth
        match s:
            case Section(title, body, _):
                yield f"{pad}section {title}"
                yield from self.body(body, depth + 1)
            case For(var, start, stop, step, body, unroll, _):
                by = "" if value_of(step) == 1 else f" step {show(step)}"
                how = "" if unroll is None else " unroll" if unroll is True else f" unroll {int(unroll)}"
                yield f"{pad}for {var.name} in {show(start)}..{show(stop)}{by}{how}:"
                yield from self.body(body, depth + 1)
            case Pinned(tag, body, _):
                yield f"{pad}pinned {show(tag)}:"
                yield from self.body(body, depth + 1)
            case If(cond, then, orelse, _):
                yield f"{pad}if {show(cond)}:"
                yield from self.body(then, depth + 1)
                if orelse:
                    yield f"{pad}else:"
                    yield from self.body(orelse, depth + 1)
            case Roles(roles, _):
                for role in roles:
                    yield f"{pad}role {role.name}, warps {role.first}..{role.last}:"
                    yield from self.body(role.body, depth + 1)
            case _:
                yield pad + self.simple(s)

    def simple(self, s: Stmt) -> str:
        """A statement without a body."""
        match s:
            case Let(var, expr, _):
                return f"{var.name} = {show(expr)}"
            case LetPointer(pointer, _):
                return f"{pointer.name} = {pointer.base.name} + {show(pointer.offset)}"
            case Alloc(array, init, _):
                return f"register {array_text(array)}" + ("" if init is None else f" = {init:g}")
            case Load(dst, src, width, guard, rank=rank):
                block = "" if rank is None else f" of block {show(rank)} of the cluster"
                return f"load{self.number(s)} {_ref(dst)} <- {_ref(src)}{block}{_how(width, guard)}"
            case Store(dst, src, width, guard, _, _):
                return f"store{self.number(s)} {_ref(dst)} <- {_ref(src)}{_how(width, guard)}"
            case Fma(acc, a, b, _):
                return f"{_ref(acc)} += {_ref(a)} * {_ref(b)}"
            case Compute(dst, expr, _):
                return f"{_ref(dst)} = {_value(expr)}"
            case Call(row, args, _):
                return f"{row.name}{self.number(s)} {', '.join(_argument(a) for a in args)}"
            case Sync(number, hazard, scope):
                return f"{'' if scope == 'block' else 'cluster '}sync {number}  # {hazard}"
            case Section() | For() | If() | Pinned() | Roles():
                raise TypeError(f"{type(s).__name__} has a body")
            case _:
                assert_never(s)

    def number(self, s: Stmt) -> str:
        """The numbers of a statement's accesses to memory, as ``" #0"``."""
        first = self.accesses
        self.accesses += accesses(s)
        return "".join(f" #{i}" for i in range(first, self.accesses))


def _how(width: int, guard: Expr | None) -> str:
    wide = f", {width} elements" if width > 1 else ""
    return wide + ("" if guard is None else f", where {show(guard)}")


def _argument(a: Ref | Expr | MapRef) -> str:
    match a:
        case Ref():
            return _ref(a)
        case MapRef(name):
            return name
        case _:
            return show(a)


def _ref(ref: Ref) -> str:
    return ref.memory.name + "".join(f"[{show(i)}]" for i in ref.index)


def array_text(a: Array) -> str:
    shape = "".join(f"[{show(d)}]" for d in a.shape or ())
    return f"{a.dtype} {a.name}{shape}" + (f" align {a.align}" if a.align > 4 else "")


def _value(e: FExpr) -> str:
    match e:
        case Read(ref):
            return _ref(ref)
        case Scalar(name):
            return name
        case FConst(value):
            return f"{value:g}"
        case FBin("max", a, b):
            return f"max({_value(a)}, {_value(b)})"
        case FBin(op, a, b):
            return f"({_value(a)} {op} {_value(b)})"
        case FCall(function, args):
            return f"{function.name}({', '.join(map(_value, args))})"
