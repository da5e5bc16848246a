"""Checks a spec: every rule of the language that the spec alone decides, all broken ones reported at once.

What a block needs of shared memory is read off the tile program's buffers and is not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from gemmgen.diagnostics import MAX_PROBLEMS, Problem, SpecError, quoted
from gemmgen.ir.types import WARP
from gemmgen.isa.math import FMA
from gemmgen.spec.effort import spill_notes
from gemmgen.spec.epilogue import epilogue_problems
from gemmgen.spec.lanes import lane_problems
from gemmgen.spec.maths import HALF, math_problems, needs_of, outputs, warp_line
from gemmgen.spec.model import DTYPES, ORDERS, PARTS, SETTINGS, SUM_TYPES, TOGGLES, Spec
from gemmgen.spec.names import did_you_mean, name_problem
from gemmgen.spec.pipelines import idle_swizzle, pipeline_problems
from gemmgen.spec.steps import idle, step_problems
from gemmgen.spec.subject import Subject
from gemmgen.spec.suggest import (
    K_STEPS,
    MAX_ACCUMULATORS,
    MAX_SIZE,
    MAX_THREADS,
    divisors,
    either,
    lane_grids,
    multiples_around,
    requirements,
    threads_for,
    warps_for,
)
from gemmgen.spec.tuning import choice_problems

POWERS = tuple(1 << i for i in range(MAX_SIZE.bit_length()))


def check(spec: Spec) -> None:
    """Raises SpecError with every problem of a spec; returns for a legal one."""
    found = problems(Subject(spec))
    if found:
        raise SpecError(found, spec.filename)


def problems(subject: Subject) -> list[Problem]:
    """Every mistake, up to a number that nobody reads, in the order in which they stand in the text."""
    subject = replace(subject, find=problems)
    sizes = list(_sizes(subject))
    bad = subject.bad | {part for part, _ in sizes}
    rest = replace(subject, bad=bad)
    found = [p for _, p in sizes] + list(islice((p for rule in RULES for p in rule(rest)), MAX_PROBLEMS))
    return sorted(found, key=lambda p: (p.span.line, p.span.column) if p.span else (0, 0))


def notes(spec: Spec) -> tuple[str, ...]:
    """What is legal and worth saying."""
    found = [*idle(spec), *idle_swizzle(spec), *spill_notes(spec)]
    if spec.warp is not None and not spec.has("warptile"):
        found.append(f"tile warp {spec.warp[0]}x{spec.warp[1]} has no effect without 'use warptile'")
    return tuple(found)


def warp_iterations(spec: Spec) -> tuple[int, int]:
    """(m_iter, n_iter) of a legal spec: as given, else the smallest m_iter; (1, 1) without warptile."""
    if not spec.has("warptile") or spec.warp is None:
        return 1, 1
    legal = _iterations(spec)
    return legal[0] if legal else (spec.m_iter or 1, spec.n_iter or 1)


def _iterations(spec: Spec) -> list[tuple[int, int]]:
    """The (m_iter, n_iter) that cover the warp's tile with 32 lanes and agree with what is given."""
    assert spec.warp is not None
    if spec.math != FMA.name:
        return [(spec.warp[0] // HALF, spec.warp[1] // HALF)]
    rows, columns = spec.warp[0] // spec.thread[0], spec.warp[1] // spec.thread[1]
    return [(m, n) for m, n in lane_grids(rows, columns) if spec.m_iter in (None, m) and spec.n_iter in (None, n)]


# --- Rules: each yields the mistakes of one kind ------------------------------------------------------------------


def _sizes(s: Subject) -> Iterator[tuple[str, Problem]]:
    """Sizes outside 1 .. MAX_SIZE, with the name of each."""
    for part, (field, position) in PARTS.items():
        tile = getattr(s.spec, field)
        if s.good(part) and tile is not None:
            yield from _size(s, part, tile[position], f"tile {field}")
    for part in ("m_iter", "n_iter"):
        value = getattr(s.spec, part)
        if s.good(part) and value is not None:
            yield from _size(s, part, value, "use warptile")


def _size(s: Subject, part: str, value: int, setting: str) -> Iterator[tuple[str, Problem]]:
    span = s.span(part, setting)
    if value < 1:
        found = s.values(part, chain(range(1, 33), POWERS))
        hint = f"{found[0]} is the smallest{'' if found == [1] else ' that fits'}" if found else "write a larger number"
        yield part, Problem(f"{part} must be positive, not {value}", hint, span)
    elif value > MAX_SIZE:
        why = "a block could not hold so large a tile"
        yield part, Problem(f"{part} {value} is over the limit of {MAX_SIZE}: {value} > {MAX_SIZE}", why, span)


def _name(s: Subject) -> Iterator[Problem]:
    if s.good("name") and (found := name_problem(s.spec.name)):
        yield Problem(*found, s.span("kernel"))


def _toggles(s: Subject) -> Iterator[Problem]:
    if not s.good("use"):
        return  # what is missing may be what is misspelt
    known = {t.name: t for t in TOGGLES}
    for name in sorted(s.spec.use - set(known)):
        yield Problem(f"unknown toggle {quoted(name)}", did_you_mean(name, known), s.span(f"use {name}", "use"))
    for toggle in (t for t in TOGGLES if s.spec.has(t.name)):
        for need in needs_of(toggle, s.spec):
            if not s.spec.has(need) and not (toggle.lanes and s.spec.lanes_k > 1):
                tries = (s, replace(s, fits=lambda _: True))  # what does not fit either way is said next
                hints = (either(_adding(t, need), t.leaving(toggle.name)) for t in tries)
                hint = next(filter(None, hints), f"{toggle.name} does not go with the rest")
                yield Problem(f"{toggle.name} needs {need}", hint, s.span(f"use {toggle.name}"))
    for toggle in (t for t in TOGGLES if not s.spec.has(t.name)):
        for option in toggle.options:
            if getattr(s.spec, option) is not None:
                yield Problem(f"{option} needs {toggle.name}", f"use {toggle.name}({option}=...)", s.span(option))


def _adding(s: Subject, toggle: str) -> str:
    """A hint to add a toggle that others need, with what it needs itself; empty where that does not mend the spec."""
    if s.trying:
        return ""
    fma = s.spec.math == FMA.name
    names = [name for name in requirements(toggle, fma=fma) if not s.spec.has(name)]
    text, use = f"add {' and '.join(names)} to the use line", s.spec.use.union(names)
    if s.mends(use=use):
        return text
    (bm, bn, _), found = s.spec.block, []
    if s.no_bk and "smem" in names:
        found = s.first({"use": use, "block": (bm, bn, bk)} for bk in K_STEPS)
    return f"{text}, and write 'tile block {_x(found[0]['block'])}'" if found else ""


def _operands(s: Subject) -> Iterator[Problem]:
    for name in ("A", "B", "C"):
        operand = getattr(s.spec, name)
        for value, known in ((operand.dtype, DTYPES), (operand.order, ORDERS)):
            if value not in known:
                hint = f"write {', '.join(known[:-1])} or {known[-1]}"
                yield Problem(f"operand {name}: {quoted(value)} is not supported", hint, s.span(f"operands {name}"))
    if s.spec.accumulate not in SUM_TYPES:
        message = f"accumulate: {quoted(s.spec.accumulate)} is not supported"
        yield Problem(message, f"write {SUM_TYPES[0]}", s.span("operands accumulate"))
    yield from _types(s)


def _types(s: Subject) -> Iterator[Problem]:
    """The types of A, B and C go together."""
    a, b, c = s.spec.A.dtype, s.spec.B.dtype, s.spec.C.dtype
    if not {a, b, c} <= set(DTYPES):
        return
    if a != b:
        message = f"A is {a} and B is {b}; one product reads one element type"
        yield Problem(message, f"write 'A {a}, B {a}' or 'A {b}, B {b}'", s.span("operands B", "operands A"))
    elif c not in outputs(a):
        hint = f"write {' or '.join(f'C {x}' for x in outputs(a))}"
        yield Problem(f"C is {c}, and A and B are {a}", hint, s.span("operands C"))


def _choices(s: Subject) -> Iterator[Problem]:
    for row in SETTINGS:
        value = getattr(s.spec, row.fields[0])
        if not s.good(row.fields[0]) or value == row.default:
            continue
        if row.choices and row.form != "math" and value not in row.choices:
            found = s.values(row.fields[0], row.choices, len(row.choices))
            legal = _listed(found) if found else f"leave {row.name} out"
            yield Problem(f"{row.name} {quoted(str(value))} is not supported", legal, s.span(row.name))
        if row.pattern and not re.fullmatch(row.pattern, str(value)):
            hint = f"write it like '{row.name} {row.example}'"
            yield Problem(f"{quoted(str(value))} is not a value of {row.name}", hint, s.span(row.name))


def _k_step(s: Subject) -> Iterator[Problem]:
    needs = "smem" if s.spec.has("smem") else f"math {s.spec.math}" if not s.spec.way.plain else ""
    if s.no_bk and needs and s.good("BM", "BN"):
        bm, bn, _ = s.spec.block
        message = f"{needs} needs BK, the block's step along K, and block {bm}x{bn} has none"
        found = s.first({"block": (bm, bn, bk)} for bk in K_STEPS)
        hint = f"{_x(found[0]['block'])} has" if found else "write it like BMxBNxBK"
        yield Problem(message, hint, s.span("tile block"))


def _multiple(s: Subject, whole: str, piece: str) -> Iterator[Problem]:
    """A size that is no multiple of the one a level below: ("BM", "TM")."""
    if not s.good(whole, piece):
        return
    (outer, i), (inner, _) = PARTS[whole], PARTS[piece]
    a, b = getattr(s.spec, outer)[i], getattr(s.spec, inner)[i]
    if a % b == 0:
        return
    noun = ("rows", "columns")[i]
    message = f"{outer} {a} {noun} is not a multiple of {inner} {b} {noun}"
    near = s.beside(whole, *multiples_around(a, b))
    hint = _are(near)
    if not near and (found := s.values(piece, sorted(divisors(a), key=lambda d: abs(d - b)))):
        hint = f"{piece} {found[0]} divides it"
    hint = hint or f"{whole} must be a multiple of {piece}"
    yield Problem(message, hint, s.span(whole, f"tile {outer}", f"tile {inner}"))


def _tiling(s: Subject) -> Iterator[Problem]:
    """Block, warp and thread tiles fit into one another."""
    if s.spec.way.by_group:
        return  # the shape of the instruction says what the tiles must be
    if s.spec.math != FMA.name:
        for whole, piece in (("BM", "WM"), ("BN", "WN")) if s.spec.warp is not None else ():
            yield from _multiple(s, whole, piece)
    elif not s.spec.has("warptile"):
        yield from _multiple(s, "BM", "TM")
        yield from _multiple(s, "BN", "TN")
    elif s.spec.warp is not None:
        for whole, piece in (("BM", "WM"), ("BN", "WN"), ("WM", "TM"), ("WN", "TN")):
            yield from _multiple(s, whole, piece)


def _warp_given(s: Subject) -> Iterator[Problem]:
    if not s.spec.has("warptile") or s.spec.warp is not None or not s.good("BM", "BN", "TM", "TN", "WM", "WN"):
        return
    tiles = f"block {_x(s.spec.block[:2])}" + (f" with thread {_x(s.spec.thread)}" if s.spec.way.plain else "")
    message = f"warptile needs a line 'tile warp' that divides {tiles}"
    if line := warp_line(s):
        yield Problem(message, f"add {line}", s.span("use warptile"))
    else:
        hint = s.leaving("warptile") or "change the block tile"
        yield Problem(f"{message}, and there is no such line", hint, s.span("use warptile"))


def _lanes(s: Subject) -> Iterator[Problem]:
    """A warp's tile is covered by its 32 lanes."""
    spec = s.spec
    if spec.math != FMA.name:
        return
    if not spec.has("warptile") or spec.warp is None or not s.good("WM", "WN", "TM", "TN", "m_iter", "n_iter"):
        return
    if spec.warp[0] % spec.thread[0] or spec.warp[1] % spec.thread[1] or _iterations(spec):
        return
    rows, columns = spec.warp[0] // spec.thread[0], spec.warp[1] // spec.thread[1]
    if legal := list(lane_grids(rows, columns)):
        given = ", ".join(f"{o}={v}" for o in ("m_iter", "n_iter") if (v := getattr(spec, o)) is not None)
        pairs = s.first(({"m_iter": m, "n_iter": n} for m, n in legal), len(legal))
        hint = " or ".join(f"(m_iter={p['m_iter']}, n_iter={p['n_iter']})" for p in pairs)
        hint = f"{hint} does" if hint else "change the warp tile"
        message = f"{given} does not cover warp {_x(spec.warp)} with {WARP} lanes of thread {_x(spec.thread)}"
        yield Problem(message, hint, s.span("m_iter", "n_iter", "use warptile"))
        return
    near = [] if s.trying or not s.good("BM", "BN") else warps_for(spec.block[:2], spec.thread, spec.warp)
    found = s.values("warp", near, 2)
    hint = f"{_tiles('warp ', found)} can be" if found else "change the thread tile"
    message = (
        f"warp {_x(spec.warp)} is {rows}x{columns} = {rows * columns} thread tiles of {_x(spec.thread)}, "
        f"which {WARP} lanes cannot share evenly"
    )
    yield Problem(message, hint, s.span("tile warp", "use warptile"))


def _threads(s: Subject) -> Iterator[Problem]:
    spec = s.spec
    if not s.good("use", "BM", "BN", "TM", "TN", "WM", "WN") or list(_tiling(s)):
        return
    block = spec.block[:2]
    if spec.math != FMA.name and not spec.has("warptile"):
        return
    level = "warp" if spec.has("warptile") else "thread"
    tile = spec.warp if spec.has("warptile") else spec.thread
    if tile is None or spec.threads <= MAX_THREADS:
        return
    near = warps_for(block, spec.piece, tile) if level == "warp" else threads_for(block, tile)
    found = s.values(level, near, 2)
    message = (
        f"block {_x(block)} with {level} {_x(tile)} needs {spec.threads} threads, over the limit of a block: "
        f"{spec.threads} > {MAX_THREADS}"
    )
    hint = f"{_tiles(level + ' ', found)} fits" if found else "make the block tile smaller"
    yield Problem(message, hint, s.span(f"tile {level}", "tile block"))


def _accumulators(s: Subject) -> Iterator[Problem]:
    spec = s.spec
    if not s.good("use", "TM", "TN", "WM", "WN", "m_iter", "n_iter"):
        return
    count, shape = spec.piece[0] * spec.piece[1], f"thread {_x(spec.piece)}"
    if spec.has("warptile") and spec.warp is not None:
        m_iter, n_iter = warp_iterations(spec)
        count, shape = count * m_iter * n_iter, f"{shape} in {m_iter}x{n_iter} pieces"
    if count > MAX_ACCUMULATORS:
        message = f"{shape} keeps {count} sums in a thread, over the limit: {count} > {MAX_ACCUMULATORS}"
        hint = "a thread has 255 registers; 64 or 128 sums are usual"
        yield Problem(message, hint, s.span("tile thread", "tile warp"))


def _choices_to_tune(s: Subject) -> Iterator[Problem]:
    if s.good("tune"):
        yield from choice_problems(s.spec)


def _x(sizes: Iterable[int]) -> str:
    return "x".join(str(v) for v in sizes)


def _listed(values: Sequence[Any]) -> str:
    *first, last = [str(v) for v in values]
    return _are(f"{', '.join(first)} and {last}" if first else last)


def _are(values: str) -> str:
    """A sentence of the values that are legal; empty where there are none."""
    return f"{values} {'are' if ' and ' in values else 'is'}" if values else ""


def _tiles(before: str, tiles: list[tuple[int, int]]) -> str:
    return " or ".join(f"'{before}{_x(t)}'" for t in tiles)


RULES: tuple[Callable[[Subject], Iterator[Problem]], ...] = (
    _name,
    _toggles,
    _operands,
    epilogue_problems,
    math_problems,
    _choices,
    _k_step,
    step_problems,
    pipeline_problems,
    lane_problems,
    _tiling,
    _warp_given,
    _lanes,
    _threads,
    _accumulators,
    _choices_to_tune,
)
