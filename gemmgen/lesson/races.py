"""The verdict on a tile program with a missing barrier: the simulator runs the program that was handed in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from gemmgen.ir.nodes import Alloc, Fma, For, Load, Stmt, Store, Sync, edit
from gemmgen.ir.types import F32
from gemmgen.lesson.rows import Point, Race

if TYPE_CHECKING:
    from gemmgen.ir.kernel import KernelIR

BARRIER = "barrier"
INDENT = 2
MOST = 6
"""Barriers of an answer that are tried one by one."""
TILES = 3
"""Tiles along K of the simulated product."""


@dataclass(frozen=True)
class Line:
    """A line without its comment: its number in the text, its indentation and what it says."""

    number: int
    indent: int
    text: str


@dataclass(frozen=True)
class Barrier:
    """A barrier of the answer: it stands behind line ``after`` of the program without barriers, or is the first
    statement of the loop that this line opens (``inside``). ``every_step``: it stands in the loop over k."""

    number: int
    after: int
    inside: bool
    every_step: bool


def program_of(race: Race) -> list[str]:
    """The lines of the whole tile program, without its comments."""
    import gemmgen
    from gemmgen.ir.variant import EXACT
    from gemmgen.tile import build, print_tile

    text = print_tile(build(gemmgen.load(race.spec), EXACT))
    return [" " * x.indent + x.text for x in _lines(text)]


def broken(race: Race) -> str:
    """The program without its barrier."""
    lines = program_of(race)
    del lines[barriers(lines)[race.barrier]]
    return "\n".join(lines) + "\n"


def barriers(lines: list[str]) -> list[int]:
    """The places of the barriers among lines."""
    return [i for i, line in enumerate(lines) if line.strip() == BARRIER]


def check_race(race: Race, text: str) -> Iterator[Point]:
    """What is met and what is not, by running the program of the answer."""
    whole = [x for x in _lines("\n".join(program_of(race))) if x.text != BARRIER]
    mine = _lines(text)
    if difference := _difference(whole, [x for x in mine if x.text != BARRIER]):
        yield Point(False, f"{difference}. Only barriers may differ; start from `gemmgen lesson show` again")
        return
    placed, problem = _placed(whole, mine)
    if problem:
        yield Point(False, problem)
        return
    yield from _simulated(race, whole, placed)


def _simulated(race: Race, whole: list[Line], placed: list[Barrier]) -> Iterator[Point]:
    import gemmgen

    enough = len(barriers(program_of(race)))
    if len(placed) > MOST:
        yield Point(False, f"the program has {len(placed)} barriers; {enough} are enough")
        return
    faults = _faults(race, whole, placed)
    less = {b: _faults(race, whole, [x for x in placed if x is not b]) for b in placed}
    if faults:
        yield Point(False, f"simulated: {faults[0]}")
        for b in _added(placed, _placed(whole, _lines(broken(race)))[0]):
            if less[b] == faults:
                yield Point(
                    False, f"the barrier in line {b.number} changes nothing: without it the simulator finds the same"
                )
        return
    yield Point(True, "simulated: no race")
    needless = [b for b in placed if not less[b]]
    if needless:
        added = _added(needless, _placed(whole, _lines("\n".join(program_of(race))))[0])
        b = [*needless, *added][-1]
        yield Point(
            False, f"the barrier in line {b.number} is not needed: the program has no race without it; remove it"
        )
    for b in placed:
        if b.every_step and b not in needless:
            each = gemmgen.load(race.spec).block[2]
            yield Point(
                False,
                f"the barrier in line {b.number} runs {each} times per tile of K, in every step of the loop over k; "
                "once per tile is enough",
            )


def _added(placed: list[Barrier], given: list[Barrier]) -> list[Barrier]:
    """The barriers at other places than those of a given program."""
    places = {(b.after, b.inside) for b in given}
    return [b for b in placed if (b.after, b.inside) not in places]


def _lines(text: str) -> list[Line]:
    found = []
    for number, line in enumerate(text.expandtabs(INDENT).splitlines(), 1):
        if bare := line.partition("#")[0].rstrip():
            found.append(Line(number, len(bare) - len(bare.lstrip()), bare.strip()))
    return found


def _difference(whole: list[Line], mine: list[Line]) -> str:
    """The first line that is not the program's, in words; empty where there is none."""
    shift = mine[0].indent if mine else 0
    for is_, x in zip(whole, mine, strict=False):
        if x.text.split() != is_.text.split():
            return f"line {x.number} is `{x.text}`, where the program has `{is_.text}`"
        if x.indent - shift != is_.indent:
            return f"line {x.number} is indented by {x.indent} spaces, where the program has {is_.indent + shift}"
    if len(mine) < len(whole):
        return f"the program's line `{whole[len(mine)].text}` is missing"
    return "" if len(mine) == len(whole) else f"line {mine[len(whole)].number} is not part of the program"


