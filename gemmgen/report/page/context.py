"""The input of the templates: facts as rows, bars, pictures and text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.analysis.ablated import TOO_SMALL, too_small
from gemmgen.analysis.advice import pitches
from gemmgen.analysis.bottleneck import CAUSES, RESOURCES, bottleneck, cost_of, costs
from gemmgen.analysis.recorded import measured as measured_alone
from gemmgen.diagnostics import GemmgenError
from gemmgen.report.page import code, lesson, words
from gemmgen.report.page.argument import UNSEEN, more_registers
from gemmgen.report.page.lanemap import LaneMap, lane_map
from gemmgen.report.page.patterns import Pattern, patterns
from gemmgen.report.page.recorded import Measured, Time
from gemmgen.report.page.remedy import Remedy, lowers, measured_text, named, remedy, unexplained
from gemmgen.report.page.roofline import Dot, Roof, above, roofline
from gemmgen.report.page.stepping import Stepping, stepping
from gemmgen.report.page.tiles import pictures
from gemmgen.report.page.timeline import timeline
from gemmgen.text.numbers import time_text

if TYPE_CHECKING:
    from gemmgen.analysis.counts import AccessCost
    from gemmgen.analysis.explain import Explanation
    from gemmgen.report.page.facts import RungFacts
    from gemmgen.target import Gpu

Size = tuple[int, int, int]


@dataclass(frozen=True)
class AccessRow:
    """A load or store: its cost for the whole product, its source lines, and its picture where there is one."""

    name: str
    cost: AccessCost
    spec_line: int | None
    cuda_line: int | None
    picture: LaneMap | None

    @property
    def ways(self) -> float | None:
        """Wavefronts over those of an access without a conflict; None for global memory."""
        ideal = self.cost.cost.ideal_wavefronts
        return self.cost.cost.wavefronts / ideal if ideal else None

    @property
    def used(self) -> float | None:
        sectors = self.cost.cost.sectors
        return self.cost.cost.bytes_used / (32 * sectors) if sectors else None

    @property
    def excess(self) -> float:
        """Wavefronts or sectors beyond those that the same words need."""
        ways = self.picture.ways if self.picture else self.ways or 1.0
        return (self.cost.cost.wavefronts + self.cost.cost.sectors) * (1 - 1 / ways)

    @property
    def bad(self) -> bool:
        return (self.ways or 1) > 1.001 or (self.picture is not None and self.picture.ways > 1.001)


def access_rows(facts: RungFacts) -> list[AccessRow]:
    """The accesses of a rung that are executed, in program order."""
    e = facts.explanation
    if e is None:
        return []
    drawn = _patterns_of(e)
    lines = iter(e.accesses())
    seen: Counter[tuple[object, str]] = Counter()
    rows: list[AccessRow] = []
    for number, cost in enumerate(e.counts.accesses):
        key = cost.statement, cost.space
        pattern = drawn.get((*key, seen[key]))
        seen[key] += 1
        if not cost.cost.requests:
            continue
        line = next(lines)
        name = access_name(cost)
        picture = lane_map(pattern, f"{facts.name}-access-{number}", name) if pattern is not None else None
        rows.append(AccessRow(name, cost, line["spec_line"], line["cuda_line"], picture))
    return rows


def _patterns_of(e: Explanation) -> dict[tuple[object, str, int], Pattern]:
    """The patterns of a kernel's accesses by statement and space, numbered in program order."""
    seen: Counter[tuple[object, str]] = Counter()
    found: dict[tuple[object, str, int], Pattern] = {}
    try:
        for access, pattern in patterns(e.ir, scalars(e)):
            key = access.statement, access.array.space
            if pattern is not None:
                found[*key, seen[key]] = pattern
            seen[key] += 1
    except GemmgenError:
        return {}
    return found


def access_name(cost: AccessCost) -> str:
    if cost.space == "tma":
        return f"TMA boxes of {cost.operand}"
    wide = f", {cost.item * cost.width} bytes per lane"
    if cost.space == "global":
        return f"{cost.op} of {cost.operand}, global{wide}"
    return f"{cost.op} of the {cost.operand} tile, shared{wide}"


