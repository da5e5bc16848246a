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
from typing import TYPE_CHECKING, Literal, TypeAlias

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.program import Program, Step
from gemmgen.ir.types import F32
from gemmgen.ir.variant import EXACT, GUARDED, Variant
from gemmgen.launch.overlap import refuse_overlap
from gemmgen.launch.placement import OPERANDS, WIDEST, Copy, Place, placed, repacked

if TYPE_CHECKING:
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.ir.program import Part
    from gemmgen.spec.model import Spec

    Planned: TypeAlias = Spec | Program


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


def program_for(planned: Planned) -> Program:
    """The program of a spec, or the program itself."""
    if isinstance(planned, Program):
        return planned
    from gemmgen.lower import lower

    found = lower(planned).program
    assert found is not None
    return found


def plan(
    planned: Planned,
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
    program = program_for(planned)
    refuse_overlap(shapes, strides, addresses, {x.name: x.dtype.bytes for x in program.matrices})
    return plan_aligned(
        program,
        (m, n, k),
        tuple(strides[name] for name in OPERANDS),
        tuple(addresses[name] % WIDEST for name in OPERANDS),
        as_float32(alpha),
        as_float32(beta),
        variant,
        limits,
    )


def plan_aligned(
    planned: Planned,
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
    return _planned(program_for(planned), size, strides, addresses, alpha, beta, variant, limits)


@lru_cache(maxsize=4096)
def _planned(
    program: Program,
    size: tuple[int, int, int],
    strides: tuple[tuple[int, int], ...],
    addresses: tuple[int, ...],
    alpha: float,
    beta: float,
    variant: Variant | None,
    limits: Limits,
) -> LaunchPlan:
    m, n, k = size
    if m == 0 or n == 0:
        return LaunchPlan(())
    if alpha == 0.0 or k == 0:
        # A and B are not read: an alpha of NaN with an empty sum is no NaN either.
        alpha, k = 0.0, 0
    # Kernels round K up to whole tiles of every slice, and look as many tiles ahead as there are stages.
    deepest = LARGEST - program.looks_ahead
    if k > deepest:
        raise ArgumentError(f"K is {k}; the largest K of one launch is {deepest}")
    places = {
        name: placed(program.matrix(name), shape, strides[i], addresses[i], padding=variant is None)
        for i, (name, shape) in enumerate((("A", (m, k)), ("B", (k, n)), ("C", (m, n))))
    }
    if variant is None:
        places = {name: repacked(program, name, place, (m, n, k)) for name, place in places.items()}
    chosen = _fitting(program, size=(m, n, k), places=places) if variant is None else variant
    if variant is not None:
        _refuse_variant(program, variant, (m, n, k), places)
    copies = tuple(p.copy for p in places.values() if p.copy is not None)
    panels = _panels(program, chosen, (m, n, k), alpha, beta, places, limits)
    copied = sum(c.bytes for c in copies)
    if program.workspace is not None:
        pairs = [_split(program, panel) for panel in panels]
        partials = max(_partial_bytes(program, main.arguments) for main, _ in pairs)
        steps = tuple(step for pair in pairs for step in pair)
        return LaunchPlan(steps, copies, copied + partials, partials)
    if program.alone:
        return LaunchPlan(tuple(panels), copies, copied)
    return LaunchPlan(tuple(step for panel in panels for step in _added(program, panel)), copies, copied)


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


def _divides(program: Program, size: tuple[int, int, int]) -> bool:
    """Whether a size is whole tiles."""
    return all(extent % tile == 0 for extent, tile in zip(size, program.tile, strict=True))


def _fitting(program: Program, size: tuple[int, int, int], places: Mapping[str, Place]) -> Variant:
    """The fastest variant that is right. Alignment beyond what the kernel's accesses need is all the same kernel."""
    needs = program.alignment
    align = {name: WIDEST if places[name].align >= needs[name] else places[name].align for name in OPERANDS}
    whole = _divides(program, size) and all(b == WIDEST for b in align.values())
    padded = frozenset(name for name in OPERANDS if places[name].padded)
    return EXACT if whole and not padded else Variant(GUARDED.guard, tuple(align.items()), padded)


def _refuse_variant(
    program: Program, variant: Variant, size: tuple[int, int, int], places: Mapping[str, Place]
) -> None:
    """Raise ArgumentError where a kernel that is already lowered cannot compute this size or these operands."""
    for letter, extent, tile in zip("mnk", size, program.tile, strict=True):
        if letter not in variant.guard and extent % tile:
            raise ArgumentError(
                f"{letter.upper()} = {extent} is not a multiple of the tile's {tile}, which the {variant.label} "
                f"kernel of {program.name!r} needs; lower it as 'guarded'"
            )
    needs = program.alignment
    for name in OPERANDS:
        need = min(variant.bytes(name), needs[name])
        if places[name].align < need:
            raise ArgumentError(
                f"{name} is aligned to {places[name].align} bytes (its address, its rows' length and the distance "
                f"between them); the {variant.label} kernel of {program.name!r} needs {need}; "
                f"lower it as 'guarded_unaligned'"
            )


# --- The grid -------------------------------------------------------------------------------------------------------


def _panels(
    program: Program,
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
    bm, bn, _ = program.tile
    lda, ldb, ldc = (places[name].leading for name in OPERANDS)
    numbered = limits.grid_y + 1 if program.persistent else program.group
    along_m, along_n = min(limits.grid_y, limits.span // bm), limits.span // max(bn, numbered)
    if not program.alone:  # the kernel beside it has its blocks along y where the main one may have them along x
        most = limits.grid_y * elements_a_block(variant, program.matrix("C").dtype)
        along_m, along_n = min(along_m, max(1, most // bm)), min(along_n, max(1, most // bn))
    rows, columns = _panel(bm, along_m), _panel(bn, along_n)

    def offset(name: str, i: int, j: int, leading: int) -> int:
        return i * leading + j if program.matrix(name).order == "row" else j * leading + i

    for i in range(0, m, rows):
        for j in range(0, n, columns):
            height, width = min(rows, m - i), min(columns, n - j)
            yield Launch(
                variant,
                (*_blocks(program, height, width), program.steps[0].parts if program.alone else 1),
                Arguments(
                    height, width, k, alpha,
                    offset("A", i, 0, lda), lda, offset("B", 0, j, ldb), ldb, beta, offset("C", i, j, ldc), ldc,
                ),
            )  # fmt: skip


def _blocks(program: Program, height: int, width: int) -> tuple[int, int]:
    """Blocks along x and y for a panel of C: one for each tile, or as many along x as the spec says at most."""
    bm, bn, _ = program.tile
    columns, rows = -(-width // bn), -(-height // bm)
    return (min(program.persistent, columns * rows), 1) if program.persistent else (columns, rows)


def _added(program: Program, whole: Launch) -> Iterator[Launch]:
    """The launch of a panel as two: C = beta * C, then the sums over slices of K added to it. Each is left out where it
    would do nothing.

    With dependentLaunch the second may start early: until it adds to C it reads A and B alone, and those are there when
    the first starts, which does so as always on a stream. What follows starts when the second has ended, which is no
    earlier than the first has, since its threads wait for that before they add.
    """
    before = False
    for step in program.steps:
        if _skipped(step, whole.arguments):
            continue
        columns, rows, _ = whole.grid
        grid = _grid_over_lines(program, whole) if step.grid == "lines" else (columns, rows, step.parts)
        yield replace(whole, grid=grid, kernel=step.kernel, dependent=before and step.early)
        before = True


def _skipped(step: Step, given: Arguments) -> bool:
    """Whether a step of the program would do nothing."""
    return (step.skipped == "beta is 1" and given.beta == 1.0) or (step.skipped == "K is 0" and given.K == 0)


def _grid_over_lines(program: Program, whole: Launch) -> tuple[int, int, int]:
    """Blocks of a kernel that goes over all of a panel of C, line by line."""
    from gemmgen.lower.lines import elements_a_block

    lines = _lines(program, whole.arguments)
    extent = whole.arguments.M + whole.arguments.N - lines
    return lines, -(-extent // elements_a_block(whole.variant, program.matrix("C").dtype)), 1


def _split(program: Program, whole: Launch) -> tuple[Launch, Launch]:
    """The launch of a panel as two: sums over slices of K into the workspace, then C from those.

    With dependentLaunch the second may start early, and only it. What came before the first has ended when the first
    starts, as always on a stream; and the next panel's first, which overwrites the sums, starts when the second has
    ended, which is no earlier than the first has, since all its threads wait for that.
    """
    given, lines = whole.arguments, _lines(program, whole.arguments)
    (columns, rows, _), extent = whole.grid, given.M + given.N - lines
    line = F32.elements(WIDEST)  # so that every line begins at a multiple of 16 bytes
    ldw = -(-extent // line) * line
    sums, add = program.steps
    main = replace(given, alpha=1.0, beta=0.0, C=0, ldc=ldw)
    then = replace(given, ldw=ldw)
    return (
        replace(whole, grid=(columns, rows, sums.parts), arguments=main, output="W"),
        replace(
            whole,
            grid=_grid_over_lines(program, whole),
            arguments=then,
            kernel="then",
            dependent=add.early,
        ),
    )


def _lines(program: Program, given: Arguments) -> int:
    """Rows of C where it is stored by rows, else its columns."""
    return given.M if program.matrix("C").order == "row" else given.N


def _partial_bytes(program: Program, given: Arguments) -> int:
    """The workspace of a launch whose output it is."""
    assert program.workspace is not None
    return program.workspace.parts * _lines(program, given) * given.ldc * F32.bytes


def _panel(tile: int, blocks: int) -> int:
    """Rows of a panel of at most that many blocks: a multiple of four tiles, so that alignment survives the offset."""
    return tile * max(1, blocks // 4 * 4 if blocks >= 4 else blocks)
