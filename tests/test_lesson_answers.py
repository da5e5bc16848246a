"""Answers a student tries: each hint followed leads to a pass, and a wrong answer or a trick is told what is wrong."""

from __future__ import annotations

import re

import pytest

from gemmgen.lesson.checking import check, solution_of, start_of
from gemmgen.lesson.exercises import EXERCISES
from gemmgen.lesson.rows import Exercise

SPECS = [(n, e) for n, e in enumerate(EXERCISES, 1) if isinstance(e, Exercise)]
every = pytest.mark.parametrize("exercise", [e for _, e in SPECS], ids=[str(n) for n, _ in SPECS])

LINE = re.compile(r"`((?:tile|use|stages|pad_a|split_k|min_blocks|operands) [^`]+)`")
REMOVED = re.compile(r"without `(\w+)`")


def edited(text: str, *lines: str, without: tuple[str, ...] = ()) -> str:
    """A spec with lines replaced, or added where it has none; toggles of a line ``use`` are added to those it has."""
    found = text.rstrip().split("\n")
    for line in lines:
        words = line.split()
        head = " ".join(words[: 2 if words[0] == "tile" else 1]) + " "
        at = next((i for i, x in enumerate(found) if x.startswith(head)), None)
        if at is None:
            found.append(line)
        else:
            found[at] = f"{found[at]}, {line.removeprefix(head)}" if head == "use " else line
    for toggle in without:
        found = [re.sub(rf", {toggle}\b|\b{toggle}, ", "", x) for x in found]
    return "\n".join(found) + "\n"


def failed(exercise: Exercise, text: str) -> list[str]:
    return [p.text for p in check(exercise, text).points if not p.met]


@every
def test_the_hints_followed_in_turn_lead_to_a_pass(exercise: Exercise) -> None:
    text = start_of(exercise)
    assert any(LINE.search(hint) for hint in exercise.hints), "a hint says what to write"
    for hint in exercise.hints:
        text = edited(text, *LINE.findall(hint), without=tuple(REMOVED.findall(hint)))
    assert not failed(exercise, text)


@every
def test_the_text_says_where_the_goals_hold(exercise: Exercise) -> None:
    size = "x".join(map(str, exercise.size))
    assert f"Goals at {size} (MxNxK) on an NVIDIA " in exercise.text
    for goal in exercise.goals:
        assert goal.text in exercise.text
    for name in (*exercise.keep, *exercise.use, *exercise.without):
        assert name in exercise.text or "smem" not in exercise.start


@every
def test_a_kernel_of_another_product_is_refused(exercise: Exercise) -> None:
    """Tricks that reach the goals by computing something else."""
    solution = solution_of(exercise)
    (told,) = failed(exercise, edited(solution, "epilogue clamp(0, 0)"))
    assert told == "epilogue must be none; the answer has clamp(0, 0)"
    assert "use batched is not allowed in this exercise; remove it" in failed(exercise, edited(solution, "use batched"))
    told = failed(exercise, edited(solution, "operands A f16 row, B f16 row, C f32 row"))[0]
    given = "bf16" if exercise.operands else "f32"
    if not told.startswith("the spec is not legal"):  # not every kernel can load 2-byte elements
        assert told == f"operands must be A {given} row, B {given} row; the answer has A f16 row, B f16 row"


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 8, 9, 10, 13, 14, 15, 16, 19])
def test_shared_memory_may_not_be_left_out(n: int) -> None:
    exercise = EXERCISES[n - 1]
    assert isinstance(exercise, Exercise)
    told = failed(exercise, edited(exercise.solution, "use directB"))
    assert told[0] in ("use directB is not allowed in this exercise; remove it", *told[:1]) and told
    assert "directB" in told[0]


