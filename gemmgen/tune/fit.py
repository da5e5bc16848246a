"""Fits the constants of the model of time to measured points, and picks the kernels that ship.

The constants of a kernel are shared by its splits of K and its variants. Each is found by damped least squares on the
logarithms of times; a pull towards the guess keeps what few points say little about. The rates of the GPU are fitted
to all kernels together, by descent along one of them after another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gemmgen.tune import cost
from gemmgen.tune.cost import Kernels, Rates
from gemmgen.tune.features import base_of, guess, kernels_of, layout_of, resident_of
from gemmgen.tune.pool import LAYOUTS, Layout, swaps

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.tune.cover import Cover
    from gemmgen.tune.shapes import Shape

PULL = (0.5, 0.6, 0.25, 0.7, 0.15, 0.35, 0.5)
"""How far, in the logarithm, each constant may easily be from its guess."""
NOISE = 0.05
STEPS = 12
LEAST = 5
"""Points from which a kernel is believed."""
FITTED = (
    "launch", "dram_byte_s", "l2_byte_s", "l2_bytes", "second", "second_byte_s", "cluster", "cluster_part",
)  # fmt: skip


@dataclass(frozen=True)
class Points:
    """Measured points, in the frame of the kernels: ``size`` is what the kernel computes, after a swap."""

    kernel: Any
    variant: Any
    size: tuple[Any, Any, Any]
    seconds: Any
    case: Any
    """The number of the caller's shape."""

    def taken(self, which: Any) -> Points:
        m, n, k = (x[which] for x in self.size)
        return Points(self.kernel[which], self.variant[which], (m, n, k), self.seconds[which], self.case[which])


@dataclass(frozen=True)
class Measured:
    """A file of points."""

    facts: Mapping[str, Any]
    specs: tuple[Spec, ...]
    resident: tuple[int, ...]
    points: Points
    cases: tuple[tuple[int, int, int, str], ...]
    baseline: Any
    copies: tuple[tuple[int, int, int, float], ...]


def read(text: str) -> Measured:
    """The file that ``calibrate`` wrote."""
    import numpy as np

    from gemmgen.spec.parse import parse

    found = json.loads(text)
    specs = tuple(parse(x) for x in found["specs"])
    registers = {(i, v): r for i, v, r in found["registers"]}
    fits = resident_of(specs, registers)
    cases = tuple((m, n, k, layout) for m, n, k, layout, _ in found["baseline"])
    bad = {int(place.split()[0]) for place, why in found["failed"].items() if "wrong" in why}
    number = _cases_of(found, cases, specs)
    lies = [layout_of(s) for s in specs]
    kept = [
        (p, at)
        for p, at in zip(found["points"], number, strict=True)
        if p[0] not in bad and at >= 0 and cases[at][3] == lies[p[0]]
    ]
    rows = np.array([[*p, at] for p, at in kept], float)
    kernel = rows[:, 0].astype(int)
    turned = np.array([swaps(s) for s in specs])[kernel]
    m, n, k = (rows[:, c].astype(int) for c in (2, 3, 4))
    size = np.where(turned, n, m), np.where(turned, m, n), k
    points = Points(kernel, rows[:, 1].astype(int), size, rows[:, 5] * 1e-6, rows[:, 6].astype(int))
    facts = {name: found[name] for name in ("gpu", "driver", "nvrtc", "sms")}
    resident = tuple(fits.get(s, 1) for s in specs)
    return Measured(
        facts, specs, resident, points, cases, np.array([b[4] for b in found["baseline"]]) * 1e-6,
        tuple(map(tuple, found["copies"])),
    )  # fmt: skip


def _cases_of(found: Any, cases: Sequence[Any], specs: Sequence[Spec]) -> list[int]:
    """The case of each point: points follow their case in the order of measuring."""
    at: list[int] = []
    case = 0
    for _, _, m, n, k, _ in found["points"]:
        while case < len(cases) and cases[case][:3] != (m, n, k):
            case += 1
        if case == len(cases):  # not in order: a damaged file
            case = 0
            at.append(-1)
            continue
        at.append(case)
    return at


def modelled(kernels: Kernels, points: Points, rates: Rates) -> Any:
    """Seconds that the model says of each point."""
    some = Kernels(*(getattr(kernels, x)[points.kernel] for x in ("block", "parts", "how", "resident", "constants")))
    return cost.seconds(some, points.size, points.variant, rates)


