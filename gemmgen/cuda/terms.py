"""CUDA text of what statements are made of: index expressions, references, values, declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isinf, isnan
from types import MappingProxyType
from typing import Any

from gemmgen.ir.expr import Bin, Const, Expr, Select, Var, bounds, lift, select, show, value_of
from gemmgen.ir.facts import is_wide, substitute, variables
from gemmgen.ir.nodes import Array, FBin, FCall, FConst, FExpr, Load, Read, Ref, Scalar
from gemmgen.ir.types import F32, U32, DType
from gemmgen.isa.cluster import cluster_load
from gemmgen.isa.convert import from_float, to_float

Env = Mapping[Var, Expr]
"""Variables of loops that run once and are printed as their body, and what they stand for there."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
INDEX_TYPES = {"i32": "int", "i64": "size_t", "bool": "bool", "f32": "float"}


def expression(e: Expr, env: Env) -> str:
    """C text of an index expression or a condition."""
    return show(typed(substitute(e, env) if env else e))


def typed(e: Expr) -> Expr:
    """The expression with the casts and literals that C's types ask for.

    Offsets are computed in 64 bits because a leading dimension is a ``size_t``. What is not covered by that is a
    product of two sizes, and ``min``, which has no version for an int and a size_t.
    """
    if isinstance(e, Select):
        return select(typed(e.cond), typed(e.a), typed(e.b))
    if not isinstance(e, Bin):
        return e
    a, b = typed(e.a), typed(e.b)
    if e.op in ("<", "==", "!="):
        a, b = _float_literal(a, b), _float_literal(b, a)
    elif e.op == "min" and is_wide(a) != is_wide(b):
        a, b = (a, _cast(b)) if is_wide(a) else (_cast(a), b)
    elif e.op == "*" and not is_wide(e) and _can_overflow(a, b):
        a = _cast(a)
    return e if a is e.a and b is e.b else Bin(e.op, a, b)


def _can_overflow(a: Expr, b: Expr) -> bool:
    """Whether a product passes an int. That of a block's number and a tile size does not: it is a row or a column."""
    high_a, high_b = bounds(a)[1], bounds(b)[1]
    if value_of(a) is not None or value_of(b) is not None:
        return False
    return high_a is None or high_b is None or high_a * high_b >= 1 << 31


def _float_literal(e: Expr, other: Expr) -> Expr:
    if isinstance(e, Const) and isinstance(other, Var) and other.dtype == "f32":
        return Const(e.value, number(float(e.value)))
    return e


def _cast(e: Expr) -> Expr:
    inner = show(e)
    return Var(f"(size_t)({inner})" if isinstance(e, Bin) else f"(size_t){inner}", dtype="i64")


def number(value: float) -> str:
    """A float literal."""
    if isnan(value):
        return "__int_as_float(0x7fc00000)"
    if isinf(value):
        return f"__int_as_float({'0x7f800000' if value > 0 else '0xff800000'})"
    return f"{value!r}f"


def reference(ref: Ref, env: Env) -> str:
    """``As[k][m]``, ``tileA[i]``, or a scalar's name."""
    return ref.memory.name + "".join(f"[{expression(i, env)}]" for i in ref.index)


def address(ref: Ref, env: Env) -> str:
    """``&As[k][m]``; ``regM`` for the start of an array of one dimension."""
    if len(ref.index) == 1 and expression(ref.index[0], env) == "0":
        return ref.memory.name
    return "&" + reference(ref, env)


def first_address(ref: Ref, env: Env) -> str:
    """``fragA[i]``: the address of a run of elements, which the row of an array is by itself."""
    *outer, last = (expression(i, env) for i in ref.index)
    return ref.memory.name + "".join(f"[{i}]" for i in outer) if last == "0" else "&" + reference(ref, env)


def access(ref: Ref, width: int, env: Env) -> str:
    """``width`` consecutive elements as one value."""
    return reference(ref, env) if width == 1 else f"as_{vector_name(ref.array.dtype, width)}({address(ref, env)})"


def vector_name(dtype: DType, width: int) -> str:
    """What ``width`` elements of a type are called together: ``float4``, ``bf16x8``."""
    return f"{dtype.c}x{width}" if dtype.alias else f"{dtype.c}{width}"


def vector_type(dtype: DType, width: int) -> str:
    """The C type that moves ``width`` elements at once: ``float4``, and of narrower types words, as ``uint4``."""
    if not dtype.alias:
        return f"{dtype.c}{width}"
    words = dtype.bytes * width // U32.bytes
    return U32.c if words == 1 else f"uint{words}"


