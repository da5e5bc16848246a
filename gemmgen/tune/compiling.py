"""Compiles candidates for a GPU, and judges them by what the compiler made of them, before anything is timed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gemmgen.diagnostics import CompileError, GemmgenError
from gemmgen.spec.effort import slow_to_compile
from gemmgen.tune.backend import Compiled, Failed

if TYPE_CHECKING:
    from gemmgen.ir.variant import Variant
    from gemmgen.runtime.build import Built
    from gemmgen.runtime.target import Target
    from gemmgen.spec.model import Spec
    from gemmgen.tune.shapes import Shape

PORT_STALL = 0.6
"""Clocks that each multiply-add may wait for register ports: three reads of one bank, every time, are more."""

SERIALISED = "C7512"
"""ptxas's warning that it cannot let wgmma run on: it waits behind each."""


def variants_for(spec: Spec, shape: Shape) -> list[Variant]:
    """The variants that a product of packed matrices launches."""
    from gemmgen.launch import plan_aligned
    from gemmgen.tune.features import own_shape

    m, n, k = own_shape(spec, shape)
    orders = (spec.A.order, spec.B.order, spec.C.order)
    sizes = ((m, k), (k, n), (m, n))
    strides = tuple((c, 1) if o == "row" else (1, r) for (r, c), o in zip(sizes, orders, strict=True))
    plan = plan_aligned(spec, shape, strides, (0, 0, 0), 1.0, 0.0)
    return list(dict.fromkeys(step.variant for step in plan.steps))


def compile_candidate(spec: Spec, shape: Shape, target: Target) -> Compiled | Failed:
    """Compile what the shape needs into the cache, and judge it. The figures are the worst of the variants'."""
    from gemmgen.api.specs import lower, parse
    from gemmgen.cuda.emit import emit_cuda
    from gemmgen.runtime.build import compile_target

    spec = parse(as_sent(spec))  # the text of the kernel, its comments included, is what the process that runs it makes
    found: list[Compiled] = []
    try:
        for variant in variants_for(spec, shape):
            ir = lower(spec, variant)
            built = compile_target(
                emit_cuda(ir), replace(target, arch=ir.target(target.arch)), name=ir.name, slow=slow_to_compile(spec)
            )
            judged = _judge(spec, built)
            if isinstance(judged, Failed):
                return judged
            found.append(judged)
    except CompileError as error:
        return Failed("compile", _first_lines(str(error)))
    except GemmgenError as error:
        return Failed("rejected", _first_lines(str(error)))
    return Compiled(
        max((c.registers for c in found if c.registers is not None), default=None),
        max((c.spill_bytes for c in found if c.spill_bytes is not None), default=None),
        max((c.port_stall for c in found if c.port_stall is not None), default=None),
    )


def as_sent(spec: Spec) -> str:
    """The spec as it is handed to the process that runs it."""
    return spec.to_text(comment=False)


def _first_lines(text: str) -> str:
    return " ".join(text.split())[:300]


def _judge(spec: Spec, built: Built) -> Compiled | Failed:
    if built.resources is None:  # PTX: the driver compiles it when it is loaded
        return Compiled()
    registers, spilled = built.resources.registers, built.resources.spill_bytes
    if spilled:
        return Failed("spills", f"{spilled} bytes per thread spill to local memory ({registers} registers)")
    if SERIALISED in built.log:
        return Failed("rejected", f"ptxas makes each wgmma wait for the one before it (its warning {SERIALISED})")
    stall = _port_stall(spec, built.code)
    if isinstance(stall, Failed):
        return stall
    if stall is not None and stall > PORT_STALL:
        return Failed("rejected", f"each multiply-add of the main loop waits {stall:.2f} clocks for register ports")
    return Compiled(registers, spilled, stall)


def _port_stall(spec: Spec, cubin: bytes) -> float | Failed | None:
    """Of the main loop's machine code; None where nvdisasm is not installed, or no loop multiplies."""
    from gemmgen.analysis.sass import loops, main_loop
    from gemmgen.runtime.installed import find_tool
    from gemmgen.runtime.sass import disassemble

    if find_tool("nvdisasm") is None:
        return None
    text = disassemble(cubin)
    hot = main_loop(text)
    if hot is None:
        return None
    if spec.has("separators"):
        sums = spec.piece[0] * spec.piece[1] * spec.warp_iterations[0] * spec.warp_iterations[1]
        steps = spec.unroll or spec.block[2]
        kept = sum(1 for loop in loops(text) if 0 < loop.ffma <= 1.5 * sums)
        if 2 * kept < steps:
            return Failed("rejected", f"the compiler took separators away: {kept} of {steps} steps are closed")
    return hot.port_stall