def fitted(found: Measured, rounds: int = 3) -> tuple[Kernels, Rates]:
    """The constants of every kernel, and the GPU's rates."""
    import numpy as np

    bases: dict[Spec, list[int]] = {}
    for i, spec in enumerate(found.specs):
        bases.setdefault(base_of(spec), []).append(i)
    start = np.array([guess(s) for s in found.specs])
    kernels = replace(kernels_of(found.specs, start.tolist(), found.resident), constants=start.copy())
    rates = replace(_copies(found, Rates(sms=found.facts["sms"])))
    order = {i: base for base, (members) in enumerate(bases.values()) for i in members}
    base_at = np.array([order[i] for i in range(len(found.specs))])[found.points.kernel]
    for turn in range(rounds):
        typical = np.log(start).mean(0) * 0
        for number, members in enumerate(bases.values()):
            own = found.points.taken(base_at == number)
            if len(own.seconds) >= 1:
                values = _fit_one(kernels, own, rates, np.log(start[members[0]]) + typical)
                kernels.constants[members] = np.exp(values)
        rates = _fit_rates(kernels, found.points, rates)
        _share(kernels, found, bases, start, base_at)
        del turn
    return kernels, rates


def _share(kernels: Kernels, found: Measured, bases: Mapping[Spec, list[int]], start: Any, base_at: Any) -> None:
    """Kernels with hardly a point take what kernels like them were found to be, relative to their guesses."""
    import numpy as np

    counts = np.bincount(base_at, minlength=len(bases))
    families: dict[str, list[Any]] = {}
    for number, (base, members) in enumerate(bases.items()):
        if counts[number] >= LEAST:
            ratio = np.log(kernels.constants[members[0]]) - np.log(start[members[0]])
            families.setdefault(_family(base), []).append(ratio)
    for number, (base, members) in enumerate(bases.items()):
        if counts[number] < LEAST and _family(base) in families:
            kernels.constants[members] = np.exp(np.log(start[members[0]]) + np.median(families[_family(base)], 0))
        elif _family(base) in families:
            start[members] = np.exp(np.log(start[members[0]]) + 0.5 * np.median(families[_family(base)], 0))


def _family(spec: Spec) -> str:
    how = next((x for x in ("tma", "cpasync", "smem") if spec.has(x)), "direct")
    return f"{how} {spec.lanes_k > 1} {spec.stages > 1} {spec.A.order} {spec.B.order}"


def _fit_one(kernels: Kernels, own: Points, rates: Rates, prior: Any) -> Any:
    """Logarithms of one kernel's constants by Levenberg and Marquardt's method."""
    import numpy as np

    pull = np.array(PULL)
    weights = 1 / NOISE / np.sqrt(1 + (0.4e-6 / own.seconds) ** 2)

    def off(values: Any) -> Any:
        some = replace(kernels, constants=np.broadcast_to(np.exp(values), kernels.constants.shape))
        misses = (np.log(modelled(some, own, rates)) - np.log(own.seconds)) * weights
        return np.concatenate([np.arcsinh(misses / 3) * 3, (values - prior) / pull])

    x, damping = prior.copy(), 1.0
    r = off(x)
    for _ in range(STEPS):
        j = np.stack([(off(x + 0.01 * e) - r) / 0.01 for e in np.eye(len(x))], 1)
        step = np.linalg.solve(j.T @ j + damping * np.eye(len(x)), -j.T @ r)
        step = np.clip(step, -0.7, 0.7)
        fresh = off(x + step)
        if fresh @ fresh < r @ r:
            x, r, damping = x + step, fresh, damping * 0.4
        else:
            damping *= 4
    return x


def _fit_rates(kernels: Kernels, points: Points, rates: Rates) -> Rates:
    """One rate after another, by factors that shrink."""
    import numpy as np

    def worth(some: Rates) -> float:
        miss = np.abs(np.log(modelled(kernels, points, some)) - np.log(points.seconds))
        return float(np.minimum(miss, 0.5).mean())

    best = worth(rates)
    for factor in (1.2, 1.07, 1.03):
        for name in FITTED:
            for by in (factor, 1 / factor):
                other = replace(rates, **{name: getattr(rates, name) * by})
                if (found := worth(other)) < best:
                    rates, best = other, found
    return rates


def _copies(found: Measured, rates: Rates) -> Rates:
    """The rates of copies: time over bytes of the large ones, and what small ones take at least."""
    import numpy as np

    if not found.copies:
        return rates
    rows = np.array(found.copies)
    bytes_, seconds = 8 * rows[:, 0] * rows[:, 1], rows[:, 3] * 1e-6
    least = float(seconds.min())
    large = bytes_ > 16e6

    def rate(turned: int) -> float:
        these = large & (rows[:, 2] == turned)
        return float(np.median(bytes_[these] / np.maximum(seconds[these] - least, 1e-9))) if these.any() else 1e12

    return replace(rates, copy=least, copy_byte_s=rate(0), turn_byte_s=rate(1))


# --- Judging, and what ships ------------------------------------------------------------------------------------------


