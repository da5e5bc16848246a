"""Rules on how a block multiplies: which shapes, types and tiles go together, and which toggles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem, quoted
from gemmgen.ir.types import BF16, E4M3, E5M2, ELEMENT_TYPES, F16, F32, TF32
from gemmgen.isa.math import FMA, MATHS, NAMES, types_of, ways_for
from gemmgen.spec.groups import NEEDS as GROUP_NEEDS
from gemmgen.spec.groups import group_problems, no_roles, warp_of
from gemmgen.spec.model import BYTE, FAST, TOGGLES, Spec, Toggle
from gemmgen.spec.suggest import either, multiples_around, requirements, warps_for

if TYPE_CHECKING:
    from gemmgen.spec.subject import Subject

HALF = 8
"""Rows and columns from one piece of a lane's sums to the next: those of an 8x8 part of a tile of mma."""
NEEDS = {
    "smem": "a warp multiplies tiles in shared memory",
    "warptile": "each warp multiplies its own tile",
}
"""The toggles without which no tensor core can multiply, and why."""
NARROW = (E4M3.name, E5M2.name)


def outputs(dtype: str) -> tuple[str, ...]:
    """The types that C may have, by that of A and B."""
    if dtype in NARROW:
        return F32.name, F16.name, BF16.name
    return (F32.name,) if dtype in (F32.name, TF32.name) else (F32.name, dtype)


def needs_of(toggle: Toggle, spec: Spec) -> tuple[str, ...]:
    """The toggles that one makes no sense without, as the spec multiplies."""
    return (*toggle.needs, *(toggle.fma_needs if spec.math == FMA.name else ()))


def math_problems(s: Subject) -> Iterator[Problem]:
    """Mistakes about ``math``."""
    spec = s.spec
    if not s.good("math"):
        return
    if spec.math not in NAMES:
        yield _unknown(s)
        return
    yield from _types(s)
    yield from _fast(s)
    if not spec.way.by_group:
        yield from no_roles(s)
    if spec.math == FMA.name:
        yield from _toggles(s, "mma", "which loads fragments of mma, and math is fma")
        return
    yield from _toggles(s, "fma", f"which is of plain multiply-adds, and math is {spec.math}")
    yield from _missing(s)
    if spec.way.by_group:
        yield from group_problems(s)
        return
    yield from _tiles(s)
    yield from _given(s)


def _missing(s: Subject) -> Iterator[Problem]:
    """Toggles without which tensor cores cannot multiply. Each hint adds also what its toggle needs, unless an earlier
    one does, so that all of them together lead to a legal spec."""
    spec, told = s.spec, set[str]()
    if not s.good("use"):
        return  # what is missing may be what is misspelt
    for need, why in (NEEDS | (GROUP_NEEDS if spec.way.by_group else {})).items():
        if spec.has(need):
            continue
        names = [x for x in requirements(need, fma=False) if not spec.has(x) and x not in told]
        told.update(names)
        line = warp_line(s) if need == "warptile" and spec.warp is None else ""
        hint = f"add {' and '.join(names)} to the use line{line and f' and {line}'}"
        yield Problem(f"math {spec.math} needs {need}: {why}", hint, s.span("math"))


def warp_line(s: Subject) -> str:
    """The line 'tile warp' to propose where there is none: that of a warp group, else up to two that are legal."""
    spec = s.spec
    if s.trying or not s.good("BM", "BN", "TM", "TN", "WM", "WN"):
        return ""
    if spec.way.by_group:
        rows, columns = warp_of(spec)
        return f"the line 'tile warp {rows}x{columns}'"
    block = spec.block[:2]
    near = (min(64, block[0]), min(64, block[1]))
    use = spec.use.union(requirements("warptile"))
    found = s.first(({"use": use, "warp": warp} for warp in warps_for(block, spec.piece, near)), 2)
    lines = " or ".join("'tile warp {}x{}'".format(*change["warp"]) for change in found)
    return lines and f"a line like {lines}"


def _unknown(s: Subject) -> Problem:
    """A way to multiply that does not exist."""
    math = s.spec.math
    ways = either(*(f"'math {name}'" for name in ways_for(s.spec.matrices[0].dtype)))
    return Problem(f"math {quoted(math)} is not supported", f"write {ways}", s.span("math"))


