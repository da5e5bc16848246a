"""The kernel IR: the statements of the program of one thread.

It is the single source of the CUDA text, of the simulation and of the counts; none of the three computes
anything from the spec again. There are few node types, all frozen; code that reads the IR uses ``match`` and
ends with ``assert_never``. What they address is in :mod:`gemmgen.ir.memory`, what they compute in
:mod:`gemmgen.ir.floats`; both can be imported from here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.floats import FBin as FBin
from gemmgen.ir.floats import FCall as FCall
from gemmgen.ir.floats import FConst as FConst
from gemmgen.ir.floats import FExpr as FExpr
from gemmgen.ir.floats import Read as Read
from gemmgen.ir.floats import Scalar as Scalar
from gemmgen.ir.memory import Array as Array
from gemmgen.ir.memory import Pointer as Pointer
from gemmgen.ir.memory import Ref as Ref
from gemmgen.ir.memory import shape_of as shape_of
from gemmgen.ir.memory import size_bytes as size_bytes

if TYPE_CHECKING:
    from gemmgen.isa.table import Instruction


# --- Statements ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Let:
    """``const int var = expr;``. ``counted``, in the body of a loop: kept by counting from turn to turn."""

    var: Var
    expr: Expr
    why: str = ""
    counted: bool = False


@dataclass(frozen=True)
class LetPointer:
    """``const float* name = base + offset;``"""

    pointer: Pointer
    why: str = ""


@dataclass(frozen=True)
class Alloc:
    """Declares a register array here, set to ``init`` in every element unless None."""

    array: Array
    init: float | None = None
    why: str = ""


@dataclass(frozen=True)
class For:
    """``for (int var = start; var < stop; var += step) body``. ``unroll`` True: fully; int: by that many; None: as the
    compiler likes. Start, stop and step are uniform across the block.

    ``shared``, where the blocks along x share the turns of a loop: those of all together are the blocks (along x and
    y) of a grid of this size, each taken once, with the kernel's ``renumbered`` for the place in it; what else depends
    on ``var`` costs the same in each. Who adds up over all blocks may go through that grid instead.
    """

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Stmt, ...]
    unroll: bool | int | None = None
    why: str = ""
    shared: tuple[Expr, Expr] | None = None


@dataclass(frozen=True)
class If:
    """A branch. A ``Sync`` may only stand in it where the condition is uniform."""

    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Load:
    """``width`` consecutive elements (along the last index) from memory into registers, as one access.

    ``guard`` false: nothing is read and the registers become zero. ``origin`` is the spec line that shaped the
    access ("tile block", "use float4", ...). ``pinned``: the compiler must load it here and not later. ``rank``: of a
    shared array, that of the cluster's block of this number; None is the block's own.
    """

    dst: Ref
    src: Ref
    width: int = 1
    guard: Expr | None = None
    origin: str = ""
    why: str = ""
    pinned: bool = False
    rank: Expr | None = None


@dataclass(frozen=True)
class Store:
    """``width`` consecutive elements from registers into memory, as one access; nothing where ``guard`` is false."""

    dst: Ref
    src: Ref
    width: int = 1
    guard: Expr | None = None
    origin: str = ""
    why: str = ""


@dataclass(frozen=True)
class Fma:
    """``acc += a * b`` on registers. ``fused``: said as one operation, so that the compiler cannot split it."""

    acc: Ref
    a: Ref
    b: Ref
    why: str = ""
    fused: bool = False


@dataclass(frozen=True)
class Compute:
    """``dst = expr`` on registers."""

    dst: Ref
    expr: FExpr
    why: str = ""


@dataclass(frozen=True)
class MapRef:
    """A tensor map of the kernel's ``tensor_maps``, by name, as an argument of a Call."""

    name: str


@dataclass(frozen=True)
class Call:
    """A hardware operation: a row of ``isa`` applied to memory references, expressions and tensor maps.

    ``origin`` is the spec line that asked for it.
    """

    row: Instruction
    args: tuple[Ref | Expr | MapRef, ...]
    why: str = ""
    origin: str = ""


@dataclass(frozen=True)
class Sync:
    """``__syncthreads()``, or with ``scope`` "cluster" a barrier of all threads of a cluster's blocks. ``hazard`` says
    what would go wrong without it; ``id`` is unique in a kernel."""

    id: int
    hazard: str
    scope: Literal["block", "cluster"] = "block"


@dataclass(frozen=True)
class Section:
    """A numbered part of the kernel with a heading, and lines of text drawn below it; no scope of its own."""

    title: str
    body: tuple[Stmt, ...]
    why: str = ""
    picture: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pinned:
    """``body`` once, as a block of its own across whose edges the compiler moves nothing.

    ``tag`` is a different number for each such block that stands beside another.
    """

    tag: Expr
    body: tuple[Stmt, ...]
    why: str = ""


@dataclass(frozen=True)
class Role:
    """Warps ``first .. last`` (inclusive) run ``body``."""

    name: str
    first: int
    last: int
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Roles:
    """Different warps run different programs, at the same time."""

    roles: tuple[Role, ...]
    why: str = ""


Stmt: TypeAlias = (
    Let | LetPointer | Alloc | For | If | Load | Store | Fma | Compute | Call | Sync | Section | Pinned | Roles
)


def children(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The bodies that a statement holds."""
    match s:
        case For(body=body) | Section(body=body) | Pinned(body=body):
            return (body,)
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case Roles(roles=roles):
            return tuple(r.body for r in roles)
        case _:
            return ()


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, in program order, outer before inner."""
    for s in body:
        yield s
        for inner in children(s):
            yield from walk(inner)


def accesses(s: Stmt) -> int:
    """How many accesses to global or shared memory a statement itself makes: what numbers accesses in program order."""
    match s:
        case Load(src=ref) | Store(dst=ref):
            return int(ref.array.space != "register")
        case Call(row=row):
            return len(row.moves)
        case _:
            return 0


def edit(body: tuple[Stmt, ...], change: Callable[[Stmt], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """The program with every statement replaced by what ``change`` gives for it, inner statements first."""
    out: list[Stmt] = []
    for s in body:
        match s:
            case For() | Section() | Pinned():
                s = replace(s, body=edit(s.body, change))
            case If():
                s = replace(s, then=edit(s.then, change), orelse=edit(s.orelse, change))
            case Roles():
                s = replace(s, roles=tuple(replace(r, body=edit(r.body, change)) for r in s.roles))
            case _:
                pass
        out.extend(change(s))
    return tuple(out)