def scalars(e: Explanation) -> dict[str, float]:
    """Arguments of the launch for packed matrices."""
    m, n, k = e.size
    lda, ldb, ldc = pitches(e.spec, e.size)
    return {"M": m, "N": n, "K": k, "lda": lda, "ldb": ldb, "ldc": ldc, "alpha": 1.0, "beta": e.beta}


def bound_bars(e: Explanation) -> list[dict[str, Any]]:
    """The bounds, longest first, relative to the longest."""
    found = [(e.bound.seconds(key), key) for key in _resources(e)]
    longest = max(found)[0] or 1.0
    names = RESOURCES | {"latency": "exposed latency, added"}
    return [
        {"name": names[key], "ms": 1e3 * s, "part": 100 * s / longest, "binds": key == e.bound.by}
        for s, key in sorted(found, reverse=True)
    ]


def cost_bars(e: Explanation) -> list[dict[str, Any]]:
    """The causes of lost time, largest first, relative to the largest; empty where the resource is the whole answer."""
    of = bottleneck(e)
    if not of.cause:
        return []
    found = sorted(costs(e).items(), key=lambda item: item[1], reverse=True)
    return [
        {"name": CAUSES[cause], "ms": 1e3 * s, "part": 100 * s / of.seconds, "binds": cause == of.cause}
        for cause, s in found
        if s > 0
    ]


def _resources(e: Explanation) -> list[str]:
    return [key.removesuffix("_s") for key, value in e.bound.to_dict().items() if isinstance(value, float)]


def cublas_bars(rungs: Sequence[RungFacts], run: Measured | None) -> list[dict[str, Any]]:
    """Share of cuBLAS, measured here and in the lesson; None where it was not measured."""
    return [
        {
            "number": facts.number,
            "name": facts.name,
            "side": bool(facts.rung.after),
            "measured": run.times[facts.name].percent if run and facts.name in run.times else None,
            "lesson": lesson.PERCENT_OF_CUBLAS.get(facts.name),
        }
        for facts in rungs
    ]


def peak_bars(rungs: Sequence[RungFacts]) -> list[dict[str, Any]]:
    """The expected time of specs, and the share of it that the arithmetic alone needs; measured where recorded."""
    found: list[dict[str, Any]] = []
    for facts in rungs:
        e = facts.explanation
        if e is None or not e.bound.total_s:
            continue
        recorded = measured_alone(e)
        alone = max(e.bound.seconds(r) for r in ("compute", "tensor") if r in e.bound.resources)
        times = {"modelled": e.bound.total_s, "measured": recorded.seconds if recorded else None}
        found += [
            {"number": facts.number, "name": facts.name, "kind": kind, "ms": 1e3 * s, "part": 100 * alone / s}
            for kind, s in times.items()
            if s
        ]
    return found


def time_of(facts: RungFacts, run: Measured | None) -> Time | None:
    return run.times.get(facts.name) if run else None


# --- Rooflines ----------------------------------------------------------------------------------------------------


def rooflines(rungs: Sequence[RungFacts], gpu: Gpu, size: Size, run: Measured | None) -> list[dict[str, Any]]:
    """Two rooflines: of global memory, as in the lesson, and of the memory inside the SM."""
    run = run if run and run.size == size else None
    known = [f for f in rungs if f.explanation is not None and f.explanation.bound.total_s > 0 and not tensor(f)]
    if not known:
        return []
    outer = [Roof("DRAM", gpu.dram_gb_s), Roof("L2", gpu.l2_gb_s), Roof("L1", gpu.shared_gb_s)]
    inner = [Roof("shared memory and L1", gpu.shared_gb_s)]
    peak = ("float32 peak", gpu.fp32_tflops)
    cublas = run.cublas.tflops if run and run.cublas else None
    charts = (
        ("global", "flop per byte of global memory, as written", "Roofline of global memory, as tiled", _outer, outer),
        ("sm", "flop per byte of shared memory and L1, as compiled", "Roofline of shared memory and L1", _inner, inner),
    )
    found = []
    for name, title, drawn, intensity, roofs in charts:
        dots = _dots(known, run, intensity)
        svg = roofline(f"roofline-{name}", drawn, dots, roofs, peak, cublas)
        found.append({"title": title, "svg": svg, "above": above(dots, roofs)})
    return found


