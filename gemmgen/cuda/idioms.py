"""Several statements that read better as one: what a person would not name, is not named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from gemmgen.cuda.groups import name_of
from gemmgen.cuda.layout import Line
from gemmgen.cuda.terms import Env, access, as_float, assignment, loaded, reference, rounded, value
from gemmgen.ir.expr import value_of
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Compute,
    FBin,
    FCall,
    FExpr,
    Fma,
    For,
    If,
    Load,
    Read,
    Ref,
    Section,
    Stmt,
    Store,
    children,
    shape_of,
)
from gemmgen.ir.references import reads, references

Copied = tuple[Load, Store]
Product = tuple[Load, Load, Fma]
Computed = tuple[Load, Compute]


def copied(body: tuple[Stmt, ...]) -> Copied | None:
    """The start of a body, where it is a load whose registers go only into the store behind it."""
    match body[:3]:
        case (
            Alloc(array, None),
            Load(dst=into, src=source, width=width, pinned=False) as load,
            Store(src=out, width=stored, guard=None) as store,
        ) if into == out and into.memory == array and width == stored and source.array.space != "register":
            whole = prod(shape_of(array)) == width and not mentions(body[3:], array)
            return (load, store) if whole else None
        case _:
            return None


def product(body: tuple[Stmt, ...]) -> Product | None:
    """The start of a body, where it is two scalars loaded for one multiply-add alone."""
    match body[:5]:
        case (
            Alloc(a, None),
            Load(dst=Ref(memory=to_a), width=1, guard=None, pinned=False) as load_a,
            Alloc(b, None),
            Load(dst=Ref(memory=to_b), width=1, guard=None, pinned=False) as load_b,
            Fma(_, Ref(memory=left), Ref(memory=right), fused=False) as fma,
        ) if (to_a, to_b) == (left, right) == (a, b) and not a.shape and not b.shape:
            alone = not (mentions(body[5:], a) or mentions(body[5:], b))
            return (load_a, load_b, fma) if alone else None
        case _:
            return None


def computed(body: tuple[Stmt, ...]) -> Computed | None:
    """The start of a body, where it is a scalar loaded for one place in the computation behind it."""
    match body[:3]:
        case (
            Alloc(array, None),
            Load(dst=Ref(memory=into) as ref, src=source, width=1, guard=None, pinned=False) as load,
            Compute(dst, expr) as compute,
        ) if into == array and not array.shape and source.array.space != "register" and dst.memory != array:
            alone = list(reads(expr)).count(ref) == 1 and not mentions(body[3:], array)
            return (load, replace(compute, expr=reading(expr, ref, source))) if alone else None
        case _:
            return None


def reading(e: FExpr, old: Ref, new: Ref) -> FExpr:
    """An expression that reads another element."""
    match e:
        case Read(ref) if ref == old:
            return Read(new)
        case FBin(op, a, b):
            return FBin(op, reading(a, old, new), reading(b, old, new))
        case FCall(function, args):
            return FCall(function, tuple(reading(a, old, new) for a in args))
        case _:
            return e


def assigned(s: Compute, env: Env) -> str:
    """``dst = expr``, as ``dst += x`` or ``dst *= x`` where that is what it says."""
    target = reference(s.dst, env)
    match s.expr:
        case FBin(("+" | "*") as op, Read(ref), other) if ref == s.dst and not s.dst.array.dtype.alias:
            return f"{target} {op}= {value(other, env)}"
        case _:
            return f"{target} = {rounded(s.dst.array, value(s.expr, env))}"


def copy_text(found: Copied, env: Env) -> Line:
    """``to = from;``"""
    load, store = found
    code, *tail = assignment(access(store.dst, store.width, env), loaded(load, env))
    return Line(0, code, tail=tuple(tail))


def product_text(found: Product, env: Env) -> Line:
    """``acc += from * from;``"""
    a, b, fma = found
    return Line(0, f"{reference(fma.acc, env)} += {as_float(a.src, env)} * {as_float(b.src, env)};")


def declared(body: tuple[Stmt, ...]) -> Iterator[str]:
    """Names that land in the C scope of a body: its own, its sections' and those of loops that run once."""
    for at, s in enumerate(body):
        name = name_of(s)
        if name is None:
            yield from declared(inlined(s) or ())
        elif not (isinstance(s, Alloc) and (copied(body[at:]) or computed(body[at:]))):
            yield name


def inlined(s: Stmt) -> tuple[Stmt, ...] | None:
    """The body of a statement that is printed as its body: a section, a loop that runs once, a branch that is known."""
    match s:
        case Section(body=body):
            return body
        case For(body=body) if trips(s) == 1:
            return body
        case If(cond, then, orelse):
            known = value_of(cond)
            return None if known is None else then if known else orelse
        case _:
            return None


def trips(loop: For) -> int | None:
    """How often a loop runs, where that is known."""
    start, stop, step = value_of(loop.start), value_of(loop.stop), value_of(loop.step)
    if start is None or stop is None or step is None:
        return None
    return max(0, -(-(stop - start) // step))


def mentions(body: tuple[Stmt, ...], array: Array) -> bool:
    """Whether a body refers to an array from outside it, rather than to one of that name that it declares."""
    for s in body:
        if isinstance(s, Alloc) and s.array == array:
            return False
        if any(ref.memory == array for ref in references(s)) or any(mentions(x, array) for x in children(s)):
            return True
    return False