def _placed(whole: list[Line], mine: list[Line]) -> tuple[list[Barrier], str]:
    """The barriers of an answer that differs in nothing else, or what is wrong with the place of one."""
    found: list[Barrier] = []
    at = -1
    shift = next(x.indent for x in mine if x.text != BARRIER)
    for x in mine:
        if x.text != BARRIER:
            at += 1
            continue
        above = whole[max(at, 0)].indent
        below = whole[at + 1].indent if at + 1 < len(whole) else INDENT
        depths = [below] if below >= above else list(range(below, above + 1, INDENT))
        indent = x.indent - shift if len(depths) > 1 else depths[0]
        if indent not in depths:
            *some, last = (str(d + shift) for d in depths)
            wanted = f"{', '.join(some)} or {last}"
            return [], (
                f"line {x.number}: the barrier is indented by {x.indent} spaces; indent it by {wanted}, to show which "
                "loop it belongs to"
            )
        found.append(_barrier(whole, x.number, at, indent))
    return found, ""


def _barrier(whole: list[Line], number: int, at: int, indent: int) -> Barrier:
    first = next(i for i, x in enumerate(whole) if x.text.startswith("acc = "))
    if at < first:  # a barrier in front of the first statement does what it does behind it
        at, indent = first, whole[first].indent
    inside = whole[at].indent < indent
    after = at if inside else max(i for i in range(at + 1) if whole[i].indent <= indent)
    loops = [x for i, x in enumerate(whole[: at + 1]) if x.text.startswith("for ") and _open(whole, i, at, indent)]
    return Barrier(number, after, inside, any(x.text.startswith("for k in") for x in loops))


def _open(whole: list[Line], loop: int, at: int, indent: int) -> bool:
    """Whether what stands behind line ``at``, so far indented, is in the body of a loop."""
    return whole[loop].indent < indent and all(x.indent > whole[loop].indent for x in whole[loop + 1 : at + 1])


# --- The simulated program --------------------------------------------------------------------------------------------


def _faults(race: Race, whole: list[Line], placed: list[Barrier]) -> tuple[str, ...]:
    places = tuple((whole[b.after].text, b.inside) for b in placed)
    return _run(race.spec, places)


@cache
def _run(spec: str, places: tuple[tuple[str, bool], ...]) -> tuple[str, ...]:
    """What the simulator finds in the kernel of a spec with barriers at just these places."""
    import numpy as np

    import gemmgen

    ir = _with(gemmgen.lower(gemmgen.load(spec)), places)
    bm, bn, bk = ir.tile
    a, b = np.ones((bm, TILES * bk), F32.numpy_dtype), np.ones((TILES * bk, bn), F32.numpy_dtype)
    # The answer is a tile program, which has no lines of a spec.
    return tuple(re.sub(r" \(spec line [0-9]+\)", "", str(f)) for f in gemmgen.simulate(ir, a, b, counted=False).faults)


def _with(ir: KernelIR, places: tuple[tuple[str, bool], ...]) -> KernelIR:
    left = edit(ir.body, lambda s: () if isinstance(s, Sync) else (s,))
    syncs = iter(Sync(i, "") for i in range(len(places)))

    def put(s: Stmt) -> tuple[Stmt, ...]:
        said = _said(s)
        if not said:
            return (s,)
        if isinstance(s, For):
            first = tuple(next(syncs) for text, inside in places if inside and text.startswith(said))
            s = replace(s, body=(*first, *s.body))
        return (s, *(next(syncs) for text, inside in places if not inside and text.startswith(said)))

    done = replace(ir, body=edit(left, put))
    if len(done.syncs()) != len(places):
        raise AssertionError(f"{ir.name}: a line of its tile program has no statement of its own")
    return done


def _said(s: Stmt) -> str:
    """How the line of a tile program begins that a statement comes last of; empty for those within a line."""
    match s:
        case Alloc(array=array) if array.name == "acc":
            return "acc = "
        case For(var=var):
            return f"for {var.name} in "
        case Store(dst=dst) if dst.array.space == "shared":
            return f"copy {dst.array.name[0]}["
        case Load(dst=dst, src=src) if src.array.space == "shared":
            return f"{dst.array.name} = "
        case Fma():
            return "acc += "
        case Store(dst=dst) if dst.array.name == "C":
            return "C["
        case _:
            return ""
