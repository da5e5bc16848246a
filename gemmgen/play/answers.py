"""What the page shows of a spec, as plain data: one function for each kind of question.

It runs in a child process (``worker``). Nothing here reads or writes a file that the spec's writer chose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError, SpecError

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.spec.model import Spec

LARGEST = 20_000
"""Characters of a spec."""
MOST_ERRORS = 20
SIZE = (4096, 4096, 4096)
NAME = "spec"

Question = Mapping[str, Any]
Answer = dict[str, Any]


def answer(question: Question) -> Answer:
    """The answer to ``{"kind": ..., "text": ..., "pinned": ..., "size": ..., "gpu": ...}``. Mistakes of the spec are an
    answer too: ``{"errors": [...]}``."""
    text, kind = question.get("text"), str(question.get("kind"))
    if not isinstance(text, str) or kind not in KINDS:
        return failed("a question has a text and a kind")
    if len(text) > LARGEST:
        return failed(f"the spec has {len(text):,} characters; the page takes {LARGEST:,}")
    import gemmgen

    try:
        return KINDS[kind](gemmgen.parse(text, NAME), question)
    except SpecError as error:
        return {"errors": [_described(e) for e in error.errors[:MOST_ERRORS]]}
    except GemmgenError as error:
        return failed(str(error))


def failed(message: str) -> Answer:
    return {"errors": [{"message": message, "hint": "", "line": 0, "column": 0, "length": 0}]}


def _described(error: SpecError) -> Answer:
    span = error.problems[0].span if error.problems else None
    return {
        "message": error.message,
        "hint": error.hint,
        "line": error.line or 0,
        "column": error.column or 0,
        "length": span.length if span else 1,
    }


def _size(question: Question) -> tuple[int, int, int]:
    m, n, k = question.get("size") or SIZE
    return int(m), int(n), int(k)


def texts(spec: Spec, question: Question) -> Answer:
    """CUDA (changed lines marked against the pinned spec), tile program, counts and what limits the kernel."""
    import gemmgen
    from gemmgen.cuda.emit import emit_cuda
    from gemmgen.report.page import code
    from gemmgen.tile import build, print_tile

    pinned = _pinned(question)
    e = gemmgen.explain(spec, *_size(question), gpu=question.get("gpu") or "h200", compiled=False)
    tile, cuda = print_tile(build(spec, e.ir.variant)), emit_cuda(e.ir)
    before: tuple[str, str] | None = None
    if pinned is not None:
        ir = gemmgen.lower(pinned, e.ir.variant)
        before = print_tile(build(pinned, e.ir.variant)), emit_cuda(ir)
    names = pinned.name if pinned else "", spec.name
    return {
        "cuda": _html(code.marked(cuda, before[1] if before else None, code.cuda_html, names)),
        "tile": _html(code.marked(tile, before[0] if before else None, code.tile_html, names)),
        "counts": _counts(e),
        "title": f"{spec.name}: {spec.threads} threads, {e.ir.shared_bytes:,} bytes of shared memory",
        "notes": list(spec.notes),
    }


def _counts(e: Explanation) -> str:
    """The text of ``gemmgen explain`` without its advice, for which other specs are tried."""
    from gemmgen.analysis import printed
    from gemmgen.analysis.paragraph import has_work, limit_text, why_text
    from gemmgen.text.wrap import wrapped

    told = [wrapped(f"limited by: {limit_text(e)}"), wrapped(f"why: {why_text(e)}")] if has_work(e) else []
    parts = [printed.heading(e), *told, *printed.accesses_text(e), printed.resources_text(e)]
    return "\n\n".join([*parts, printed.traffic_text(e), printed.bounds_text(e)])


def advised(spec: Spec, question: Question) -> Answer:
    """The change that would help most, by the model."""
    import gemmgen
    from gemmgen.analysis.paragraph import advice_text, has_work

    e = gemmgen.explain(spec, *_size(question), gpu=question.get("gpu") or "h200", compiled=False)
    return {"advice": advice_text(e) if has_work(e) else ""}


def _pinned(question: Question) -> Spec | None:
    import gemmgen

    try:
        return gemmgen.parse(question["pinned"], "pinned") if question.get("pinned") else None
    except GemmgenError:
        return None


def _html(lines: list[Any]) -> str:
    tags = {"same": "span", "added": "ins", "removed": "del"}
    return "".join(f'<{tags[x.mark]} class="line" data-n="{x.number}">{x.html}\u200b</{tags[x.mark]}>' for x in lines)


def pictures(spec: Spec, question: Question) -> Answer:
    """The pictures of the tiles, the stages, banks and sectors, each with its caption."""
    import gemmgen
    from gemmgen.ir.variant import EXACT
    from gemmgen.report.page import tiles
    from gemmgen.report.page.lanemap import lane_map
    from gemmgen.report.page.patterns import patterns
    from gemmgen.report.page.timeline import timeline
    from gemmgen.tile import build

    p, ir = build(spec, EXACT), gemmgen.lower(spec)
    drawn = [*tiles.pictures(p, "play"), *([found] if (found := timeline(p, "play")) else [])]
    shown = [{"title": x.title, "caption": x.caption, "svg": x.svg} for x in drawn]
    m, n, k = (max(1, part) for part in spec.block)
    scalars = {"M": m, "N": n, "K": k, "lda": max(m, k), "ldb": max(n, k), "ldc": max(m, n), "alpha": 1.0, "beta": 0.0}
    for number, (access, pattern) in enumerate(patterns(ir, scalars)):
        if pattern is not None:
            what = f"{access.op} of {access.array.name}, {access.lane_bytes} bytes per lane"
            drawing = lane_map(pattern, f"play-access-{number}", what)
            shown.append({"title": what, "caption": drawing.caption, "svg": drawing.svg})
    return {"pictures": shown}


def compiled(spec: Spec, question: Question) -> Answer:
    """Registers, spills and SASS by NVRTC, and the explanation with them."""
    import gemmgen
    from gemmgen.report.page.sasslines import sass_by_line
    from gemmgen.spec.effort import slow_to_compile

    e = gemmgen.explain(spec, *_size(question), gpu=question.get("gpu") or "h200")
    if e.compiled is None:
        return failed("NVRTC is not installed here, or does not know this GPU: no registers, no SASS")
    cuda = gemmgen.emit(spec, variant=e.ir.variant)
    lines = sass_by_line(cuda, e.compiled.arch, e.ir.name, slow_to_compile(spec))
    c = e.compiled
    spills = f"{c.spill_bytes} bytes per thread spilled" if c.spill_bytes else "no spills"
    beside = [f"{n:4}  {text:<72}  {lines.get(n, '')}".rstrip() for n, text in enumerate(cuda.splitlines(), 1)]
    return {
        "resources": f"{c.registers} registers per thread, {spills} ({c.arch}); occupancy {e.occupancy.fraction:.0%}",
        "explained": str(e),
        "sass": "\n".join(line for n, line in enumerate(beside, 1) if n in lines),
    }


def difference(spec: Spec, question: Question) -> Answer:
    """What differs from the pinned spec: settings, tile program and counts."""
    import gemmgen
    from gemmgen.report.delta import figures, figures_text, sentence, spec_changes
    from gemmgen.report.sidebyside import unified
    from gemmgen.tile import build, print_tile

    pinned = _pinned(question)
    if pinned is None:
        return failed("no spec is pinned; pin one, change it, and look here again")
    pair = [
        gemmgen.explain(s, *_size(question), gpu=question.get("gpu") or "h200", compiled=False) for s in (pinned, spec)
    ]
    a, b = pair
    names = ("pinned", "now")
    tiles = [print_tile(build(e.spec, e.ir.variant)) for e in pair]
    parts = [sentence(a, b, spec_changes(pinned, spec)), unified(tiles[0], tiles[1], names, False)]
    return {"difference": "\n\n".join(part for part in (*parts, figures_text(figures(a, b), names)) if part)}


def simulated(spec: Spec, question: Question) -> Answer:
    """A small run in the simulator; with one barrier taken away where ``without`` is its number, from 0."""
    import gemmgen
    from gemmgen.report.cut import without as run_without
    from gemmgen.report.page.facts import checked

    ir = gemmgen.lower(spec)
    syncs = ir.syncs()
    without = question.get("without")
    if without is None:
        found = checked(spec)
        size, faults, right = found.size, list(found.faults), found.right
        lines: list[int | None] = []
    else:
        done = run_without(spec, ir, syncs[int(without) % max(1, len(syncs))])
        size, right = done.size, done.right
        faults, lines = [str(f) for f in done.faults], [f.line for f in done.faults]
    return {
        "size": "x".join(map(str, size)),
        "right": right,
        "faults": faults[:MOST_ERRORS],
        "lines": sorted({line for line in lines if line}),
        "barriers": [s.hazard for s in syncs],
    }


KINDS: Mapping[str, Callable[[Spec, Question], Answer]] = {
    "texts": texts,
    "advised": advised,
    "pictures": pictures,
    "compiled": compiled,
    "difference": difference,
    "simulated": simulated,
}
