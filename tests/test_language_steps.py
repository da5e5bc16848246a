"""How a block walks along K: what its steps, stages and padding may be, and that what is legal computes rightly."""

from __future__ import annotations

import numpy as np
import pytest

from gemmgen import simulate, verify
from gemmgen.diagnostics import SpecError
from gemmgen.spec.parse import parse

HEAD = "kernel mine\ntile block 32x32x8\ntile thread 4x4\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("use smem\nunroll 3", "5:8: error: unroll 3 does not divide the tile's BK 8; 2 and 4 would"),
        ("use smem\nunroll 16", "5:8: error: unroll 16 does not divide the tile's BK 8; 8 would"),
        ("use smem\nunroll -2", "5:8: error: unroll must not be negative, and is -2; 0 is the smallest"),
        ("use smem\npad_a -3", "5:7: error: pad_a must not be negative, and is -3"),
        ("use smem\npad_b -1", "5:7: error: pad_b must not be negative, and is -1"),
        ("min_blocks -1", "4:12: error: min_blocks must not be negative, and is -1"),
        ("min_blocks 33", "4:12: error: min_blocks 33 is over the limit of 32; 'min_blocks 32' is the most"),
        ("cta_swizzle -1", "4:13: error: cta_swizzle must not be negative, and is -1"),
        ("cta_swizzle 257", "4:13: error: cta_swizzle 257 is over the limit of 256; 'cta_swizzle 256' is the most"),
        ("persistent -1", "4:12: error: persistent must not be negative, and is -1"),
        ("persistent 65536", "persistent 65536 is over the limit of 65535; 'persistent 65535' is the most"),
        ("persistent 1000000000", "is a number of 10 digits, which is far too large; 'persistent 65535' is the most"),
        ("use smem, prefetch\nunroll 1", "unroll 1 is no even number of steps; 2 is"),
        ("use smem, float4, alongK\nunroll 2", "alongK fetches 4 steps at once, and unroll 2 is no multiple of 4"),
        ("use smem, float4, alongK, transposeA", "4:19: error: alongK needs A's tile row-major"),
        ("use smem, cpasync, spread", "4:20: error: spread needs stages"),
        ("use smem\nstages 9", "5:8: error: stages '9' is not supported; 1 and 2 are"),
    ],
)
def test_what_makes_no_sense_is_refused(lines: str, said: str) -> None:
    with pytest.raises(SpecError) as info:
        parse(HEAD + lines)
    assert said in str(info.value)


def test_prefetch_wants_an_even_number_of_steps() -> None:
    with pytest.raises(SpecError, match="BK 7 is no even number of steps; 6 and 8 are"):
        parse("kernel mine\ntile block 32x32x7\ntile thread 4x4\nuse smem, prefetch")


@pytest.mark.parametrize("line", ["stages 2", "unroll 2", "pad_a 4", "pad_b 4"])
def test_settings_of_shared_tiles_are_noted_where_there_are_none(line: str) -> None:
    assert parse(HEAD + line).notes == (f"{line} has no effect without 'use smem'",)
    assert parse(f"{HEAD}use smem\n{line}").notes == ()


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize(
    ("bk", "unroll"), [(8, 0), (8, 1), (8, 2), (8, 4), (8, 8), (6, 2), (6, 3), (12, 4), (12, 6), (7, 7), (1, 1)]
)
@pytest.mark.parametrize(
    "use", ["smem", "smem, prefetch", "smem, float4, alongK", "smem, float4, alongK, prefetch, separators, snake"]
)
def test_any_legal_number_of_steps_in_the_text_is_right(
    use: str, bk: int, unroll: int, stages: int, order: str
) -> None:
    """Registers that take turns, and fetches that serve several steps, agree with the steps that stand in the text."""
    text = f"kernel mine\ntile block 32x32x{bk}\ntile thread 4x4\nuse {use}\nunroll {unroll}\nstages {stages}\n"
    try:
        spec = parse(f"{text}operands A f32 {order}\n")
    except SpecError as error:
        assert "steps" in str(error)
        return
    random = np.random.default_rng(0)
    for m, n, k in ((32, 32, 3 * bk), (33, 31, 2 * bk + 1)):
        A, B = (random.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
        simulation = simulate(spec, A, B)
        assert not simulation.faults
        assert verify(simulation.C, A, B).ok


@pytest.mark.parametrize("thread", ["1x1", "4x4", "1x4"])
@pytest.mark.parametrize(
    "use", ["directB", "directB, float4", "directB, cpasync", "directB, cpasync, spread", "directB, float4, tma"]
)
def test_b_from_global_memory_stays_inside_it_and_at_its_own_step(use: str, thread: str) -> None:
    spec = parse(f"kernel mine\ntile block 32x32x8\ntile thread {thread}\nuse smem, {use}\nstages 2\n")
    random = np.random.default_rng(0)
    for m, n, k in ((32, 32, 16), (33, 31, 17), (5, 33, 15), (32, 36, 20)):
        A, B = (random.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
        simulation = simulate(spec, A, B)
        assert not simulation.faults
        assert verify(simulation.C, A, B).ok
