"""``gemmgen.explain``: gathers what the analysis needs, and what the compiler knows where it can be asked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, flag, whole_number
from gemmgen.spec.effort import slow_to_compile

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Compiled, Explanation
    from gemmgen.analysis.sass import MainLoop
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.launch import LaunchPlan
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu

ADDRESSES = 1 << 57
"""Bytes that processors address at most (five levels of page tables; GPUs fewer)."""


def explain(
    spec: Spec, m: int, n: int, k: int, gpu: str | Gpu = "h200", beta: float = 0.0, compiled: bool = True
) -> Explanation:
    """Why ``spec`` is as fast as it is for an ``m`` x ``n`` x ``k`` product of packed matrices on ``gpu``.

    Counts are exact, at any size; times are modelled. Registers and spills come from NVRTC, where it is installed
    and ``compiled`` is left as it is.
    ``gpu`` is a row of ``gemmgen.target.GPUS`` or its name. Raises ArgumentError for an unknown GPU, or one that lacks
    what the spec needs, a negative size, or a product that cannot be launched.
    """
    from gemmgen.analysis.explain import Step, explained
    from gemmgen.api.operands import scalar
    from gemmgen.api.specs import checked, lower, refuse_unfit
    from gemmgen.cuda.emit import emit_with_lines
    from gemmgen.ir.variant import EXACT
    from gemmgen.launch import as_float32
    from gemmgen.target import gpu as gpu_named

    spec, target, size = checked(spec), gpu_named(gpu), _size(spec, m, n, k)
    refuse_unfit(spec, target)
    beta = as_float32(scalar("beta", beta))
    plan = _plan(spec, size, beta)
    ir = lower(spec, plan.steps[0].variant if plan.steps else EXACT)
    steps = tuple(
        Step(
            step.grid,
            step.scalars,
            {x.name: getattr(step.arguments, x.name) * x.dtype.bytes for x in spec.matrices},
            None if step.kernel == "main" else step.ir(ir),
        )
        for step in plan.steps
    )
    emitted = emit_with_lines(ir)
    made = _compiled(ir, emitted.text, target, slow_to_compile(spec)) if flag("compiled", compiled) else None
    copies = {copy.operand: copy.bytes for copy in plan.copies}
    found = explained(spec, ir, size, target, steps, beta, made, emitted.lines, copies)
    return found if made is None else replace(found, again=partial(_again, size=size, gpu=target, beta=beta))


def _again(other: Spec, size: tuple[int, int, int], gpu: Gpu, beta: float) -> Explanation:
    """Another spec for the same product; where it would take long to compile, as it is written."""
    return explain(other, *size, gpu=gpu, beta=beta, compiled=not slow_to_compile(other))


def launches(spec: Spec, size: tuple[int, int, int], beta: float = 0.0) -> int:
    """How many kernels a product of packed matrices launches."""
    return len(_plan(spec, size, beta).steps)


def _plan(spec: Spec, size: tuple[int, int, int], beta: float) -> LaunchPlan:
    from gemmgen.analysis.advice import pitches
    from gemmgen.launch import plan_aligned

    return plan_aligned(spec, size, _strides(spec, pitches(spec, size)), (0, 0, 0), 1.0, beta)


def _size(spec: Spec, *size: Any) -> tuple[int, int, int]:
    m, n, k = (whole_number(name, value) for name, value in zip("mnk", size, strict=True))
    for x, (rows, columns) in zip(spec.matrices, ((m, k), (k, n), (m, n)), strict=True):
        if rows * columns * x.dtype.bytes > ADDRESSES:
            raise ArgumentError(f"{x.name} would be {rows}x{columns}, more than the 2^57 bytes that have addresses")
    return m, n, k


def _strides(spec: Spec, leading: tuple[int, int, int]) -> tuple[tuple[int, int], ...]:
    orders = (spec.A.order, spec.B.order, spec.C.order)
    return tuple((ld, 1) if order == "row" else (1, ld) for ld, order in zip(leading, orders, strict=True))


def _compiled(ir: KernelIR, text: str, gpu: Gpu, slow: str) -> Compiled | None:
    """Registers and spills by NVRTC; None where it is missing, or knows no architecture that runs on the GPU."""
    from gemmgen.analysis.explain import Compiled
    from gemmgen.diagnostics import CompileError
    from gemmgen.runtime.nvrtc import compile_cubin

    try:
        compiled = compile_cubin(text, ir.target(gpu.arch), name=ir.name, slow=slow)
    except CompileError:
        return None
    return Compiled(compiled.resources.registers, compiled.resources.spill_bytes, gpu.arch, _loop(compiled.cubin))


def _loop(cubin: bytes) -> MainLoop | None:
    """The main loop of the machine code; None where nvdisasm is missing. What was read is kept in the cache."""
    from gemmgen.analysis import sass
    from gemmgen.diagnostics import CompileError
    from gemmgen.runtime.cache import Entry, default_cache, key_of
    from gemmgen.runtime.installed import tool_identity
    from gemmgen.runtime.sass import disassemble

    tool, store = tool_identity("nvdisasm"), default_cache()
    if tool is None:
        return None
    key = key_of("main loop", Path(sass.__file__).read_bytes(), tool, cubin)
    if (hit := store.get(key)) is not None:
        return sass.of_kept(hit.facts)
    try:
        found = sass.main_loop(disassemble(cubin))
    except CompileError:
        return None
    store.put(key, Entry(sass.kept(found), b""))
    return found
