"""Every memory access and all counted arithmetic of a kernel, with its address as one expression of the indices.

Sizes and scalars are put in, names are resolved, and what is left varies only with the thread, the block and the
loops: :mod:`gemmgen.analysis.classes` can then say which of them cost the same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, assert_never

from gemmgen.diagnostics import GemmgenError
from gemmgen.ir.expr import TRUE, Bin, Const, Expr, Select, Var, both, bounds, build, compare, smaller, value_of
from gemmgen.ir.facts import substitute
from gemmgen.ir.kernel import KernelIR, TensorMap
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Call,
    Compute,
    Fma,
    For,
    If,
    Let,
    LetPointer,
    Load,
    MapRef,
    Pinned,
    Pointer,
    Ref,
    Roles,
    Section,
    Stmt,
    Store,
    Sync,
    shape_of,
)
from gemmgen.ir.types import DIMS, WARP
from gemmgen.isa.counted import work_of
from gemmgen.isa.lane_values import LANE_VALUES
from gemmgen.isa.lane_values import THREAD as LANE
from gemmgen.isa.table import Work

THREAD = "threadIdx.x"
GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
GRID_SIZE = ("gridDim.x", "gridDim.y", "gridDim.z")


@dataclass(frozen=True)
class Axis:
    """A loop, or a dimension of the grid: its index runs over 0 .. count-1. ``unrolled``: its turns stand side by side
    in the compiled code."""

    index: Var
    count: int
    unrolled: bool = False


@dataclass(frozen=True)
class Site:
    """A place where all threads of all blocks, in every turn of the loops around it, do something while ``active``."""

    active: Expr
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Access(Site):
    """A load or store of global or shared memory, ``width`` elements per lane; ``address`` is in elements of ``array``.

    An instruction that moves memory to memory is a load and a store; ``past_l1``: the L1 cache keeps nothing of it.
    """

    statement: Load | Store | Call
    op: Literal["load", "store"]
    array: Array
    address: Expr
    width: int
    past_l1: bool = False

    @property
    def element_bytes(self) -> int:
        return self.array.dtype.bytes

    @property
    def lane_bytes(self) -> int:
        return self.element_bytes * self.width


@dataclass(frozen=True)
class BoxLoad(Site):
    """A box that the TMA engine fetches for each thread that gets here, from the element ``first`` of its operand on.

    Of it lie ``columns`` elements of ``rows`` rows in the matrix, whose rows are ``pitch`` elements apart.
    """

    statement: Call
    map: TensorMap
    first: Expr
    columns: Expr
    rows: Expr
    pitch: int
    op: Literal["load", "store"] = "load"


@dataclass(frozen=True)
class Arithmetic(Site):
    """Arithmetic of each thread that gets here: a multiply-add, or that of an instruction."""

    statement: Stmt
    work: Work


Place: TypeAlias = Access | BoxLoad | Arithmetic


@dataclass(frozen=True)
class _Scope:
    """What names mean here: index expressions by name, pointers as array and offset."""

    names: Mapping[str, Expr]
    active: Expr = TRUE
    axes: tuple[Axis, ...] = ()
    boxes: Mapping[str, TensorMap] = field(default_factory=dict)
    in_parts: frozenset[str] = frozenset()
    orders: Mapping[str, str] = field(default_factory=dict)
    pointers: Mapping[str, tuple[Array, Expr]] = field(default_factory=dict)
    renumbered: Mapping[str, str] = field(default_factory=dict)


def sites(ir: KernelIR, scalars: Mapping[str, float], grid: tuple[int, int, int]) -> Iterator[Place]:
    """The accesses and the arithmetic of a kernel launched on ``grid`` blocks (x, y, z) with these scalar arguments
    (M, N, K, lda, ldb, ldc, and beta where a condition reads it).

    Where blocks are renumbered, an index of the grid is the number of a tile of C: over all blocks that is the same.
    So it is in a loop whose turns the blocks share, with as many blocks as there are tiles.
    """
    axes = tuple(Axis(Var(name, 0, count - 1, uniform=True), count) for name, count in zip(GRID, grid, strict=True))
    names: dict[str, Expr] = {axis.index.name: axis.index for axis in axes}
    names |= {name: Const(count) for name, count in zip(GRID_SIZE, grid, strict=True)}
    thread = names[THREAD] = Var(THREAD, 0, ir.threads - 1)
    names |= {name: substitute(value.meaning, {LANE: thread}) for name, value in LANE_VALUES.items()}
    # A condition on a floating-point scalar only asks whether it is zero.
    names |= {name: Const(v if isinstance(v, int) else int(v != 0)) for name, v in scalars.items()}
    orders = {x.name: x.order for x in ir.matrices}
    boxes = {m.name: m for m in ir.tensor_maps}
    parts = frozenset(x.name for x in ir.matrices if x.parts > 1)
    scope = _Scope(names, axes=axes, boxes=boxes, in_parts=parts, orders=orders, renumbered=dict(ir.renumbered))
    yield from _body(ir.body, scope)


def launch_grid(ir: KernelIR, scalars: Mapping[str, float]) -> tuple[int, int, int]:
    """The kernel's grid for these sizes, (x, y, z)."""
    names = {name: Const(v) for name, v in scalars.items() if isinstance(v, int)}
    x, y, z = (value_of(_resolve(e, names)) for e in ir.grid)
    assert x is not None and y is not None and z is not None, "a grid depends on sizes only"
    return x, y, z


