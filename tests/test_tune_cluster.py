"""Many shapes on a cluster: a stand-in for Ray of two nodes with a fake timer, one of which dies in the middle."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tunehelp import FakeBackend

from gemmgen.cli import run
from gemmgen.cli.shapes import tasks_of
from gemmgen.diagnostics import ArgumentError, GemmgenError
from gemmgen.tune.cluster import TRIES, Tuner, _shared, tune_on_ray
from gemmgen.tune.records import Records
from gemmgen.tune.share import Task
from gemmgen.tune.suite import drawn, read_cases
from gemmgen.tune.tuner import Options

SHAPES = [(64 * i, 128, 64) for i in range(1, 5)]
TEXT = "kernel k\ntile block 64x64x8\ntile thread 4x4\nuse coalescing, smem\n"


class FakeRay:
    """Actors run when their result is asked for; a node that is dead raises."""

    def __init__(self) -> None:
        self.pending: list[Callable[[], Any]] = []

    def wait(self, futures: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return futures[:1], futures[1:]

    def get(self, future: Callable[[], Any]) -> Any:
        return future()


class Node:
    """An actor on a node that dies at its ``dies``-th task."""

    def __init__(self, log: list[tuple[int, Any]], number: int, dies: int = 0) -> None:
        self.log, self.number, self.left = log, number, dies
        self.tuner = Tuner(FakeBackend())
        self.run = self

    def remote(self, task: str, known: Any) -> Callable[[], Any]:
        def result() -> Any:
            self.log.append((self.number, tuple(json.loads(task)["shape"])))
            self.left -= 1
            if self.left == 0:
                raise ConnectionError("the node is gone")
            return self.tuner.run(task, known)

        return result


def tasks() -> list[Task]:
    return [Task(shape, (TEXT,), {"stages": [1, 2]}, Options(timings=4)) for shape in SHAPES]


def test_a_node_that_dies_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    log: list[tuple[int, Any]] = []
    made = iter((Node(log, 1), Node(log, 2, dies=1), Node(log, 3)))
    with Records(tmp_path / "r.sqlite") as book:
        found = _shared(FakeRay(), [lambda: next(made)] * 2, tasks(), book, lambda text: None)
        assert [o.shape for o in found] == SHAPES and not any(o.error for o in found)
        assert {r.shape for r in book.find()} == set(SHAPES)
        lost = next(shape for node, shape in log if node == 2)
        assert [node for node, shape in log if shape == lost] == [2, 1] or (3, lost) in log
        log.clear()
        again = _shared(FakeRay(), [lambda: Node(log, 4)], tasks(), book, lambda text: None)
        assert [o.timings for o in again] == [0] * 4  # resumable: what is recorded is not measured again


def test_a_shape_that_every_node_dies_of_is_an_error_of_its_own(tmp_path: Path) -> None:
    log: list[tuple[int, Any]] = []
    with Records(tmp_path / "r.sqlite") as book:
        found = _shared(FakeRay(), [lambda: Node(log, 1, dies=1)], tasks()[:1], book, lambda text: None)
    assert len(log) == TRIES and "the node is gone" in found[0].error and found[0].seconds is None


def test_without_ray_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GemmgenError, match=r"--ray needs Ray .*gemmgen\[ray\]"):
        tune_on_ray(tasks(), "auto", tmp_path / "r.sqlite")
    file = tmp_path / "shapes.txt"
    file.write_text("64 64 64 nt\n")
    assert run(["tune", "--shapes", str(file), "--ray", "auto", "--records", str(tmp_path / "r.sqlite")]) == 1
    assert len([line for line in capsys.readouterr().err.splitlines() if "Ray" in line]) == 1
    assert run(["tune", "--ray", "auto"]) == 2


def test_tasks_of_a_file_are_of_the_pool_of_their_layout() -> None:
    from gemmgen.api.specs import parse
    from gemmgen.tune.features import layout_of

    cases = read_cases("64\n64x32x16 nt\n# nothing\n", "f")
    assert cases == read_cases("64 64 64 nn  # a comment\n  64 32 16 nt\n", "f")
    one, two = tasks_of(cases, Options())
    assert one.specs is None and two.specs is not None
    assert {layout_of(parse(text)) for text in two.specs} == {"nt"}
    assert Task.from_json(two.to_json()) == two


@pytest.mark.parametrize("line", ["64 64", "64x64", "64 64 64 64", "64 nx", "64x64x64nt", "0", "a b c", "-1", "9" * 12])
def test_a_line_that_is_no_shape_is_named_with_its_number(line: str, tmp_path: Path) -> None:
    """By every command that reads such a file."""
    (tmp_path / "s.txt").write_text(f"64\n{line}\n")
    for command in (["tune"], ["bench"], ["export", "-o", str(tmp_path / "out")]):
        assert run([*command, "--shapes", str(tmp_path / "s.txt")]) == 2
    with pytest.raises(ArgumentError, match=r"^f:2: .*size"):
        read_cases(f"64\n{line}\n", "f")


def test_drawn_shapes_are_the_same_every_time_and_of_every_layout() -> None:
    cases = drawn(40)
    assert cases == drawn(40) and {layout for _, layout in cases} == {"nn", "nt", "tn", "tt"}
    assert len(set(cases)) > 35 and cases != drawn(40, seed=2)
