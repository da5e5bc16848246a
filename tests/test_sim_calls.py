"""Hardware instructions on the simulator: asynchronous copies and barriers made of rows with a meaning."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from simir import A, C, R, at, get, kernel, put, ramp, run, shared, tid, zeros

from gemmgen.ir.expr import Const, Var
from gemmgen.ir.kernel import TensorMap
from gemmgen.ir.nodes import Call, For, MapRef, Role, Roles, Stmt, Store, Sync
from gemmgen.isa.table import Instruction
from gemmgen.sim.calls import Lanes, MapArgument, MemoryArgument, Wait
from gemmgen.sim.clock import Stamps
from gemmgen.sim.flight import Flight
from gemmgen.sim.run import GlobalArray, run_kernel

T = tid()
S = shared("As", 32)
SYNC = Sync(0, "As: copied above, read below")


def _copy(lanes: Lanes, dst: MemoryArgument, src: MemoryArgument) -> None:
    flights = lanes.state.setdefault("copies", [])
    assert isinstance(flights, list)
    flights.append(dst.store_async(src.load()))


def _wait_all(lanes: Lanes) -> None:
    flights = lanes.state.pop("copies", [])
    assert isinstance(flights, list)
    for flight in flights:
        lanes.land(flight)


COPY = Call(Instruction("copy_async", "", _copy), (at(S, T), at(A, T)))
WAIT = Call(Instruction("wait_all", "", _wait_all), ())
OTHER = get(at(S, (T + 1) % 32))
OWN = get(at(S, T))


def kinds(*body: Stmt | tuple[Stmt, ...], threads: int = 32) -> list[str]:
    return [f.kind for f in run(kernel(*body, threads=threads, arrays=(S,))).faults]


def test_an_asynchronous_copy_waited_for_and_published_is_right() -> None:
    c = zeros(32)
    result = run(kernel(COPY, WAIT, SYNC, OTHER, Store(at(C, T), at(R)), arrays=(S,)), ramp(64), c)
    assert not result.faults
    assert c.tolist() == [*range(1, 32), 0]
    assert result.counters["global"]["load"]["sectors"] == 4
    assert result.counters["shared"]["store"] == {"requests": 1, "wavefronts": 1, "ideal_wavefronts": 1}


def test_data_used_before_its_wait() -> None:
    assert kinds(COPY, SYNC, OTHER) == ["async"]
    assert kinds(COPY, OWN) == ["async"]
    assert kinds(COPY, put(at(S, T))) == ["async"]


def test_a_wait_alone_publishes_to_the_own_thread_only() -> None:
    assert kinds(COPY, WAIT, OWN) == []
    assert kinds(COPY, WAIT, OTHER) == ["race"]


def test_an_asynchronous_copy_over_data_still_being_read() -> None:
    assert kinds(put(at(S, T)), SYNC, OTHER, COPY) == ["race"]
    assert kinds(put(at(S, T)), SYNC, OTHER, Sync(1, ""), COPY) == []


# --- A barrier of phases: arrive releases, wait acquires --------------------------------------------------------------


@dataclass
class _Phases:
    done: int = 0
    token: Stamps | None = None
    flights: list[Flight] = field(default_factory=list)


def _phases(lanes: Lanes, name: str) -> _Phases:
    found = lanes.state.setdefault(name, _Phases())
    assert isinstance(found, _Phases)
    return found


def arrive(name: str) -> Call:
    def meaning(lanes: Lanes) -> None:
        phases = _phases(lanes, name)
        phases.token = lanes.clock.release(lanes.active)
        phases.done += 1

    return Call(Instruction(f"arrive_{name}", "", meaning), ())


def wait(name: str, phase: int | Var) -> Call:
    def meaning(lanes: Lanes, wanted: object) -> Generator[Wait, None, None]:
        phases = _phases(lanes, name)
        assert callable(wanted)
        number = int(wanted()[0])
        if phases.done <= number:
            yield Wait(lambda: phases.done > number, f"phase {number} of {name}")
        assert phases.token is not None
        lanes.clock.acquire(lanes.active, phases.token)

    return Call(Instruction(f"wait_{name}", "", meaning), (Const(phase) if isinstance(phase, int) else phase,))


W = tid(64)
BIG = shared("As", 64)
TURN = Var("i", 0, None, uniform=True)
PRODUCE = put(at(S, W), 3.0)
CONSUME = get(at(S, 63 - W))


def pair(producer: tuple[Stmt, ...], consumer: tuple[Stmt, ...]) -> Roles:
    return Roles((Role("producer", 0, 0, producer), Role("consumer", 1, 1, consumer)))


def test_arrive_and_wait_order_two_roles() -> None:
    c = zeros(64)
    body = pair((*PRODUCE, arrive("full")), (wait("full", 0), *CONSUME, Store(at(C, W), at(R))))
    assert not run(kernel(body, threads=64, arrays=(S,)), c=c).faults
    assert c.tolist() == [0] * 32 + [3] * 32


def test_arriving_too_early_orders_nothing() -> None:
    assert kinds(pair((arrive("full"), *PRODUCE), (wait("full", 0), *CONSUME)), threads=64) == ["race"]


def loop(*body: Stmt | tuple[Stmt, ...]) -> For:
    flat = tuple(s for x in body for s in (x if isinstance(x, tuple) else (x,)))
    return For(TURN, Const(0), Const(4), Const(1), flat)


def test_a_ring_of_full_and_empty() -> None:
    producer = loop(PRODUCE, arrive("full"), wait("empty", TURN))
    consumer = loop(wait("full", TURN), CONSUME, arrive("empty"))
    assert kinds(pair((producer,), (consumer,)), threads=64) == []


def test_a_ring_without_its_empty_barrier_overwrites_what_is_read() -> None:
    producer = loop(PRODUCE, arrive("full"), wait("other", TURN))
    consumer = loop(wait("full", TURN), arrive("other"), CONSUME)
    assert kinds(pair((producer,), (consumer,)), threads=64) == ["race"]


def test_roles_that_wait_for_one_another_are_a_deadlock() -> None:
    body = pair((wait("empty", 0), *PRODUCE, arrive("full")), (wait("full", 0), *CONSUME, arrive("empty")))
    (fault,) = run(kernel(body, threads=64, arrays=(S,))).faults
    assert fault.kind == "deadlock"
    assert "producer waits for phase 0 of empty" in fault.other
    assert "consumer waits for phase 0 of full" in fault.other


def test_a_wait_of_all_threads_that_nothing_ends_is_a_deadlock() -> None:
    (fault,) = run(kernel(wait("full", 0))).faults
    assert (fault.kind, fault.buffer) == ("deadlock", "phase 0 of full")


def test_an_engines_writes_are_acquired_by_those_who_wait() -> None:
    def start(lanes: Lanes, dst: MemoryArgument) -> None:
        values = np.full((1, lanes.batch.lanes), 2.0, np.float32)
        _phases(lanes, "full").flights.append(dst.store_async(values))

    def finish(lanes: Lanes) -> None:
        """Acquire the engine's writes in every warp that waits."""
        phases = _phases(lanes, "full")
        for flight in phases.flights:
            lanes.land(flight, engine=0)
        token = np.zeros((lanes.batch.blocks, lanes.clock.actors), np.int32)
        token[:, lanes.clock.engine(0) // 32] = lanes.clock.now
        lanes.clock.acquire(lanes.active, token)

    issue = Call(Instruction("issue", "", start), (at(S, T),))
    acquire = Call(Instruction("acquire", "", finish), ())
    assert kinds(issue, acquire, OTHER) == []
    assert kinds(issue, OTHER) == ["async"]


def test_a_tensor_map_reads_its_operand_and_zero_outside() -> None:
    """Rows of 5 in a matrix of 3 x 5, 8 elements apart; 32 lanes ask for rows -1.. of 8."""
    seen: list[object] = []

    def meaning(lanes: Lanes, box: MapArgument, column: object) -> None:
        assert callable(column)
        seen.append((box.map.box, box.read(column() % 8, column() // 8 - 1)))

    row = Instruction("tma", "", meaning)
    ir = replace(kernel(Call(row, (MapRef("mapA"), T))), tensor_maps=(TensorMap("mapA", "A", (8, 4)),))
    memory = np.arange(1, 25, dtype=np.float32)
    sizes = {"M": 3, "N": 1, "K": 5, "alpha": 1.0, "beta": 0.0, "lda": 8, "ldb": 1, "ldc": 1}
    arrays = {"A": GlobalArray(memory), "B": GlobalArray(zeros(5)), "C": GlobalArray(zeros(3))}
    assert not run_kernel(ir, (1, 1, 1), sizes, arrays).faults
    ((box, values),) = seen  # type: ignore[misc]
    want = np.zeros((4, 8), np.float32)
    want[1:, :5] = memory.reshape(3, 8)[:, :5]
    assert box == (8, 4)
    assert np.array_equal(values, want.reshape(-1))


def test_lanes_of_a_warp_meet_at_syncwarp() -> None:
    meet = Call(Instruction("__syncwarp", "", lambda lanes: lanes.clock.join_warps(lanes.active)), ())
    assert kinds(put(at(S, T)), meet, OTHER) == []
    assert kinds(put(at(S, T)), meet, OTHER, meet, put(at(S, T))) == []
    assert kinds(put(at(S, T)), meet, OTHER, put(at(S, T))) == ["race"]
    across = get(at(BIG, 63 - W))
    assert [f.kind for f in run(kernel(put(at(BIG, W)), meet, across, threads=64, arrays=(BIG,))).faults] == ["race"]


def test_an_instruction_without_a_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match="no meaning"):
        run(kernel(Call(Instruction("mystery", ""), ())))
