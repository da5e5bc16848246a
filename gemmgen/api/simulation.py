"""Running a kernel on the simulator: host arrays in place, every launch of the plan, faults and counts together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.api.beside import on_host
from gemmgen.api.operands import PAGE, Matrix, matrices, output_for, scalar
from gemmgen.diagnostics import ArgumentError, flag
from gemmgen.ir.types import F32
from gemmgen.ir.types import Matrix as Operand
from gemmgen.ir.variant import Variant
from gemmgen.launch import Arguments, Copy, Launch, LaunchPlan, as_float32, plan, program_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gemmgen.ir.kernel import KernelIR
    from gemmgen.ir.program import Program
    from gemmgen.sim.faults import Fault
    from gemmgen.sim.run import GlobalArray, RunResult
    from gemmgen.spec.model import Spec

Lowered = Callable[[Variant], "KernelIR"]


@dataclass(frozen=True)
class Simulation:
    """What a simulated product gave: ``C``, a new array; ``counters`` with the keys "global", "shared", "fma" and
    "accesses", and "tensor" (flops) where tensor cores multiply; ``faults``, what the kernel did wrong, in the order
    it was found."""

    C: Any
    counters: Mapping[str, Any]
    faults: tuple[Fault, ...]


def simulate(
    spec_or_ir: Spec | KernelIR,
    A: Any,
    B: Any,
    C: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    gpu: str = "h200",
    counted: bool = True,
    **named: Any,
) -> Simulation:
    """Run C = alpha * (A @ B) + beta * C on the simulator, checking every access and counting as ``gpu`` does.

    ``named`` are the operands of the epilogue, as ``bias``; ``aux`` is written in place.

    ``A``, ``B`` and ``C`` are host arrays, which stay as they are (C may be read-only): the result is a new array. A
    spec is lowered to the variant that the arrays need, as on the GPU; a KernelIR is run as it is, so that sizes and
    alignment must suit it. Faults are collected, not raised. ``counted=False`` is quicker: counters of accesses stay
    0. Raises ArgumentError for arrays that a kernel refuses.
    """
    from gemmgen.api.specs import of_type
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.spec.architecture import architecture_problem
    from gemmgen.target import gpu as gpu_named

    target = gpu_named(gpu)
    alpha, beta = scalar("alpha", alpha), scalar("beta", beta)
    only = spec_or_ir if isinstance(spec_or_ir, KernelIR) else None
    program = program_for(of_type(spec_or_ir)) if only is None else _program(only)
    if only is None and (problem := architecture_problem(of_type(spec_or_ir), target.arch)):
        raise ArgumentError(f"{program.name} does not run on {target.title} ({target.arch}): {problem}")
    output = output_for(A, B, program, as_float32(beta)) if C is None else C
    operands = matrices(A, B, output, program) | on_host(named, program)
    steps = plan_of(program, operands, alpha, beta, None if only is None else only.variant, writable=True)
    operands["C"] = operands["C"].twin()
    lowered = lowering(of_type(spec_or_ir)) if only is None else _always(only)
    result = execute(program, steps, lowered, operands, flag("counted", counted))
    return Simulation(operands["C"].values, result.counters, tuple(result.faults))


def lowering(spec: Spec) -> Lowered:
    """Lowers a spec to its variants, each when it is first needed."""
    from gemmgen.api.specs import lower

    made: dict[Variant, KernelIR] = {}

    def lowered(variant: Variant) -> KernelIR:
        if variant not in made:
            made[variant] = lower(spec, variant)
        return made[variant]

    return lowered


def _program(ir: KernelIR) -> Program:
    if ir.program is None:
        raise ArgumentError(f"{ir.name} is not the main kernel of a spec; pass what gemmgen.lower(spec) gives")
    return ir.program


def _always(ir: KernelIR) -> Lowered:
    return lambda _: ir


def plan_of(
    program: Program,
    operands: Mapping[str, Matrix],
    alpha: float,
    beta: float,
    variant: Variant | None = None,
    *,
    writable: bool | None = None,
) -> LaunchPlan:
    """The launch plan of host operands. ``writable``: whether C may be written; None: as its array says."""
    return plan(
        program,
        {name: m.shape for name, m in operands.items()},
        {name: m.strides for name, m in operands.items()},
        {name: m.address for name, m in operands.items()},
        alpha,
        beta,
        writable=operands["C"].writable if writable is None else writable,
        variant=variant,
    )


def execute(
    program: Program, steps: LaunchPlan, lowered: Lowered, operands: Mapping[str, Matrix], counted: bool = True
) -> RunResult:
    """Do what a plan says, on the simulator: C is updated in place. ``counted``: whether accesses are counted."""
    import numpy as np

    from gemmgen.sim.run import Options, merged, run_kernel

    placed = dict(operands)
    orders = {x.name: x.order for x in program.matrices}
    for copy in steps.copies:
        lies = placed[copy.operand]
        if copy.split is not None:
            placed[copy.operand] = in_parts(lies, program.as_read(copy.operand), copy)
        else:
            placed[copy.operand] = copied(lies, orders[copy.operand], copy.leading)
    workspace = np.full(F32.elements(steps.partials), np.nan, F32.numpy_dtype)
    results, options = [], Options(counted=counted)
    for step in steps.steps:
        ir = step.ir(lowered(step.variant))
        arrays = _arrays(program, step, placed, workspace)
        given = {p.name for p in ir.params}
        results.append(
            run_kernel(ir, step.grid, step.scalars, {name: x for name, x in arrays.items() if name in given}, options)
        )
    return merged(results)


def estimated_seconds(steps: LaunchPlan, lowered: Lowered) -> float:
    """About how long ``execute`` takes, in seconds."""
    from gemmgen.sim.cost import estimate_seconds

    return sum(estimate_seconds(step.ir(lowered(step.variant)), step.grid, step.scalars) for step in steps.steps)


def copied(matrix: Matrix, order: str, leading: int) -> Matrix:
    """The copy of an input that a plan asks for: in the spec's order, lines ``leading`` apart, zeros between."""
    import numpy as np

    rows, columns = matrix.shape
    by_rows = order == "row"
    padded = (rows, leading) if by_rows else (leading, columns)
    whole = np.zeros(padded, matrix.values.dtype, order="C" if by_rows else "F")
    whole[:rows, :columns] = matrix.values
    return Matrix.of(whole)


