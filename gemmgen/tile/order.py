"""Where accesses must be put in order: every wait, arrival, release, fence and barrier, derived from effects.

:func:`order` takes the statements of a program without any synchronisation. A sync stands where an access is in
conflict with one behind it, also around the back of the loop over K, and of that over tiles of C; as late as possible,
and one barrier serves for all that is behind it. What kinds of sync there may be, the program's decisions say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gemmgen.ir.program import Part
from gemmgen.isa.table import Completion, Proxy
from gemmgen.tile.behind import Behind, Conflict, Past, buffers_of
from gemmgen.tile.effects import ACCUMULATORS, STORES, TENSOR_CORES, Effect, Kernel, effects
from gemmgen.tile.overlap import overlap
from gemmgen.tile.program import STAGED, TileProgram
from gemmgen.tile.statements import Ahead, Bring, Clear, EachTile, Inner, Issue, Programs, Steps, StoreBoxes, TileStmt
from gemmgen.tile.syncs import Kind, Side, Sync, barrier

Statements = tuple[TileStmt, ...]


def order(p: TileProgram, statements: Statements, part: Part = "main") -> Statements:
    """The statements of one of a product's kernels, with all synchronisation that they need."""
    between = overlap(p, part)
    mine = {b.name for b in p.buffers}
    writes = (Past(name, 0, name, True, between.previous) for name in between.written if between.previous is not None)
    brought = frozenset(c.buffer for c in p.landing(Completion.BARRIER))
    start = Behind(p.pipeline.depth, frozenset(mine), frozenset(writes), engine=brought)
    engine = any(e.until is Completion.BARRIER for s in statements for e in effects(p, s))
    set_up = (Sync(Kind.SET_UP, Side.BOTH, "barriers: initialised above, used below"),) if engine else ()
    o = _Order(p)
    match statements:
        case (Programs() as both,):
            ordered: Statements = (o.programs(both, start),)
        case (EachTile(body),):
            ordered = (EachTile(o.tile_of_c(body, start, again=True)),)
        case _:
            ordered = o.tile_of_c(statements, start, again=False)
    end = () if isinstance(statements[0], Programs) else o.ending(statements)
    return (*between.allows, *set_up, *ordered, *end)


