"""``str()`` of every public result is what the command prints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gemmgen
from gemmgen.analysis.recorded import measured_time
from gemmgen.cli import run
from gemmgen.spec.ladder import ladder_path
from gemmgen.target import gpu
from gemmgen.verify.reference import Verification


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def rung(name: str) -> gemmgen.Spec:
    return gemmgen.load(ladder_path(name))


def test_a_spec_is_its_text() -> None:
    spec = rung("warptile")
    assert str(spec) == spec.to_text() and gemmgen.parse(str(spec)) == spec


def test_an_explanation_is_what_explain_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = gemmgen.explain(rung("smem"), 512, 512, 512, gpu="a100")
    assert run(["explain", "smem", "--size", "512", "--gpu", "a100"]) == 0
    assert capsys.readouterr().out == f"{found}\n"


def test_a_tuning_result_is_what_tune_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = gemmgen.tune(rung("warptile"), 256, 256, 256, choices={"stages": (1, 2)}, device="sim", records=False)
    assert run(["tune", "warptile", "--set", "stages=1,2", "--size", "256", "--model"]) == 0
    assert capsys.readouterr().out == f"{found}\n"


def test_a_kernel_names_its_device_tiles_threads_and_registers() -> None:
    kernel = gemmgen.compile(rung("warptile"), device="sim")
    assert str(kernel) == ("warptile on the simulator, sm_90: block 128x128x16, warp 64x64, thread 8x4, 128 threads")
    registers = kernel.resources.registers
    assert str(kernel).endswith(f", 128 threads, {registers} registers per thread, no spills")


def test_a_verification_is_a_verdict_then_its_numbers() -> None:
    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    good, bad = a @ b, a @ b
    bad[1, 2] = 4
    assert str(gemmgen.verify(good, a, b)).startswith(
        "PASS: largest error 0; closest to the tolerance: C[0, 0]: got 3.0"
    )
    assert str(gemmgen.verify(bad, a, b)).startswith("FAIL: 1 element beyond the tolerance; worst: C[1, 2]: got 4.0, ")
    assert str(gemmgen.verify(good[:1], a, b)) == "FAIL: C has shape (1, 4); A @ B has (2, 4)"
    assert str(Verification(True, 0.0)) == "PASS: C has no elements"


# --- Measured times --------------------------------------------------------------------------------------------------


def test_a_recorded_time_is_that_of_the_same_settings_size_and_gpu() -> None:
    spec, size, h200 = rung("warptile"), (4096, 4096, 4096), gpu("h200")
    found = measured_time(spec, size, h200)
    assert found is not None and found.gpu == "NVIDIA H200" and 3.4e-3 < found.seconds < 3.7e-3 and found.commit
    assert measured_time(spec.replace(name="mine"), size, h200) == found
    assert measured_time(spec.replace(unroll=0), size, h200) is None
    assert measured_time(spec, (4096, 4096, 4095), h200) is None
    assert measured_time(spec, size, gpu("h100")) is None
    assert measured_time(spec, size, h200, beta=1.0) is None


def test_kernels_of_the_suite_have_recorded_times_too() -> None:
    from gemmgen.analysis.recorded import FOLDER, _rows
    from gemmgen.spec.data import data_folder

    rows = _rows(data_folder("generated") / FOLDER)
    suite = [row for row in rows if row.spec.startswith("kernel matmul")]
    assert len(suite) == 21
    assert all(measured_time(gemmgen.parse(row.spec), row.size, gpu("h200")) is not None for row in suite)


def test_where_no_time_is_recorded_there_is_none(tmp_path: Path) -> None:
    from gemmgen.analysis.recorded import _rows

    assert _rows(tmp_path) == ()
    (tmp_path / "ladder.json").write_text("{", encoding="utf-8")
    assert _rows(tmp_path / ".") == ()
