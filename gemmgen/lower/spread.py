"""How the threads of a block share the accesses of one tile, with as little index arithmetic as the sizes allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmgen.ir.expr import Const, Expr, value_of
from gemmgen.ir.nodes import Stmt
from gemmgen.ir.types import WARP
from gemmgen.lower.nest import nest
from gemmgen.lower.scope import Scope, let

Body = Callable[[Expr, Expr, Expr, "Expr | None"], list[Stmt]]
"""``body(slow, fast, number, condition)``: the statements of a thread's access of that number; a condition other
than None says which threads take part."""


@dataclass(frozen=True)
class Lanes:
    """How threads spread over a tile of ``slow`` x ``fast`` accesses, ``fast`` being what consecutive threads walk.

    ``index`` statements stand before the K loop; ``loops(body)`` makes a copy's loops around its accesses, and
    ``one(number, body)`` is the access of that number, of ``passes``, whose value is known. ``holds`` is the condition
    on the constants under which every access is made once; empty where it holds for any.
    """

    index: tuple[Stmt, ...]
    passes: Expr
    loops: Callable[[Body], list[Stmt]]
    one: Callable[[Expr, Body], list[Stmt]]
    holds: str = ""


@dataclass(frozen=True)
class Along:
    """One direction of a tile: its accesses, the name of a thread's index in it, and what one access covers there."""

    extent: Expr
    name: str
    covers: str


PATCH = 8
"""Accesses along a line in a patch of a warp, which is 4 lines high: 32 bytes each of float32, a sector."""


def spread(s: Scope, operand: str, slow: Along, fast: Along, does: str = "copies", patches: bool = False) -> Lanes:
    """Shares slow x fast accesses among the block's threads. ``does``: what a thread does with them, in words.
    ``patches``: a warp's accesses are a patch of some lines, not one line."""
    cols = value_of(fast.extent)
    assert cols is not None
    if s.threads % cols == 0:
        return _by_lines(s, operand, slow, fast, does, patches and _has_patches(s.threads, cols))
    if cols % s.threads == 0:
        return _within_a_line(s, operand, slow.extent, fast, does)
    return _numbered(s, slow.extent, fast.extent)


def _has_patches(threads: int, cols: int) -> bool:
    return cols % PATCH == 0 and threads % (WARP // PATCH * cols) == 0


def _by_lines(s: Scope, operand: str, across: Along, along: Along, does: str, patches: bool) -> Lanes:
    """Each pass of the block covers whole lines."""
    slow, fast = across.extent, along.extent
    rows, cols = value_of(slow) or 1, value_of(fast) or 1
    out: list[Stmt] = []
    stride = s.threads // cols
    passes = -(-rows // stride)
    part = f"of {operand}'s tile this thread {does}{' first' if passes > 1 else ''}"
    number, place = s.tid // fast, s.tid % fast
    if patches:
        patch = let(
            out,
            f"patch{operand}",
            s.tid // s.constants["WARP"].expr,
            "which patch of 8 by 4 of the tile this warp copies first",
        )
        within = s.tid % s.constants["WARP"].expr
        number = patch // (fast // PATCH) * (WARP // PATCH) + within // PATCH
        place = patch % (fast // PATCH) * PATCH + within % PATCH
    first = let(out, across.name, number, f"which {across.covers} {part}")
    a_line = f"which {along.covers} of a line of {operand}'s tile this thread {does}"
    at = let(out, along.name, place, a_line if stride == 1 else f"and which {along.covers}")
    if passes == 1:
        condition = None if stride == rows else first.lt(slow)

        def once(body: Body) -> list[Stmt]:
            return body(first, at, Const(0), condition)

        relation = "==" if condition is None else "<="
        holds = f"{_atom(slow)} * {_atom(fast)} {relation} THREADS"
        return Lanes(tuple(out), Const(1), once, lambda number, body: once(body), holds)
    why = f"rows of {operand}'s tile that one pass of the block {does}"
    by = s.constant(f"STRIDE_{operand}", stride, f"THREADS / {_atom(fast)}", why)

    def inside(line: Expr) -> Expr | None:
        return None if rows % stride == 0 else line.lt(slow)

    def loops(body: Body) -> list[Stmt]:
        def one(offset: Expr) -> list[Stmt]:
            return body(first + offset, at, offset // by, inside(first + offset))

        return nest([("offset", slow, by)], one)

    def numbered(number: Expr, body: Body) -> list[Stmt]:
        line = first + number * by
        return body(line, at, number, inside(line))

    holds = f"THREADS % {_atom(fast)} == 0" + (
        f" && {_atom(slow)} % STRIDE_{operand} == 0" if rows % stride == 0 else ""
    )
    return Lanes(tuple(out), slow // by if rows % stride == 0 else Const(passes), loops, numbered, holds)


def _within_a_line(s: Scope, operand: str, slow: Expr, along: Along, does: str) -> Lanes:
    """Each line takes several passes of the block."""
    fast = along.extent
    rows, cols = value_of(slow) or 1, value_of(fast) or 1
    out: list[Stmt] = []
    at = let(out, along.name, s.tid, f"which {along.covers} of a line of {operand}'s tile this thread {does} first")
    threads = s.constants["THREADS"].expr
    pieces = cols // s.threads

    def loops(body: Body) -> list[Stmt]:
        def one(line: Expr, offset: Expr) -> list[Stmt]:
            return body(line, at + offset, line * pieces + offset // threads, None)

        return nest([("line", slow, 1), ("offset", fast, threads)], one)

    def numbered(number: Expr, body: Body) -> list[Stmt]:
        return body(number // pieces, at + number % pieces * threads, number, None)

    return Lanes(tuple(out), Const(rows * pieces), loops, numbered, f"{_atom(fast)} % THREADS == 0")


def _numbered(s: Scope, slow: Expr, fast: Expr) -> Lanes:
    """The threads do not divide a line: accesses are numbered through."""
    total = (value_of(slow) or 1) * (value_of(fast) or 1)
    threads = s.constants["THREADS"].expr

    def access(offset: Expr, number: Expr, body: Body) -> list[Stmt]:
        found: list[Stmt] = []
        i = let(found, "i", s.tid + offset, "the threads do not divide a line: number the accesses through")
        inside = None if total % s.threads == 0 else i.lt(slow * fast)
        return found + body(i // fast, i % fast, number, inside)

    def loops(body: Body) -> list[Stmt]:
        return nest([("offset", slow * fast, threads)], lambda offset: access(offset, offset // threads, body))

    def numbered(number: Expr, body: Body) -> list[Stmt]:
        return access(number * threads, number, body)

    holds = f"{_atom(slow)} * {_atom(fast)} % THREADS == 0" if total % s.threads == 0 else ""
    return Lanes((), Const(-(-total // s.threads)), loops, numbered, holds)


def _atom(e: Expr) -> str:
    text = str(e)
    return f"({text})" if " " in text else text
