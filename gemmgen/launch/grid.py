"""The grids of a plan: launches over the tiles of C, in panels where one grid cannot cover them, and beside them the
launches of a program's other kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gemmgen.ir.program import Program, Step
from gemmgen.ir.types import F32
from gemmgen.ir.variant import Variant
from gemmgen.launch.beside import offsets
from gemmgen.launch.launches import Arguments, Launch, Limits
from gemmgen.launch.placement import OPERANDS, WIDEST, Place


def panels(
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
        return i * leading + j if program.as_read(name).order == "row" else j * leading + i

    for i in range(0, m, rows):
        for j in range(0, n, columns):
            height, width = min(rows, m - i), min(columns, n - j)
            yield Launch(
                variant,
                (*_blocks(program, height, width), program.steps[0].parts if program.alone else 1),
                Arguments(
                    height, width, k, alpha,
                    offset("A", i, 0, lda), lda, offset("B", 0, j, ldb), ldb, beta, offset("C", i, j, ldc), ldc,
                    beside=offsets(program, i, j, places),
                ),
            )  # fmt: skip


def _blocks(program: Program, height: int, width: int) -> tuple[int, int]:
    """Blocks along x and y for a panel of C: one for each tile, or as many along x as the spec says at most."""
    bm, bn, _ = program.tile
    columns, rows = -(-width // bn), -(-height // bm)
    return (min(program.persistent, columns * rows), 1) if program.persistent else (columns, rows)


def added(program: Program, whole: Launch) -> Iterator[Launch]:
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
        every = step.parts * whole.arguments.batch
        grid = _grid_over_lines(program, whole) if step.grid == "lines" else (columns, rows, every)
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
    return lines, -(-extent // elements_a_block(whole.variant, program.matrix("C").dtype)), whole.arguments.batch


def split(program: Program, whole: Launch) -> tuple[Launch, Launch]:
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
        replace(whole, grid=(columns, rows, sums.parts * given.batch), arguments=main, output="W"),
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


def partial_bytes(program: Program, given: Arguments) -> int:
    """The workspace of a launch whose output it is."""
    assert program.workspace is not None
    return given.batch * program.workspace.parts * _lines(program, given) * given.ldc * F32.bytes


def _panel(tile: int, blocks: int) -> int:
    """Rows of a panel of at most that many blocks: a multiple of four tiles, so that alignment survives the offset."""
    return tile * max(1, blocks // 4 * 4 if blocks >= 4 else blocks)
