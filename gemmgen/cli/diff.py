"""``gemmgen diff``: what two specs differ in, all the way down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_spec
from gemmgen.cli.explain import DEFAULT, Beta, GpuOption, SizeOption, named_gpu
from gemmgen.cli.options import Json, Set
from gemmgen.cli.specs import load_specs, with_settings

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.spec.model import Spec


def diff(
    a: Annotated[str, typer.Argument(metavar="SPEC", help="The spec to start from.", autocompletion=complete_spec)],
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="[SPEC]",
            help="The spec to compare with it; left out: the same with --set.",
            show_default=False,
            autocompletion=complete_spec,
        ),
    ] = None,
    size: SizeOption = None,
    gpu: GpuOption = None,
    beta: Beta = 0.0,
    settings: Set = None,
    json: Json = False,
) -> int:
    """Show what differs between two kernels: settings, tile program, CUDA, counts.

    First one sentence on what changed; then the settings, the tile program line by line, the CUDA side by side (in
    colour on a terminal), and every count with its ratio. --set changes the second spec. Examples:

      gemmgen diff regblock2d vectorized

      gemmgen diff warptile --set float4=off

      gemmgen diff specs/vectorized.gemm my.gemm --size 1024 --gpu a6000
    """
    import gemmgen
    from gemmgen.report.delta import delta_dict

    specs = compared(a, b, settings)
    at = size or DEFAULT
    with output.progress("compiling and counting"):
        found = [gemmgen.explain(spec, *at, gpu=named_gpu(gpu), beta=beta) for spec in specs]
    if json:
        output.print_json(delta_dict(found[0], found[1]))
    else:
        output.result(text(found[0], found[1]), coloured=True)
    return exits.OK


def compared(a: str, b: str | None, settings: list[str] | None) -> list[Spec]:
    """The two specs; the settings are those of the second, which is the first where none is named."""
    if b is None and not settings:
        raise exits.UsageError("name a second spec, or change the first, like --set stages=2")
    first, *rest = load_specs([a] if b is None else [a, b])
    second = rest[0] if rest else first
    return [first, with_settings(second, settings) if settings else second]


def text(a: Explanation, b: Explanation) -> str:
    """Everything that differs, section by section."""
    import gemmgen
    from gemmgen.analysis.printed import unread_text
    from gemmgen.report.colour import paint, wanted
    from gemmgen.report.delta import figures, figures_text, sentence, spec_changes
    from gemmgen.report.sidebyside import body, differences, unified
    from gemmgen.text.wrap import columns, wrapped
    from gemmgen.tile import build, print_tile

    colour = wanted()
    names = (a.ir.name, b.ir.name)
    changes = spec_changes(a.spec, b.spec)
    tiles = [print_tile(build(e.spec, e.ir.variant)) for e in (a, b)]
    cuda = [body(gemmgen.emit(e.spec, variant=e.ir.variant)) for e in (a, b)]
    size = "x".join(str(n) for n in a.size)
    parts = [
        ("", wrapped(sentence(a, b, changes))),
        ("settings", "\n".join(f"  {c.setting}: {_side(c.before)} -> {_side(c.after)}" for c in changes)),
        ("tile program", unified(tiles[0], tiles[1], names, colour)),
        ("CUDA", differences(cuda[0], cuda[1], names, columns(), colour)),
        (f"counts at {size} on {a.gpu.title}", _under(figures_text(figures(a, b), names), unread_text((a, b)))),
    ]
    return "\n\n".join(f"{paint(title, 'bold', colour)}\n{part}" if title else part for title, part in parts if part)


def _under(table: str, note: str) -> str:
    return f"{table}\n{note}" if note else table


def _side(value: str | None) -> str:
    return "off" if value is None else value or "on"
