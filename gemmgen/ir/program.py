"""The program of kernels: what one product launches, in which order, with which grids and which memory between them.

The launch plan reads this and the shapes of a call, and decides nothing from a spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gemmgen.ir.split import Split
from gemmgen.ir.types import EpilogueOperand, Matrix
from gemmgen.ir.variant import Variant

Part = Literal["first", "main", "then"]
"""Which of the kernels of a product, in the order in which they are launched."""


@dataclass(frozen=True)
class Step:
    """One kernel of a product.

    ``grid``: "tiles" has a block for each tile of C (or as many as are ``persistent``) and ``parts`` along z; "lines"
    goes over C line by line. ``output`` is where its argument C points: C itself, or the workspace. ``skipped``: when
    it would do nothing. ``early``: it may start while the step before it runs, and waits for its end on the GPU.
    """

    kernel: Part
    grid: Literal["tiles", "lines"] = "tiles"
    parts: int = 1
    output: Literal["C", "workspace"] = "C"
    skipped: Literal["never", "beta is 1", "K is 0"] = "never"
    early: bool = False


@dataclass(frozen=True)
class Workspace:
    """Memory between the steps: ``parts`` matrices of C's shape, in C's order and the type of the sums, with lines that
    start at multiples of 16 bytes."""

    name: str
    parts: int


@dataclass(frozen=True)
class Program:
    """What a product of any size launches.

    ``tile`` are the rows and columns of C that a block computes, and its step along K (1 where K has no tiles).
    ``looks_ahead`` is how far beyond K a kernel's indices may reach, in elements. ``needs`` are the bytes to which the
    rows of each matrix must be aligned for the exact kernel. ``persistent`` is the most blocks along x, 0 for a block
    per tile; ``group`` the rows of tiles that consecutive blocks go down, 1 for none. ``beside`` is what the epilogue
    reads and writes besides A, B and C. ``aligned`` are the matrices that no variant reads where their rows are less
    aligned: they are copied first. ``split``: how elements of A and B are split into parts, by a pass before the
    kernels; ``read`` are A, B and C as the kernels then have them (the same as ``matrices`` where it is empty).
    """

    name: str
    matrices: tuple[Matrix, ...]
    tile: tuple[int, int, int]
    looks_ahead: int
    needs: tuple[tuple[str, int], ...]
    steps: tuple[Step, ...]
    workspace: Workspace | None = None
    persistent: int = 0
    group: int = 0
    beside: tuple[EpilogueOperand, ...] = ()
    aligned: frozenset[str] = frozenset()
    read: tuple[Matrix, ...] = ()
    split: Split | None = None

    @property
    def operands(self) -> tuple[Matrix | EpilogueOperand, ...]:
        """A, B, C and what the epilogue takes besides."""
        return (*self.matrices, *self.beside)

    @property
    def batched(self) -> bool:
        """Whether a launch computes a batch of products."""
        return self.matrix("C").batch

    def matrix(self, name: str) -> Matrix:
        return next(x for x in self.matrices if x.name == name)

    def as_read(self, name: str) -> Matrix:
        """The matrix as the kernels have it: a copy of parts, where elements are split."""
        return next(x for x in self.read or self.matrices if x.name == name)

    @property
    def alignment(self) -> Mapping[str, int]:
        return dict(self.needs)

    def named(self, variant: Variant) -> str:
        """The name of a variant of its kernels, which says for which operands its accesses are narrow."""
        items = {x.name: x.dtype.bytes for x in self.matrices}
        return variant.named([x for x, need in self.needs if need > items[x] and x not in self.aligned])

    @property
    def parts(self) -> int:
        """Blocks that share the sum over K of a tile of C."""
        return max(step.parts for step in self.steps)

    @property
    def alone(self) -> bool:
        """Whether a product is one launch."""
        return len(self.steps) == 1
