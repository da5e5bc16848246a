"""What the README of an exported project says of its own kernels: the GPUs they run on, and the rows they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemmgen.launch.placement import OPERANDS

if TYPE_CHECKING:
    from gemmgen.export.kernels import Exported


def readme_values(made: Sequence[Exported]) -> dict[str, str]:
    """The places of the README's template that depend on the kernels."""
    return {
        "ROWS": "\n".join(map(_row, made)),
        "FOR": ", ".join(dict.fromkeys(x.arch for x in made)),
        "EMBEDDED": _embedded(made),
        "ALIGNED": _aligned(made),
        "EPILOGUE": ", then the spec's epilogue," if any(x.spec.epilogue for x in made) else "",
    }


def needed(x: Exported) -> dict[str, int]:
    """The bytes to which the rows of each operand must be aligned for any kernel of a spec to read them; operands
    that may lie at any element are left out. The launcher refuses others in the same words (``misaligned``)."""
    found = {}
    for name in OPERANDS:
        least = min(min(v.bytes(name) for v, _, _ in x.variants), x.program.alignment[name])
        if least > x.program.matrix(name).dtype.bytes:
            found[name] = least
    return found


def _alone(x: Exported) -> bool:
    return not x.arch[-1].isdigit()


def _row(x: Exported) -> str:
    matrices = [f"{m.dtype} {m.order}" for m in x.program.matrices]
    tile = "x".join(map(str, x.program.tile))
    by_bytes: dict[int, list[str]] = {}
    for name, least in needed(x).items():
        by_bytes.setdefault(least, []).append(name)
    rows = "; ".join(f"{', '.join(names)}: {least} bytes" for least, names in by_bytes.items()) or "any"
    gpus = f"{x.arch} only" if _alone(x) else f"{x.arch} and newer"
    workspace = "yes" if x.program.workspace else "no"
    return f"| `{x.name}` | {' | '.join(matrices)} | {tile} | {rows} | {workspace} | {gpus} |"


def _aligned(made: Sequence[Exported]) -> str:
    if not any(map(needed, made)):
        return "Any size and any alignment of the rows is accepted."
    return (
        "Any size is accepted whose operands are aligned as the table says: the address, the bytes of a row and\n"
        "the bytes from one row to the next must be multiples of its number, else the call returns an error."
    )


def _embedded(made: Sequence[Exported]) -> str:
    """What the project has compiled of each kernel."""
    alone = [x for x in made if _alone(x)]
    if not alone:
        return "a cubin for the architecture in the table, and PTX that the driver compiles for newer GPUs."
    only = "a cubin for the architecture in the table. There is no PTX of a kernel for one architecture only"
    names = ", ".join(dict.fromkeys(x.arch for x in alone))
    if len(alone) == len(made):
        return f"{only} ({names}): it\ndoes not run on any other GPU."
    return f"{only} ({names});\nthe others have PTX too, which the driver compiles for newer GPUs."
