"""``gemmgen.autotune()``: which kernels it times, for how long, what it keeps, and when it leaves the choice alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.diagnostics import ArgumentError, CompileError
from gemmgen.dispatch import autotune as tuning
from gemmgen.dispatch.matmul import _own, forget
from gemmgen.tune.records import Machine, Records

ALIGNED = (16, 16, 16)
MACHINE = Machine("GPU", "1", "13.0")
SPECS = [
    gemmgen.parse(f"kernel matmul\ntile block {n}x64x8\ntile thread 4x4\nuse coalescing, smem\n") for n in (32, 64, 128)
]


class FakeTimer:
    """Each timing takes a second of a clock that stands otherwise."""

    machine = MACHINE

    def __init__(self, seconds: dict[int, float | None], compiled: set[int] | None = None) -> None:
        self.now, self._seconds, self._compiled = 0.0, seconds, compiled or set()
        self.timed: list[int] = []

    def clock(self) -> float:
        return self.now

    def compiled(self, spec: Any) -> bool:
        return spec.block[0] in self._compiled

    def seconds(self, spec: Any) -> float | None:
        self.now += 1.0
        self.timed.append(spec.block[0])
        if spec.block[0] not in self._seconds:
            raise CompileError("refused")
        return self._seconds[spec.block[0]]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GEMMGEN_RECORDS", str(tmp_path / "r.sqlite"))
    forget()
    yield tmp_path / "r.sqlite"
    forget()


def test_the_fastest_is_remembered(records: Path) -> None:
    timer = FakeTimer({32: 3e-6, 64: 1e-6, 128: 2e-6})
    assert tuning.tuned(SPECS, timer, (96, 64, 32), ALIGNED, 100.0, timer.clock)
    assert [gemmgen.parse(w.spec).block[0] for w in _own("GPU")] == [64]
    with Records() as book:
        assert len(book.find(shape=(96, 64, 32))) == 3


def test_a_budget_ends_the_search_and_compiled_kernels_go_first(records: Path) -> None:
    timer = FakeTimer({32: 3e-6, 64: 1e-6, 128: 2e-6}, compiled={128})
    assert tuning.tuned(SPECS, timer, (96, 64, 32), ALIGNED, 1.5, timer.clock)
    assert timer.timed == [32, 128]


def test_kernels_that_fail_are_passed_over_and_none_is_no_record(records: Path) -> None:
    timer = FakeTimer({64: 1e-6, 128: None})
    assert tuning.tuned(SPECS, timer, (96, 64, 32), ALIGNED, 100.0, timer.clock)
    assert timer.timed == [32, 64, 128] and [gemmgen.parse(w.spec).block[0] for w in _own("GPU")] == [64]
    assert not tuning.tuned(SPECS, FakeTimer({}), (96, 64, 36), ALIGNED, 100.0)


def test_records_of_two_layouts_of_a_shape_stand_beside_one_another(records: Path) -> None:
    col = SPECS[0].B.__class__("f32", "col")
    turned = SPECS[0].replace(B=col)
    timer = FakeTimer({32: 3e-6})
    tuning.tuned([SPECS[0]], timer, (96, 64, 32), ALIGNED, 1.0)
    tuning.tuned([turned], timer, (96, 64, 32), ALIGNED, 1.0)
    assert {gemmgen.parse(w.spec).B.order for w in _own("GPU")} == {"row", "col"}


def test_it_is_on_inside_the_context_or_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMMGEN_AUTOTUNE", raising=False)
    assert tuning.budget() is None
    with gemmgen.autotune(0.5):
        assert tuning.budget() == 0.5
        with gemmgen.autotune():
            assert tuning.budget() == 2.0
    assert tuning.budget() is None
    for value, seconds in (("1", 2.0), ("0", None), ("", None), ("0.25", 0.25)):
        monkeypatch.setenv("GEMMGEN_AUTOTUNE", value)
        assert tuning.budget() == seconds
    monkeypatch.setenv("GEMMGEN_AUTOTUNE", "yes")
    with pytest.raises(ArgumentError, match="GEMMGEN_AUTOTUNE"):
        tuning.budget()
    with pytest.raises(ArgumentError, match="budget_s"), gemmgen.autotune(-1):
        pass


@pytest.mark.parametrize("captured", [False, True])
def test_a_new_shape_is_tuned_once_and_never_while_a_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch, captured: bool
) -> None:
    import sys

    module = sys.modules["gemmgen.dispatch.matmul"]
    asked: list[Any] = []
    monkeypatch.setattr(module, "capturing", lambda stream: captured)
    monkeypatch.setattr(module, "_tuned", lambda *a: asked.append(a))
    monkeypatch.setattr(module, "_kernel", lambda *a: "kernel")
    lies = ((8, 8), (8, 1), 0, 0)
    assert module._found(lies, lies, None, False, None) == "kernel"
    with gemmgen.autotune(1.0):
        assert module._found(lies, lies, None, False, None) == "kernel"
    assert len(asked) == (0 if captured else 1)