def table(found: Measured) -> Any:
    """Seconds of every kernel at every case, the variants' least; infinite where it was not timed."""
    import numpy as np

    seconds = np.full((len(found.cases), len(found.specs)), np.inf)
    p = found.points
    np.minimum.at(seconds, (p.case, p.kernel), p.seconds)
    return seconds


def cover(measured: Any, baseline: Any, size: int) -> list[int]:
    """Kernels picked greedily: each the one that lowers the mean logarithm of the best time most."""
    import numpy as np

    logs = np.log(np.minimum(measured, 3 * measured.min(1, keepdims=True)))
    logs = np.where(np.isfinite(measured), logs, np.log(3 * measured.min(1, keepdims=True)))
    chosen: list[int] = []
    now = np.log(3 * measured.min(1))
    weight = 1 + (measured.min(1) > 0.8 * baseline)  # where there is little to spare, a loss counts more
    for _ in range(size):
        gains = (np.maximum(now[:, None] - logs, 0) * weight[:, None]).sum(0)
        gains[chosen] = 0
        best = int(gains.argmax())
        if gains[best] < 1e-3:
            break
        chosen.append(best)
        now = np.minimum(now, logs[:, best])
    return chosen


SHIPPED = 110
"""Kernels that ship at most."""
PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Into how many parts K may be split by a kernel that a second one follows; by clusters, those up to 8 of the pool."""
DRAWN, SEED = 900, 77
"""Shapes for which the kernels that ship are picked, beside those that were timed."""


def candidates(found: Measured, kernels: Kernels) -> tuple[tuple[Spec, ...], Kernels]:
    """The measured specs, and their splits of K into other numbers of parts, which share their constants."""
    import numpy as np

    counts = np.bincount(found.points.kernel, minlength=len(found.specs))
    bases = [base_of(s) for s in found.specs]
    points = {base: sum(int(counts[i]) for i, b in enumerate(bases) if b == base) for base in set(bases)}
    made: dict[Spec, int] = {}
    for i, spec in enumerate(found.specs):
        if points[bases[i]] >= LEAST:
            made.setdefault(spec, i)
    for spec, i in list(made.items()):
        if spec.split_k > 1 and spec.has("dependentLaunch"):
            for parts in PARTS:
                made.setdefault(spec.replace(split_k=parts), i)
    specs, places = tuple(made), list(made.values())
    fields = {x: getattr(kernels, x)[places] for x in ("block", "how", "resident", "constants")}
    return specs, Kernels(parts=np.array([s.split_k for s in specs]), **fields)


def modelled_table(some: Cover, cases: Sequence[tuple[Shape, Layout]]) -> Any:
    """Modelled seconds of every kernel of a cover at every case, the best of the ways to call it."""
    import numpy as np

    from gemmgen.tune.cover import modelled as at
    from gemmgen.tune.cover import rows_of
    from gemmgen.tune.shapes import packed

    seconds = np.full((len(cases), len(some.specs)), np.inf)
    for row, (shape, layout) in zip(seconds, cases, strict=True):
        rows = rows_of(layout, some)
        np.minimum.at(row, rows.positions, at(shape, packed(shape, layout), rows, some))
    return seconds


def cover_document(found: Measured, arch: str, size: int = SHIPPED) -> tuple[str, dict[str, Any]]:
    """The text of the cover's file, and what is to be said of it: how far the model is off, and what the choice among
    the kernels that ship costs against the best of the pool."""
    import numpy as np

    from gemmgen.tune.cover import Cover, document
    from gemmgen.tune.suite import F32, drawn

    kernels, rates = fitted(found)
    specs, pool = candidates(found, kernels)
    cases = [*drawn(DRAWN, SEED), *((shape, layout) for shape in F32 for layout in LAYOUTS)]
    times = modelled_table(Cover(specs, pool, rates), cases)
    curve = [cover(times, np.zeros(len(cases)), n) for n in (size, size // 2, size // 2 // 2)]
    best = times.min(1)
    chosen = curve[0]
    fields = {x: getattr(pool, x)[chosen] for x in ("block", "parts", "how", "resident", "constants")}
    text = document(tuple(specs[i] for i in chosen), Kernels(**fields), rates, arch=arch, **found.facts)
    miss = np.abs(np.log(modelled(kernels, found.points, rates) / found.points.seconds))
    measured = table(found)
    there = np.isfinite(measured.min(1))
    facts = {
        "candidates": len(specs),
        "points": len(found.points.seconds),
        "median_miss": float(np.median(miss)),
        "cost_of_fewer": {len(c): float(np.exp(np.log(times[:, c].min(1) / best).mean())) for c in curve},
        "best_over_cublas": float(np.exp(np.log(found.baseline[there] / measured.min(1)[there]).mean())),
    }
    return text, facts
