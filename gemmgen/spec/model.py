"""The settings of a spec, their meaning and their defaults: one table.

A *toggle* (``use float4``) is a row of TOGGLES; any other setting is a field of Spec made by ``setting()``, and
SETTINGS lists them by the line that gives them. The parser, the checks, the help, the tuner's space and the README's
table read them from here, so a new one is a row here and a rewrite in ``gemmgen.tile``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property
from typing import Any

from gemmgen.diagnostics import Span
from gemmgen.ir.types import ACCUMULATORS, DIMS, ELEMENT_TYPES, F32, WARP, EpilogueOperand, Matrix, Order
from gemmgen.isa.math import FMA, NAMES, Math, way_of
from gemmgen.isa.wgmma import GROUP_THREADS
from gemmgen.spec.setting import Setting, row_of, setting

ARCH_FORM = r"sm_[1-9][0-9]{1,2}[af]?"
DTYPES = tuple(ELEMENT_TYPES)
BYTE = 8
FAST = "fast"
"""As the type of the sums: the tensor cores' own, without promotion."""
SUM_TYPES = (*ACCUMULATORS, FAST)
ORDERS: tuple[Order, ...] = ("row", "col")


@dataclass(frozen=True)
class Toggle:
    """A row of the table of toggles. ``needs`` are toggles it makes no sense without; ``options`` its arguments.

    ``math`` is the one way to multiply that it goes with ("fma", or "mma" of any shape), empty where any will do;
    ``fma_needs`` what it needs besides with plain multiply-adds.
    """

    name: str
    doc: str
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    lanes: bool = False  # it also makes sense without what it needs where lanes share the sum over K
    math: str = ""
    fma_needs: tuple[str, ...] = ()


TOGGLES: tuple[Toggle, ...] = (
    Toggle("coalescing", "consecutive lanes walk along rows, the contiguous dimension, in every global access"),
    Toggle("smem", "stage tiles of A and B in shared memory, so that each element is loaded once per block"),
    Toggle(
        "transposeA",
        "store the A tile transposed, so that a thread's rows of it are contiguous",
        needs=("smem",),
        math="fma",
    ),
    Toggle(
        "transposeB",
        "store the B tile by columns, so that neighbours along k are contiguous",
        needs=("smem",),
        math="fma",
    ),
    Toggle("float4", "move 16 bytes per access instead of 4", needs=("smem",), lanes=True),
    Toggle(
        "warptile",
        "every warp owns a contiguous tile of the block, in m_iter x n_iter pieces",
        needs=("smem",),
        options=("m_iter", "n_iter"),
    ),
    Toggle(
        "cpasync",
        "copy tiles to shared memory asynchronously, bypassing registers; with tma, the one that is transposed",
        needs=("smem",),
    ),
    Toggle("tma", "the Tensor Memory Accelerator copies whole tiles", needs=("smem", "float4")),
    Toggle("spread", "issue a tile's copies a few at a time, between the products", needs=("cpasync",)),
    Toggle("raggedFirst", "process the K remainder first, so that later copies need no check of K", needs=("smem",)),
    Toggle("release", "each warp releases a stage by itself, without a block-wide barrier", needs=("tma",)),
    Toggle("prefetch", "load the fragments of step k + 1 before the products of step k", needs=("smem",)),
    Toggle(
        "alongK",
        "keep A's tile row-major and load several steps of k per access",
        needs=("smem", "float4"),
        math="fma",
    ),
    Toggle("ldmatrix", "load the fragments of mma by ldmatrix, four 8x8 matrices at once", needs=("smem",), math="mma"),
    Toggle(
        "smemSwizzle",
        "permute chunks of a tile's rows in shared memory to avoid bank conflicts: A's, and with mma B's",
        needs=("smem",),
        fma_needs=("alongK",),
    ),
    Toggle(
        "directB",
        "load B from global memory into registers, bypassing shared memory",
        needs=("smem",),
        math="fma",
    ),
    Toggle(
        "snake",
        "process every other row of the outer product backwards, so that an FMA reuses an operand of the previous one",
        math="fma",
    ),
    Toggle(
        "stageC",
        "write C through shared memory, so that consecutive lanes store whole rows of C",
        needs=("smem",),
    ),
    Toggle(
        "tmaStore",
        "C's tile is left in shared memory, and stored by the tensor memory accelerator (needs math wgmma)",
        needs=("smem", "tma"),
    ),
    Toggle("clusterReduce", "split_k's blocks (2 to 8) form a cluster and add up in one kernel", needs=("smem",)),
    Toggle("atomics", "split_k's blocks add to C with atomics, in no fixed order: results may differ in the last bits"),
    Toggle("batched", "compute a batch of products in one launch; an operand without a batch, or of one, is shared"),
    Toggle("dependentLaunch", "launch split_k's second kernel while the first still runs"),
    Toggle(
        "separators",
        "keep the compiler from moving loads across steps along k",
        needs=("prefetch",),
        math="fma",
    ),
)

