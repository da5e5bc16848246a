"""``gemmgen report``: a page of one's own specs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.explain import DEFAULT, GpuOption, SizeOption, named_gpu
from gemmgen.cli.files import check_writable, named, write_file
from gemmgen.cli.options import Set, Specs
from gemmgen.cli.specs import load_specs

if TYPE_CHECKING:
    from gemmgen.cli.options import Size
    from gemmgen.report.page.facts import RungFacts
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu

WORKERS = 4
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The page to write.", show_default=False)]


def report(specs: Specs, out: Output, size: SizeOption = None, gpu: GpuOption = None, settings: Set = None) -> int:
    """Write specs as one page of HTML: pictures, code, exact counts, and what limits each.

    Each kernel is compared with the one before it. Times are modelled for the GPU; recorded times stand beside them. No
    GPU is needed. Examples:

      gemmgen report my.gemm -o page.html

      gemmgen report vectorized my.gemm -o page.html --size 1024x1024x64 --gpu a6000
    """
    from gemmgen.report.page import page, require
    from gemmgen.target import gpu as gpu_named

    require()
    file = named("--output", out)
    loaded, target, at = load_specs(specs, settings), gpu_named(named_gpu(gpu)), size or DEFAULT
    refuse_same_names(loaded)
    check_writable(file)
    found = gathered(loaded, at, target)
    write_file(file, page(found, at, target, ladder=False).encode())
    output.wrote(file)
    for facts in found:
        if facts.problem:
            output.say(f"note: {facts.name} is not counted: {facts.problem}")
    wrong = [facts.name for facts in found if not facts.check.ok]
    if wrong:
        output.say(f"error: wrong results: {', '.join(wrong)}")
    return exits.FAILED if wrong else exits.OK


def refuse_same_names(specs: list[Spec]) -> None:
    """Raises UsageError for two specs of one name: the page tells them apart by it."""
    names = [spec.name for spec in specs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise exits.UsageError(f"two specs are named {twice}; give each kernel a name of its own")


def gathered(specs: list[Spec], size: Size, gpu: Gpu) -> list[RungFacts]:
    """The facts of all specs. Compilers and disassemblers run while others wait for them."""
    from gemmgen.report.page.facts import facts_of_spec

    with output.progress("explaining") as shown, ThreadPoolExecutor(WORKERS) as workers:

        def facts(at: int) -> RungFacts:
            shown.update(f"explaining {specs[at].name} at {size}")
            return facts_of_spec(at + 1, specs[at], size, gpu, sass=True)

        return list(workers.map(facts, range(len(specs))))