def _body(body: tuple[Stmt, ...], scope: _Scope) -> Generator[Place, None, _Scope]:
    """The sites of a body, and the scope at its end: a section has none of its own."""
    for s in body:
        work = work_of(s)
        if work is not None:
            yield Arithmetic(scope.active, scope.axes, s, work)
        match s:
            case Let(var, expr):
                same = scope.renumbered.get(var.name)
                value = _resolve(expr, scope.names) if same is None else scope.names[same]
                scope = replace(scope, names={**scope.names, var.name: value})
            case LetPointer(pointer):
                scope = replace(scope, pointers={**scope.pointers, pointer.name: _pointer(pointer, scope)})
            case For():
                yield from _body(s.body, _loop(s, scope) if s.shared is None else _shared_loop(s, scope))
            case If(cond, then, orelse):
                yield from _body(then, _where(cond, scope))
                yield from _body(orelse, _unless(cond, scope))
            case Section(body=inner) | Pinned(body=inner):
                scope = yield from _body(inner, scope)
            case Roles(roles):
                for role in roles:
                    thread = scope.names[THREAD]
                    inside = both(compare("<", thread, Const((role.last + 1) * WARP)), _not_below(thread, role.first))
                    yield from _body(role.body, replace(scope, active=both(scope.active, inside)))
            case Load(src=ref) | Store(dst=ref):
                if ref.array.space != "register":
                    yield _access(s, ref, scope)
            case Call():
                yield from _moved(s, scope)
            case Fma() | Alloc() | Compute() | Sync():
                pass
            case _:
                assert_never(s)
    return scope


def _not_below(thread: Expr, warp: int) -> Expr:
    return _negation(compare("<", thread, Const(warp * WARP)))


def _negation(cond: Expr) -> Expr:
    value = value_of(cond)
    return Const(int(not value)) if value is not None else Bin("==", cond, Const(0))


def _where(cond: Expr, scope: _Scope) -> _Scope:
    return replace(scope, active=both(scope.active, _resolve(cond, scope.names)))


def _unless(cond: Expr, scope: _Scope) -> _Scope:
    return replace(scope, active=both(scope.active, _negation(_resolve(cond, scope.names))))


