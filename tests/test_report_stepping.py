"""The page's steps of a pipeline: in every turn a tile is waited for before it is read, and read before it is
overwritten."""

from __future__ import annotations

import re
from functools import cache

import pytest

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.ir.variant import EXACT
from gemmgen.lower import lower
from gemmgen.report.page.stepping import Move, Stepping, stepping
from gemmgen.report.page.timeline import SHOWN, bars
from gemmgen.tile import build

NAMES = ["doublebuffer", "cpasync", "tma", "pipelined", "mma_pipelined", "wgmma", "wgmma_roles", "wgmma_store", "fp8"]


@cache
def found(name: str) -> tuple[Stepping, list[str]]:
    spec = gemmgen.load(name)
    cuda = emit_cuda(lower(spec, EXACT))
    steps = stepping(build(spec, EXACT), cuda)
    assert steps is not None
    return steps, cuda.splitlines()


def unrolled(steps: Stepping) -> list[tuple[int, Move]]:
    """Each move with its tile, before the loop and in some turns."""
    first = [(i, m) for i in range(steps.filled) for m in steps.before]
    return first + [(t + (m.ahead or 0), m) for t in range(3 * steps.depth) for m in steps.turn]


@pytest.mark.parametrize("name", NAMES)
def test_a_tile_is_waited_for_before_it_is_read_and_a_stage_before_it_is_overwritten(name: str) -> None:
    steps, _ = found(name)
    moves = unrolled(steps)

    def places(part: str) -> dict[int, int]:
        """The first place of a move about each tile."""
        return {tile: i for i, (tile, m) in reversed(list(enumerate(moves))) if part in m.what}

    reads = places("multiply") or places("products of tile {t} from")
    copies = places("to stage {s}")
    for tile, at in reads.items():
        since = moves[copies[tile] + 1 : at]
        assert any(m.waits and m.orders for _, m in since), f"tile {tile} is read without a wait for its copy"
        if tile >= steps.depth:
            before = moves[reads[tile - steps.depth] + 1 : copies[tile]]
            assert any(m.waits and m.orders for _, m in before), f"tile {tile} overwrites one that may be read still"
    assert sorted(reads) == list(range(3 * steps.depth)) and set(reads) <= set(copies)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_names_its_line_of_cuda_and_its_bar(name: str) -> None:
    steps, cuda = found(name)
    drawn = {(b.what, b.tile) for b in bars(build(gemmgen.load(name), EXACT))}
    for m in steps.turn:
        if m.orders:
            assert m.cuda is not None and not cuda[m.cuda - 1].lstrip().startswith("//"), m
            assert re.search(r"sync|wait|arrive|release|expect|commit|fence", cuda[m.cuda - 1]), (m, cuda[m.cuda - 1])
        if m.shows:
            assert (m.shows, SHOWN // 2 + m.of) in drawn, m


def test_roles_are_told_apart() -> None:
    steps, _ = found("wgmma_roles")
    who = [m.who for m in steps.turn]
    assert steps.roles and {w.partition(":")[0] for w in who} == {"producer", "consumers"}
    waits = [(m.who, m.what) for m in steps.turn if m.waits and "[{s}]" in m.what]
    assert waits[0] == ("consumers", "wait at full[{s}] until all bytes of tile {t} have arrived")
    assert waits[1][0] == "producer: one thread" and waits[1][1].startswith("waits at empty[{s}]")


def test_a_step_is_written_with_letters_that_a_script_can_replace() -> None:
    steps, _ = found("cpasync")
    copy = next(m for m in steps.turn if m.shows == "copying" and m.ahead)
    assert steps.html(copy) == (
        'start to copy tile <var data-t="2">t + 2</var> to stage <var data-s="2">(t + 2) mod 3</var> by cp.async'
    )
    assert steps.html(steps.before[0]) == "start to copy tile i to stage i by cp.async"


@pytest.mark.parametrize("name", ["naive", "warptile"])
def test_a_kernel_without_stages_has_no_steps(name: str) -> None:
    assert stepping(build(gemmgen.load(name), EXACT)) is None
