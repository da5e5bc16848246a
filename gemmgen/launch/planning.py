"""How a product is launched: pure, and decided once for the simulator and the GPU.

``plan`` turns the shapes, strides and addresses of three matrices into launches: which variant of the kernel, with
which grid and arguments, after which copies. It refuses what cannot be computed in place. It touches no memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Literal

from gemmgen.diagnostics import ArgumentError
from gemmgen.launch.overlap import refuse_overlap
from gemmgen.launch.placement import ITEM, OPERANDS, WIDEST, Copy, Place, order_of, placed, repacked, vector_bytes
from gemmgen.tile.variant import EXACT, GUARDED, Variant

if TYPE_CHECKING:
    from gemmgen.ir.nodes import KernelIR, Part
    from gemmgen.spec.model import Spec


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
    this launch starts; everything else is passed as it is. ``ldw`` is the leading dimension of partial sums."""

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
        return {name: value for name, value in vars(self.arguments).items() if name not in OPERANDS}

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


def plan(
    spec: Spec,
    shapes: Mapping[str, tuple[int, int]],
    strides: Mapping[str, tuple[int, int]],
    addresses: Mapping[str, int],
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    writable: bool = True,
    variant: Variant | None = None,
    limits: Limits = HARDWARE,
) -> LaunchPlan:
    """The launches that compute C = alpha * (A @ B) + beta * C.

    ``shapes`` of "A" (M, K), "B" (K, N) and "C" (M, N); ``strides`` in elements; ``addresses`` of the first elements in
    bytes. ``writable`` says whether C may be written. With ``variant`` the kernel is given, and what it cannot do is
    refused; else the fastest variant that fits is taken. Raises ArgumentError naming the operand and the numbers.
    """
    m, n, k = sizes(shapes)
    if not writable:
        raise ArgumentError("C is read-only; it is updated in place: pass an array that can be written")
    refuse_overlap(shapes, strides, addresses)
    return plan_aligned(
        spec,
        (m, n, k),
        tuple(strides[name] for name in OPERANDS),
        tuple(addresses[name] % WIDEST for name in OPERANDS),
        as_float32(alpha),
        as_float32(beta),
        variant,
        limits,
    )


@lru_cache(maxsize=4096)
def plan_aligned(
    spec: Spec,
    size: tuple[int, int, int],
    strides: tuple[tuple[int, int], ...],
    addresses: tuple[int, ...],
    alpha: float,
    beta: float,
    variant: Variant | None = None,
    limits: Limits = HARDWARE,
) -> LaunchPlan:
    """The plan of operands known not to overlap, in the order A, B, C; ``addresses`` are modulo 16.

    Remembered: the same call with other buffers asks again only for the overlap.
    """
    m, n, k = size
    if m == 0 or n == 0:
        return LaunchPlan(())
    if alpha == 0.0 or k == 0:
        # A and B are not read: an alpha of NaN with an empty sum is no NaN either.
        alpha, k = 0.0, 0
    # Kernels round K up to whole tiles of every slice, and look as many tiles ahead as there are stages.
    deepest = LARGEST - spec.block[2] * (spec.split_k + spec.stages)
    if k > deepest:
        raise ArgumentError(f"K is {k}; the largest K of one launch is {deepest}")
    places = {
        name: placed(name, order_of(spec, name), shape, strides[i], addresses[i], padding=variant is None)
        for i, (name, shape) in enumerate((("A", (m, k)), ("B", (k, n)), ("C", (m, n))))
    }
    if variant is None:
        places = {name: repacked(spec, name, place, (m, n, k)) for name, place in places.items()}
    chosen = _fitting(spec, size=(m, n, k), places=places) if variant is None else variant
    if variant is not None:
        _refuse_variant(spec, variant, (m, n, k), places)
    copies = tuple(p.copy for p in places.values() if p.copy is not None)
    panels = _panels(spec, chosen, (m, n, k), alpha, beta, places, limits)
    copied = sum(c.bytes for c in copies)
    match _beside(spec):
        case None:
            return LaunchPlan(tuple(panels), copies, copied)
        case "first":
            return LaunchPlan(tuple(step for panel in panels for step in _added(spec, panel)), copies, copied)
        case "then":
            pairs = [_split(spec, panel) for panel in panels]
            partials = max(_partial_bytes(spec, main.arguments) for main, _ in pairs)
            steps = tuple(step for pair in pairs for step in pair)
            return LaunchPlan(steps, copies, copied + partials, partials)


