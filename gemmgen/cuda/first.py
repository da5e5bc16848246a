"""Words of CUDA that a text explains where a reader first meets them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gemmgen.cuda.layout import INDENT, Printed, wrap_comment

UNROLLED = (
    "#pragma unroll: the iterations are written one after another, so that indices are constants and small arrays \
are registers"
)
ROLLED = "#pragma unroll 1: the compiler leaves the loop as it is"
ALIGNED = "alignas: the address is a multiple of this many bytes, as accesses of several elements need"
FIRST: tuple[tuple[str, str], ...] = (
    ("#pragma unroll\n", UNROLLED),
    ("#pragma unroll 1\n", ROLLED),
    ("alignas(", ALIGNED),
)
"""What a line starts with or holds, and what is said above the first such line."""
ASIDE = "__shared__ "


def explained(lines: Iterable[Printed]) -> Iterator[Printed]:
    """The lines of a kernel's body, with a comment above the first use of each of these words."""
    left = dict(FIRST)
    for line in lines:
        code = f"{line.text.partition('//')[0].rstrip()}\n"
        for start in [x for x in left if code.lstrip().removeprefix(ASIDE).startswith(x)]:
            depth = (len(code) - len(code.lstrip())) // len(INDENT)
            yield from map(Printed, wrap_comment(left.pop(start), depth))
        yield line


def signature_words(min_blocks: int | None, maps: bool) -> str:
    """What the attributes of a kernel mean, in one paragraph."""
    fit = f"{min_blocks} blocks fit" if min_blocks else "a block fits"
    said = f"__launch_bounds__: threads per block; the compiler keeps registers per thread so few that {fit} on an SM"
    return f"{said}; __grid_constant__: its address is that of the parameter itself, not of a copy" if maps else said