def tensor(facts: RungFacts) -> bool:
    """Whether a kernel multiplies on tensor cores, whose roof is another than float32's."""
    return facts.explanation is not None and "tensor" in facts.explanation.bound.resources


def _dots(known: Sequence[RungFacts], run: Measured | None, intensity: Any) -> list[Dot]:
    return list(_placed(known, run, intensity))


def _placed(known: Sequence[RungFacts], run: Measured | None, intensity: Any) -> Iterator[Dot]:
    for facts in known:
        e = facts.explanation
        assert e is not None
        x, time = intensity(e), time_of(facts, run)
        if x:
            yield Dot(
                facts.number,
                facts.name,
                x,
                e.flops / e.bound.total_s / 1e12,
                e.flops / e.bound.floor_s / 1e12,
                time.tflops if time else None,
                bool(facts.rung.after),
            )


def _outer(e: Explanation) -> float | None:
    return e.intensity.block_tile


def _inner(e: Explanation) -> float | None:
    """flop per byte that the SM's memory could deliver in the clocks for which this kernel uses it."""
    wavefronts = sum(e.counts.total("shared", op).merged_wavefronts for op in ("load", "store"))
    lines = sum(e.counts.total("global", op).lines for op in ("load", "store"))
    moved = 128 * (wavefronts + lines)
    return e.flops / moved if moved else None


# --- A rung -------------------------------------------------------------------------------------------------------


def neighbours(rungs: Sequence[RungFacts], at: int) -> tuple[RungFacts | None, RungFacts | None]:
    """The rung before and the one after; a side branch follows the rung that it starts from, and no rung follows it."""
    side = rungs[at].rung.after
    if side:
        return next((facts for facts in rungs if facts.name == side), None), None
    after = rungs[at + 1] if at + 1 < len(rungs) else None
    return rungs[at - 1] if at else None, None if after is None or after.rung.after else after


def _bottleneck(facts: RungFacts) -> dict[str, Any]:
    """The bottleneck, its name with the ladder's words, and the ladder's words where they are about another
    bottleneck."""
    e, leaves = facts.explanation, facts.rung.leaves
    of = bottleneck(e) if e and e.bound.total_s else None
    same = of is not None and leaves.startswith(of.short)
    return {"bottleneck": of, "named": named(of, leaves) if of else "", "elsewhere": "" if same else leaves}


def _after(facts: RungFacts, after: RungFacts | None, run: Measured | None) -> dict[str, Any]:
    """The next rung's effect on the bottleneck, modelled and measured, and what the model does not explain."""
    e, time = facts.explanation, time_of(facts, run)
    then = time_of(after, run) if after else None
    known = e if e and e.bound.total_s > 0 else None
    delta = words.spec_delta(facts.spec, after.spec) if after else []
    measured = ""
    found = remedy(known, after.explanation, delta) if known and after and after.explanation else None
    if after and time and then:
        measured = measured_text(time, then, after.name, found.saved if found else None, UNSEEN.get(after.name, ""))
    same = run is not None and e is not None and facts.rung.size(run.size) == e.size
    return {
        "after_delta": delta,
        "after_numbers": words.numbers(after.explanation, e) if after else "",
        "remedy": found,
        "together": _together(known, found, delta) if known and found else "",
        "after_measured": measured,
        "unexplained": unexplained(known, time) if known and time and same else "",
    }