def sizes(shapes: Mapping[str, tuple[int, int]]) -> tuple[int, int, int]:
    """(M, N, K) of three shapes. Raises ArgumentError where they do not fit together, or one is 2^31 or more."""
    a, b, c = (shapes[name] for name in OPERANDS)
    if a[1] != b[0]:
        raise ArgumentError(f"A is {_shape(a)} and B is {_shape(b)}: A has {a[1]} columns, and B {b[0]} rows")
    if c != (a[0], b[1]):
        raise ArgumentError(f"C is {_shape(c)}; A @ B is {_shape((a[0], b[1]))}")
    m, n, k = a[0], b[1], a[1]
    for name, value in (("M", m), ("N", n), ("K", k)):
        if value > LARGEST:
            raise ArgumentError(f"{name} is {value}; sizes of 2^31 or more are not supported")
    return m, n, k


def _shape(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"


def as_float32(value: float) -> float:
    """The value that a float parameter of the kernel receives; beyond the range of float32 that is an infinity."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return inf if value > 0 else -inf
    return rounded


# --- The variant ----------------------------------------------------------------------------------------------------


def _divides(spec: Spec, size: tuple[int, int, int]) -> bool:
    """Whether a size is whole tiles. Without shared memory there is no tile along K."""
    (bm, bn, bk), (m, n, k) = spec.block, size
    return m % bm == 0 and n % bn == 0 and (k % bk == 0 or not spec.has("smem"))


def _fitting(spec: Spec, size: tuple[int, int, int], places: Mapping[str, Place]) -> Variant:
    """The fastest variant that is right. Alignment beyond what the kernel's accesses need is all the same kernel."""
    needs = vector_bytes(spec)
    align = {name: WIDEST if places[name].align >= needs[name] else places[name].align for name in OPERANDS}
    whole = _divides(spec, size) and all(b == WIDEST for b in align.values())
    padded = frozenset(name for name in OPERANDS if places[name].padded)
    return EXACT if whole and not padded else Variant(GUARDED.guard, tuple(align.items()), padded)


def _refuse_variant(spec: Spec, variant: Variant, size: tuple[int, int, int], places: Mapping[str, Place]) -> None:
    """Raise ArgumentError where a kernel that is already lowered cannot compute this size or these operands."""
    for letter, extent, tile in zip("mnk", size, spec.block, strict=True):
        needs_tile = letter != "k" or spec.has("smem")
        if letter not in variant.guard and needs_tile and extent % tile:
            raise ArgumentError(
                f"{letter.upper()} = {extent} is not a multiple of the tile's {tile}, which the {variant.label} "
                f"kernel of {spec.name!r} needs; lower it as 'guarded'"
            )
    needs = vector_bytes(spec)
    for name in OPERANDS:
        need = min(variant.bytes(name), needs[name])
        if places[name].align < need:
            raise ArgumentError(
                f"{name} is aligned to {places[name].align} bytes (its address, its rows' length and the distance "
                f"between them); the {variant.label} kernel of {spec.name!r} needs {need}; "
                f"lower it as 'guarded_unaligned'"
            )


# --- The grid -------------------------------------------------------------------------------------------------------


def _panels(
    spec: Spec,
    variant: Variant,
    size: tuple[int, int, int],
    alpha: float,
    beta: float,
    places: Mapping[str, Place],
    limits: Limits,
) -> Iterator[Launch]:
    """One launch, or several over panels of C where a grid or an index would pass its limit."""
    from gemmgen.lower.lines import elements_a_block

    m, n, k = size
    bm, bn, _ = spec.block
    lda, ldb, ldc = (places[name].leading for name in OPERANDS)
    numbered = limits.grid_y + 1 if spec.persistent else spec.cta_swizzle
    along_m, along_n = min(limits.grid_y, limits.span // bm), limits.span // max(bn, numbered)
    alone = _beside(spec) is None
    if not alone:  # the kernel beside it has its blocks along y where the main one may have them along x
        most = limits.grid_y * elements_a_block(variant)
        along_m, along_n = min(along_m, max(1, most // bm)), min(along_n, max(1, most // bn))
    rows, columns = _panel(bm, along_m), _panel(bn, along_n)

    def offset(name: str, i: int, j: int, leading: int) -> int:
        return i * leading + j if order_of(spec, name) == "row" else j * leading + i

    for i in range(0, m, rows):
        for j in range(0, n, columns):
            height, width = min(rows, m - i), min(columns, n - j)
            yield Launch(
                variant,
                (*_blocks(spec, height, width), spec.split_k if alone else 1),
                Arguments(
                    height, width, k, alpha,
                    offset("A", i, 0, lda), lda, offset("B", 0, j, ldb), ldb, beta, offset("C", i, j, ldc), ldc,
                ),
            )  # fmt: skip


def _blocks(spec: Spec, height: int, width: int) -> tuple[int, int]:
    """Blocks along x and y for a panel of C: one for each tile, or as many along x as the spec says at most."""
    bm, bn, _ = spec.block
    columns, rows = -(-width // bn), -(-height // bm)
    return (min(spec.persistent, columns * rows), 1) if spec.persistent else (columns, rows)


def _beside(spec: Spec) -> Literal["first", "then"] | None:
    """Which kernel works on C beside the main one, where several blocks share a sum."""
    if spec.split_k == 1 or spec.has("clusterReduce"):
        return None
    return "first" if spec.has("atomics") else "then"


def _added(spec: Spec, whole: Launch) -> Iterator[Launch]:
    """The launch of a panel as two: C = beta * C, then the sums over slices of K added to it. Each is left out where it
    would do nothing.

    With dependentLaunch the second may start early: until it adds to C it reads A and B alone, and those are there when
    the first starts, which does so as always on a stream. What follows starts when the second has ended, which is no
    earlier than the first has, since its threads wait for that before they add.
    """
    scaled = whole.arguments.beta != 1.0
    if scaled:
        yield replace(whole, grid=_grid_over_lines(spec, whole), kernel="first")
    if whole.arguments.K:
        columns, rows, _ = whole.grid
        dependent = scaled and spec.has("dependentLaunch")
        yield replace(whole, grid=(columns, rows, spec.split_k), dependent=dependent)


def _grid_over_lines(spec: Spec, whole: Launch) -> tuple[int, int, int]:
    """Blocks of a kernel that goes over all of a panel of C, line by line."""
    from gemmgen.lower.lines import elements_a_block

    lines = _lines(spec, whole.arguments)
    extent = whole.arguments.M + whole.arguments.N - lines
    return lines, -(-extent // elements_a_block(whole.variant)), 1


def _split(spec: Spec, whole: Launch) -> tuple[Launch, Launch]:
    """The launch of a panel as two: sums over slices of K into the workspace, then C from those.

    With dependentLaunch the second may start early, and only it. What came before the first has ended when the first
    starts, as always on a stream; and the next panel's first, which overwrites the sums, starts when the second has
    ended, which is no earlier than the first has, since all its threads wait for that.
    """
    given, lines = whole.arguments, _lines(spec, whole.arguments)
    (columns, rows, _), extent = whole.grid, given.M + given.N - lines
    ldw = -(-extent // 4) * 4  # so that every line begins at a multiple of 16 bytes
    main = replace(given, alpha=1.0, beta=0.0, C=0, ldc=ldw)
    then = replace(given, ldw=ldw)
    return (
        replace(whole, grid=(columns, rows, spec.split_k), arguments=main, output="W"),
        replace(
            whole,
            grid=_grid_over_lines(spec, whole),
            arguments=then,
            kernel="then",
            dependent=spec.has("dependentLaunch"),
        ),
    )


def _lines(spec: Spec, given: Arguments) -> int:
    """Rows of C where it is stored by rows, else its columns."""
    return given.M if spec.C.order == "row" else given.N


def _partial_bytes(spec: Spec, given: Arguments) -> int:
    """The workspace of a launch whose output it is."""
    return spec.split_k * _lines(spec, given) * given.ldc * ITEM


def _panel(tile: int, blocks: int) -> int:
    """Rows of a panel of at most that many blocks: a multiple of four tiles, so that alignment survives the offset."""
    return tile * max(1, blocks // 4 * 4 if blocks >= 4 else blocks)
