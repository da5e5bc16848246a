"""From decisions to order: the only maker of loops and barriers.

A barrier is never placed by hand. Each statement says which shared buffers it reads and writes; a barrier stands
where a buffer was written (or read) by all threads and is then read (or overwritten) by others, also around the
back of the loop. That hazard is the barrier's comment in the CUDA.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gemmgen.tile.program import Copy, TileProgram


@dataclass(frozen=True)
class Clear:
    """acc = 0."""


@dataclass(frozen=True)
class Stage:
    """Run a copy: one tile from global to shared memory."""

    copy: Copy


@dataclass(frozen=True)
class Barrier:
    """All threads of the block meet. ``hazard`` is what would go wrong without it."""

    hazard: str


@dataclass(frozen=True)
class Fragment:
    """A thread fetches its part of one operand at one k into registers, from a buffer or from global memory."""

    operand: Literal["A", "B"]
    buffer: str | None


@dataclass(frozen=True)
class Multiply:
    """acc += a x b, the outer product of a thread's fragments."""


@dataclass(frozen=True)
class Steps:
    """for k0 in 0..K step BK."""

    body: tuple[TileStmt, ...]


@dataclass(frozen=True)
class Inner:
    """for k in 0..BK inside a tile, or in 0..K where nothing is staged."""

    body: tuple[TileStmt, ...]
    whole: bool


@dataclass(frozen=True)
class Finish:
    """C = alpha * acc + beta * C."""


TileStmt: TypeAlias = Clear | Stage | Barrier | Fragment | Multiply | Steps | Inner | Finish


def sequence(p: TileProgram) -> tuple[TileStmt, ...]:
    """The statements of one block, in order, barriers included."""
    fragments = tuple(Fragment(x, _buffer_name(p, x)) for x in ("A", "B"))
    inner = Inner((*fragments, Multiply()), whole=not p.copies)
    if not p.copies:
        return (Clear(), inner, Finish())
    body = with_barriers((*(Stage(c) for c in p.copies), inner))
    return (Clear(), Steps(body), Finish())


def _buffer_name(p: TileProgram, operand: str) -> str | None:
    buffer = p.buffer(operand)
    return buffer.name if buffer else None


def reads(s: TileStmt) -> frozenset[str]:
    """Shared buffers that a statement reads."""
    match s:
        case Fragment(_, str(name)):
            return frozenset({name})
        case Inner(body) | Steps(body):
            return frozenset().union(*(reads(x) for x in body))
        case _:
            return frozenset()


def writes(s: TileStmt) -> frozenset[str]:
    """Shared buffers that a statement writes."""
    match s:
        case Stage(copy):
            return frozenset({copy.buffer})
        case Inner(body) | Steps(body):
            return frozenset().union(*(writes(x) for x in body))
        case _:
            return frozenset()


def with_barriers(body: tuple[TileStmt, ...]) -> tuple[TileStmt, ...]:
    """The body of a loop with the barriers its hazards need, between statements and around the back edge."""
    out: list[TileStmt] = []
    written: set[str] = set()
    read: set[str] = set()
    for s in body:
        hazard = _hazard(s, written, read)
        if hazard:
            out.append(Barrier(hazard))
            written, read = set(), set()
        out.append(s)
        written |= writes(s)
        read |= reads(s)
    # The next turn of the loop starts with what is pending at its end.
    for s in body:
        hazard = _hazard(s, written, read)
        if hazard:
            names = _names({x for later in body for x in writes(later)} & (read | written))
            out.append(Barrier(f"{names}: read above, overwritten by the next step"))
            break
        if isinstance(s, Barrier):
            break
    return tuple(out)


def _hazard(s: TileStmt, written: set[str], read: set[str]) -> str:
    if reads(s) & written:
        return f"{_names(reads(s) & written)}: written by all threads above, read by all below"
    if writes(s) & read:
        return f"{_names(writes(s) & read)}: read above, overwritten below"
    return ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
