"""Running one launch of a kernel on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmgen.ir.expr import value_of
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.types import F32
from gemmgen.isa.table import Pipe
from gemmgen.sim import count
from gemmgen.sim.cost import blocks_at_once
from gemmgen.sim.faults import Fault
from gemmgen.sim.lanes import Batch, grid_values
from gemmgen.sim.machine import Machine
from gemmgen.sim.memory import GlobalArray
from gemmgen.sim.translate import Translator

__all__ = ["GlobalArray", "Options", "RunResult", "merged", "run_kernel"]


@dataclass(frozen=True)
class Options:
    """``max_faults``: most faults kept. ``memory_bytes``: about how much the state of a batch may take. ``progress`` is
    told after every batch what fraction of the blocks is done. ``counted``: whether accesses are counted; else their
    counters stay 0, and the run is quicker."""

    max_faults: int = 32
    memory_bytes: int = 200 << 20
    progress: Callable[[float], None] | None = None
    counted: bool = True


DEFAULT = Options()


@dataclass(frozen=True)
class RunResult:
    """What a launch did wrong, and what it cost. ``counters`` has the keys global, shared, fma and accesses; ``math``
    are the flops of each pipe."""

    faults: tuple[Fault, ...]
    counters: dict[str, Any]
    math: Mapping[Pipe, int] = field(default_factory=dict)


def run_kernel(
    ir: KernelIR,
    grid: tuple[int, int, int],
    scalars: Mapping[str, int | float],
    arrays: Mapping[str, GlobalArray],
    options: Options = DEFAULT,
) -> RunResult:
    """Run every block of ``grid`` (blocks along x, y, z).

    ``scalars`` are the kernel's other arguments by name (M, N, K, alpha, lda, ldb, beta, ldc), ``arrays`` the matrices
    A, B and C, each of its own type; C is written in place. Arithmetic is in float32, every operation rounded; NaN and
    Inf travel. A 16-bit element widens exactly, and a float32 is rounded to one to nearest even. A fault does not end
    the run: a read outside gives 0, a write outside is dropped. Raises ValueError for a kernel that is not well formed
    (an unknown variable, registers indexed by thread), and for arrays of other types than it has.
    """
    known = {**_as_parameters(ir, scalars), **grid_values(grid)}
    machine = Machine(ir, known, dict(arrays), options.max_faults, options.counted)
    program = Translator(machine).program()
    total = grid[0] * grid[1] * grid[2]
    cluster = value_of(ir.cluster) or 1
    step = blocks_at_once(ir, total, options.memory_bytes)
    with np.errstate(all="ignore"):
        for first in range(0, total, step):
            machine.start(Batch(first, min(step, total - first), ir.threads, grid, cluster))
            for wait in program.go(None):
                if not wait.ready():
                    machine.fault("deadlock", "program", wait.what, 0, (), None, "nothing can end this wait")
                    break
            machine.end()
            if options.progress is not None:
                options.progress(min(1.0, (first + step) / total))
    return RunResult(tuple(machine.log.faults), count.counters(machine.sites, machine.math), dict(machine.math))


def merged(results: Sequence[RunResult]) -> RunResult:
    """Several launches as one: all faults, counts added up."""
    math = sum((Counter(r.math) for r in results), Counter[Pipe]())
    return RunResult(tuple(f for r in results for f in r.faults), count.merged(r.counters for r in results), dict(math))


def _as_parameters(ir: KernelIR, scalars: Mapping[str, int | float]) -> dict[str, int | float]:
    """The arguments as the kernel receives them: float ones in float32, without those that it does not take."""
    floats = {p.name for p in ir.params if p.kind == "float"}
    taken = {k: v for k, v in scalars.items() if k in floats or not isinstance(v, float)}
    return {k: float(F32.numpy_dtype.type(v)) if k in floats else int(v) for k, v in taken.items()}
