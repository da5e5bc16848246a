"""Several statements that read better as one: what a person would not name, is not named."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gemmgen.cuda.layout import Line
from gemmgen.cuda.terms import Env, access, loaded, reference
from gemmgen.ir.expr import value_of
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Call,
    Compute,
    FBin,
    FExpr,
    Fma,
    For,
    Let,
    LetPointer,
    Load,
    Read,
    Ref,
    Section,
    Stmt,
    Store,
    shape_of,
    walk,
)

Copied = tuple[Load, Store]
Product = tuple[Load, Load, Fma]


def copied(body: tuple[Stmt, ...]) -> Copied | None:
    """The start of a body, where it is a load whose registers go only into the store behind it."""
    match body[:3]:
        case (
            Alloc(array, None),
            Load(dst=into, src=source, width=width) as load,
            Store(src=out, width=stored, guard=None) as store,
        ) if into == out and into.memory == array and width == stored and source.array.space != "register":
            whole = prod(shape_of(array)) == width and not used_later(body, 3, array)
            return (load, store) if whole else None
        case _:
            return None


def product(body: tuple[Stmt, ...]) -> Product | None:
    """The start of a body, where it is two scalars loaded for one multiply-add alone."""
    match body[:5]:
        case (
            Alloc(a, None),
            Load(dst=Ref(memory=to_a), width=1, guard=None) as load_a,
            Alloc(b, None),
            Load(dst=Ref(memory=to_b), width=1, guard=None) as load_b,
            Fma(_, Ref(memory=left), Ref(memory=right)) as fma,
        ) if (to_a, to_b) == (left, right) == (a, b) and not a.shape and not b.shape:
            alone = not (used_later(body, 5, a) or used_later(body, 5, b))
            return (load_a, load_b, fma) if alone else None
        case _:
            return None


def copy_text(found: Copied, env: Env) -> Line:
    """``to = from;``"""
    load, store = found
    text, *tail = loaded(load, env)
    target = access(store.dst, store.width, env)
    return Line(0, f"{target} = {text}{'' if tail else ';'}", tail=tuple(tail))


def product_text(found: Product, env: Env) -> Line:
    """``acc += from * from;``"""
    a, b, fma = found
    return Line(0, f"{reference(fma.acc, env)} += {reference(a.src, env)} * {reference(b.src, env)};")


def declared(body: tuple[Stmt, ...]) -> Iterator[str]:
    """Names that land in the C scope of a body: its own, its sections' and those of loops that run once."""
    for at, s in enumerate(body):
        match s:
            case Let(var=var):
                yield var.name
            case LetPointer(pointer=pointer):
                yield pointer.name
            case Alloc(array=array):
                if not copied(body[at:]):
                    yield array.name
            case Section(body=inner):
                yield from declared(inner)
            case For(body=inner) if trips(s) == 1:
                yield from declared(inner)
            case _:
                pass


def trips(loop: For) -> int | None:
    """How often a loop runs, where that is known."""
    start, stop, step = value_of(loop.start), value_of(loop.stop), value_of(loop.step)
    if start is None or stop is None or step is None:
        return None
    return max(0, -(-(stop - start) // step))


def used_later(body: tuple[Stmt, ...], first: int, array: Array) -> bool:
    """Whether a statement from ``first`` on refers to the array that body[0] declares."""
    return any(reaches(body, at, array) for at in range(first, len(body)))


def reaches(body: tuple[Stmt, ...], at: int, array: Array) -> bool:
    """Whether ``body[at]`` refers to the array that body[0] declares, rather than to a later one of that name."""
    again = any(isinstance(s, Alloc) and s.array == array for s in body[1 : at + 1])
    return not again and any(ref.memory == array for s in walk((body[at],)) for ref in references(s))


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
        case _:
            pass
