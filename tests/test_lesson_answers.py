"""Answers a student tries: each hint followed leads to a pass, and a wrong answer or a trick is told what is wrong."""

from __future__ import annotations

import re

import pytest

import gemmgen
from gemmgen.api import explaining
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
    (told,) = failed(exercise, edited(solution, "use batched"))
    if "use tma" not in solution and ", tma" not in solution:  # a batch goes by strides, which a tensor map has not
        assert told == "use batched is not allowed in this exercise; remove it"
    (told,) = failed(exercise, edited(solution, "operands A f16 row, B f16 row, C f32 row"))
    given = "bf16" if exercise.operands else "f32"
    assert told == f"operands must be A {given} row, B {given} row; the answer has A f16 row, B f16 row"


@every
def test_tensor_cores_are_refused(exercise: Exercise) -> None:
    if exercise.operands:
        lines = (f"operands {exercise.operands}", "math mma 16x8x16", "tile warp 64x64", "use warptile")
        answer = edited(exercise.start, *lines, without=("transposeA",)).replace("tile thread 8x8\n", "")
    else:
        answer = gemmgen.load("f32_split").to_text(comment=False)
    (told,) = failed(exercise, answer)
    assert told.startswith("math must be fma; the answer has ")


@pytest.mark.parametrize("n", [n for n, e in SPECS if "smem" in e.solution and "directB" in e.without])
def test_b_may_not_bypass_shared_memory(n: int) -> None:
    exercise = EXERCISES[n - 1]
    assert isinstance(exercise, Exercise)
    (told,) = failed(exercise, edited(exercise.solution, "use directB"))
    assert told == "use directB is not allowed in this exercise; remove it"
    assert n == 1 or "Not allowed: use directB." in exercise.text


ILLEGAL = "the spec is not legal"
HALF = "operands A bf16 row, B bf16 row, C f32 row"
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
    (9, ("tile block 128x128x16", "tile thread 8x8"), "shared memory per block: 16,384 bytes; wanted at most 9,216 b"),
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
    (19, ("tile block 128x128x8",), "operands must be A bf16 row, B bf16 row; the answer has A f32 row, B f32 row"),
    (19, (HALF, "tile block 128x128x8"), "tile block must be 128x128x16, and is 128x128x8"),
    (19, (HALF, "stages 2"), "shared memory per block: 16,384 bytes; wanted at most 8,192 bytes"),
    (19, ("operands A f16 row, B f16 row, C f32 row",), "operands must be A bf16 row, B bf16 row; the answer has A f1"),
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
        assert sum(m == n for m, _, _ in WRONG) >= 3, n


@pytest.mark.parametrize(
    ("n", "lines", "without", "told"),
    [
        (2, ("tile thread 4x1",), ("smem",), "flop per byte of global memory: 0.4; wanted at least 16"),
        (3, ("tile thread 8x8",), ("smem",), "flop per value from shared memory: 0; wanted at least 8"),
        (13, ("pad_a 4",), ("transposeA",), "the spec must use transposeA"),
        (14, (), ("smem", "transposeA", "float4"), "flop per value from shared memory: 0; wanted at least 8"),
        (15, ("stages 3", "min_blocks 2"), ("release",), "the spec must use release"),
        (19, (HALF,), ("smem", "transposeA", "float4"), "the spec must use smem"),
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


def test_spills_are_those_of_the_compiler_or_modelled_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    exercise = EXERCISES[7]
    assert isinstance(exercise, Exercise)
    (told,) = failed(exercise, edited(exercise.solution, "min_blocks 4"))
    assert re.fullmatch(r"spills: [1-9][0-9,]* bytes per thread; wanted at most 0 bytes per thread \(.+\)", told)
    monkeypatch.setattr(explaining, "_compiled", lambda *_: None)
    (told,) = failed(exercise, edited(exercise.solution, "min_blocks 4"))
    assert told == "spills: 68 bytes per thread; wanted at most 0 bytes per thread (modelled: NVRTC is not available)"
    assert not failed(exercise, exercise.solution)


def test_an_answer_for_another_gpu_is_told_so() -> None:
    exercise = EXERCISES[0]
    assert isinstance(exercise, Exercise)
    (told,) = failed(exercise, edited(exercise.solution, "arch sm_100"))
    assert "does not run on NVIDIA H200" in told


def test_a_number_near_its_goal_has_the_digits_that_tell_them_apart() -> None:
    goal = next(g for _, e in SPECS for g in e.goals if g.name == "exposed latency")
    assert goal.point(10.004).text.startswith("exposed latency: 10.004% of the expected time; wanted at most 10%")