def _loop(s: For, scope: _Scope) -> _Scope:
    start, stop, step = (_resolve(e, scope.names) for e in (s.start, s.stop, s.step))
    stride = value_of(step)
    first, last = bounds(start)[0], bounds(stop)[1]
    if stride is None or stride < 1 or last is None:
        raise GemmgenError(f"loop over {s.var.name}: its bounds are not known from the sizes")
    count = max(0, -(-(last - first) // stride))
    index = Var(f"{s.var.name}#{len(scope.axes)}", 0, max(0, count - 1), uniform=True)
    value = start + index * stride
    # Where the trip count varies from turn to turn of an outer loop, the longest is walked and the rest masked.
    varies = value_of(start) is None or value_of(stop) is None
    active = both(scope.active, compare("<", value, stop)) if varies else scope.active
    return replace(
        scope,
        names={**scope.names, s.var.name: value},
        active=active,
        axes=(*scope.axes, Axis(index, count, s.unroll is True)),
    )


def _shared_loop(s: For, scope: _Scope) -> _Scope:
    """A loop whose turns the blocks share: a grid of blocks in their place, of which each takes one turn."""
    assert s.shared is not None
    axes, names = [axis for axis in scope.axes if axis.index.name not in GRID[:2]], {**scope.names}
    for name, extent in zip(GRID[:2], s.shared, strict=True):
        count = value_of(_resolve(extent, scope.names))
        assert count is not None, "a grid depends on sizes only"
        axes.append(Axis(Var(name, 0, max(0, count - 1), uniform=True), count))
        names[name] = axes[-1].index
    return replace(scope, names={**names, s.var.name: Const(0)}, axes=tuple(axes))


def _access(s: Load | Store, ref: Ref, scope: _Scope) -> Access:
    guarded = scope if s.guard is None else _where(s.guard, scope)
    op: Literal["load", "store"] = "load" if isinstance(s, Load) else "store"
    return Access(guarded.active, scope.axes, s, op, ref.array, _offset(ref, scope), s.width)


def _moved(s: Call, scope: _Scope) -> Iterator[Place]:
    """The accesses of an instruction, as its row lists them."""
    for move in s.row.moves:
        guarded = scope
        if move.guard is not None:
            condition = s.args[move.guard]
            assert isinstance(condition, Expr)
            guarded = _where(condition, scope)
        match s.args[move.argument]:
            case Ref() as ref:
                at = _offset(ref, scope)
                yield Access(guarded.active, scope.axes, s, move.op, ref.array, at, move.width, move.past_l1)
            case MapRef(name):
                assert move.corner is not None
                corner = [s.args[i] for i in move.corner]
                x, y = (_resolve(e, scope.names) for e in corner if isinstance(e, Expr))
                yield replace(_box(s, guarded.active, scope, scope.boxes[name], x, y), op=move.op)
            case _:
                raise GemmgenError(f"{s.row.name}: an index expression moves nothing")


def _box(s: Call, active: Expr, scope: _Scope, box: TensorMap, x: Expr, y: Expr) -> BoxLoad:
    """A box whose corner is at (x, y), along and across its operand's rows."""
    sizes = [scope.names[dim.upper()] for dim in DIMS[box.operand]]
    extents = sizes[::-1] if scope.orders[box.operand] == "row" else sizes
    if box.operand in scope.in_parts:  # a line has all parts of its elements
        extents = [scope.names[f"ld{box.operand.lower()}"], extents[1]]
    columns, rows = (smaller(Const(b), e - c) for b, e, c in zip(box.box, extents, (x, y), strict=True))
    pitch = value_of(scope.names[f"ld{box.operand.lower()}"])
    assert pitch is not None, "a leading dimension is a number"
    return BoxLoad(active, scope.axes, s, box, y * Const(pitch) + x, columns, rows, pitch)


def _offset(ref: Ref, scope: _Scope) -> Expr:
    index = [_resolve(e, scope.names) for e in ref.index]
    match ref.memory:
        case Pointer() as pointer:
            base = scope.pointers.get(pointer.name) or _pointer(pointer, scope)
            return base[1] + index[0]
        case Array(shape=None):
            return index[0]
        case Array() as array:
            offset: Expr = Const(0)
            for extent, i in zip(shape_of(array), index, strict=True):
                offset = offset * extent + i
            return offset
        case _:
            assert_never(ref.memory)


def _pointer(pointer: Pointer, scope: _Scope) -> tuple[Array, Expr]:
    offset = _resolve(pointer.offset, scope.names)
    if isinstance(pointer.base, Array):
        return pointer.base, offset
    array, start = scope.pointers.get(pointer.base.name) or _pointer(pointer.base, scope)
    return array, start + offset


def _resolve(e: Expr, names: Mapping[str, Expr]) -> Expr:
    """The expression in terms of indices only, with plain numbers for named constants."""
    match e:
        case Const(value, _):
            return Const(value)
        case Var(name):
            if name not in names:
                raise GemmgenError(f"{name} has no value here")
            return names[name]
        case Select(cond, a, b):
            known = value_of(cond := _resolve(cond, names))
            if known is not None:
                return _resolve(a if known else b, names)
            return Select(cond, _resolve(a, names), _resolve(b, names)).arithmetic
        case Bin(op, a, b):
            return build(op, _resolve(a, names), _resolve(b, names))
        case _:
            raise TypeError(f"not an index expression: {e!r}")
