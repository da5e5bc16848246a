"""Kernels whose results do not repeat bit by bit: tried by the tuner and taken by matmul only where asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simhelp import operands
from test_atomics import ADDS, EARLY, FLAT
from test_launch import VECTOR
from tunehelp import FakeBackend

import gemmgen
from gemmgen.cli import run
from gemmgen.dispatch.select import by_model, choose
from gemmgen.dispatch.shipped import Winner, winners
from gemmgen.target import gpu as gpu_named
from gemmgen.tune.estimate import EARLY_LAUNCH_S, LAUNCH_S, estimate
from gemmgen.tune.families import default_specs
from gemmgen.tune.records import Machine, Record, Records, adds_in_memory
from gemmgen.tune.space import refused

DEEP = (64, 64, 65536)


def test_the_default_space_repeats_unless_asked() -> None:
    usual, more = default_specs(DEEP), default_specs(DEEP, unordered=True)
    assert not any(s.unordered for s in usual) and set(usual) < set(more)
    added = [s for s in more if s.unordered]
    assert added and all(s.split_k > 1 for s in added)
    assert {s.has("dependentLaunch") for s in added} == {True, False}


def test_tune_tries_it_only_where_asked(tmp_path: Path) -> None:
    def tried(**how: Any) -> set[bool]:
        found = gemmgen.tune(None, *DEEP, device="sim", records=False, **how)
        return {t.spec.unordered for t in found.trials}

    assert tried() == {False} and tried(unordered=True) == {True, False}
    spec = ADDS.replace(tune=(("split_k", (2, 4)),))
    found = gemmgen.tune(spec, *DEEP, backend=FakeBackend(), records=tmp_path / "r.sqlite", timings=2)
    assert found.best.unordered  # a spec that says so is asked for


def test_the_command_line_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--model", "--size", "64x64x65536", "--json"]
    assert run(["tune", *size]) == 0
    assert "atomics" not in capsys.readouterr().out
    assert run(["tune", *size, "--unordered"]) == 0
    assert "atomics" in capsys.readouterr().out


def test_matmul_takes_records_that_repeat_unless_asked(tmp_path: Path) -> None:
    machine, align = Machine("GPU", "1", "2"), (16, 16, 16)
    texts = {"fast": ADDS.to_text(), "slow": VECTOR.replace(comment="not by atomics, use atomics no").to_text()}
    with Records(tmp_path / "r.sqlite") as book:
        for seconds, (key, text) in enumerate(texts.items()):
            book.put(Record(machine, DEEP, "f32,f32,f32", align, False, key, text, "ok", 1.0 + seconds))
        assert [r.key for r in book.best("GPU")] == ["slow"]
        assert [r.key for r in book.best("GPU", unordered=True)] == ["fast"]
        own = winners(book.best("GPU", unordered=True))
    gpu = gpu_named("h200")
    assert choose(DEEP, align, gpu, own=own, unordered=True).spec == ADDS
    assert not choose(DEEP, align, gpu, own=own).spec.unordered
    shipped = (Winner(DEEP, align, texts["fast"]), Winner(DEEP, align, texts["slow"]))
    assert choose(DEEP, align, gpu, shipped).spec == VECTOR
    assert not by_model(DEEP, align, gpu).unordered


def test_a_spec_adds_in_memory_by_its_use_line_alone() -> None:
    assert adds_in_memory(ADDS.to_text()) and not adds_in_memory(VECTOR.to_text())
    assert not adds_in_memory("# use atomics\nkernel atomics_no\nuse smem # atomics\n")


def test_the_tuner_leaves_out_what_a_gpu_does_not_have() -> None:
    a100 = gpu_named("a100")
    found = refused(ADDS, a100)
    assert found is not None and found.hopeless == "atomics with float4 needs sm_90, and the GPU is sm_80"
    assert refused(ADDS.replace(arch="sm_80"), a100) is None
    early = refused(FLAT, a100)
    assert early is not None and early.hopeless == "dependentLaunch needs sm_90, and the GPU is sm_80"


def test_matmul_with_unordered_is_right_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime import device

    monkeypatch.setattr(device, "current", lambda: None)
    a, b, _ = operands(33, 34, 35)
    assert gemmgen.verify(gemmgen.matmul(a, b, unordered=True), a, b).ok


def test_the_models_know_what_is_saved() -> None:
    gpu, shape = gpu_named("h200"), (512, 512, 512)
    early, plain = estimate(EARLY, shape, gpu).seconds, estimate(ADDS, shape, gpu).seconds
    assert plain - early == pytest.approx(LAUNCH_S - EARLY_LAUNCH_S)
    second = ADDS.replace(use=VECTOR.use)
    assert plain < estimate(second, shape, gpu).seconds
    one, two = (gemmgen.explain(x, *shape, compiled=False) for x in (EARLY, ADDS))
    assert two.bound.latency_s - one.bound.latency_s == pytest.approx(1.5e-6)
