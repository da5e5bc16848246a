"""Launch planning, without touching memory: shapes, strides and addresses become launches for GPU and simulator."""

from __future__ import annotations

from gemmgen.ir.variant import EXACT, GUARDED, GUARDED_UNALIGNED, VARIANTS, Variant
from gemmgen.launch.launches import HARDWARE, LARGEST, Arguments, Launch, LaunchPlan, Limits, kernel_of
from gemmgen.launch.placement import OPERANDS, Copy
from gemmgen.launch.planning import as_float32, plan, plan_aligned, program_for, sizes

__all__ = [
    "EXACT", "GUARDED", "GUARDED_UNALIGNED", "HARDWARE", "LARGEST", "OPERANDS", "VARIANTS", "Arguments", "Copy",
    "Launch", "LaunchPlan", "Limits", "Variant", "as_float32", "kernel_of", "plan", "plan_aligned", "program_for",
    "sizes",
]  # fmt: skip