RENAMED: Mapping[str, str] = {"smem_swizzle": "smemSwizzle"}
"""Earlier spellings of toggles, with the one that replaced each: an error that gives the new one."""


@dataclass(frozen=True)
class Operand:
    """Element type and memory order of one matrix."""

    dtype: str = "f32"
    order: Order = "row"


F32_ROW = Operand()


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A kernel to generate: what one ``.gemm`` file says. Equality ignores where it was written.

    ``block`` is (BM, BN, BK): rows and columns of C that a block computes, and its step along K (1 where the spec
    gives none). ``warp`` is (WM, WN), ``thread`` (TM, TN). ``m_iter`` and ``n_iter`` are the pieces of TM x TN that a
    thread computes inside its warp's tile; None is the smallest legal m_iter, and n_iter to match. ``spans`` says
    where each setting was written, by its name ("tile block", "BM", "use float4"); it is empty after ``replace``.
    """

    name: str = setting(MISSING, "the kernel's name in the CUDA text", line="kernel", form="name")
    block: tuple[int, int, int] = setting(
        MISSING,
        "rows and columns of C that a block computes, and its step along K",
        line="tile block",
        form="sizes",
        parts=("BM", "BN", "BK"),
        optional=1,
    )
    warp: tuple[int, int] | None = setting(
        None, "rows and columns of C that a warp computes", line="tile warp", form="sizes", parts=("WM", "WN")
    )
    thread: tuple[int, int] = setting(
        (1, 1),
        "rows and columns of C in one contiguous piece of a thread's tile",
        line="tile thread",
        form="sizes",
        parts=("TM", "TN"),
    )
    use: frozenset[str] = setting(frozenset(), "the optimisations that are on", line="use", form="toggles")
    m_iter: int | None = setting(None, "pieces of a thread along M in its warp tile", line="use", form="toggles")
    n_iter: int | None = setting(None, "pieces of a thread along N in its warp tile", line="use", form="toggles")
    A: Operand = setting(F32_ROW, "element type and order of A", line="operands", form="operands")  # noqa: RUF009
    B: Operand = setting(F32_ROW, "element type and order of B", line="operands", form="operands")  # noqa: RUF009
    C: Operand = setting(F32_ROW, "element type and order of C", line="operands", form="operands")  # noqa: RUF009
    accumulate: str = setting("f32", "type of the running sums", line="operands", form="operands")
    epilogue: tuple[str, ...] = setting(
        (),
        "what becomes of alpha * A B + beta * C, in float32, before it is rounded and stored",
        line="epilogue",
        form="chain",
        example="bias -> gelu",
    )
    math: str = setting(
        "fma",
        "how a block multiplies: FMAs of each thread, or tensor cores (mma, wgmma) in tiles of this shape",
        line="math",
        form="math",
        choices=NAMES,
        example="mma 16x8x16",
    )
    roles: str | None = setting(
        None,
        "warp groups that each run a program of their own: one brings tiles, the others multiply (needs math wgmma)",
        line="roles",
        form="roles",
        example="producer 1, consumers 2",
    )
    arch: str | None = setting(
        None,
        "architecture to compile for; default: the caller's or the GPU's",
        line="arch",
        form="word",
        pattern=ARCH_FORM,
        example="sm_90",
    )
    stages: int = setting(
        1, "tiles of K in flight in shared memory", line="stages", form="number", choices=(1, 2, 3, 4, 5, 6, 7, 8)
    )
    unroll: int = setting(0, "unrolled steps along k; 0: all of a tile", line="unroll", form="number")
    pad_a: int = setting(0, "padding elements after each row of A's shared tile", line="pad_a", form="number")
    pad_b: int = setting(0, "padding elements after each row of B's shared tile", line="pad_b", form="number")
    lanes_k: int = setting(
        1,
        "neighbouring lanes that share the sum over K of the same elements of C, each with runs of 16 bytes along K",
        line="lanes_k",
        form="number",
        choices=(1, 2, 4, 8, 16, 32),
    )
    lane_walk: str | None = setting(
        None,
        "dimension of C along which consecutive lanes go; left out, that of C's lines with coalescing",
        line="lane_walk",
        form="word",
        pattern="[mn]",
        example="n",
    )
    split_k: int = setting(
        1,
        "blocks that share the sum over K of a tile; a second kernel adds their sums, or clusterReduce or atomics",
        line="split_k",
        form="number",
        most=65535,
    )
    min_blocks: int = setting(
        0,
        "least blocks per SM, which limits registers; 0: any",
        line="min_blocks",
        form="number",
        most=32,
    )
    cta_swizzle: int = setting(
        0,
        "rows of tiles per group, for L2 reuse: blocks go down a group before the next column; 0: row by row",
        line="cta_swizzle",
        form="number",
        most=256,
    )
    persistent: int = setting(
        0,
        "persistent blocks, each of which computes several tiles of C; 0: one block per tile",
        line="persistent",
        form="number",
        most=65535,
    )
    tune: tuple[tuple[str, tuple[Any, ...]], ...] = setting(
        (), "values of a setting that `gemmgen tune` tries; on and off for a toggle", line="tune", form="tune"
    )
    filename: str = field(default="<spec>", compare=False)
    comment: str = field(default="", compare=False)
    spans: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False, hash=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def replace(self, **changes: Any) -> Spec:
        """A checked copy with some settings changed: ``spec.replace(block=(64, 64, 8), use={"smem"})``.

        Raises SpecError (without a line) where the result is not legal. The comment is kept only where nothing but
        the name changes, since it speaks of the settings as they were.
        """
        from gemmgen.spec.replace import replaced

        return replaced(self, changes)

    def to_text(self, comment: bool = True) -> str:
        """The spec as text, with or without its leading comment; ``parse(spec.to_text()) == spec``."""
        from gemmgen.spec.text import to_text

        return to_text(self, comment)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from gemmgen.text.html import pre

        return pre(self.to_text())

    @property
    def written(self) -> tuple[Hashable, ...]:
        """What equality leaves out. Who remembers by specs what has them or their lines in it, adds this to the key."""
        return self.filename, self.comment, self.notes, tuple(self.spans.items())

    def has(self, toggle: str) -> bool:
        return toggle in self.use

    @property
    def unordered(self) -> bool:
        """Whether sums are added up in no fixed order, so that the last bits of a result differ from run to run."""
        return self.has("atomics")

    @property
    def block_given(self) -> tuple[int, ...]:
        """``block`` as it is written: without a BK that nothing uses."""
        return self.block[:2] if self.block[2] == 1 and not self.has("smem") else self.block

    @cached_property
    def matrices(self) -> tuple[Matrix, Matrix, Matrix]:
        """A, B and C: their types and how they lie. A type that does not exist, which the checks report, is float32."""
        operands = zip("ABC", (self.A, self.B, self.C), strict=True)
        batch = self.has("batched")
        a, b, c = (Matrix(x, DIMS[x], ELEMENT_TYPES.get(o.dtype, F32), o.order, batch) for x, o in operands)
        return a, b, c

    @property
    def beside(self) -> tuple[EpilogueOperand, ...]:
        """What the epilogue reads beside A, B and C, or writes. Of a checked spec."""
        from gemmgen.isa.epilogue import chain_of, operands_of

        return operands_of(chain_of(self.epilogue), self.matrices[2]) if self.epilogue else ()

    @property
    def operands(self) -> tuple[Matrix | EpilogueOperand, ...]:
        """A, B, C and what the epilogue takes besides."""
        return (*self.matrices, *self.beside)

    @cached_property
    def way(self) -> Math:
        """How it multiplies elements of A and B."""
        return way_of(self.math, self.matrices[0].dtype)

    @property
    def promotes(self) -> bool:
        """Whether threads add up, in float32, what the tensor cores add up of each tile in fewer bits."""
        narrow = self.matrices[0].dtype.bits == BYTE and self.accumulate != FAST
        return self.way.by_group and (narrow or self.way.split is not None)

    @cached_property
    def multiplied(self) -> tuple[Matrix, Matrix, Matrix]:
        """A, B and C as the main kernel has them: where elements are split, A and B are copies that lie along k."""
        split, (a, b, c) = self.way.split, self.matrices
        if split is None:
            return a, b, c
        parts = Matrix("", ("m", "k"), split.part, "row", parts=split.parts)
        a = dataclasses.replace(parts, name="A")
        b = dataclasses.replace(parts, name="B", dims=DIMS["B"], order="col")
        return a, b, c

    @property
    def piece(self) -> tuple[int, int]:
        """Rows and columns of C in one contiguous piece of a thread's work: ``thread``, or what mma gives a lane."""
        return self.thread if self.math == FMA.name else (1, 2)

    @property
    def warp_iterations(self) -> tuple[int, int]:
        """(m_iter, n_iter), the default filled in; (1, 1) without warptile. Of a checked spec."""
        from gemmgen.spec.check import warp_iterations

        return warp_iterations(self)

    @property
    def warps(self) -> tuple[int, int]:
        """Warp tiles in a block, (along M, along N); only with warptile."""
        assert self.warp is not None
        return self.block[0] // self.warp[0], self.block[1] // self.warp[1]

    @property
    def threads(self) -> int:
        """Threads in a block."""
        if self.has("warptile"):
            return WARP * self.warps[0] * self.warps[1] + (GROUP_THREADS if self.roles else 0)
        return (self.block[0] // self.thread[0]) * (self.block[1] // self.thread[1]) * self.lanes_k


def _settings() -> tuple[Setting, ...]:
    lines: dict[str, list[Field[Any]]] = {}
    for f in fields(Spec):
        if "line" in f.metadata:
            lines.setdefault(f.metadata["line"], []).append(f)
    return tuple(row_of(line, group) for line, group in lines.items())


SETTINGS: tuple[Setting, ...] = _settings()
PARTS: dict[str, tuple[str, int]] = {p: (s.fields[0], i) for s in SETTINGS for i, p in enumerate(s.parts)}
"""Which field of Spec, and where in it, a size is: ``PARTS["BN"] == ("block", 1)``."""
