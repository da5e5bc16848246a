"""A kernel: the program of one thread, and everything that printing, running and counting it needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from gemmgen.ir.expr import Const, Expr, show, value_of
from gemmgen.ir.memory import Array, shared_size
from gemmgen.ir.nodes import Call, Stmt, Sync, edit, walk
from gemmgen.ir.program import Part, Program
from gemmgen.ir.text import array_text, print_body
from gemmgen.ir.types import DIMS, F32, DType, Matrix
from gemmgen.ir.variant import Variant

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

    def __str__(self) -> str:
        return f"{self.name} = {self.text}" + (f" = {self.value}" if self.text != str(self.value) else "")


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

    def target(self, arch: str) -> str:
        """What to compile for, where ``arch`` is wanted: instructions of one architecture alone ask for its own name,
        as sm_90a for sm_90."""
        exact = {s.row.arch.exact for s in walk(self.body) if isinstance(s, Call)} - {None}
        return next((x for x in exact if x is not None and x.rstrip("af") == arch), arch)

    def syncs(self) -> list[Sync]:
        """The barriers, in program order."""
        return [s for s in walk(self.body) if isinstance(s, Sync)]

    def waits(self) -> list[Call]:
        """The other synchronisation, in program order: commits, waits, arrivals, fences, barriers being set up."""
        return [s for s in walk(self.body) if isinstance(s, Call) and s.row.needed]

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
        """The whole kernel as text: resources and constants, then the program of one thread."""
        clusters = "" if value_of(self.cluster) == 1 else f", clusters of {self.cluster}"
        shared = f"{self.shared_bytes} bytes of shared memory"
        lines = [
            f"kernel {self.name} ({self.variant.label}): {self.threads} threads, {shared}",
            f"grid {', '.join(map(show, self.grid))}{clusters}",
            *(
                f"const {c.name} = {c.text}" + (f" = {c.value}" if c.text != str(c.value) else "")
                for c in self.constants
            ),
            *(f"assert {a.text}" for a in self.assertions),
            *(f"shared {array_text(a)}" for a in self.shared),
            *print_body(self.body),
        ]
        return "\n".join(lines) + "\n"
