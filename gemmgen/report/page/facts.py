"""The facts of one rung: its texts, exact counts, limits, and a run in the simulator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.report import ladder
from gemmgen.report.ladder import Rung
from gemmgen.report.page.parts import Parts, parts
from gemmgen.report.page.sasslines import sass_by_line
from gemmgen.spec.effort import slow_to_compile

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu
    from gemmgen.tile.program import TileProgram

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Check:
    """A small run in the simulator. ``counts_agree``: its counters equal the page's counts for the same size; None
    where the kernel cannot be counted."""

    size: Size
    right: bool
    faults: tuple[str, ...]
    counts_agree: bool | None

    @property
    def ok(self) -> bool:
        return self.right and not self.faults and self.counts_agree is not False


@dataclass(frozen=True)
class RungFacts:
    """One rung. ``explanation`` is None where it cannot be counted; ``problem`` then says why."""

    number: int
    rung: Rung
    spec: Spec
    program: TileProgram
    ir: KernelIR
    cuda: str
    explanation: Explanation | None
    problem: str
    check: Check
    sass: Mapping[int, str] = field(default_factory=dict)
    """Instructions of each line of the CUDA, where they could be read."""
    base: Explanation | None = None
    """Of a side branch: the rung that it starts from, at the branch's own size."""
    parts: Parts | None = None
    """What each change of the rung is worth, where that was asked for."""

    @property
    def name(self) -> str:
        return self.rung.spec

    @property
    def summary(self) -> str:
        """The comment of the spec without the rung's number."""
        return re.sub(r"^Rung \d+\. ", "", self.ir.summary)


def facts_of(number: int, rung: Rung, size: Size, gpu: Gpu, sass: bool = False) -> RungFacts:
    """The facts of a rung of a ladder of a size, modelled for a GPU. ``sass``: with the instructions of each line, and
    with what each change is worth, which takes more compilations."""
    import gemmgen
    from gemmgen.spec.ladder import ladder_path

    def load(name: str) -> Spec:
        return gemmgen.load(ladder_path(name))

    found = facts(number, rung, load(rung.spec), rung.size(size), gpu, sass)
    if found.explanation is None:
        return found
    base = _explained(load(rung.after), rung.size(size), gpu) if rung.after else None
    before = rung.after or rung_before(rung)
    worth = parts(load(before), found.explanation) if sass and before else None
    return replace(found, base=base, parts=worth)


def rung_before(rung: Rung) -> str:
    """The name of the rung below one of the ladder; empty for the first."""
    main = [r.spec for r in ladder.RUNGS if not r.after]
    at = main.index(rung.spec) if rung.spec in main else 0
    return main[at - 1] if at else ""


def _explained(spec: Spec, size: Size, gpu: Gpu) -> Explanation | None:
    from gemmgen.api.explaining import explain

    try:
        return explain(spec, *size, gpu=gpu)
    except GemmgenError:
        return None


def facts(number: int, rung: Rung, spec: Spec, size: Size, gpu: Gpu, sass: bool = False) -> RungFacts:
    from gemmgen.api.explaining import explain
    from gemmgen.api.specs import lower
    from gemmgen.cuda.emit import emit_cuda
    from gemmgen.ir.variant import EXACT
    from gemmgen.tile import build

    explanation, problem = None, ""
    try:
        explanation = explain(spec, *size, gpu=gpu)
    except GemmgenError as error:
        problem = str(error)
    ir = lower(spec, EXACT) if explanation is None else explanation.ir
    check, cuda = checked(spec), emit_cuda(ir)
    lines: Mapping[int, str] = {}
    if sass and explanation is not None and explanation.compiled is not None:
        _ = explanation.advice  # compiles other specs, which may be done beside what others wait for
        lines = sass_by_line(cuda, explanation.compiled.arch, ir.name, slow_to_compile(spec))
    return RungFacts(number, rung, spec, build(spec, ir.variant), ir, cuda, explanation, problem, check, lines)


def facts_of_spec(number: int, spec: Spec, size: Size, gpu: Gpu, sass: bool = False) -> RungFacts:
    """The facts of a spec of one's own."""
    return facts(number, Rung(spec.name, "", ""), spec, size, gpu, sass)


def checked(spec: Spec) -> Check:
    """Run the kernel in the simulator: two blocks, a few tiles along K."""
    import numpy as np

    import gemmgen
    from gemmgen.api.beside import drawn

    bm, bn, bk = spec.block
    step = bk or 8
    m, n, k = 2 * bm, bn, step * max(4, spec.stages + 2, -(-32 // step))
    random = np.random.default_rng(0)
    a, b = (
        np.asarray(random.standard_normal(shape), x.dtype.numpy_dtype, "F" if x.order == "col" else "C")
        for shape, x in zip(((m, k), (k, n)), spec.matrices, strict=False)
    )
    beside = drawn(spec, m, n)
    done = gemmgen.simulate(spec, a, b, **beside)
    right = gemmgen.verify(done.C, a, b, spec=spec, **beside).ok
    return Check((m, n, k), right, tuple(str(f) for f in done.faults), _agrees(spec, (m, n, k), done.counters))


def _agrees(spec: Spec, size: Size, counters: Any) -> bool | None:
    from gemmgen.api.explaining import explain

    try:
        expected = explain(spec, *size, compiled=False).to_dict()
    except GemmgenError:
        return None
    return all(counters[key] == expected[key] for key in ("fma", "global", "shared"))
