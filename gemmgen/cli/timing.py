"""Kernels of specs timed beside one another, and beside cuBLAS where it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from gemmgen.cli import output
from gemmgen.cli.memory import refuse_too_large
from gemmgen.cli.options import Size

if TYPE_CHECKING:
    from gemmgen.report.bench import Comparison
    from gemmgen.runtime.baseline import Cublas
    from gemmgen.runtime.cutlass import Cutlass
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.problem import Types
    from gemmgen.runtime.timing import Side
    from gemmgen.spec.model import Spec


class Baseline(StrEnum):
    """What to compare with: ``auto`` is cuBLAS where a package that gives it is installed."""

    auto = "auto"
    cublas = "cublas"
    cutlass = "cutlass"
    none = "none"


def compare(
    specs: Sequence[Spec],
    size: Size,
    *,
    warm: bool,
    progress: Callable[[str], None],
    baseline: Baseline = Baseline.auto,
) -> Comparison:
    """Check and time the kernels of specs at one size on the GPU, the baseline in the same run.

    Raises LaunchError where there is no GPU, WrongResult where a kernel is wrong, BaselineError where the baseline
    fails: then there is no comparison.
    """
    import gemmgen
    from gemmgen.api.specs import types_timed
    from gemmgen.report.bench import Comparison
    from gemmgen.runtime.device import required
    from gemmgen.runtime.timing import KernelSide, bench

    device = required()
    refuse_too_large(size)
    if baseline is Baseline.cutlass:
        progress("compiling CUTLASS's kernel")
    types = types_timed(specs)
    other = other_side(baseline, device, size, types)
    try:
        sides: list[Side] = []
        for spec in specs:
            progress(f"compiling {spec.name}")
            sides.append(KernelSide(spec.name, gemmgen.compile(spec, "cuda")))
        if other is not None:
            sides.append(other)
        done = bench(sides, size, warm=warm, progress=lambda doing: progress(f"{size}: {doing}"), types=types)
        template = getattr(other, "template", None)
        return Comparison(
            done, other.description if other else None, tuple(specs), None if template is None else template.to_dict()
        )
    finally:
        if other is not None:
            other.close()


def other_side(baseline: Baseline, device: Device, size: Size, types: Types | None = None) -> Cublas | Cutlass | None:
    """What to compare with, ready to run. Raises BaselineError where it was asked for and cannot be had."""
    from gemmgen.runtime.baseline import Cublas
    from gemmgen.runtime.cutlass import Cutlass
    from gemmgen.runtime.problem import FLOATS

    if types not in (None, FLOATS):
        return _typed_side(baseline, device, types)
    if baseline is Baseline.cutlass:
        return Cutlass(device, size)
    return Cublas(device) if wants_cublas(baseline) else None


def _typed_side(baseline: Baseline, device: Device, types: Types | None) -> Cublas | None:
    """The same for other types than float32, which CUTLASS's kernel here does not multiply."""
    from gemmgen.runtime.baseline import BaselineError
    from gemmgen.runtime.typed import TypedCublas

    if baseline is Baseline.cutlass:
        raise BaselineError("the baseline of CUTLASS multiplies float32 only; compare with cuBLAS")
    return TypedCublas(device, types) if types is not None and wants_cublas(baseline) else None


def wants_cublas(baseline: Baseline) -> bool:
    """Whether to compare with cuBLAS; says so where it is only for want of a package that it is not."""
    match baseline:
        case Baseline.cublas:
            return True
        case Baseline.none | Baseline.cutlass:
            return False
        case Baseline.auto:
            from gemmgen.runtime.cublas import installed

            there = installed()
            if not there:
                output.say("no comparison with cuBLAS: pip install 'gemmgen[bench]' brings it")
            return there
