"""Which statements belong together where a name is declared twice: in C they then need braces."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.facts import variables
from gemmgen.ir.nodes import (
    Alloc,
    Call,
    For,
    If,
    Let,
    LetPointer,
    Load,
    Pinned,
    Stmt,
    Store,
    children,
)
from gemmgen.ir.references import references


def name_of(s: Stmt) -> str | None:
    """The name that a statement declares."""
    match s:
        case Let(var=var):
            return var.name
        case LetPointer(pointer=pointer):
            return pointer.name
        case Alloc(array=array):
            return array.name
        case _:
            return None


def reach(body: tuple[Stmt, ...]) -> int:
    """How many statements hold all that needs what body[0] declares, up to where its name is declared again.

    What they declare themselves has to be needed in them alone, so they also reach to the last of that.
    """
    end, held = len(body), 1
    for at in range(1, len(body)):
        if name_of(body[at]) == name_of(body[0]):
            end = at
            break
    names = {name_of(body[0])}
    for at in range(1, end):
        if names & used_names(body[at]):
            names.update(name_of(s) for s in body[held : at + 1] if name_of(s))
            held = at + 1
    return held


def used_names(s: Stmt) -> set[str | None]:
    """The names that a statement and all in it refer to."""
    found: set[str | None] = {v.name for e in _expressions(s) for v in variables(e)}
    for ref in references(s):
        found.add(ref.memory.name)
        found.update(v.name for i in ref.index for v in variables(i))
    for body in children(s):
        for inner in body:
            found |= used_names(inner)
    return found


def _expressions(s: Stmt) -> Iterator[Expr]:
    """The index expressions and conditions of a statement, those of its references left out."""
    match s:
        case Let(expr=expr):
            yield expr
        case LetPointer(pointer=pointer):
            yield pointer.offset
            yield Var(pointer.base.name)
        case For(start=start, stop=stop, step=step):
            yield from (start, stop, step)
        case If(cond=cond):
            yield cond
        case Pinned(tag=tag):
            yield tag
        case Load(guard=guard, rank=rank):
            yield from (e for e in (guard, rank) if e is not None)
        case Store(guard=guard) if guard is not None:
            yield guard
        case Call(args=args):
            yield from (a for a in args if isinstance(a, Expr))
        case _:
            pass
