"""Synchronisation is derived: all of it, with its hazard, and none of it could be left out but what is listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from pipelinehelp import FOLDER, PIPELINES, operands_of, run_ordered
from simhelp import close, operands
from test_pipelines import removable

from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Call, walk
from gemmgen.ir.nodes import Sync as Barrier
from gemmgen.ir.program import Program
from gemmgen.ir.variant import EXACT, GUARDED, VARIANTS
from gemmgen.ir.verifier import verify
from gemmgen.isa.table import Completion, Ordering
from gemmgen.lower import lower, lower_program
from gemmgen.lower.program import program_of
from gemmgen.spec.ladder import LADDER, ladder_path
from gemmgen.spec.parse import load, parse
from gemmgen.tile.program import TileProgram
from gemmgen.tile.rewrites import build
from gemmgen.tile.sequence import sequence, unordered
from gemmgen.tile.statements import Ahead, Bring, EachTile, Inner, Steps, TileStmt
from gemmgen.tile.syncs import Kind, Side, Sync
from gemmgen.tile.transport import REGISTERS, CpAsync, Tma, Transport, transport

NAMES = (*LADDER, *PIPELINES)


@cache
def program(name: str, variant: str = "guarded") -> TileProgram:
    path = ladder_path(name) if name in LADDER else FOLDER / f"{name}.gemm"
    return build(load(path), VARIANTS[variant])


def everything(body: Iterable[TileStmt]) -> Iterator[TileStmt]:
    """All statements, what an issuing thread does before its copies among them."""
    for s in body:
        yield s
        match s:
            case Steps(inner) | EachTile(inner) | Ahead(_, inner):
                yield from everything(inner)
            case Inner(inner, _, brings):
                yield from everything((*inner, *brings))
            case Bring(first=first):
                yield from first
            case _:
                pass


def syncs(p: TileProgram) -> list[Sync]:
    return [s for s in everything(sequence(p)) if isinstance(s, Sync)]


# --- Derived ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_ordered_by_hand_and_every_sync_has_its_hazard(name: str, variant: str) -> None:
    p = program(name, variant)
    assert not [s for s in everything(unordered(p)) if isinstance(s, Sync)]
    assert all(s.hazard for s in syncs(p))


@pytest.mark.parametrize("name", NAMES)
def test_every_release_has_its_acquire(name: str) -> None:
    found = {(s.kind, s.side) for s in syncs(program(name))}
    for kind in (Kind.GROUP, Kind.FULL, Kind.EMPTY):
        assert ((kind, Side.RELEASE) in found) == ((kind, Side.ACQUIRE) in found), kind
    assert all(
        (side is Side.BOTH) == (kind in (Kind.BLOCK, Kind.CLUSTER, Kind.SET_UP, Kind.PROXY)) for kind, side in found
    )


def test_a_setting_allows_a_kind_of_sync() -> None:
    """Both rungs bring tiles by TMA; with ``release`` warps say by themselves when a stage may be filled again."""
    kinds = {name: {s.kind for s in syncs(build(load(ladder_path(name)), EXACT))} for name in LADDER}
    assert kinds["naive"] == set() and kinds["smem"] == {Kind.BLOCK}
    spec = load(ladder_path("pipelined"))
    held = build(spec.replace(use=spec.use | {"release"}), EXACT)
    free = build(spec.replace(use=spec.use - {"release"}), EXACT)
    assert {s.kind for s in syncs(held)} == {Kind.SET_UP, Kind.FULL, Kind.PROXY, Kind.EMPTY}
    assert {s.kind for s in syncs(free)} == {Kind.SET_UP, Kind.FULL, Kind.PROXY, Kind.BLOCK}
    assert kinds["pipelined"] in ({s.kind for s in syncs(held)}, {s.kind for s in syncs(free)})


@pytest.mark.parametrize("use", ["", ", release", ", prefetch", ", release, prefetch"])
@pytest.mark.parametrize("persistent", [0, 3])
def test_loads_are_over_before_the_engine_overwrites_what_they_read(use: str, persistent: int) -> None:
    """The TMA engine has a path to memory of its own: a load that is on its way is not held up by a barrier. On an H200
    loads with bank conflicts were overtaken; between them and whoever tells the engine stands a fence."""
    text = f"kernel x\ntile block 64x64x16\ntile thread 4x4\nuse coalescing, smem, float4, tma{use}\nstages 3\n"
    p = build(parse(text + (f"persistent {persistent}\n" if persistent else "")), EXACT)
    (loop,) = [s for s in everything(sequence(p)) if isinstance(s, Steps)]
    kinds = [s.kind for s in loop.body if isinstance(s, Sync)]
    told = Kind.EMPTY if "release" in use else Kind.BLOCK
    assert kinds.index(Kind.PROXY) + 1 == kinds.index(told) and kinds.count(Kind.PROXY) == 1


def test_products_of_warp_groups_and_the_engine_share_a_path() -> None:
    """wgmma reads shared memory as the engine writes it: nothing of it has to be fenced."""
    for name in ("wgmma", "wgmma_roles", "wgmma_persistent", "wgmma_store"):
        assert Kind.PROXY not in {s.kind for s in syncs(build(load(ladder_path(name)), EXACT))}


@pytest.mark.parametrize(
    ("stages", "early", "pending"),
    [(1, "", 0), (2, "", 0), (3, "", 1), (4, "", 2), (2, ", spread", 0), (4, ", spread", 2)],
)
def test_as_many_groups_stay_on_their_way_as_the_stages_allow(stages: int, early: str, pending: int) -> None:
    text = f"kernel x\ntile block 32x32x8\ntile thread 4x4\nuse smem, cpasync{early}\nstages {stages}\n"
    found = [s for s in syncs(build(parse(text), EXACT)) if (s.kind, s.side) == (Kind.GROUP, Side.ACQUIRE)]
    assert [s.pending for s in found] == [pending]


ASYNCHRONOUS = [n for n in NAMES if len(program(n).landing(Completion.NOW)) < len(program(n).copies)]


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_each_wait_says_in_the_text_what_it_is_for(name: str) -> None:
    """Where there is room above or beside it: the line before a call, or its own."""
    lines = [x.strip() for x in emit_cuda(lower_program(program(name))).split("\n")]
    at = lines.index(next(x for x in lines if x.startswith('extern "C"')))
    waits = [
        i for i, x in enumerate(lines) if i > at and x.startswith(("cp_async_wait", "mbarrier_wait(", "mbarrier_rel"))
    ]
    assert waits
    for i in waits:
        above = [x for x in lines[i - 3 : i] if x.startswith("//")]
        assert "//" in lines[i] or above, lines[i - 3 : i + 1]


# --- Removed ----------------------------------------------------------------------------------------------------------

REDUNDANT = {
    Ordering.ALLOW: "says only how early the next kernel may start: what that reads it waits for by itself",
}
"""What is derived, and may be left out without a fault: the kind of ordering, and why."""
SET_UP = "barriers: initialised above, used below"
"""Redundant where an operand that comes in another way has all threads meet before the first wait for an mbarrier; it
stands where it does because with TMA alone nothing else has them meet."""


def allowed(ir: KernelIR) -> list[tuple[Call, KernelIR]]:
    """Each statement that lets the next kernel start, and the kernel without it."""
    found = [s for s in walk(ir.body) if isinstance(s, Call) and s.row.orders is Ordering.ALLOW]
    return [(s, ir.without(s)) for s in found]


@pytest.mark.parametrize("name", LADDER)
def test_without_one_of_its_syncs_a_rung_is_at_fault(name: str) -> None:
    """Those of the other pipelines are removed in test_pipelines.py."""
    ir = lower(load(ladder_path(name)), EXACT)
    assert ir.program is not None
    bm, bn, bk = ir.tile
    a, b, c = operands_of(ir, bm, bn, (3 * (ir.pipeline.ahead + 1) + 1) * bk * ir.program.parts)
    assert not run_ordered(ir, a, b, c.copy()).faults
    for sync, rest in removable(ir):
        assert run_ordered(rest, a, b, c.copy()).faults, sync


@pytest.mark.parametrize("name", [n for n in PIPELINES if program(n).sums.early])
def test_what_is_redundant_is_so_for_a_reason(name: str) -> None:
    ir = lower(load(FOLDER / f"{name}.gemm"), GUARDED)
    assert ir.program is not None
    a, b, c = operands_of(ir, 32, 64, 104)
    for sync, rest in allowed(ir):
        assert sync.row.orders in REDUNDANT
        assert not run_ordered(rest, a, b, c.copy()).faults
    assert allowed(ir) or (ir.first is not None and allowed(ir.first))


# --- Operands that come in different ways -----------------------------------------------------------------------------

MIXED = """kernel mixed
tile block 32x32x8
tile thread 4x4
use coalescing, smem, float4, tma{}
stages {}
"""


def mixed(stages: int, a: Transport, b: Transport, more: str = "") -> KernelIR:
    p = build(parse(MIXED.format(more, stages)), GUARDED)
    return made(replace(p, copies=tuple(replace(c, via=a if c.operand == "A" else b) for c in p.copies)))


def made(p: TileProgram) -> KernelIR:
    ir = verify(lower_program(p))
    found: Program = program_of(p, ir)
    return replace(ir, program=found)


WAYS: dict[str, Transport] = {"tma": Tma(), "cpasync": CpAsync(), "registers": REGISTERS}
PAIRS = [(a, b) for a in WAYS for b in WAYS if a != b]


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_each_operand_may_come_in_its_own_way(a: str, b: str, stages: int) -> None:
    ir = mixed(stages, WAYS[a], WAYS[b])
    for k in (0, 4, 8, 40, 44):
        x, y, c = operands(36, 64, k, seed=k)
        before = c.copy()
        result = run_ordered(ir, x, y, c, 1.5, -0.5)
        assert not result.faults, (k, result.faults)
        assert close(c, x, y, before, 1.5, -0.5), k


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_and_each_of_its_syncs_is_needed(a: str, b: str) -> None:
    ir = mixed(2, WAYS[a], WAYS[b])
    x, y, c = operands(32, 32, 56)
    assert not run_ordered(ir, x, y, c.copy()).faults
    found = removable(ir)
    assert len(found) > 3
    for sync, rest in found:
        if not (isinstance(sync, Barrier) and sync.hazard == SET_UP):
            assert run_ordered(rest, x, y, c.copy()).faults, str(sync)


def test_warps_release_what_the_engine_brings_beside_a_barrier_for_the_rest() -> None:
    ir = mixed(3, Tma(), CpAsync(), ", release")
    x, y, c = operands(32, 32, 80)
    before = c.copy()
    assert not run_ordered(ir, x, y, c).faults and close(c, x, y, before, 1.0, 0.0)
    rows = [s.row.orders for s in ir.waits()]
    assert Ordering.ARRIVE in rows and Ordering.COMMIT in rows
    for sync, rest in removable(ir):
        if not (isinstance(sync, Barrier) and sync.hazard == SET_UP):
            assert run_ordered(rest, x, y, before.copy()).faults, str(sync)


def test_one_function_says_how_an_operand_comes() -> None:
    """TMA where its rows can be addressed, else cp.async, else registers."""
    spec = parse(MIXED.format("", 2))
    for variant, way in (("guarded", Tma()), ("guarded_unaligned", CpAsync())):
        p = build(spec, VARIANTS[variant])
        assert [transport(p, c, Tma(), True) for c in p.copies] == [way, way]
        assert [c.via for c in p.copies] == [way, way]


def test_buffers_that_share_storage_are_ordered_by_it() -> None:
    """C's tile lies over those of A and B: without the barrier ahead of it, sums land on tiles that are still read."""
    name = "pipeline_stagec_columns"
    found = [s for s in syncs(program(name)) if s.kind is Kind.BLOCK]
    assert any("overwritten below" in s.hazard for s in found) and any(s.hazard.startswith("Cs:") for s in found)
    tile = program(name).output.tile
    assert tile is not None and tile.storage == tuple(b.name for b in program(name).buffers)
    assert np.prod(tile.layout.extents) > 0
