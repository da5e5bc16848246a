"""Exercises 11 and 12: a barrier is right where the simulator finds no race in the program that was handed in."""

from __future__ import annotations

import pytest

from gemmgen.lesson.checking import check, solution_of, start_of
from gemmgen.lesson.exercises import EXERCISES
from gemmgen.lesson.races import barriers, program_of
from gemmgen.lesson.rows import Race

WRITTEN, READ = (e for e in EXERCISES if isinstance(e, Race))
COPY_A, COPY_B, LOOP, STEPS, PRODUCT, END = "copy A", "copy B", "for k0", "for k in", "acc += ", "C[bm"


def put(race: Race, after: str, indent: int, barrier: str = "barrier") -> str:
    """The start with a barrier behind the line that begins with ``after``."""
    lines = start_of(race).splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith(after))
    lines.insert(at + 1, " " * indent + barrier)
    return "\n".join(lines)


def failed(race: Race, text: str) -> list[str]:
    return [p.text for p in check(race, text).points if not p.met]


@pytest.mark.parametrize("race", [WRITTEN, READ], ids=["written", "read"])
def test_a_missing_barrier_is_a_race_in_the_simulator(race: Race) -> None:
    (missing,) = failed(race, start_of(race))
    assert missing.startswith("simulated: race: thread ") and "spec line" not in missing
    assert check(race, solution_of(race)).passed
    lines = program_of(race)
    assert len(barriers(lines)) == 2 and "\n".join(lines) + "\n" == solution_of(race)


@pytest.mark.parametrize(
    ("race", "after", "indent"),
    [(WRITTEN, COPY_B, 4), (READ, PRODUCT, 4), (READ, LOOP, 4)],
    ids=["between_copies_and_products", "at_the_end_of_the_loop", "at_the_start_of_the_loop"],
)
def test_the_hints_lead_to_a_pass(race: Race, after: str, indent: int) -> None:
    verdict = check(race, put(race, after, indent, "barrier  # here"))
    assert verdict.passed and [p.text for p in verdict.points] == ["simulated: no race"]
    assert any(word in race.hints[1] for word in ("Between the copies and the loop over k", "end of the loop over k0"))


@pytest.mark.parametrize(
    ("race", "after", "indent", "buffer"),
    [
        (WRITTEN, COPY_A, 4, "Bs"),
        (WRITTEN, LOOP, 4, "As"),
        (WRITTEN, PRODUCT, 4, "As"),
        (WRITTEN, PRODUCT, 2, "As"),
        (READ, PRODUCT, 2, "As"),
        (READ, COPY_A, 4, "As"),
        (READ, COPY_B, 4, "As"),
        (READ, "a = As", 6, "Bs"),
        (READ, END, 2, "As"),
    ],
)
def test_a_barrier_at_a_wrong_place_leaves_a_race(race: Race, after: str, indent: int, buffer: str) -> None:
    told = failed(race, put(race, after, indent))
    assert told[0].startswith("simulated: race: thread ") and f", {buffer}[" in told[0]


def test_the_race_is_that_of_the_answer_and_not_of_the_start() -> None:
    start, answer = (failed(WRITTEN, t)[0] for t in (start_of(WRITTEN), put(WRITTEN, COPY_A, 4)))
    assert ", As[" in start and ", Bs[" in answer


def test_a_barrier_behind_the_loop_is_said_to_change_nothing() -> None:
    told = failed(READ, put(READ, PRODUCT, 2))
    assert told[1:] == ["the barrier in line 14 changes nothing: without it the simulator finds the same"]


def test_a_barrier_of_the_start_is_never_said_to_change_nothing() -> None:
    assert len(failed(READ, put(READ, COPY_A, 4))) == 1
    assert len(failed(READ, start_of(READ))) == 1


def test_a_barrier_in_every_step_along_k_is_refused() -> None:
    told = failed(READ, put(READ, PRODUCT, 6))
    assert told == [
        "the barrier in line 14 runs 32 times per tile of K, in every step of the loop over k; once per tile is enough"
    ]


def test_a_barrier_too_many_is_refused() -> None:
    lines = solution_of(READ).splitlines()
    lines.insert(next(i for i, x in enumerate(lines) if x.strip().startswith(LOOP)) + 1, "    barrier")
    (told,) = failed(READ, "\n".join(lines))
    assert told == "the barrier in line 7 is not needed: the program has no race without it; remove it"
    (told,) = failed(READ, start_of(READ).replace("    barrier\n", "    barrier\n" * 40))
    assert told == "the program has 40 barriers; 2 are enough"


def test_indentation_says_which_loop_a_barrier_belongs_to() -> None:
    (told,) = failed(READ, put(READ, PRODUCT, 0))
    assert told.startswith("line 14: the barrier is indented by 0 spaces; indent it by 2, 4 or 6")
    assert check(READ, put(READ, LOOP, 0)).passed, "it can only be in one loop"
    assert check(READ, "\n".join("    " + x for x in solution_of(READ).splitlines())).passed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kernel x\n", "line 1 is `kernel x`, where the program has `block tile of C at (bm, bn)`"),
        ("", "the program's line `block tile of C at (bm, bn)` is missing"),
        ("barrier\n", "the program's line `block tile of C at (bm, bn)` is missing"),
        (solution_of(READ) + "  done\n", "line 16 is not part of the program"),
        (solution_of(READ).replace("    for k in", "  for k in"), "line 10 is indented by 2 spaces, where the program"),
        (solution_of(READ).replace("barrier", "__syncthreads()"), "line 9 is `__syncthreads()`, where the program has"),
    ],
)
def test_only_barriers_may_differ(text: str, told: str) -> None:
    (found,) = failed(READ, text)
    assert found.startswith(told) and "Only barriers may differ" in found
