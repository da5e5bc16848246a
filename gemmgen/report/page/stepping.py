"""What a pipelined kernel does for one tile of K, step by step: who waits for what, and which accesses that orders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gemmgen.isa.table import Completion
from gemmgen.tile.sequence import sequence
from gemmgen.tile.statements import Ahead, Bring, EachTile, Inner, Issue, Programs, Promote, Steps, TileStmt
from gemmgen.tile.syncs import Kind, Side, Sync

if TYPE_CHECKING:
    from gemmgen.tile.program import TileProgram

ALL, EACH, ONE = "all threads", "each warp", "one thread"
CALLS = {
    (Kind.BLOCK, Side.BOTH): "__syncthreads()",
    (Kind.GROUP, Side.RELEASE): "cp_async_commit()",
    (Kind.GROUP, Side.ACQUIRE): "cp_async_wait",
    (Kind.FULL, Side.RELEASE): "mbarrier_expect(&full",
    (Kind.FULL, Side.ACQUIRE): "mbarrier_wait(&full",
    (Kind.EMPTY, Side.RELEASE): "mbarrier_release(&empty",
    (Kind.EMPTY, Side.ACQUIRE): "mbarrier_wait(&empty",
}
"""How the CUDA line of a synchronisation reads, where its comment does not tell."""


@dataclass(frozen=True)
class Move:
    """One step. ``what`` is a sentence in which {t} stands for the tile and {s} for its stage; the tile lies ``ahead``
    of the one that is multiplied in this turn, and is each of the first where that is None. ``orders`` is the hazard
    that a synchronisation is there for. ``shows`` is the bar of the timeline that it is about: "copying" or
    "multiplied", of the tile ``of`` turns ahead. ``cuda`` is its line of CUDA."""

    who: str
    what: str
    ahead: int | None = 0
    waits: bool = False
    orders: str = ""
    shows: str = ""
    of: int = 0
    cuda: int | None = None


@dataclass(frozen=True)
class Stepping:
    """The moves before the loop over tiles of K, for each of the first ``filled`` tiles, and those of each turn.
    ``roles``: warp groups run two programs."""

    depth: int
    filled: int
    before: tuple[Move, ...]
    turn: tuple[Move, ...]
    roles: bool

    @property
    def caption(self) -> str:
        tiles = f"Turn t of the loop over K multiplies tile t, which lies in stage t mod {self.depth}."
        if not self.roles:
            return f"{tiles} All warps run the same program. The last turns start no copies."
        return (
            f"{tiles} Two programs run at the same time. The producer is shown as far ahead as the stages allow: it "
            "refills a stage as soon as the consumers have released it. The last turns start no copies."
        )

    def html(self, move: Move) -> str:
        """The sentence of a move; the script of the page puts the numbers of a turn in the places of its letters."""
        tile, stage = "i", "i"
        if move.ahead is not None:
            t = f"t + {move.ahead}" if move.ahead else "t"
            at = f"({t})" if move.ahead % self.depth else "t"
            tile = f'<var data-t="{move.ahead}">{t}</var>'
            stage = f'<var data-s="{move.ahead}">{at} mod {self.depth}</var>'
        told = re.sub(r"(full|empty)\[\{s\}\]", r"<code>\1[{s}]</code>", move.what)
        return told.replace("{t}", tile).replace("{s}", stage)

    @property
    def lines(self) -> set[int | None]:
        """The lines of CUDA that moves refer to."""
        return {m.cuda for m in (*self.before, *self.turn)}


def stepping(p: TileProgram, cuda: str = "") -> Stepping | None:
    """The moves of a kernel that copies tiles ahead of their use; None for one that does not."""
    if not p.copies or p.pipeline.depth < 2:
        return None
    walk = _Walk(p, cuda.splitlines())
    statements = sequence(p)
    programs = next((s for s in statements if isinstance(s, Programs)), None)
    if programs is not None:
        return walk.programs(programs)
    inner = next((s.body for s in statements if isinstance(s, EachTile)), statements)
    at = next(i for i, s in enumerate(inner) if isinstance(s, Steps))
    loop = inner[at]
    assert isinstance(loop, Steps)
    depth = p.pipeline.depth
    filled = next((s.count for s in inner if isinstance(s, Ahead)), 1)
    first = tuple(replace(m, ahead=None, shows="") for m in walk.moves(inner[:at]) if "set up" not in m.what)
    return Stepping(depth, filled, first, walk.moves(loop.body), roles=False)


@dataclass(frozen=True)
class _Walk:
    p: TileProgram
    cuda: list[str]

    def programs(self, s: Programs) -> Stepping:
        """A turn of the consumers, then the producer's refill of the stage that they released."""
        depth = self.p.pipeline.depth
        bring, use = (self.moves(_turn(body)) for body in (s.producer, s.consumers))
        named = [replace(m, who=_role(m.who, "producer")) for m in bring]
        turn = [replace(m, who=_role(m.who, "consumers")) for m in use]
        refill = [replace(m, ahead=depth, of=m.of + depth) for m in named]
        at_once = "passes empty[{s}] at once: no stage is in use yet"
        first = [
            replace(m, ahead=None, shows="", waits=False, what=at_once if m.waits else m.what, orders="") for m in named
        ]
        return Stepping(depth, depth, tuple(first), (*turn, *refill), roles=True)

    def moves(self, statements: Iterable[TileStmt]) -> tuple[Move, ...]:
        return tuple(m for s in statements for m in self._of(s))

    def _of(self, s: TileStmt) -> Iterator[Move]:
        match s:
            case Sync():
                yield self._sync(s)
            case Bring():
                yield from (self._sync(x) for x in s.first)
                yield self._bring(s)
            case Ahead(body=body):
                yield from self.moves(body)
            case Inner(brings=brings):
                yield from (self._bring(b) for b in brings)
                yield Move(ALL, "multiply tile {t} from stage {s}", shows="multiplied")
            case Issue():
                yield Move("each warp group", "starts the products of tile {t} from stage {s}", shows="multiplied")
            case Promote():
                yield Move(ALL, "add the products of tile {t} to the float32 sums")
            case _:
                return

    def _bring(self, b: Bring) -> Move:
        """A copy. Through registers it has two parts; asynchronous ones are only started."""
        if any(c.via.lands is Completion.BARRIER for c in b.copies):
            what = "issues the TMA copies of tile {t} to stage {s}; full[{s}] completes when all bytes have arrived"
            return Move(ONE, what, b.ahead, shows="copying", of=b.ahead)
        what = {
            "whole": "copy tile {t} to stage {s}",
            "fetch": "load tile {t} from global memory into registers",
            "put": "store tile {t} from registers to stage {s}",
        }[b.part]
        if any(c.via.lands is Completion.GROUP for c in b.copies):
            what = "start to copy tile {t} to stage {s} by cp.async"
        return Move(ALL, what, b.ahead, shows="copying", of=b.ahead)

    def _sync(self, s: Sync) -> Move:
        depth = self.p.pipeline.depth
        move = Move(ALL, "", s.ahead, orders=s.hazard, cuda=self._line(s))
        match s.kind, s.side:
            case Kind.FULL, Side.RELEASE:
                return replace(move, who=ONE, what="announces on full[{s}] the bytes of tile {t}")
            case Kind.FULL, _:
                what = "wait at full[{s}] until all bytes of tile {t} have arrived"
                return replace(move, what=what, waits=True, shows="copying", of=s.ahead)
            case Kind.EMPTY, Side.RELEASE:
                what = "arrives at empty[{s}]: it has read tile {t}"
                return replace(move, who=EACH, what=what, shows="multiplied", of=s.ahead)
            case Kind.EMPTY, _:
                what = "waits at empty[{s}] until all warps have released the stage that tile {t} will overwrite"
                return replace(move, who=ONE, what=what, waits=True, shows="multiplied", of=s.ahead - depth)
            case Kind.GROUP, Side.RELEASE:
                return replace(move, what="commit these copies as a group")
            case Kind.GROUP, _:
                left = "" if not s.pending else f"; {s.pending} younger group{'s' * (s.pending > 1)} may be in flight"
                what = f"wait for their own copies of tile {{t}}{left}"
                return replace(move, what=what, waits=True, shows="copying", of=s.ahead)
            case Kind.PROXY, _:
                return replace(move, what="fence their loads of stage {s} against the TMA engine")
            case Kind.PRODUCTS, Side.RELEASE:
                return replace(move, who="each warp group", what="commits the products of tile {t} as a group")
            case Kind.PRODUCTS, _:
                what = "waits until its products of tile {t} are done"
                return replace(move, who="each warp group", what=what, waits=True, shows="multiplied")
            case Kind.REGISTERS, _:
                return replace(move, what="fence the registers of the sums")
            case Kind.SET_UP, _:
                return replace(move, what="meet after one thread has set up a barrier per stage", waits=True)
            case _:
                return replace(move, what=f"meet at a {s.kind.value}", waits=True)

    def _line(self, s: Sync) -> int | None:
        """The last CUDA line with its comment, else with its call: an earlier one is before the loop."""
        for text in (f"// {s.hazard}", CALLS.get((s.kind, s.side), "")):
            found = [i for i, line in enumerate(self.cuda, 1) if text and text in line]
            if found:
                code = found[-1]
                while self.cuda[code - 1].lstrip().startswith("//"):
                    code += 1
                return code
        return None


def _turn(statements: tuple[TileStmt, ...]) -> tuple[TileStmt, ...]:
    """The body of the loop over tiles of K."""
    for s in statements:
        if isinstance(s, Steps):
            return s.body
        if isinstance(s, EachTile):
            return _turn(s.body)
    return ()


def _role(who: str, role: str) -> str:
    """Who of a role: all of it where a move is of all threads."""
    return f"{role}: {who}" if who != ALL else role
