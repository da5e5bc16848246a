"""The kernel IR: the program of one thread.

It is the single source of the CUDA text, of the simulation and of the counts; none of the three computes
anything from the spec again. There are few node types, all frozen; code that reads the IR uses ``match`` and
ends with ``assert_never``. What they address is in :mod:`gemmgen.ir.memory`, what they compute in
:mod:`gemmgen.ir.floats`; both can be imported from here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.floats import FBin as FBin
from gemmgen.ir.floats import FConst as FConst
from gemmgen.ir.floats import FExpr as FExpr
from gemmgen.ir.floats import Read as Read
from gemmgen.ir.floats import Scalar as Scalar
from gemmgen.ir.memory import Array as Array
from gemmgen.ir.memory import Pointer as Pointer
from gemmgen.ir.memory import Ref as Ref
from gemmgen.ir.memory import shape_of as shape_of
from gemmgen.ir.memory import shared_size
from gemmgen.ir.memory import size_bytes as size_bytes
from gemmgen.ir.program import Part as Part
from gemmgen.ir.program import Program
from gemmgen.ir.types import DIMS, F32, DType, Matrix
from gemmgen.ir.variant import Variant

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
    """A numbered part of the kernel with a heading; no scope of its own."""

    title: str
    body: tuple[Stmt, ...]
    why: str = ""


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


ORDERING = frozenset({"commit", "wait", "init", "fence", "arrive", "acquire"})
"""Effects of instructions that do nothing but put accesses in order."""


ALONE = Const(1)
"""The size of a cluster where there are none."""


# --- The kernel ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    """``constexpr int name = text;  // why``. ``value`` is what the text comes to."""

    name: str
    value: int
    text: str
    why: str

    @property
    def expr(self) -> Const:
        return Const(self.value, self.name)


@dataclass(frozen=True)
class Param:
    """A kernel parameter, in order. kind: "int", "size" (64-bit), "float", "pointer" (then ``array``
    is set) or "tensormap" (then the kernel's ``tensor_maps`` has it)."""

    name: str
    kind: Literal["int", "size", "float", "pointer", "tensormap"]
    array: Array | None = None
    why: str = ""


@dataclass(frozen=True)
class TensorMap:
    """What a TMA copy knows of an operand: the box it moves, ``box`` = (along, across) in elements, the contiguous
    dimension first, and the swizzle of its rows in shared memory in bytes (0: none). Named as its parameter."""

    name: str
    operand: str
    box: tuple[int, int]
    swizzle: int = 0
    dtype: DType = F32


@dataclass(frozen=True)
class Assertion:
    """``static_assert(text, message)``."""

    text: str
    message: str


@dataclass(frozen=True)
class Source:
    """Where a kernel comes from, for people: the ``lines`` of its spec, the ``file`` they are in, and by what shaped an
    access ("tile block", "use float4", ...) the line that says so."""

    lines: tuple[str, ...] = ()
    file: str = ""
    origins: tuple[tuple[str, int], ...] = ()

    def line(self, origin: str) -> int | None:
        """The line of what shaped an access; of the block's tile where that was left at its default."""
        found = dict(self.origins)
        return found.get(origin, found.get("tile block")) if origin else None


@dataclass(frozen=True)
class Pipeline:
    """How the main loop hides latency, as the model of time asks: ``ahead`` tiles of K are on their way while one is
    used; ``fetches_ahead``: the fragments of a step are loaded before the products of the step before."""

    ahead: int = 0
    fetches_ahead: bool = False


FLOATS = tuple(Matrix(name, dims, F32, "row") for name, dims in DIMS.items())
"""A, B and C in float32, by rows."""


@dataclass(frozen=True)
class KernelIR:
    """One kernel: everything that printing, running and counting it needs.

    ``variant`` is what it may assume of sizes and alignment, ``matrices`` how its operands lie, ``tile`` the rows and
    columns of C that a block computes and its step along K, ``source`` where it comes from, and ``program`` (of a main
    kernel) all that its product launches.

    ``then`` is a kernel that is launched after this one and finishes its work (split-K: the reduction of what the
    blocks left in a workspace, which this one writes where C is expected); ``first`` is one that is launched before it
    and prepares C, which this one adds to. ``part`` says which of them a kernel is, ``main``
    what the main one is called.
    ``grid`` is (columns of blocks, rows of blocks, depth) as expressions of M, N and K, in blockIdx order x, y, z.
    ``cluster`` neighbours along z are a thread-block cluster, whose blocks run at the same time and read one
    another's shared memory. ``arriving`` are global arrays that the kernel before may still be writing when this one
    starts: a thread may use them only behind its wait for that kernel's end. ``renumbered`` are values and the
    built-in ones that they are in another order of the blocks: over a grid they take every pair of those once. Who
    adds up over all blocks may read them so.
    """

    name: str
    variant: Variant
    summary: str
    constants: tuple[Constant, ...]
    assertions: tuple[Assertion, ...]
    params: tuple[Param, ...]
    threads: int
    grid: tuple[Expr, Expr, Expr]
    shared: tuple[Array, ...]
    body: tuple[Stmt, ...]
    min_blocks: int | None = None
    tensor_maps: tuple[TensorMap, ...] = ()
    first: KernelIR | None = None
    then: KernelIR | None = None
    part: Part = "main"
    notes: tuple[str, ...] = field(default=())
    cluster: Expr = ALONE
    arriving: tuple[str, ...] = ()
    renumbered: tuple[tuple[str, str], ...] = ()
    matrices: tuple[Matrix, ...] = FLOATS
    tile: tuple[int, int, int] = (1, 1, 1)
    main: str = ""
    pipeline: Pipeline = Pipeline()
    source: Source = Source()
    program: Program | None = None

    def matrix(self, name: str) -> Matrix:
        """A, B or C."""
        return next(x for x in self.matrices if x.name == name)

    @property
    def kernels(self) -> tuple[KernelIR, ...]:
        """Of a main kernel: all that a product takes, itself among them, in the order in which they are launched."""
        return tuple(ir for ir in (self.first, self, self.then) if ir is not None)

    def syncs(self) -> list[Sync]:
        """The barriers, in program order."""
        return [s for s in walk(self.body) if isinstance(s, Sync)]

    def waits(self) -> list[Call]:
        """The other synchronisation, in program order: commits, waits, arrivals, fences, barriers being set up."""
        return [s for s in walk(self.body) if isinstance(s, Call) and not ORDERING.isdisjoint(s.row.effects)]

    def without(self, sync: Sync | Call) -> KernelIR:
        """The same kernel with one of its ``syncs()`` or ``waits()`` left out (to show that it is needed)."""

        def keep(s: Stmt) -> tuple[Stmt, ...]:
            same = s is sync if isinstance(sync, Call) else isinstance(s, Sync) and s.id == sync.id
            return () if same else (s,)

        return replace(self, body=edit(self.body, keep))

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the kernel declares."""
        return shared_size(self.shared)

    def __str__(self) -> str:
        from gemmgen.ir.text import print_kernel

        return print_kernel(self)


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
