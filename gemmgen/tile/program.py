"""Level 1: the tile program, a record of decisions about how one block computes its tile of C.

Toggles edit these decisions; none of them moves statements about. The order of things, and every barrier, is
derived from the decisions by :func:`gemmgen.tile.sequence.sequence`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from gemmgen.ir.memory import declared_size
from gemmgen.ir.types import F32, WARP, Dim, DType, EpilogueOperand, Matrix, OperandName
from gemmgen.ir.variant import Variant
from gemmgen.isa.epilogue import Entry, operands_of
from gemmgen.isa.math import FMA, Math
from gemmgen.isa.table import Completion
from gemmgen.tile.sums import WHOLE, InCluster, SecondKernel, Sums
from gemmgen.tile.transport import REGISTERS, Transport

# The most shared memory that any supported GPU gives one block (sm_90, sm_100: 227 KB; CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability").
SHARED_LIMIT = 227 * 1024

SUMS = "sums"
"""The name of what the blocks of a cluster leave to one another in shared memory."""
BARRIER_BYTES = 8
SWIZZLE_ALIGN = 1024
"""Bytes to which a swizzled tile must be aligned (PTX ISA, "Swizzling modes")."""

STAGED = "Cs"
"""The name of C's tile on its way through shared memory."""


Feed = Literal["registers", "ldmatrix"]


@dataclass(frozen=True)
class Layout:
    """How a two-dimensional tile lies in memory: ``dims`` slowest first, so that the last is contiguous.

    ``extents`` match dims, in elements; ``pad`` elements follow each row. ``swizzle``: the pieces of 16 bytes of a row
    are permuted by an exclusive or with bits of the row's number, as TMA does it, so that a column of pieces spreads
    over all banks. ``panel``: so many elements of each row lie together, those of all rows before the next (0: whole
    rows).
    """

    dims: tuple[Dim, Dim]
    extents: tuple[int, int]
    pad: int = 0
    swizzle: bool = False
    panel: int = 0

    @property
    def contiguous(self) -> Dim:
        return self.dims[1]

    @property
    def pitch(self) -> int:
        """Elements from one row to the next."""
        return self.extents[1] + self.pad

    @property
    def panels(self) -> int:
        """Parts that rows are taken apart into."""
        return self.extents[1] // self.panel if self.panel else 1

    @property
    def transposed(self) -> Layout:
        return Layout((self.dims[1], self.dims[0]), (self.extents[1], self.extents[0]), self.pad)


@dataclass(frozen=True)
class Group:
    """Threads of a block that run one program. ``registers`` are those of each of its threads, where the program says
    so."""

    name: str
    threads: int
    registers: int | None = None


@dataclass(frozen=True)
class Buffer:
    """A tile of an operand in shared memory, ``stages`` times, of ``parts`` of each element. ``over`` are the buffers
    whose place it takes."""

    name: str
    operand: OperandName
    layout: Layout
    dtype: DType = F32
    stages: int = 1
    why: str = ""
    over: tuple[str, ...] = ()
    parts: int = 1

    @property
    def storage(self) -> tuple[str, ...]:
        """The pieces of shared memory that it lies in: its own, or those of the buffers whose place it takes."""
        return self.over or (self.name,)

    @property
    def bytes(self) -> int:
        return self.dtype.bytes * self.stages * self.parts * self.layout.extents[0] * self.layout.pitch


@dataclass(frozen=True)
class Copy:
    """One tile of an operand is moved from global to shared memory.

    ``width`` is in elements an access; ``lanes`` is the dimension that consecutive threads walk; ``guard`` are the
    dimensions along which the tile may reach past the matrix. ``via`` is how the tile is brought. ``patches``: a warp
    copies some elements of several lines at a time, so that what it transposes falls into different banks.
    """

    operand: OperandName
    buffer: str
    width: int
    lanes: Dim
    guard: frozenset[Dim] = frozenset()
    via: Transport = REGISTERS
    patches: bool = False


@dataclass(frozen=True)
class Level:
    """One level of the split of C's tile: ``m`` x ``n`` pieces, of which consecutive indices walk along ``walk``.

    "warp" and "lane" pieces are computed by different threads, "piece" and "thread" ones by the same.
    """

    name: Literal["warp", "piece", "lane", "thread"]
    m: int
    n: int
    walk: Dim = "m"