def in_parts(matrix: Matrix, read: Operand, copy: Copy) -> Matrix:
    """The copy of an input whose elements are split: in each line along k one part behind another, zeros between."""
    import numpy as np

    assert copy.split is not None
    lines = matrix.values if read.order == "row" else matrix.values.T
    whole = np.zeros((lines.shape[0], copy.leading), read.dtype.numpy_dtype)
    for number, part in enumerate(copy.split.of(lines)):
        first = number * copy.leading // read.parts
        whole[:, first : first + lines.shape[1]] = part
    return Matrix.of(whole if read.order == "row" else whole.T)


def _arrays(
    program: Program, step: Launch, placed: Mapping[str, Matrix], workspace: NDArray[Any]
) -> dict[str, GlobalArray]:
    """The memory that one launch may touch: of each operand from its first element to its last, and the workspace."""
    from gemmgen.sim.run import GlobalArray

    given = step.arguments
    found = {}
    for name, shape, start, leading in (
        ("A", (given.M, given.K), given.A, given.lda),
        ("B", (given.K, given.N), given.B, given.ldb),
        ("C", (given.M, given.N), given.C, given.ldc),
    ):
        read = program.as_read(name)
        extent, rows = shape[::-1] if read.order == "row" else shape
        if name in step.variant.padded or (read.parts > 1 and extent):
            extent = leading  # zeros to the end of every line, or further parts
        length = (rows - 1) * leading + extent if extent and rows else 0
        length = _through(length, name, given)
        matrix = placed[name]
        align = (matrix.phase + start * read.dtype.bytes) % PAGE
        found[name] = GlobalArray(matrix.flat(start, length), alignment=align or PAGE)
    found |= _beside(program, step, placed)
    found["W"] = GlobalArray(workspace)
    if step.output == "W":
        found["C"] = found["W"]
    return found


def _through(length: int, name: str, given: Arguments) -> int:
    """Elements from the first of a batch of matrices to the last, where one has so many."""
    return length + (given.batch - 1) * dict(given.strides).get(name, 0) if length else 0


def _beside(program: Program, step: Launch, placed: Mapping[str, Matrix]) -> dict[str, GlobalArray]:
    """The operands of the epilogue, each from its first element beside this launch's part of C to its last."""
    from gemmgen.sim.run import GlobalArray

    found, (m, n) = {}, (step.arguments.M, step.arguments.N)
    starts = {name: (at, leading) for name, at, leading in step.arguments.beside}
    for x in program.beside:
        start, leading = starts[x.name]
        shape = x.shape(m, n)
        if x.matrix is None:
            length = shape[0]
        else:
            lines, extent = shape if x.order == "row" else shape[::-1]
            length = (lines - 1) * leading + extent
        length = _through(length, x.name, step.arguments)
        matrix = placed[x.name]
        align = (matrix.phase + start * x.dtype.bytes) % PAGE
        found[x.name] = GlobalArray(matrix.flat(start, length), alignment=align or PAGE)
    return found
