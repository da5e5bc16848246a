"""``gemmgen run --syncs`` and ``--without-sync``: each synchronisation is there for something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.report.cut import named, synchronisation


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["naive", "vectorized", "cpasync", "pipelined", "gemm_bias_gelu"])
def test_syncs_lists_what_the_kernel_has_and_writes_nothing(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", name, "--syncs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    ir = gemmgen.lower(gemmgen.load(name))
    assert [(x["name"], x["hazard"]) for x in told] == [named(s) for s in synchronisation(ir)]
    assert [x["number"] for x in told] == list(range(1, len(told) + 1)) and bool(told) == (name != "naive")
    assert len(told) == len(ir.syncs()) + len(ir.waits())
    assert run(["run", name, "--syncs"]) == 0
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("name", "number", "fault"),
    [
        ("vectorized", 1, "race"),
        ("vectorized", 2, "race"),
        ("cpasync", 2, "has not been waited for"),
        ("cpasync", 3, "race"),
        ("pipelined", 3, "no fence shows the barrier"),
        ("pipelined", 5, "deadlock"),
        ("pipelined", 7, "no fence_async"),
        ("pipelined", 9, "deadlock"),
        ("gemm_bias_gelu", 1, "race"),
    ],
)
def test_without_one_the_simulator_finds_its_hazard(
    name: str, number: int, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", name, "--without-sync", str(number)]) == 1
    out = capsys.readouterr().out
    assert "FAIL: " in out and fault in " ".join(out.split())
    assert run(["run", name, "--without-sync", str(number), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["without"]["number"] == number and any(fault in f["text"] for f in told["faults"])


@pytest.mark.parametrize(
    ("name", "number", "says"), [("vectorized", "3", "it has 1 to 2"), ("naive", "1", "it has none")]
)
def test_a_number_that_does_not_exist_is_refused(
    name: str, number: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", name, "--without-sync", number]) == 2
    assert says in capsys.readouterr().err