def _later(rungs: Sequence[RungFacts], at: int) -> str:
    """The first later rung that reduces the bottleneck, where the next one does not; empty where the next does, or
    none."""
    e, rest = rungs[at].explanation, [f for f in rungs[at + 1 :] if not f.rung.after]
    if e is None or not e.bound.total_s or rungs[at].rung.after:
        return ""
    of = bottleneck(e)
    for i, later in enumerate(rest):
        if later.explanation is not None and lowers(later.explanation, of):
            now = time_text(cost_of(later.explanation, of))
            return f"Rung {later.number}, {later.name}, is the next that reduces {of.short}: to {now}." if i else ""
    return ""


def _together(e: Explanation, found: Remedy, delta: Sequence[str]) -> str:
    """The changes of the next rung and their gain, where no single change helps but those do together."""
    advice = e.advice
    if found.saved < 0.01 or len(delta) < 2 or (advice is not None and not advice.together):
        return ""
    small = f" ({TOO_SMALL})" if too_small(1 - found.saved) else ""
    return f"The next rung\u2019s {len(delta)} changes together save {found.saved:.0%}{small}: {', '.join(delta)}."


def _linked(accesses: Sequence[AccessRow], steps: Stepping | None) -> dict[str, set[int | None]]:
    """The lines that an access or a step refers to: they have anchors."""
    cuda = {a.cuda_line for a in accesses} | (steps.lines if steps else set())
    return {"spec": {a.spec_line for a in accesses}, "cuda": cuda}


def rung_context(rungs: Sequence[RungFacts], at: int, run: Measured | None, ladder: bool = True) -> dict[str, Any]:
    """The input of a rung's template; of one's own specs where they are no ``ladder``."""
    from gemmgen.tile import print_tile

    facts = rungs[at]
    before, after = neighbours(rungs, at)
    after = after if ladder else None
    e = facts.explanation
    old = facts.base or (before.explanation if before else None)
    delta = words.spec_delta(before.spec if before else None, facts.spec)
    names = (before.name if before else "", facts.name)

    def lines(text: str, earlier: str | None, html: Any) -> list[code.Line]:
        return code.marked(text, earlier, html, names)

    spec = lines(facts.spec.to_text(), before.spec.to_text() if before else None, code.spec_html)
    tile = lines(print_tile(facts.program), print_tile(before.program) if before else None, code.tile_html)
    cuda = lines(facts.cuda, before.cuda if before else None, code.cuda_html)
    accesses, steps = access_rows(facts), stepping(facts.program, facts.cuda)
    worst = max((a for a in accesses if a.picture), key=lambda a: a.excess, default=None)
    return {
        "facts": facts,
        "previous": rungs[at - 1].name if at else "",
        "next": rungs[at + 1].name if at + 1 < len(rungs) else "",
        "measured_alone": None if ladder or e is None else measured_alone(e),
        "before": before,
        "after": after,
        "delta": delta,
        "meanings": words.meanings(delta),
        "numbers": words.numbers(e, old),
        "old": old,
        "old_measured": measured_alone(facts.base) if facts.base else None,
        "registers": more_registers(e, old),
        "figures": words.figures(e, old) if e else [],
        "bounds": bound_bars(e) if e else [],
        "costs": cost_bars(e) if e else [],
        **_bottleneck(facts),
        **_after(facts, after, run),
        "later": _later(rungs, at),
        "e": e,
        "time": time_of(facts, run),
        "same_size": bool(run and e and facts.rung.size(run.size) == e.size),
        "pictures": pictures(facts.program, facts.name),
        "timeline": timeline(facts.program, facts.name),
        "stepping": steps,
        "accesses": accesses,
        "worst": worst,
        "boxes": any(a.cost.space == "tma" for a in accesses),
        "joined": any(a.cost.cost.merged_wavefronts != a.cost.cost.wavefronts for a in accesses),
        "spec": code.whole(spec),
        "tile": code.whole(tile),
        "cuda": code.focused(cuda, (code.header(before.cuda) if before else 0, code.header(facts.cuda)), facts.sass),
        "cuda_lines": facts.cuda.count("\n"),
        "linked": _linked(accesses, steps),
        "added": sum(line.mark == "added" for line in cuda),
        "removed": sum(line.mark == "removed" for line in cuda),
    }
