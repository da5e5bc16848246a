"""``gemmgen banks``: which lanes access which bank of shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_spec
from gemmgen.cli.options import Json, Set
from gemmgen.cli.specs import load_specs
from gemmgen.ir.types import WARP

if TYPE_CHECKING:
    from gemmgen.analysis.accesses import Access
    from gemmgen.analysis.banks import BankMap
    from gemmgen.ir.kernel import KernelIR

WIDTHS = {4: 1, 8: 2, 16: 4}


def banks(
    spec: Annotated[
        str | None,
        typer.Argument(
            metavar="[SPEC]",
            help="A spec, whose shared accesses are drawn.",
            show_default=False,
            autocompletion=complete_spec,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="WORDS",
            help="Word addresses of the lanes: an expression of `lane`, like 'lane*2', or 32 numbers with commas "
            "('-' for an inactive lane).",
        ),
    ] = None,
    width: Annotated[int, typer.Option("--bytes", help="Bytes per lane of a pattern: 4, 8 or 16.")] = 4,
    store: Annotated[bool, typer.Option("--store", help="The pattern is of a store; else of a load.")] = False,
    access: Annotated[int | None, typer.Option(min=1, help="Only the access of this number.")] = None,
    warp: Annotated[int, typer.Option(min=0, help="Which warp of the block to draw.")] = 0,
    settings: Set = None,
    json: Json = False,
) -> int:
    """Draw which lane of a warp accesses which bank of shared memory, and count the conflicts.

    Draws the shared accesses of a spec, in the first iteration of their loops, or a pattern of word addresses. Counts
    are those of sm_90. Examples:

      gemmgen banks vectorized

      gemmgen banks vectorized --set pad_b=4

      gemmgen banks --pattern 'lane*2'

      gemmgen banks --pattern 'lane%2*4*128 + lane/2' --store
    """
    if pattern is not None and settings:
        raise exits.UsageError("--set changes a spec; a pattern has no settings")
    if (spec is None) == (pattern is None):
        raise exits.UsageError("name a spec, or give a --pattern; `gemmgen banks --help` explains the command")
    if width not in WIDTHS:
        raise exits.UsageError(f"--bytes is {width}; an access has 4, 8 or 16 bytes per lane")
    if pattern is not None:
        from gemmgen.analysis.banks import bank_map
        from gemmgen.cli.pattern import words_of

        drawn = [("pattern", bank_map(words_of(pattern), WIDTHS[width], store))]
    else:
        drawn = maps_of(str(spec), access, warp, settings)
    if json:
        output.print_json([{"access": name, **described(m)} for name, m in drawn])
    else:
        show(drawn)
    return exits.OK


def show(drawn: list[tuple[str, BankMap]]) -> None:
    from gemmgen.report.banks import LEGEND, map_text
    from gemmgen.report.colour import wanted
    from gemmgen.text.wrap import wrapped

    for i, (name, m) in enumerate(drawn):
        output.result(("\n" if i else "") + f"{name}\n{map_text(m, wanted())}", coloured=True)
    output.result(f"\n{wrapped(LEGEND)}")


def maps_of(
    argument: str, number: int | None, warp: int, settings: list[str] | None = None
) -> list[tuple[str, BankMap]]:
    """The maps of a spec's accesses to shared memory, numbered from 1 in the kernel's order, or of one.

    Raises UsageError where there is none of that number.
    """
    import gemmgen
    from gemmgen.analysis.banks import access_map, shared_accesses

    [spec] = load_specs([argument], settings)
    ir = gemmgen.lower(spec)
    if WARP * warp >= ir.threads:
        raise exits.UsageError(f"--warp is {warp}; a block of {spec.name} has {-(-ir.threads // WARP)} warps, from 0")
    m, n, k = (max(1, part) for part in spec.block)
    k *= 2 * spec.stages * spec.split_k  # tiles enough that the main loop, too, copies one
    scalars = {"M": m, "N": n, "K": k, "lda": max(m, k), "ldb": max(n, k), "ldc": max(m, n)}
    found = dict(enumerate((x.access for x in shared_accesses(ir, scalars)), start=1))
    if not found and spec.way.by_group:
        why = f"{spec.name} reads its tiles in shared memory by tensor cores, past the banks that threads share"
        raise exits.UsageError(f"{why}; name a spec of multiply-adds or mma")
    if not found:
        raise exits.UsageError(f"{spec.name} does not use shared memory; name a spec with `use smem`")
    if number is not None and number not in found:
        raise exits.UsageError(f"{spec.name} has no access {number} to shared memory; they are 1 to {len(found)}")
    return [(title(ir, n, x, warp), access_map(x, warp)) for n, x in found.items() if number in (None, n)]


def title(ir: KernelIR, number: int, a: Access, warp: int) -> str:
    preposition = "to" if a.op == "store" else "from"
    line = dict(ir.source.origins).get(getattr(a.statement, "origin", ""))
    where = f", line {line} of the spec" if line else ""
    return f"access {number}: {a.op} {preposition} {a.array.name}, {a.lane_bytes} bytes per lane, warp {warp}{where}"


def described(m: BankMap) -> dict[str, Any]:
    return {
        "words": list(m.words),
        "bytes": m.bytes,
        "op": "store" if m.store else "load",
        "wavefronts": m.wavefronts,
        "ideal_wavefronts": m.ideal,
        "ways": m.ways,
        "phases": [
            {"lanes": [p.first, p.last], "wavefronts": p.wavefronts, "banks": [[w for w, _ in b] for b in p.banks]}
            for p in m.phases
        ],
    }
