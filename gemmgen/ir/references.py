"""Which elements a statement itself touches, those of the statements in it left out."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.memory import Array, Ref
from gemmgen.ir.nodes import Call, Compute, FBin, FCall, FExpr, Fma, Load, Read, Stmt, Store, walk


def references(s: Stmt) -> Iterator[Ref]:
    """The elements that a statement itself reads and writes."""
    match s:
        case Load(dst=dst, src=src) | Store(dst=dst, src=src):
            yield from (dst, src)
        case Fma(acc, a, b):
            yield from (acc, a, b)
        case Compute(dst, expr):
            yield dst
            yield from reads(expr)
        case Call(args=args):
            yield from (a for a in args if isinstance(a, Ref))
        case _:
            pass


def reads(e: FExpr) -> Iterator[Ref]:
    match e:
        case Read(ref):
            yield ref
        case FBin(_, a, b):
            yield from reads(a)
            yield from reads(b)
        case FCall(_, args):
            for a in args:
                yield from reads(a)
        case _:
            pass


def touches(s: Stmt, array: Array) -> bool:
    """Whether a statement, or one in it, reads or writes an array."""
    return any(ref.memory == array for inner in walk((s,)) for ref in references(inner))
