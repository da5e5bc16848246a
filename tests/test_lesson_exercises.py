"""The exercises: every solution passes, every start fails, and what is said is true."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmgen.cli import run
from gemmgen.lesson.checking import check, solution_of, start_of
from gemmgen.lesson.exercises import EXERCISES
from gemmgen.lesson.measures import CUBLAS_TFLOPS, MEASURES
from gemmgen.lesson.rows import Exercise, Race
from gemmgen.spec.data import data_folder

every = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.title.replace(" ", "_"))


@every
def test_the_solution_passes(exercise: Exercise | Race) -> None:
    verdict = check(exercise, solution_of(exercise))
    assert verdict.passed, [p.text for p in verdict.points if not p.met]


@every
def test_the_start_fails(exercise: Exercise | Race) -> None:
    verdict = check(exercise, start_of(exercise))
    assert not verdict.passed and any(not p.met for p in verdict.points)


def test_there_are_those_of_the_lesson_and_ten_more() -> None:
    assert sum(e.source == "the lesson" for e in EXERCISES) == sum(e.source == "gemmgen" for e in EXERCISES) == 10
    assert len({e.title for e in EXERCISES}) == len(EXERCISES)
    assert all(len(e.hints) == 2 for e in EXERCISES)
    assert {g.name for e in EXERCISES if isinstance(e, Exercise) for g in e.goals} <= set(MEASURES)


def test_the_speed_of_cublas_is_the_recorded_one() -> None:
    run_ = json.loads((data_folder("generated") / "h200" / "ladder.json").read_text())
    assert abs(run_["baseline"]["gflops"] / 1000 - CUBLAS_TFLOPS) < 1


def test_an_answer_that_breaks_the_rules_is_refused() -> None:
    coalesce = EXERCISES[0]
    verdict = check(coalesce, "kernel x\ntile block 16x16\nuse coalescing\n")
    assert verdict.points[0].text == "tile block must be 32x32x1, and is 16x16x1" and not verdict.points[0].met
    verdict = check(coalesce, "kernel x\ntile blok 16x16\n")
    assert not verdict.passed and "the spec is not legal" in verdict.points[0].text and "^^^^" in verdict.points[0].text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lesson"]) == 0
    assert "Coalesce the loads" in capsys.readouterr().out
    assert run(["lesson", "show", "1", "--hint"]) == 0
    out = capsys.readouterr().out
    assert "tile block 32x32" in out and out.count("hint: ") == 1
    assert run(["lesson", "show", "1", "--start"]) == 0
    file = tmp_path / "answer.gemm"
    file.write_text(capsys.readouterr().out)
    assert run(["lesson", "check", "1", str(file)]) == 1
    out = capsys.readouterr().out
    assert "FAIL: sectors per request of A: 32; wanted at most 1" in out
    file.write_text("kernel mine\ntile block 32x32\nuse coalescing\n")
    assert run(["lesson", "check", "1", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    assert run(["lesson", "show", "1", "--solution"]) == 0
    assert "use coalescing" in capsys.readouterr().out


def test_mistakes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lesson", "show", "99"]) == 2
    assert "there is no exercise 99; they are 1 to 20" in capsys.readouterr().err
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    assert run(["lesson", "check", "1", str(tmp_path / "x")]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err
    assert run(["lesson", "check", "1", str(tmp_path / "none")]) == 1