def _types(s: Subject) -> Iterator[Problem]:
    """What the elements are multiplied by."""
    dtype = ELEMENT_TYPES.get(s.spec.A.dtype)
    if dtype is None or (s.spec.math, dtype) in MATHS:
        return
    ways = ways_for(dtype)
    fine = [f"'math {name}'" for name in ways if s.mends(math=name)] or [f"'math {name}'" for name in ways]
    others = [f"'operands A {name}, B {name}'" for name in types_of(s.spec.math)]
    which = "tensor cores alone multiply" if s.spec.math == FMA.name else f"{s.spec.math} does not multiply"
    if s.spec.math == FMA.name:
        others = [f"'operands A {F32.name}, B {F32.name}'"] if dtype == TF32 else []
    hint = f"write {either(*fine, *others)}"
    yield Problem(f"A and B are {dtype}, which {which}", hint, s.span("math", "operands A"))


def _toggles(s: Subject, math: str, why: str) -> Iterator[Problem]:
    """Toggles of the other way to multiply."""
    for toggle in TOGGLES:
        if toggle.math == math and s.spec.has(toggle.name):
            hint = s.leaving(toggle.name) or f"leave {toggle.name} out"
            yield Problem(f"use {toggle.name}, {why}", hint, s.span(f"use {toggle.name}", "use"))


def _fast(s: Subject) -> Iterator[Problem]:
    """Only sums of float8 by warp groups are promoted, so that only those can do without."""
    spec = s.spec
    if spec.accumulate == FAST and not (spec.way.by_group and spec.matrices[0].dtype.bits == BYTE):
        what = f"{spec.A.dtype} by {spec.math}"
        message = f"accumulate fast leaves the sums of float8 by wgmma to the tensor cores, and this is {what}"
        yield Problem(message, "write accumulate f32, or leave it out", s.span("operands accumulate", "operands"))


def _tiles(s: Subject) -> Iterator[Problem]:
    """A warp's tile is whole tiles of mma, and so is a step along K."""
    spec = s.spec
    if (way := spec.way) is FMA or not s.good("BM", "BN"):
        return
    m, n, k = way.shape
    if spec.has("warptile") and spec.warp is not None and s.good("WM", "WN"):
        for name, size, unit in (("WM", spec.warp[0], m), ("WN", spec.warp[1], n)):
            if size % unit:
                yield _no_multiple(s, name, size, unit, f"rows of {spec.math}" if name == "WM" else "columns")
    if spec.has("smem") and s.good("BK") and not s.no_bk:
        bk = spec.block[2]
        unit = 2 * k if spec.has("prefetch") and bk % k == 0 else k
        why = f"two steps of {spec.math}, since prefetch takes turns between two sets of registers"
        if bk % unit:
            yield _no_multiple(s, "BK", bk, unit, why if unit > k else f"steps of {spec.math}")


def _no_multiple(s: Subject, name: str, size: int, unit: int, what: str) -> Problem:
    below, above = multiples_around(size, unit)
    near = s.beside(name, below, above)
    hint = f"{near.replace(' and ', ' or ')} is" if near else f"{name} must be a multiple of {unit}"
    return Problem(f"{name} {size} is not a multiple of {unit}, the {what}", hint, s.span(name, "tile block"))


def _given(s: Subject) -> Iterator[Problem]:
    """What the shape of mma decides need not be given, and must agree with it."""
    spec = s.spec
    if s.good("TM", "TN") and spec.thread not in ((1, 1), spec.piece):
        tm, tn = spec.thread
        message = f"tile thread {tm}x{tn}: {spec.math} gives each lane 1x2 of every 8x8 sums"
        yield Problem(message, "leave 'tile thread' out, or write 'tile thread 1x2'", s.span("tile thread"))
    if spec.warp is not None and s.good("WM", "WN", "m_iter", "n_iter"):
        for name, size, value in (("m_iter", spec.warp[0], spec.m_iter), ("n_iter", spec.warp[1], spec.n_iter)):
            if value is not None and value != size // HALF:
                message = f"{name} {value}: {spec.math} makes it {size // HALF}, {size} over {HALF}"
                yield Problem(message, f"leave {name} out", s.span(name))
    if s.good("lanes_k") and spec.lanes_k > 1:
        message = f"lanes_k {spec.lanes_k} is of plain multiply-adds: the lanes of a warp share {spec.math} as it is"
        yield Problem(message, "leave lanes_k out" if s.mends(lanes_k=1) else "mma needs no lanes_k", s.span("lanes_k"))
    if s.good("unroll") and spec.unroll > 0:
        message = f"unroll {spec.unroll} is of plain multiply-adds: the text has every step of {spec.math} of a tile"
        yield Problem(message, "leave unroll out" if s.mends(unroll=0) else "mma needs no unroll", s.span("unroll"))