@dataclass(frozen=True)
class _Order:
    """Places syncs among the statements of one program."""

    p: TileProgram

    def tile_of_c(self, statements: Statements, start: Behind, again: bool) -> Statements:
        """What is done for one tile of C. ``again``: behind it all begins anew for the next, and what is pending at its
        end is pending at its beginning."""
        loops = [i for i, s in enumerate(statements) if isinstance(s, Steps)]
        if not loops:
            return self.place(statements, start)[0]
        at = loops[0]
        loop = statements[at]
        assert isinstance(loop, Steps)
        first = [s for s in statements[:at] if isinstance(s, Clear)]
        prologue = tuple(s for s in statements[:at] if not isinstance(s, Clear))
        before, turn, after = self.with_loop(prologue, loop.body, statements[at + 1 :], start, again)
        return (*first, *before, Steps(turn), *after)

    def programs(self, s: Programs, start: Behind) -> Programs:
        """Programs that run at the same time: ordered as if one turn after the other brought a tile and used it. What a
        statement waits for stands before it, in the program that has it."""
        bring, use = _turn_of(s.producer), _turn_of(s.consumers)
        turn, behind = self.settled((*bring, *use), start)
        brought = tuple(x for x in turn if isinstance(x, Bring))
        used = tuple(x for x in turn if not isinstance(x, Bring))
        tail, end = self.place(_tail_of(s.consumers), behind.last_turn())
        if isinstance(s.consumers[0], EachTile):  # what is pending at the end of a tile of C is so at its end again
            left = frozenset(x for x in end.past if x.agent == STORES)
            last = behind.last_turn()
            tail, _ = self.place(_tail_of(s.consumers), replace(last, past=last.past | left))
        consumers = _with_turn(s.consumers, used, tail)
        return Programs(_with_turn(s.producer, brought, ()), (*consumers, *self.ending(s.consumers)))

    def ending(self, statements: Statements) -> Statements:
        """What has to be over before the block ends: its shared memory goes with it."""
        if not any(e.agent == STORES for e in self.all(statements)):
            return ()
        hazard = f"{STAGED}: read by the TMA engine's last stores, gone when the block ends"
        return (Sync(Kind.STORED, Side.BOTH, hazard, (STAGED,)),)

    def with_loop(
        self, prologue: Statements, body: Statements, tail: Statements, start: Behind, again: bool = False
    ) -> tuple[Statements, Statements, Statements]:
        """The prologue, the loop's body and what follows it.

        The body's syncs are those of a turn in the middle of the loop, whose pending accesses are its predecessor's;
        the tail's are those of the last turn (where there was none, there was no tile).
        """
        turn, behind = self.settled(body, start)
        match turn:
            case (Sync(Kind.BLOCK) as lead, *rest):
                # The same at the end of a turn, where it reads as what it is: all are done with the tile.
                hazard = lead.hazard.replace("overwritten below", "overwritten by the next step")
                turn = (*rest, replace(lead, hazard=hazard))
                behind = behind.meet(Kind.BLOCK)
            case _:
                pass
        after, behind = self.place(tail, behind.last_turn())
        if again:
            start = replace(behind.any_stage(), past=behind.any_stage().past | start.past)
        before, behind = self.place(prologue, start)
        lacking = self.lacking(turn, behind)
        before = (*before, *((barrier(lacking),) if lacking else ()))
        match before:
            case (Sync(Kind.BLOCK) as lead, *rest) if again:
                # At the end of a tile of C, as at the end of a turn.
                hazard = lead.hazard.replace("overwritten below", "overwritten for the next tile of C")
                return tuple(rest), turn, (*after, replace(lead, hazard=hazard))
            case _:
                return before, turn, after

    def settled(self, body: Statements, behind: Behind) -> tuple[Statements, Behind]:
        """A turn's statements with its syncs once the pipeline is full: what is pending goes round the stages, so that
        turns are then alike. Raises AssertionError where they are not, and no one loop can be made of them."""
        turns: list[Statements] = []
        for _ in range(2 * behind.depth + 1):
            placed, behind = self.place(body, behind.next_turn())
            turns.append(placed)
        if any(turn != turns[-1] for turn in turns[behind.depth :]):
            raise AssertionError("the barriers that a loop over tiles needs differ from turn to turn")
        return turns[-1], behind

    def place(self, body: Statements, behind: Behind) -> tuple[Statements, Behind]:
        """Statements in a row, each with the syncs that it needs before and behind it."""
        out: list[TileStmt] = []
        for i, s in enumerate(body):
            syncs, behind = self.before(s, body[i + 1 :], behind)
            ordered, behind = self.enter(s, behind)
            syncs_behind, behind = self.after(s, body[i + 1 :], behind)
            out += [*syncs, ordered, *syncs_behind]
        return tuple(out), behind

    # --- Before a statement: the acquire sides ---------------------------------------------------------------------

    def before(self, s: TileStmt, later: Statements, behind: Behind) -> tuple[list[Sync], Behind]:
        """What a statement has to wait for."""
        found = behind.conflicts(effects(self.p, s))
        out: list[Sync] = []
        if previous := _of(found, Kind.KERNEL):
            out.append(Sync(Kind.KERNEL, Side.ACQUIRE, _still_writing(previous), buffers_of(previous)))
            behind = behind.without(lambda x: isinstance(x.agent, Kernel))
        if products := _of(found, Kind.PRODUCTS):
            out.append(self.multiplied(products))
            behind = behind.multiplied(self.p.group)
            found = behind.conflicts(effects(self.p, s))
        if used := _of(found, Kind.PROXY):
            out.append(before_engine(used))
            behind = behind.before_engines()
            found = behind.conflicts(effects(self.p, s))
        if stored := _of(found, Kind.STORED):
            hazard = f"{_names(stored)}: read by the TMA engine's last stores, overwritten below"
            out.append(Sync(Kind.STORED, Side.ACQUIRE, hazard, buffers_of(stored)))
            behind = behind.stored()
        if written := _of(found, Kind.HANDOVER):
            hazard = f"{_names(written)}: written by this warp group above, read by the TMA engine below"
            out.append(Sync(Kind.HANDOVER, Side.BOTH, hazard, buffers_of(written)))
            behind = behind.handed_over()
        among = bool(_of(found, Kind.CLUSTER))
        meets = bool(_of(found, Kind.BLOCK) or _of(found, Kind.GROUP))
        waited = _of(found, Kind.GROUP)
        if meets:
            # One barrier for all: what is read later in this turn is waited for before it, where it is on its way.
            waited += _of(behind.conflicts(self.all(later)), Kind.GROUP)
        if waited:
            last = max(x.group for x in waited)
            hazard = f"{_names(waited)}: copied asynchronously above, read below"
            out.append(Sync(Kind.GROUP, Side.ACQUIRE, hazard, buffers_of(waited), behind.groups - 1 - last))
            behind = behind.landed(last, self.p.group)
        if arriving := _of(found, Kind.FULL):
            hazard = f"{_names(arriving)}: written by the TMA engine, read below"
            out.append(Sync(Kind.FULL, Side.ACQUIRE, hazard, buffers_of(arriving)))
            behind = behind.arrived(out[-1])
        if among or meets:
            kind = Kind.CLUSTER if among else Kind.BLOCK
            out.append(barrier(self.hazard(s, later, behind, kind), kind))
            behind = behind.meet(kind)
        if _of(found, Kind.REGISTERS) and isinstance(s, Issue):
            hazard = "the sums: used by this thread before, added to by the products below"
            out.append(Sync(Kind.REGISTERS, Side.ACQUIRE, hazard))
            behind = behind.fenced()
        return out, behind

    def multiplied(self, products: Sequence[Past]) -> Sync:
        """The wait for the products that are on their way."""
        read = [x for x in products if x.storage != ACCUMULATORS]
        what = f"{_names(read)}: read by the products above" if read else "the sums: written by the products above"
        return Sync(Kind.PRODUCTS, Side.ACQUIRE, f"{what}, which this waits for", buffers_of(read))

    def all(self, body: Iterable[TileStmt]) -> tuple[Effect, ...]:
        return tuple(e for s in body for e in effects(self.p, s))

    def hazard(self, s: TileStmt, later: Statements, behind: Behind, kind: Kind) -> str:
        """What would go wrong without a barrier before a statement. What it orders for later ones is told with it."""
        found = [x for x in behind.conflicts(self.all((s, *later))) if x.kind in (Kind.BLOCK, kind)]
        late = [x.past for x in found if x.past.writes]
        soon = [x.past for x in found if not x.past.writes]
        stages = {x.stage for x in late}
        # What came with it is read later, and is seen by then thanks to the same barrier.
        late += [x for x in behind.past if x.done and x.writes and x.storage == x.buffer and x.stage in stages]
        if kind is Kind.CLUSTER:
            who, end = "all blocks of the cluster", "gone when one of them ends"
        else:
            who, end = "all threads", "overwritten below"
        if late and soon:
            return f"{_names(late + soon)}: a stage written by all is read below; one read by all is overwritten below"
        if late:
            return f"{_names(late)}: written by {who} above, read by all below"
        return f"{_names(soon)}: read by {who} above, {end}"

    # --- The statement itself, and the release sides behind it -----------------------------------------------------

    def enter(self, s: TileStmt, behind: Behind) -> tuple[TileStmt, Behind]:
        """The statement with what its issuing thread does before, and its accesses behind."""
        mine = effects(self.p, s)
        last = _of(behind.conflicts(mine), Kind.EMPTY)
        ordered = _each_bring(s, lambda b: self.issued(b, last))
        if isinstance(s, Ahead):
            for turn in range(s.count):
                behind = behind.after(tuple(e.later(turn) for e in self.all(s.body)))
                behind = behind.committed() if _grouped(s.body) else behind
            return ordered, behind
        return ordered, behind.after(mine)

    def issued(self, b: Bring, last: Sequence[Past]) -> Bring:
        """Copies by an engine: the stage is waited for, where others may still read it, and the bytes announced."""
        names = tuple(c.buffer for c in b.copies if c.via.lands is Completion.BARRIER)
        if not names:
            return b
        first: list[Sync] = []
        if any(x.buffer in names for x in last):
            hazard = f"{', '.join(names)}: read by all warps before, overwritten below"
            first.append(Sync(Kind.EMPTY, Side.ACQUIRE, hazard, names, ahead=b.ahead))
        hazard = f"{', '.join(names)}: read when this many bytes have arrived"
        return replace(b, first=(*first, Sync(Kind.FULL, Side.RELEASE, hazard, names, ahead=b.ahead)))

    def after(self, s: TileStmt, later: Statements, behind: Behind) -> tuple[list[Sync], Behind]:
        """What a statement tells others, who wait for it."""
        out: list[Sync] = []
        if not isinstance(s, Ahead) and _grouped((s,)):
            out.append(_commit(s))
            behind = behind.committed()
        if isinstance(s, StoreBoxes):
            hazard = f"{STAGED}: all stores of one tile are one group"
            out.append(Sync(Kind.STORED, Side.RELEASE, hazard, (STAGED,)))
        if isinstance(s, Issue):
            hazard = f"{', '.join(s.buffers)}: all products of one tile are one group"
            out.append(Sync(Kind.PRODUCTS, Side.RELEASE, hazard, s.buffers))
        if self.p.pipeline.release:
            mine = {c.buffer for c in self.p.landing(Completion.BARRIER)}
            read = [_read(self.all(x), mine) for x in ((s,), later)]
            if read[0] and not read[1]:
                if flying := [x for x in behind.past if x.agent == TENSOR_CORES and x.buffer in read[0]]:
                    out.append(self.multiplied(flying))
                    behind = behind.multiplied(self.p.group)
                if used := [
                    x for x in behind.past if x.buffer in read[0] and not x.fenced and x.proxy is Proxy.GENERIC
                ]:
                    out.append(before_engine(used))
                    behind = behind.before_engines()
                hazard = f"{', '.join(sorted(read[0]))}: read by this warp above, overwritten once all warps are here"
                out.append(Sync(Kind.EMPTY, Side.RELEASE, hazard, tuple(sorted(read[0]))))
                behind = behind.released(out[-1])
        return out, behind

    # --- The first turn --------------------------------------------------------------------------------------------

    def lacking(self, turn: Statements, behind: Behind) -> str:
        """A hazard between the prologue and the first turn, up to the turn's first barrier."""
        for s in turn:
            if isinstance(s, Sync):
                if s.kind is Kind.BLOCK:
                    return ""
                behind = self.passed(s, behind)
                continue
            found = [x for x in behind.conflicts(effects(self.p, s)) if x.kind is not Kind.EMPTY]
            if any(x.kind is not Kind.BLOCK for x in found):
                raise AssertionError("a tile of the prologue is used before it is waited for")
            if found:
                return self.hazard(s, (), behind, Kind.BLOCK)
            behind = behind.after(effects(self.p, s))
        return ""

    def passed(self, s: Sync, behind: Behind) -> Behind:
        """Behind a sync that stands there."""
        match s.kind, s.side:
            case Kind.GROUP, Side.ACQUIRE:
                return behind.landed(behind.groups - 1 - s.pending, self.p.group)
            case Kind.GROUP, Side.RELEASE:
                return behind.committed()
            case Kind.FULL, Side.ACQUIRE:
                return behind.arrived(s)
            case Kind.EMPTY, Side.RELEASE:
                return behind.released(s)
            case Kind.PRODUCTS, Side.ACQUIRE:
                return behind.multiplied(self.p.group)
            case Kind.REGISTERS, _:
                return behind.fenced()
            case Kind.PROXY, _:
                return behind.before_engines()
            case _:
                return behind