ILLEGAL = "the spec is not legal"
WRONG = [
    (1, ("use transposeA",), ILLEGAL),
    (1, ("tile block 16x64", "use coalescing"), "tile block must be 32x32x1, and is 16x64x1"),
    (1, ("tile thread 2x1",), "sectors per request of A: 16; wanted at most 1"),
    (2, ("tile thread 2x1",), ILLEGAL),
    (2, ("tile block 64x64x32", "tile thread 4x1"), "tile block must be 64x64x64, and is 64x64x32"),
    (2, ("tile thread 4x1", "stages 2"), "shared memory per block: 65,536 bytes; wanted at most 32,768 bytes"),
    (3, ("tile thread 4x4",), "flop per value from shared memory: 4; wanted at least 8"),
    (3, ("tile thread 16x16",), "threads per block: 64; wanted at least 128"),
    (3, ("tile block 256x256x8", "tile thread 8x8"), "tile block must be 128x128x8, and is 256x256x8"),
    (4, ("use transposeA",), "FMAs per shared load: 4; wanted at least 16"),
    (4, ("use transposeA",), "global load requests: 33.6 million; wanted at most 8.4 million"),
    (4, ("use float4",), "FMAs per shared load: 6.4; wanted at least 16"),
    (4, ("tile thread 16x16", "use transposeA, float4"), "tile thread must be 8x8, and is 16x16"),
    (5, ("tile thread 4x4",), "flop per value from shared memory: 4; wanted at least 5"),
    (5, ("min_blocks 4",), "occupancy: 25%; wanted at least 50%"),
    (5, ("tile thread 16x8",), "occupancy: 18.8%; wanted at least 50%"),
    (6, ("tile block 64x64x32", "tile thread 4x4"), "flop per byte of global memory: 16; wanted at least 32"),
    (6, ("tile block 128x128x32", "tile thread 8x8"), "shared memory per block: 32,768 bytes; wanted at most 16,384"),
    (6, ("tile block 128x64x16", "tile thread 8x8"), "flop per byte of global memory: 21.3; wanted at least 32"),
    (7, ("tile block 32x32x32",), "of cuBLAS (modelled); wanted at least 60% of cuBLAS (modelled)"),
    (7, ("use float4",), "of cuBLAS (modelled); wanted at least 60% of cuBLAS (modelled)"),
    (7, ("tile thread 4x4", "operands A f16 row, B f16 row, C f32 row"), "operands must be A f32 row, B f32 row; the"),
    (8, ("tile thread 4x4",), "flop per value from shared memory: 4; wanted at least 8"),
    (8, ("tile thread 16x8",), "registers named per thread: 153; wanted at most 128"),
    (8, ("min_blocks 1",), "registers named per thread: 289; wanted at most 128"),
    (8, ("tile thread 8x8", "min_blocks 8"), "bytes per thread; wanted at most 0 bytes per thread"),
    (9, ("tile thread 8x8",), "threads per block: 64; wanted at least 256"),
    (9, ("tile block 128x128x8",), "flop per value from shared memory: 4; wanted at least 8"),
    (9, ("tile block 128x128x16", "tile thread 8x8"), "shared memory per block: 16,384 bytes; wanted at most 9,216 bytes"),
    (10, ("use warptile",), ILLEGAL),
    (10, ("tile warp 32x32", "use warptile"), "tile warp must be 64x64, and is 32x32"),
    (10, ("tile warp 64x64", "tile thread 8x8", "use warptile"), "tile thread must be 8x4, and is 8x8"),
    (13, ("pad_b 4",), "bank conflict of shared stores: 2-way; wanted at most 1-way"),
    (13, ("pad_a 1",), "bank conflict of shared stores: 2-way; wanted at most 1-way"),
    (13, ("tile block 128x128x16",), "tile block must be 128x128x8, and is 128x128x16"),
    (14, ("pad_b 4",), "bank conflict of shared loads: 2-way; wanted at most 1-way"),
    (14, ("tile warp 32x64", "use warptile"), "bank conflict of shared loads: 2-way; wanted at most 1-way"),
    (14, ("tile thread 8x4",), "flop per value from shared memory: 5.33; wanted at least 8"),
    (15, ("min_blocks 2",), "blocks per SM: 1; wanted at least 2"),
    (15, ("tile block 128x128x16", "stages 2"), "tile block must be 128x128x32, and is 128x128x16"),
    (15, ("min_blocks 2",), "exposed latency: 24.7% of the expected time; wanted at most 10% of the expected time"),
    (16, ("min_blocks 4",), "exposed latency: 14.1% of the expected time; wanted at most 10% of the expected time"),
    (16, ("stages 3", "use cpasync, prefetch"), "exposed latency: 16.6% of the expected time; wanted at most 10%"),
    (16, ("tile thread 4x4",), "flop per value from shared memory: 7.11; wanted at least 10"),
    (17, ("tile block 32x32x16",), "tile block must be 64x64x16, and is 32x32x16"),
    (17, ("split_k 2",), "blocks: 128; wanted at least 132"),
    (17, ("tile thread 4x4",), "blocks: 64; wanted at least 132"),
    (18, ("split_k 8",), "FMAs computed per FMA needed: 8; wanted at most 1.01"),
    (18, ("tile block 32x64x32", "tile thread 4x4", "split_k 8"), "FMAs computed per FMA needed: 2; wanted at most"),
    (18, ("tile block 16x64x32", "tile thread 4x4"), "expected time: 182 us; wanted at most 50 us"),
    (19, ("tile block 128x128x8",), "tile block must be 128x128x16, and is 128x128x8"),
    (19, ("operands A f16 row, B f16 row, C f32 row",), "operands must be A bf16 row, B bf16 row; the answer has A f16"),
    (19, ("operands A bf16 row, B bf16 row, C bf16 row",), "operands must be C f32 row; the answer has C bf16 row"),
    (20, ("use tma",), ILLEGAL),
    (20, ("stages 3",), "global load requests: 8.39 million; wanted at most 0"),
    (20, ("tile block 128x128x16",), "tile block must be 128x128x32, and is 128x128x16"),
]


@pytest.mark.parametrize(("n", "lines", "told"), WRONG, ids=[f"{n}-{'; '.join(lines)}" for n, lines, _ in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(n: int, lines: tuple[str, ...], told: str) -> None:
    exercise = EXERCISES[n - 1]
    assert isinstance(exercise, Exercise)
    found = failed(exercise, edited(exercise.start, *lines))
    assert any(told in x for x in found), found


def test_every_exercise_has_wrong_answers() -> None:
    for n, _ in SPECS:
        assert len({lines for m, lines, _ in WRONG if m == n}) + 2 >= 3 <= sum(m == n for m, _, _ in WRONG)


@pytest.mark.parametrize(
    ("n", "lines", "without", "told"),
    [
        (13, ("pad_a 4",), ("transposeA",), "the spec must use transposeA"),
        (15, ("stages 3", "min_blocks 2"), ("release",), "the spec must use release"),
        (20, (), ("cpasync",), "global load requests: 8.39 million; wanted at most 0"),
        (20, ("use tma",), ("cpasync", "prefetch"), "exposed latency: 15.1% of the expected time; wanted at most 10%"),
    ],
)
def test_what_the_exercise_is_about_may_not_be_left_out(
    n: int, lines: tuple[str, ...], without: tuple[str, ...], told: str
) -> None:
    exercise = EXERCISES[n - 1]
    assert isinstance(exercise, Exercise)
    assert any(told in x for x in failed(exercise, edited(exercise.start, *lines, without=without)))
