"""What a launch is: limits, arguments, one launch, and the plan of all that one product takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gemmgen.ir.types import batch_stride
from gemmgen.ir.variant import Variant
from gemmgen.launch.placement import OPERANDS, Copy

if TYPE_CHECKING:
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.ir.program import Part


@dataclass(frozen=True)
class Limits:
    """What one launch can cover. ``grid_y`` is CUDA's limit on blocks along y. ``span`` bounds the rows and the columns
    of one launch, so that an index of a row or column, rounded up to whole tiles, stays below 2^31; and the blocks of
    ``cta_swizzle`` rows of tiles, and the tiles of ``persistent`` blocks, which kernels number."""

    grid_y: int = 65535
    span: int = 1 << 30


HARDWARE = Limits()
LARGEST = (1 << 31) - 1  # sizes are C ints in the kernel


@dataclass(frozen=True)
class Arguments:
    """A kernel's arguments. ``A``, ``B`` and ``C`` are offsets in elements from each operand's first element, where
    this launch starts; everything else is passed as it is. ``ldw`` is the leading dimension of partial sums.
    ``beside`` are (name, offset, leading dimension) of each operand of the epilogue.
    ``batch`` products are computed, whose matrices are ``strides`` elements apart, by operand."""

    M: int
    N: int
    K: int
    alpha: float
    A: int
    lda: int
    B: int
    ldb: int
    beta: float
    C: int
    ldc: int
    ldw: int = 0
    beside: tuple[tuple[str, int, int], ...] = ()
    batch: int = 1
    strides: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Launch:
    """One launch: ``grid`` is (blocks along N, blocks along M, slices of K) of the main kernel, or of a persistent one
    (blocks, 1, slices of K); of a kernel beside it (lines of C, blocks along a line, 1).

    ``kernel`` is "main", "first" for the kernel that prepares C before it, or "then" for the one that finishes its work
    after it. ``output`` says where the argument C points: to C, or to the workspace "W", in which partial sums stand
    from its first element on. ``dependent``: it may start before the launch right before it in the plan has ended; that
    one's kernel allows it, and its own waits for that end.
    """

    variant: Variant
    grid: tuple[int, int, int]
    arguments: Arguments
    kernel: Part = "main"
    output: Literal["C", "W"] = "C"
    dependent: bool = False

    @property
    def scalars(self) -> dict[str, int | float]:
        """The arguments that are no pointers, by their parameters' names."""
        given, no_numbers = self.arguments, (*OPERANDS, "beside", "batch", "strides")
        own = {name: value for name, value in vars(given).items() if name not in no_numbers}
        leading = {f"ld{name.lower()}": leading for name, _, leading in given.beside}
        return own | leading | {batch_stride(name): step for name, step in given.strides}

    def ir(self, main: KernelIR) -> KernelIR:
        """The kernel to launch, found from its variant's main kernel."""
        return kernel_of(main, self.kernel)


def kernel_of(main: KernelIR, which: Part) -> KernelIR:
    """The main kernel itself, or the one before or after it."""
    return next(ir for ir in main.kernels if ir.part == which)


@dataclass(frozen=True)
class LaunchPlan:
    """What to do for one product: copy the inputs in ``copies``, then run ``steps`` in order.

    ``workspace`` is the bytes that it all takes beside the operands: the copies, and ``partials`` bytes in which steps
    leave results for later steps. No steps: there is nothing to compute.
    """

    steps: tuple[Launch, ...]
    copies: tuple[Copy, ...] = ()
    workspace: int = 0
    partials: int = 0