def _inside(program: Statements) -> Statements:
    """What a program does for one tile of C."""
    match program:
        case (EachTile(body),):
            return body
        case _:
            return program


def _turn_of(program: Statements) -> Statements:
    """One turn of a program's loop over tiles of K."""
    return next(x.body for x in _inside(program) if isinstance(x, Steps))


def _tail_of(program: Statements) -> Statements:
    """What follows that loop."""
    body = _inside(program)
    return body[next(i for i, x in enumerate(body) if isinstance(x, Steps)) + 1 :]


def _with_turn(program: Statements, turn: Statements, tail: Statements) -> Statements:
    """The program with another turn, and another tail."""
    before = tuple(x for x in _inside(program) if isinstance(x, Clear))
    body = (*before, Steps(turn), *tail)
    return (EachTile(body),) if isinstance(program[0], EachTile) else body


def _of(found: Iterable[Conflict], kind: Kind) -> list[Past]:
    return [x.past for x in found if x.kind is kind]


def before_engine(used: Sequence[Past]) -> Sync:
    """The fence between what threads did to tiles and what the engine will."""
    hazard = f"{_names(used)}: this thread's loads are over before the TMA engine overwrites what they read"
    return Sync(Kind.PROXY, Side.BOTH, hazard, buffers_of(used))