@dataclass(frozen=True)
class Product:
    """acc += a x b, by multiplications of ``math``. ``levels`` split the block tile, coarse to fine; ``a_width`` and
    ``b_width`` are the elements a thread fetches an access. ``along_k``: of A these are neighbours along k, so
    that one fetch serves several steps. ``lanes_k`` neighbouring lanes have the same elements of C, and each a part of
    every tile's steps: ``run`` neighbours along k of each row and column at a time.
    ``snake``: every other row of the outer product is walked backwards. ``pinned``: each step along k is closed
    against the compiler's scheduler. ``unroll``: steps along k in the text of the loop (None: all of a tile).
    ``feed``: how a warp's multiplication gets its fragments, by ordinary loads to registers or by ldmatrix.
    ``promote``: the tensor cores add up one tile's products, and threads add those to sums in float32.
    """

    levels: tuple[Level, ...]
    a_width: int = 1
    b_width: int = 1
    math: Math = FMA
    along_k: bool = False
    lanes_k: int = 1
    run: int = 1
    snake: bool = False
    pinned: bool = False
    unroll: int | None = None
    feed: Feed = "registers"
    promote: bool = False

    def level(self, name: str) -> Level:
        """The level of that name; 1 x 1 where the program has none."""
        for level in self.levels:
            if level.name == name:
                return level
        return Level("piece", 1, 1)


@dataclass(frozen=True)
class Output:
    """C = alpha * acc + beta * C, ``width`` elements an access; ``guard`` as in Copy.

    ``box``: where the part of C lies in shared memory, rounded, that the TMA engine stores; in a place of its own, so
    that the next tiles of A and B may come meanwhile. ``tile``: where C's tile lies in shared memory on its way, in the
    place of the tiles of A and B; None where each
    thread stores its own sums. ``left`` are the elements of one store of a thread's sums into it.
    """

    width: int = 1
    guard: frozenset[Dim] = frozenset()
    tile: Buffer | None = None
    left: int = 1
    box: Buffer | None = None


@dataclass(frozen=True)
class Pipeline:
    """How many tiles of K are in flight. ``prefetch``: the fragments of step k + 1 are fetched before the products of
    step k. ``spread``: a tile's copies are started a few at a time in the steps of another. ``release``: each warp by
    itself says when a tile may be overwritten, and none waits for the others. ``ragged_first``: the first tile has what
    whole tiles leave of K, and later ones are whole."""

    depth: int = 1
    prefetch: bool = False
    spread: bool = False
    release: bool = False
    ragged_first: bool = False


