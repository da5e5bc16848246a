"""Measures a pool of kernels at many random shapes: what the constants of the model of time are fitted to.

Kernels are compiled by as many processes as there are processors, checked, and timed by graph replay, each shape with
those that the model does not put far behind. What comes out is a file of points: which kernel, which variant, which
shape, how long.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.ir.types import F32, VECTOR_BYTES
from gemmgen.tune import cost
from gemmgen.tune.bench import VARIANTS, Bench
from gemmgen.tune.features import kernels_of, layout_of, resident_of
from gemmgen.tune.pool import LAYOUTS, Layout, pool, swaps
from gemmgen.tune.shapes import Shape

if TYPE_CHECKING:
    from gemmgen.runtime.target import Target
    from gemmgen.spec.model import Spec

FAR = 2.2
"""A kernel that takes so many times the fastest so far is not timed further."""
MOST = 48
"""Kernels timed at one shape, beside those drawn at random."""
DRAWN = 8
SLOW_S = 0.0015
"""From here on a shape gets fewer kernels."""
LARGEST_SUMS = 1 << 28
"""Elements of partial sums, beyond which a kernel is not timed."""
CHECKED = (196, 312, 520)
RAGGED = (197, 311, 519)

Say = Callable[[str], None]
Case = tuple[Shape, Layout]


@dataclass(frozen=True)
class Plan:
    """What to measure: shapes with layouts, seconds in all, and processes that compile."""

    cases: Sequence[Case]
    seconds: float
    jobs: int
    name: str = "matmul"


@dataclass
class Found:
    """What was measured. ``points`` are (kernel, variant, M, N, K of the caller, microseconds)."""

    specs: list[Spec]
    facts: dict[str, Any] = field(default_factory=dict)
    registers: dict[tuple[int, int], int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    points: list[tuple[int, int, int, int, int, float]] = field(default_factory=list)
    baseline: list[tuple[int, int, int, str, float]] = field(default_factory=list)
    copies: list[tuple[int, int, int, float]] = field(default_factory=list)

    def to_json(self) -> str:
        registers = [[i, v, r] for (i, v), r in self.registers.items()]
        texts = [s.to_text(comment=False) for s in self.specs]
        rest = {"failed": self.failed, "points": self.points, "baseline": self.baseline, "copies": self.copies}
        return json.dumps({**self.facts, "specs": texts, "registers": registers, **rest}, separators=(",", ":"))


# --- What to compile --------------------------------------------------------------------------------------------------


def _in_fours(count: int) -> int:
    """The next multiple of the elements of an access of 16 bytes."""
    four = F32.elements(VECTOR_BYTES)
    return -(-count // four) * four


def kernels_to_measure(name: str = "matmul") -> list[tuple[Spec, tuple[int, ...]]]:
    """Specs of all layouts, each once, with the numbers of the variants to measure."""
    specs = list(dict.fromkeys(spec for layout in LAYOUTS for spec in pool(layout, name)))
    return [(spec, wanted) for i, spec in enumerate(specs) if (wanted := _variants(i, spec))]


def _variants(i: int, spec: Spec) -> tuple[int, ...]:
    """At any size and alignment all of them, and a quarter of them for whole tiles."""
    return (cost.GUARDED, cost.UNALIGNED, *((cost.EXACT,) if i % 4 == 0 else ()))


def _compile(text: str, number: int, target: Target) -> tuple[int | None, str]:
    """Registers of a variant, compiled into the cache; or why there is none."""
    from gemmgen.api import ready
    from gemmgen.api.specs import parse

    try:
        found = ready.keep(parse(text), VARIANTS[number], target)
        resources = found.part("main")[1].resources
    except GemmgenError as error:
        return None, " ".join(str(error).split())[:200]
    if resources is None:
        return 0, ""
    return (None, f"{resources.spill_bytes} bytes spilled") if resources.spill_bytes else (resources.registers, "")


def compiled(
    found: Found, wanted: Sequence[tuple[Spec, tuple[int, ...]]], target: Target, jobs: int, end: float, say: Say
) -> None:
    """Compile every variant, the guarded ones first; what is not done at ``end`` is left out."""
    work = sorted(((v != cost.GUARDED, i, v) for i, (_, numbers) in enumerate(wanted) for v in numbers))
    executor = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        started = {
            executor.submit(_compile, wanted[i][0].to_text(comment=False), v, target): (i, v) for _, i, v in work
        }
        for n, future in enumerate(as_completed(started, timeout=max(1.0, end - time.perf_counter()))):
            registers, why = future.result()
            place = started[future]
            if registers is None:
                found.failed[f"{place[0]} {place[1]}"] = why
            else:
                found.registers[place] = registers
            if n % 100 == 0:
                say(f"{n} of {len(work)} compiled")
    except TimeoutError:
        say(f"no time left: {len(found.registers)} of {len(work)} compiled")
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


# --- Timing -----------------------------------------------------------------------------------------------------------


def is_aligned(shape: Shape, layout: Layout) -> bool:
    """Whether every row (or column) of packed operands starts at a multiple of 16 bytes."""
    m, n, k = shape
    return (k if layout[0] == "n" else m) % 4 == 0 and (n if layout[1] == "n" else k) % 4 == 0 and n % 4 == 0


def timed(found: Found, bench: Bench, plan: Plan, target: Target, end: float, keep: Callable[[], None]) -> None:
    """Time the cases, one after another, until ``end``."""
    from gemmgen.runtime.baseline import Cublas

    resident = resident_of(found.specs, found.registers)
    cublas = Cublas(bench.device)
    checked: dict[tuple[int, int], bool] = {}
    rng = random.Random(0)
    place = {spec: i for i, spec in enumerate(found.specs)}
    rows = {x: [place[s] for s in pool(x, plan.name) if s in place and layout_of(s) == x] for x in LAYOUTS}
    models = {
        x: kernels_of([found.specs[i] for i in rows[x]], None, [resident.get(found.specs[i], 1) for i in rows[x]])
        for x in LAYOUTS
    }
    for number, (shape, layout) in enumerate(plan.cases):
        if time.perf_counter() > end:
            break
        _case(found, bench, checked, shape, layout, target, cublas, models[layout], rows[layout], rng)
        if number % 20 == 19:
            keep()
    keep()


def _case(
    found: Found, bench: Bench, checked: dict[tuple[int, int], bool], shape: Shape, layout: Layout, target: Target,
    cublas: Any, model: cost.Kernels, rows: list[int], rng: random.Random,
) -> None:  # fmt: skip
    """Time cuBLAS and the kernels of a layout at one shape."""
    a, b, c = bench.operands(shape, layout)
    theirs = partial(cublas.enqueue, a, b, c, 1.0, 0.0, bench.stream)
    best = bench.replayed(theirs, max(2e-6, bench.once(theirs)))
    found.baseline.append((*shape, layout, round(best * 1e6, 3)))
    variant = cost.GUARDED if is_aligned(shape, layout) else cost.UNALIGNED
    order = list(_order(found, model, rows, shape, variant, cost.Rates(), rng))
    for place, i in enumerate(order):
        if place > (MOST + DRAWN if best < SLOW_S else DRAWN):
            break
        if found.specs[i].split_k * shape[0] * shape[1] > LARGEST_SUMS:
            continue
        for v in (variant, cost.EXACT):
            if (i, v) not in found.registers or (v != variant and variant != cost.GUARDED):
                continue
            seconds = _point(found, bench, checked, (i, v), shape, layout, target, best)
            if seconds is not None:
                best = min(best, seconds)
                found.points.append((i, v, *shape, round(seconds * 1e6, 3)))


def _divides(gemm: Any, shape: Shape) -> bool:
    m, n, k = (shape[1], shape[0], shape[2]) if swaps(gemm.spec) else shape
    return all(extent % tile == 0 for extent, tile in zip((m, n, k), gemm.program.tile, strict=True))


def _order(
    found: Found,
    model: cost.Kernels,
    rows: list[int],
    shape: Shape,
    variant: int,
    rates: cost.Rates,
    rng: random.Random,
) -> Iterator[int]:
    """The kernels to time at a shape: by the model, with some drawn from those it does not put first."""
    import numpy as np

    m, n, k = shape
    turned = np.array([swaps(found.specs[i]) for i in rows])
    size = np.where(turned, n, m), np.where(turned, m, n), np.full(len(rows), k)
    s = cost.seconds(model, size, np.full(len(rows), variant), rates)
    order = [int(j) for j in np.argsort(s) if (rows[int(j)], variant) in found.registers]
    near = [j for j in order if s[j] < 6 * s[order[0]]] if order else []
    first = near[:MOST]
    drawn = rng.sample(near[MOST:], min(DRAWN, len(near[MOST:])))
    yield from (rows[j] for j in (*first[:8], *drawn, *first[8:]))


def _point(
    found: Found, bench: Bench, checked: dict[tuple[int, int], bool], place: tuple[int, int], shape: Shape,
    layout: Layout, target: Target, best: float,
) -> float | None:  # fmt: skip
    """Seconds of a kernel at a shape; None where it is far behind, wrong, or cannot be launched."""
    i, v = place
    spec = found.specs[i]
    if checked.get(place) is False:
        return None
    try:
        gemm = bench.gemm(spec, v, target)
        if v == cost.EXACT and not _divides(gemm, shape):
            return None
        if place not in checked:
            small = _check_shape(gemm, v)
            worst = bench.error(bench.call_of(gemm, small, layout), small, layout)
            checked[place] = worst <= 1
            if worst > 1:
                found.failed[f"{i} {v}"] = f"wrong in {layout} by {worst:.3g} times the bound"
                return None
        call_it = bench.call_of(gemm, shape, layout)
        roughly = bench.once(call_it)
        if roughly > FAR * best + 25e-6:
            return None
        return bench.replayed(call_it, max(2e-6, roughly))
    except GemmgenError as error:
        checked[place] = False
        found.failed[f"{i} {v}"] = f"{type(error).__name__}: {error}"[:200]
        return None


def _check_shape(gemm: Any, number: int) -> Shape:
    if number == cost.EXACT:
        bm, bn, bk = gemm.program.tile
        m, n, k = 2 * bm, 2 * bn, -(-max(3 * bk * gemm.spec.split_k, 512) // bk) * bk
        m, n = _in_fours(m) if bm == 1 else m, n
        return (n, m, k) if swaps(gemm.spec) else (m, n, k)
    return CHECKED if number == cost.GUARDED else RAGGED


def copies_timed(found: Found, bench: Bench, seed: int = 0) -> None:
    """Copies of A to padded lines, transposed or not: (rows, columns, transposed, microseconds)."""
    from gemmgen.runtime.copies import Copies, dense
    from gemmgen.runtime.memory import DeviceArray

    rng = random.Random(seed)
    into = DeviceArray.empty((1, 1 << 27), F32.numpy, bench.device.ordinal)
    for _ in range(24):
        rows, columns = (round(math.exp(rng.uniform(math.log(64), math.log(8192)))) for _ in range(2))
        if rows * columns > 1 << 26:
            continue
        for turned in (False, True):
            strides = (1, rows) if turned else (columns, 1)
            made = Copies(bench.device, {0: dense((rows, columns), strides, "row", _in_fours(columns))})
            call_it = partial(made, bench.slabs[0].address, 0, into.address, bench.stream)
            found.copies.append((rows, columns, int(turned), round(bench.replayed(call_it, 1e-5) * 1e6, 3)))
    into.free()


def calibrate(plan: Plan, out: Path, say: Say = print) -> Found:
    """Compile, check and time; the file is written as it goes. Raises LaunchError where there is no GPU."""
    from gemmgen.runtime import device as devices
    from gemmgen.runtime.driver import on_device
    from gemmgen.runtime.nvrtc import supported_archs
    from gemmgen.runtime.target import choose_target
    from gemmgen.tune.gpu import machine_of

    start = time.perf_counter()
    device = devices.required()
    target = choose_target(device.cc, supported_archs())
    wanted = kernels_to_measure(plan.name)
    found = Found([spec for spec, _ in wanted])
    machine = machine_of(device)
    found.facts = {"gpu": machine.gpu, "driver": machine.driver, "nvrtc": machine.nvrtc, "sms": device.sms}
    end = start + plan.seconds
    compiled(found, wanted, target, plan.jobs, start + 0.6 * plan.seconds, say)
    say(f"{time.perf_counter() - start:.0f} s: {len(found.registers)} variants, {len(found.failed)} failed")
    sizes = [(m * k, k * n, m * n) for (m, n, k), _ in plan.cases]
    elements = tuple(max(1 << 22, *(s[x] for s in sizes)) for x in range(3))
    with on_device(device.ordinal):
        bench = Bench(device, (elements[0], elements[1], elements[2]))
        copies_timed(found, bench)
        timed(found, bench, plan, target, end, lambda: _write(found, out))
    say(f"{time.perf_counter() - start:.0f} s: {len(found.points)} points at {len(found.baseline)} shapes")
    return found


def _write(found: Found, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(found.to_json(), encoding="utf-8")