def _names(found: Iterable[Past]) -> str:
    return ", ".join(buffers_of(found))


def _still_writing(found: Sequence[Past]) -> str:
    agent = found[0].agent
    assert isinstance(agent, Kernel)
    return f"{agent.name} may still be writing {_names(found)}"


def _read(found: Iterable[Effect], buffers: set[str]) -> set[str]:
    return {e.place.buffer for e in found if not e.writes and e.place.buffer in buffers}


def _brings(body: Iterable[TileStmt]) -> list[Bring]:
    """The copies that statements start."""
    out: list[Bring] = []
    for s in body:
        match s:
            case Bring():
                out.append(s)
            case Inner(brings=brings):
                out += brings
            case _:
                pass
    return out


def _grouped(body: Iterable[TileStmt]) -> bool:
    return any(c.via.lands is Completion.GROUP for b in _brings(body) for c in b.copies)


def _commit(s: TileStmt) -> Sync:
    names = tuple(c.buffer for b in _brings((s,)) for c in b.copies if c.via.lands is Completion.GROUP)
    hazard = (
        f"{', '.join(names)}: every thread commits one group per tile, empty after the last: the wait counts groups"
    )
    return Sync(Kind.GROUP, Side.RELEASE, hazard, names)


def _each_bring(s: TileStmt, change: Callable[[Bring], Bring]) -> TileStmt:
    """The statement with its copies changed; a prologue's groups are closed tile by tile."""
    match s:
        case Bring():
            return change(s)
        case Ahead(count, body):
            inner: list[TileStmt] = []
            for x in body:
                inner.append(_each_bring(x, change))
                inner += [_commit(x)] if _grouped((x,)) else []
            return Ahead(count, tuple(inner))
        case Inner(brings=brings):
            return replace(s, brings=tuple(change(b) for b in brings))
        case _:
            return s