@dataclass(frozen=True)
class TileProgram:
    """What one block does, as decisions."""

    name: str
    variant: Variant
    block: tuple[int, int, int]
    matrices: tuple[Matrix, ...]
    product: Product
    output: Output
    buffers: tuple[Buffer, ...] = ()
    copies: tuple[Copy, ...] = ()
    pipeline: Pipeline = Pipeline()
    sums: Sums = WHOLE
    producer: Group | None = None
    """The warp group that brings tiles, where the others only multiply; behind them."""
    consumer_registers: int = 0
    """Registers of each thread that multiplies, where some were taken from the producer; 0: as launched."""
    group_m: int = 1
    """Rows of tiles of C that consecutive blocks go down before the next column of tiles."""
    persistent: int = 0
    """Blocks that are launched (for each part of K, where several share a sum), of which each computes tile after tile
    of C; 0: a block for each tile."""
    min_blocks: int = 0
    """Blocks that a multiprocessor must hold, which limits registers; 0: any."""
    summary: str = ""
    chain: tuple[Entry, ...] = ()
    """What becomes of alpha * acc + beta * C before it is stored as C, by the kernel that stores it."""
    given: tuple[Matrix, ...] = ()
    """A, B and C as a caller has them, where A and B are copied to what the kernel reads."""

    @property
    def batched(self) -> bool:
        """Whether a launch computes a batch of products."""
        return self.matrix("C").batch

    @property
    def applied(self) -> tuple[Entry, ...]:
        """The entries of the chain that the main kernel applies: none where a second kernel stores C."""
        return () if self.second_kernel else self.chain

    @property
    def beside(self) -> tuple[EpilogueOperand, ...]:
        """What the chain reads beside A, B and C, or writes."""
        return operands_of(self.chain, self.matrix("C"))

    @property
    def second_kernel(self) -> bool:
        """Whether each block's sums go to a workspace, where a second kernel adds them up."""
        return isinstance(self.sums, SecondKernel)

    @property
    def stored(self) -> DType:
        """The type of what the main kernel stores: C's, or that of the sums in a workspace."""
        return F32 if self.second_kernel else self.matrix("C").dtype

    @property
    def asynchronous(self) -> bool:
        """Whether products run on while the threads that started them go on, and wait for them later."""
        return self.product.math.threads > WARP

    @property
    def group(self) -> Group:
        """The threads that multiply: all of the block, but for a group that brings tiles."""
        return Group("all" if self.producer is None else "consumers", self.consumers)

    @property
    def consumers(self) -> int:
        """Threads that multiply."""
        warp, lane = self.product.level("warp"), self.product.level("lane")
        return warp.m * warp.n * lane.m * lane.n * self.product.lanes_k

    @property
    def threads(self) -> int:
        return self.consumers + (0 if self.producer is None else self.producer.threads)

    @property
    def warp_tile(self) -> tuple[int, int]:
        """Rows and columns of C that a warp computes, where it computes a tile of its own."""
        pieces = [self.product.level(x) for x in ("piece", "lane", "thread")]
        return prod(x.m for x in pieces), prod(x.n for x in pieces)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, as the compiler lays it out: that of the kernel IR."""
        extents = [(size, align) for _, size, align in self._arrays]
        more = max(0, self.sums_bytes - self.tile_bytes)
        return declared_size(extents, more, together=self.sums_bytes > 0)

    @property
    def shared_parts(self) -> list[tuple[str, int]]:
        """Names and bytes of what lies in a block's shared memory, beside sums in the tiles' place."""
        return [(name, size) for name, size, _ in self._arrays]

    @property
    def _arrays(self) -> list[tuple[str, int, int]]:
        """Names, bytes and alignment of the arrays in shared memory, in the order in which they are declared."""
        arrays = [(b.name, b.bytes, self.copy(b.operand).via.align(b.layout)) for b in self.buffers]
        if (box := self.output.box) is not None:
            arrays.append((box.name, box.bytes, SWIZZLE_ALIGN))
        return [*arrays, *((name, size, BARRIER_BYTES) for name, size in self.barriers)]

    @property
    def barriers(self) -> list[tuple[str, int]]:
        """Names and bytes of the arrays of barriers that say when tiles have landed, and may be overwritten."""
        if not self.landing(Completion.BARRIER):
            return []
        names = ("full", "empty") if self.pipeline.release else ("full",)
        return [(name, BARRIER_BYTES * self.pipeline.depth) for name in names]

    @property
    def tile_bytes(self) -> int:
        """Shared memory of the tiles of A and B."""
        return sum(b.bytes for b in self.buffers)

    @property
    def sums_bytes(self) -> int:
        """Shared memory in which a block leaves its sums, in the tiles' place."""
        if self.output.tile is not None:
            return self.output.tile.bytes
        return F32.bytes * self.block[0] * self.block[1] if isinstance(self.sums, InCluster) else 0

    def matrix(self, operand: str) -> Matrix:
        return next(x for x in self.matrices if x.name == operand)

    def extent(self, dim: Dim) -> int:
        return self.block[("m", "n", "k").index(dim)]

    def contiguous(self, operand: str) -> Dim:
        """The dimension along which an operand's elements are neighbours in global memory."""
        return self.matrix(operand).contiguous

    def strided(self, operand: str) -> Dim:
        """The other one, a leading dimension apart."""
        return self.matrix(operand).strided

    def buffer(self, operand: str) -> Buffer | None:
        return next((b for b in self.buffers if b.operand == operand), None)

    def landing(self, when: Completion) -> tuple[Copy, ...]:
        """The copies that land so."""
        return tuple(c for c in self.copies if c.via.lands is when)

    def copy(self, operand: str) -> Copy:
        return next(c for c in self.copies if c.operand == operand)
