"""Which architectures a spec can be compiled for and run on: the one place that decides it.

What an instruction needs is stated in its row of ``gemmgen.isa``; which of them a spec uses is stated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gemmgen.isa.async_copy import cp_async, tma_load
from gemmgen.isa.atomic import global_add
from gemmgen.isa.cluster import CLUSTER_SYNC
from gemmgen.isa.dependent import WAIT_FOR_PREVIOUS_KERNEL
from gemmgen.isa.table import Instruction
from gemmgen.spec.model import Spec, Toggle
from gemmgen.target import ARCHS

INSTRUCTIONS: Mapping[str, Instruction] = {
    "cpasync": cp_async(16),
    "tma": tma_load(),
    "clusterReduce": CLUSTER_SYNC,
    "dependentLaunch": WAIT_FOR_PREVIOUS_KERNEL,
}
"""The instruction of a toggle, whose row says which architecture has it."""
VECTOR_ADD = global_add(2)
VECTORS = "atomics with float4"
ELEMENT_TYPE = "element type"

_FORM = re.compile(r"(?:sm|compute)_([0-9]+)([af]?)")


def needs(spec: Spec) -> Iterator[tuple[str, int]]:
    """What of a spec not every architecture has, and the least compute capability that does, times ten."""
    yield from ((toggle, row.arch.min) for toggle, row in INSTRUCTIONS.items() if spec.has(toggle))
    if not spec.way.plain:
        yield f"math {spec.math}", spec.way.needs.min
    if adds_vectors(spec):
        yield VECTORS, VECTOR_ADD.arch.min
    for dtype in dict.fromkeys(x.dtype for x in spec.matrices):
        if dtype.arch:
            yield f"{ELEMENT_TYPE} {dtype}", dtype.arch


def meaning_of(toggle: Toggle) -> str:
    """What a toggle does, with the first architecture that has its instruction."""
    row = INSTRUCTIONS.get(toggle.name)
    return toggle.doc if row is None else f"{toggle.doc} (sm_{row.arch.min})"


def adds_vectors(spec: Spec) -> bool:
    """Whether blocks may add several neighbours of C in one access: wherever the spec's architecture, if it has one,
    can. A kernel is one text for all that it may be compiled for, so that only the spec can say that it has to do
    without."""
    there = None if spec.arch is None else capability(spec.arch)
    own = spec.block[:2] if spec.has("stageC") else spec.piece  # of a line of C, what one access may be a part of
    run = own[1] if spec.C.order == "row" else own[0]
    wide = spec.has("float4") and run % 2 == 0
    return spec.has("atomics") and wide and (there is None or there >= VECTOR_ADD.arch.min)


def architecture_problem(spec: Spec, arch: str) -> str | None:
    """Why a spec cannot run on an architecture (``sm_75``); None if it can."""
    there = capability(arch)
    for what, least in needs(spec):
        if there is None or there >= least:
            continue
        why = f"needs compute capability {least // 10}.{least % 10}, and {arch} is below it"
        if what != VECTORS:
            return f"{what} {why}"
        hint = f"write 'arch {arch}' in the spec, and they are added one at a time"
        return f"atomics with float4 adds several elements of C at once, which {why}; {hint}"
    exact = spec.way.needs.exact
    if exact is not None and there is not None and capability(exact) != there:
        return f"math {spec.math} is of {exact} alone, and {arch} does not have it"
    return None


def target_problem(spec: Spec, there: str) -> str | None:
    """Why a GPU of architecture ``there`` does not run what the spec is written for; None if it does."""
    if spec.arch is None or runs_on(spec.arch, there):
        return None
    return f"'arch {spec.arch}' of the spec makes code that {there} does not run; leave it out, or name another GPU"


def runs_on(arch: str, there: str) -> bool:
    """Whether a GPU of architecture ``there`` has the instructions of ``arch``: all older ones, but ``sm_90a`` has some
    that only 9.0 has, ``sm_100f`` some that only 10.x has."""
    found, own = _FORM.fullmatch(arch), capability(there)
    if found is None or own is None:
        return True
    number = int(found.group(1))
    match found.group(2):
        case "a":
            return number == own
        case "f":
            return number <= own and number // 10 == own // 10
        case _:
            return number <= own


def capability(arch: str) -> int | None:
    """The compute capability of ``sm_90a``, times ten; None of what is no architecture."""
    found = _FORM.fullmatch(arch)
    return None if found is None else int(found.group(1))


def known_architectures() -> str:
    """Those that there is machine code for, in words."""
    return f"known are {', '.join(ARCHS)}"


def unknown_architecture(arch: str) -> str | None:
    """Why there is no machine code for ``arch``, with the list of those that there is code for; None if there is."""
    if arch in ARCHS:
        return None
    known = known_architectures()
    real = arch.replace("compute_", "sm_")
    if real != arch and real in ARCHS:
        return f"{arch!r} is a virtual architecture, for which there is no machine code; write {real!r}; {known}"
    return f"{arch!r} is not an architecture that can be compiled for; {known}"