def zeros(dtype: DType, width: int) -> str:
    """Zero in every element."""
    if width == 1:
        return "0" if dtype.alias else "0.0f"
    zero, count = ("0", dtype.bytes * width // U32.bytes) if dtype.alias else ("0.0f", width)
    return zero if count == 1 else f"{vector_type(dtype, width)}{{{', '.join([zero] * count)}}}"


def as_float(ref: Ref, env: Env) -> str:
    """An element as a float."""
    name, text = to_float(ref.array.dtype), reference(ref, env)
    return f"{name}({text})" if name else text


@dataclass(frozen=True)
class Moving:
    """A variable that holds how far into a shared array loads begin, in bytes, and that goes with a loop: all but
    what the variables ``inner`` to the loop add. Or it is a ``pointer`` to there."""

    name: Var
    loop: Var
    inner: frozenset[Var]
    pointer: bool = False


def loaded(s: Load, env: Env, moving: Mapping[str, Moving] = NOTHING) -> list[str]:
    """The value that a load gives: one piece, or three where it is guarded. ``moving``, by arrays' names, are offsets
    that are kept at hand."""
    what = access(s.src, s.width, env)
    if s.rank is not None:
        name = cluster_load(s.width).name
        what = f"{name}({', '.join((*_pinned_place(s.src, env), expression(s.rank, env)))})"
    elif s.pinned:
        what = f"{pinned_name(s)}({', '.join(_pinned_place(s.src, env, moving.get(s.src.memory.name)))})"
    if s.guard is None:
        return [what]
    return [expression(s.guard, env), f"? {what}", f": {zeros(s.src.array.dtype, s.width)}"]


def _pinned_place(ref: Ref, env: Env, moving: Moving | None = None) -> tuple[str, ...]:
    """An address; in shared memory the start of the array and an offset, which costs one register for all of it."""
    shape = ref.array.shape
    if ref.array.space != "shared" or not shape:
        return (address(ref, env),)
    # What unrolling makes a number comes last: the rest is then one register for many loads.
    terms = sorted(terms_of(ref, ref.array.dtype.bytes), key=_is_number_when_unrolled)
    if moving is not None:
        inside = [t for t in terms if moving.inner & set(variables(t)) - {moving.loop}]
        if moving.pointer:
            return (moving.name.name, expression(total(inside), env))
        terms = [moving.name, *inside]
    return (first_of(ref.array), expression(total(terms), env))


def first_of(array: Array) -> str:
    """The address of an array's first element."""
    return f"&{array.name}{'[0]' * len(array.shape or ())}"


def terms_of(ref: Ref, unit: int) -> list[Expr]:
    """What the offset of an element from the start of its array is the sum of, ``unit`` for each element between."""
    terms: list[Expr] = []
    stride: Expr = lift(unit)
    for extent, i in zip(reversed(ref.array.shape or ()), reversed(ref.index), strict=True):
        terms = [*(term * stride for term in _summands(i)), *terms]
        stride = stride * extent
    return terms


def total(terms: Iterable[Expr]) -> Expr:
    """The sum of terms, in their order."""
    found: Expr = lift(0)
    for term in terms:
        found = found + term
    return found


def _summands(e: Expr) -> list[Expr]:
    match e:
        case Bin("+", a, b):
            return [*_summands(a), *_summands(b)]
        case _:
            return [e]


def _is_number_when_unrolled(e: Expr) -> bool:
    """Whether all variables are those of loops whose trips are known."""
    return all(v.hi is not None and v.uniform and "." not in v.name for v in variables(e))


def pinned_name(s: Load) -> str:
    """The helper that loads where it is called: ``load_shared_float4``."""
    dtype = s.src.array.dtype
    return f"load_{s.src.array.space}_{vector_name(dtype, s.width) if s.width > 1 else dtype.c}"


def assignment(target: str, pieces: list[str]) -> list[str]:
    """``target = value;`` as pieces that may go to lines of their own: what is read always stands in the second."""
    first, *rest = pieces
    return [f"{target} = {first}", *rest[:-1], f"{rest[-1]};"] if rest else [f"{target} =", f"{first};"]


def value(e: FExpr, env: Env, level: int = 0) -> str:
    """C text of a floating-point expression. ``level`` is the binding strength of what surrounds it."""
    match e:
        case Read(ref):
            return as_float(ref, env)
        case Scalar(name):
            return name
        case FConst(constant):
            return number(constant)
        case FBin("max", a, b):
            return f"fmaxf({value(a, env)}, {value(b, env)})"
        case FCall(function, args):
            return f"{function.name}({', '.join(value(a, env) for a in args)})"
        case FBin(op, a, b):
            own = {"+": 1, "*": 2}[op]
            # Not associative: the right operand keeps its parentheses.
            text = f"{value(a, env, own)} {op} {value(b, env, own + 1)}"
            return f"({text})" if own < level else text


def rounded(to: Array, text: str) -> str:
    """A float as an array's elements are."""
    name = from_float(to.dtype)
    return f"{name}({text})" if name else text


def dimensions(shape: tuple[Expr, ...]) -> str:
    return "".join(f"[{show(d)}]" for d in shape)


def declaration(array: Array, width: int) -> str:
    """``alignas(16) float regM[TM]``; ``width`` is the widest access to it, in elements."""
    own = array.align if array.space == "shared" or array.align > F32.bytes else array.dtype.bytes
    align = max(own, array.dtype.bytes * width)
    natural = min(array.dtype.bytes, F32.bytes)
    prefix = f"alignas({align}) " if align > natural and array.shape else ""
    return f"{prefix}{array.dtype.c} {array.name}{dimensions(array.shape or ())}"
