"""``gemmgen ablate``: a spec with each of its optimisations removed in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gemmgen.cli import exits, output
from gemmgen.cli.explain import DEFAULT, GpuOption, SizeOption, named_gpu
from gemmgen.cli.options import Json, OneSpec, Set, Size
from gemmgen.cli.specs import load_specs
from gemmgen.ir.types import F32

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.report.ablation import Ablation, Cost
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu

WORKERS = 4
CHECKED_AT_MOST = 300
"""Rows and columns of the product that shows an ablation to be right in the simulator."""


def ablate(
    spec: OneSpec, size: SizeOption = None, gpu: GpuOption = None, settings: Set = None, json: Json = False
) -> int:
    """Remove each toggle of a spec in turn, and show what it is worth.

    Toggles that need it are removed with it, and listed. Each remaining spec is run in the simulator and checked.
    Counts are exact, times modelled. On a GPU each is timed too. Examples:

      gemmgen ablate warptile

      gemmgen ablate vectorized --size 1024 --json
    """
    from gemmgen.api.specs import refuse_unfit
    from gemmgen.report.ablation import ablation_table, ablations
    from gemmgen.target import gpu as gpu_named

    [whole] = load_specs([spec], settings)
    at = size or DEFAULT
    target = gpu_named(named_gpu(gpu))
    refuse_unfit(whole, target)
    with output.progress(f"ablating {whole.name}") as shown:
        costs = all_costs(whole, [fitting(one, target) for one in ablations(whole)], at, target.name, shown)
        timed = with_times(whole, costs, at, shown) or with_records(whole, costs, at, target)
    wrong = [c.ablation.without for c in costs if c.right is False]
    if json:
        rows = [c.to_dict() for c in timed or costs]
        output.print_json({"kernel": whole.name, "size": list(at), "gpu": named_gpu(gpu), "ablations": rows})
    elif not costs:
        output.result(f"{whole.name} has no toggle or setting to remove.")
    else:
        output.result(f"{whole.name} at {at}\n\n{ablation_table(timed or costs, timed is not None)}")
    if wrong:
        output.say(f"error: wrong results without {', '.join(wrong)}")
    return exits.FAILED if wrong else exits.OK


def fitting(one: Ablation, gpu: Gpu) -> Ablation:
    """The ablation, with no spec where that would not run on the GPU."""
    from gemmgen.api.specs import unfit

    why = None if one.spec is None else unfit(one.spec, gpu.arch)
    return one if why is None else replace(one, spec=None, why=why)


def all_costs(whole: Spec, found: list[Ablation], size: Size, gpu: str, shown: output.Progress) -> list[Cost]:
    """What each ablation costs. Compilers and disassemblers run while the simulator does."""
    from concurrent.futures import ThreadPoolExecutor

    import gemmgen
    from gemmgen.report.ablation import Cost

    with ThreadPoolExecutor(WORKERS) as workers:
        before = gemmgen.explain(whole, *size, gpu=gpu) if any(one.spec for one in found) else None
        specs = [one.spec for one in found if one.spec is not None]
        explained = dict(zip(specs, [workers.submit(gemmgen.explain, s, *size, gpu=gpu) for s in specs], strict=True))

        def cost_of(one: Ablation) -> Cost:
            shown.update(f"{whole.name} without {one.without}")
            if one.spec is None or before is None:
                return Cost(one, None, ())
            return cost(one, is_right(one.spec), before, explained[one.spec].result())

        return [cost_of(one) for one in found]


def cost(one: Ablation, right: bool, before: Explanation, after: Explanation) -> Cost:
    """What an ablation costs in counts."""
    from gemmgen.analysis.printed import unread_text
    from gemmgen.report.ablation import Cost
    from gemmgen.report.delta import figures

    return Cost(one, right, tuple(figures(before, after)), note=unread_text((before, after)))


def is_right(spec: Spec) -> bool:
    """Whether a product that meets every edge of the spec's tiles is right in the simulator, and faultless."""
    import numpy as np

    import gemmgen
    from gemmgen.api.beside import drawn

    bm, bn, bk = spec.block
    m, n = (min(CHECKED_AT_MOST, extent + extent // 2 + 1) for extent in (bm, bn))
    k = spec.stages * max(bk, 8) + max(bk, 8) + 1
    random = np.random.default_rng(0)
    a, b = (
        random.standard_normal(shape, dtype=F32.numpy_dtype).astype(matrix.dtype.numpy_dtype)
        for matrix, shape in zip(spec.matrices, ((m, k), (k, n)), strict=False)
    )
    beside = drawn(spec, m, n)
    done = gemmgen.simulate(spec, a, b, counted=False, **beside)
    return not done.faults and gemmgen.verify(done.C, a, b, spec=spec, **beside).ok


def with_times(whole: Spec, costs: list[Cost], size: Size, shown: output.Progress) -> list[Cost] | None:
    """The costs with measured times, all in one run; None where there is no GPU."""
    from gemmgen.cli.timing import Baseline, compare
    from gemmgen.runtime.device import current

    legal = [c.ablation.spec for c in costs if c.ablation.spec is not None]
    if current() is None or not legal:
        return None
    done = compare([whole, *legal], size, warm=False, progress=shown.update, baseline=Baseline.none)
    first, *rest = [1e3 * t.median_s for t in done.kernels]
    times = iter(rest)
    return [
        replace(c, milliseconds=next(times), whole_milliseconds=first) if c.ablation.spec is not None else c
        for c in costs
    ]


def with_records(whole: Spec, costs: list[Cost], size: Size, gpu: Gpu) -> list[Cost] | None:
    """The costs with times that were recorded on this GPU; None where there are none."""
    from gemmgen.analysis.ablated import measured_change

    found = []
    for c in costs:
        row = measured_change(whole, c.ablation.spec, size, gpu) if c.ablation.spec is not None else None
        if row is not None:
            before, after = 1e3 * row.before_s, 1e3 * row.after_s
            c = replace(c, milliseconds=after, whole_milliseconds=before, source=row.source)
        found.append(c)
    return found if any(c.source for c in found) else None
