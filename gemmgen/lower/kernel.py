"""The body of a kernel in its numbered parts: placement, what all tiles of C have in common, the walk, the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gemmgen.ir.expr import Const, both
from gemmgen.ir.nodes import Array, Call, If, Role, Roles, Section, Stmt
from gemmgen.ir.types import WARP
from gemmgen.isa.table import Completion
from gemmgen.isa.wgmma import GROUP_WARPS, registers
from gemmgen.lower.copy import TileCopy
from gemmgen.lower.order import TILE, each_tile
from gemmgen.lower.picture import stages_picture
from gemmgen.lower.place import Placement
from gemmgen.lower.scope import GRID_X, let
from gemmgen.lower.tiles import Tiles, Turn, tiles_of
from gemmgen.lower.walk import Parts, walk
from gemmgen.tile.program import TileProgram
from gemmgen.tile.sequence import sequence
from gemmgen.tile.statements import Ahead, Bring, EachTile, Inner, Multiply, Programs, Steps, TileStmt
from gemmgen.tile.sums import InCluster, InMemory
from gemmgen.tile.syncs import Kind, Sync

Body = tuple[Stmt, ...]


def kernel_body(w: Parts, placement: Placement, shared: Mapping[str, Array], copies: Mapping[str, TileCopy]) -> Body:
    """The whole body."""
    p = w.s.p
    statements = sequence(p)
    tiles, counting = tiles_of(w.s, w.at, shared, copies, any(_looks_ahead(x) for x in statements))
    opening = tuple(x for x in statements[:1] if isinstance(x, Sync) and x.kind is Kind.KERNEL)
    rest = statements[len(opening) :]
    index = [x for c in tiles.copies.values() for x in c.index]
    allowed, turn = walk(w, Turn(tiles), opening)
    before = (*allowed, Section("Placement: what this thread computes", (*placement.block, *index)))
    match rest:
        case (*start, Programs() as programs):
            once = (*counting, *walk(w, turn, start)[0])
            setup = Section("Pipeline: what all programs have in common", once)
            return (*before, setup, *roles_of(w, placement, tiles, programs, turn))
        case (*start, EachTile(body)):
            once = (*counting, *walk(w, turn, start)[0])
            title = "Pipeline: what all tiles of C have in common"
            common = (Section(title, once),) if once else ()
            return (*before, *common, _each_tile(w, placement, tiles, body))
        case _:
            return (*before, *_tile_of_c(w, turn, rest, tuple(counting)))


def roles_of(w: Parts, placement: Placement, tiles: Tiles, s: Programs, turn: Turn) -> Body:
    """Warps that run different programs: those that multiply, and behind them the group that brings their tiles."""
    p = w.s.p
    assert p.producer is not None
    last = p.consumers // WARP - 1
    first = w.s.constants["CONSUMERS"].expr
    brings = _program(w, placement, tiles, s.producer, turn)
    one = If(w.s.tid.eq(first), brings, why="one thread issues the TMA copies")
    given = _registers(p.producer.registers, take=False)
    taken = _registers(p.consumer_registers, take=True)
    producer = Role("producer", last + 1, last + GROUP_WARPS, (*given, one))
    consumers = Role("consumers", 0, last, (*taken, *_program(w, placement, tiles, s.consumers, turn)))
    return (Roles((consumers, producer)),)


def _program(w: Parts, placement: Placement, tiles: Tiles, body: tuple[TileStmt, ...], turn: Turn) -> Body:
    """One of the programs, of which only that with an end has an epilogue."""
    match body:
        case (EachTile(inner), *ending):
            return (_each_tile(w, placement, tiles, inner), *walk(w, turn, ending)[0])
        case _:
            return _tile_of_c(w, turn, body, ())


def _registers(count: int | None, take: bool) -> Body:
    return (Call(registers(count, take), (), origin="roles"),) if count else ()


def _each_tile(w: Parts, placement: Placement, tiles: Tiles, body: tuple[TileStmt, ...]) -> Stmt:
    """The loop over the tiles of C of this block."""
    run_on: list[Stmt] = []
    turn = _run_on(w.s.p, Turn(tiles), run_on)
    which = Section("Which tile of C is next, and where it lies", (*placement.tile, *run_on))
    return each_tile((which, *_tile_of_c(w, turn, body, ())))


def _run_on(p: TileProgram, turn: Turn, out: list[Stmt]) -> Turn:
    """Where in the stages, and in which phase of their barriers, a tile of C begins: where the one before ended.

    A stage and its phase come again after two rounds, so that nothing has to be counted beyond that.
    """
    if not p.landing(Completion.BARRIER):
        return turn
    rounds = Const(2) * turn.k.stages
    why = "steps along K before this tile of C, modulo two rounds of the stages, which run on, and so do phases"
    return replace(turn, passed=let(out, "passed", TILE // GRID_X % rounds * (turn.k.number % rounds) % rounds, why))


def _tile_of_c(w: Parts, turn: Turn, body: tuple[TileStmt, ...], start: Body) -> Body:
    """One tile of C: the walk along K and the epilogue."""
    along, last = _halves(body)
    steps, turn = walk(w, turn, along)
    if not last and w.s.p.producer is not None:
        return (*start, *steps)
    main = Section("Main loop", (*start, *steps), _walk_why(w.s.p), stages_picture(w.s.p, body))
    title = f"Epilogue: {_epilogue_title(w.s.p)}"
    end = Section(title, tuple(walk(w, turn, last)[0]), "" if w.staged is None else w.staged.tile.why)
    parts: Body = (main, end)
    if w.skips:
        left = both(w.at.row.lt(w.s.left("m")), w.at.col.lt(w.s.left("n")))
        parts = (If(left, parts, why="threads outside C have nothing to do"),)
    return parts


def _halves(body: tuple[TileStmt, ...]) -> tuple[tuple[TileStmt, ...], tuple[TileStmt, ...]]:
    """The statements up to the last product, and those behind it."""
    product = max(i for i, x in enumerate(body) if isinstance(x, Steps | Inner | Multiply))
    return body[: product + 1], body[product + 1 :]


def _epilogue_title(p: TileProgram) -> str:
    staged = "" if p.output.tile is None else ", through shared memory"
    match p.sums:
        case InMemory():
            return f"C += alpha * A B of this block's part of K, in no fixed order of the blocks{staged}"
        case InCluster():
            among = ", A B being the sums of all blocks of the cluster in their order"
            return f"C = {_stored(p)}{among}{staged}"
        case _:
            return f"C = {_stored(p)}{staged}"


def _stored(p: TileProgram) -> str:
    """What becomes C, in words of the spec."""
    product = "alpha * A B + beta * C"
    return f"{product}, then {' -> '.join(e.text for e in p.applied)}" if p.applied else product


def _looks_ahead(s: TileStmt) -> bool:
    """Whether tiles are brought ahead of their use, or waited for by their stage."""
    match s:
        case Bring(_, ahead) if ahead:
            return True
        case Ahead():
            return True
        case Sync(kind):
            return kind is Kind.FULL
        case Steps(body) | EachTile(body):
            return any(_looks_ahead(x) for x in body)
        case Programs():
            return True
        case Inner(_, _, brings):
            return any(_looks_ahead(x) for x in brings)
        case _:
            return False


def _walk_why(p: TileProgram) -> str:
    if not p.copies:
        return ""
    if len(p.copies) == 1:
        operand, other = ("A", "B") if p.copies[0].operand == "A" else ("B", "A")
        ahead = " while later tiles are in flight" if p.pipeline.depth > 1 else ""
        return f"each iteration multiplies one tile of {operand}{ahead} with {other}, read from global memory"
    if p.pipeline.depth > 1:
        return "each iteration multiplies one tile of A with one of B while later tiles are in flight"
    return "each iteration copies one tile of A and one of B to shared memory, then multiplies them"
