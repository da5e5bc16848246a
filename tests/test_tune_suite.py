"""The suite of shapes: its comparison with cuBLAS, and the script that tunes it, without a GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from tunehelp import FakeBackend

import gemmgen
from gemmgen.cli import run
from gemmgen.dispatch.select import Choice
from gemmgen.dispatch.shipped import shipped
from gemmgen.report.suite import Broken, Row, suite_dict, suite_table
from gemmgen.runtime.check import Checked
from gemmgen.runtime.timing import Bench, Timing
from gemmgen.tune.backend import Failed
from gemmgen.tune.estimate import estimate
from gemmgen.tune.families import default_specs
from gemmgen.tune.records import Records
from gemmgen.tune.shapes import Shape
from gemmgen.tune.suite import F32

SPEC = gemmgen.parse("kernel one\ntile block 64x64x8\ntile thread 4x4\nuse coalescing, smem\n")
RIGHT = Checked(True, 1e-6, (0, 0), 1.0, 1.0, 1e-5, "all")


def row(ours: float, theirs: float, unordered: bool = False, shape: Shape = (512, 512, 512)) -> Row:
    timings = [Timing(name, t, t, 1.02 * t, t, 1.1 * t, 15, 9) for name, t in (("gemmgen", ours), ("cublas", theirs))]
    done = Bench(shape, 1.0, 0.0, True, 1, 1, "graph", tuple(timings), (RIGHT, RIGHT))
    return Row(done, Choice(SPEC, "shipped", (512, 512, 512)), unordered)


def test_rows_say_how_much_faster_and_the_mean_is_geometric(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row | Broken] = [row(1e-5, 2e-5), row(1e-5, 0.5e-5, unordered=True), row(2e-5, 2e-5)]
    found = suite_dict("f32", "cuBLAS 13.1.0", rows)
    assert [r["ratio"] for r in found["rows"]] == [2.0, 0.5, 1.0]
    assert found["geometric_mean"] == pytest.approx(1.0) and found["at_least_1"] == 2 and found["shapes"] == 3
    first = found["rows"][0]
    assert {"m", "n", "k", "spec", "gemmgen_s", "cublas_s", "ratio", "spread"} <= set(first)
    assert first["spread"] == pytest.approx(0.02) and gemmgen.parse(first["spec"]) == SPEC
    assert first["tflops"] == pytest.approx(2 * 512**3 / 1e-5 / 1e12)
    assert [r["unordered"] for r in found["rows"]] == [False, True, False]
    assert "graph replay" in found["method"] and "warm" in found["method"] and "15 samples" in found["method"]
    monkeypatch.setenv("COLUMNS", "120")
    table = suite_table("cuBLAS 13.1.0", rows)
    assert "2.000" in table and "64x64x8 shipped (unordered)" in table and "2 of 3 shapes" in table


def test_a_shape_that_could_not_be_compared_stands_in_the_result() -> None:
    rows: list[Row | Broken] = [Broken((1, 2, 3), "matmul is wrong at 1x2x3"), row(1e-5, 3e-5)]
    found = suite_dict("f32", "cuBLAS", rows)
    assert found["rows"][0] == {"m": 1, "n": 2, "k": 3, "error": "matmul is wrong at 1x2x3"}
    assert found["geometric_mean"] == pytest.approx(3.0) and found["shapes"] == 2
    assert "matmul is wrong" in suite_table("cuBLAS", rows)
    assert suite_dict("f32", "cuBLAS", rows[:1])["geometric_mean"] is None


def test_the_suite_is_the_one_asked_for() -> None:
    assert len(F32) == len(set(F32)) == 21
    assert {(512, 512, 512), (8192, 8192, 8192), (8, 4096, 4096), (256, 256, 65536), (3000, 777, 2049)} <= set(F32)


def test_the_command_measures_every_shape_warm_and_in_one_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from gemmgen.cli import suite
    from gemmgen.runtime import baseline, device

    class NoCublas:
        description = "cuBLAS 13.1.0 through a stand-in"

        def __init__(self, device: Any) -> None: ...
        def close(self) -> None: ...

    asked = []

    def one(shape: Shape, cublas: Any, layout: str = "nn") -> Row:
        asked.append((shape, layout))
        if shape == (5, 6, 7):
            raise gemmgen.LaunchError("no such kernel")
        return row(1e-5, 1.5e-5, shape=shape)

    monkeypatch.setattr(baseline, "Cublas", NoCublas)
    monkeypatch.setattr(device, "required", lambda: None)
    monkeypatch.setattr(suite, "compare", one)
    assert run(["bench", "--suite", "f32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["m"], r["n"], r["k"]) for r in found["rows"]] == list(F32)
    assert {"gpu", "driver", "versions", "commit", "method", "geometric_mean"} <= set(found)
    assert run(["bench", "--suite", "f32", "--sizes", "64,5x6x7"]) == 1
    assert "no such kernel" in capsys.readouterr().out
    asked.clear()
    assert run(["bench", "--suite", "f32", "--sizes", "64", "--layout", "all", "--json"]) == 0
    assert asked == [((64, 64, 64), x) for x in ("nn", "nt", "tn", "tt")]
    shapes = tmp_path / "shapes.txt"
    shapes.write_text("# two\n 8 16 24 nt\n32 64 96  # as stored\n")
    asked.clear()
    assert run(["bench", "--shapes", str(shapes), "--plot", "-"]) == 0
    assert asked == [((8, 16, 24), "nt"), ((32, 64, 96), "nn")]
    said = capsys.readouterr().out
    assert "lowest 1.500" in said and "100% at 1 or above" in said and "ratio to cuBLAS" in said
    shapes.write_text("8 16 nt\n")
    assert run(["bench", "--shapes", str(shapes)]) != 0
    assert ":1: '8 16 nt' is not a size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--suite", "f64"], "no suite f64"), (["warptile", "--suite", "f32"], "takes no specs")],
)
def test_mistakes_on_the_command_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err


# --- The script that tunes the suite ----------------------------------------------------------------------------------


@pytest.fixture
def script() -> Any:
    path = Path(__file__).parent / "gpu" / "tune_h200.py"
    found = importlib.util.spec_from_file_location("tune_h200", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_script_goes_through_failures_and_writes_what_ships(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backend = FakeBackend()
    now = {"shape": (512, 512, 512)}
    backend.seconds = lambda c: estimate(c.spec, now["shape"], backend.gpu).seconds
    backend.fails = lambda c: Failed("hang", "too long") if c.spec.has("cpasync") else None
    measure = backend.measure

    def noted(batch: Any, shape: Shape, care: Any, *, warm: bool) -> Any:
        assert warm
        if shape == (8, 4096, 4096):
            raise RuntimeError("this shape's worker cannot be had")
        now["shape"] = shape
        return measure(batch, shape, care, warm=warm)

    monkeypatch.setattr(backend, "measure", noted)
    monkeypatch.setattr(script, "GpuBackend", lambda *a: backend)
    shapes = [(512, 512, 512), (8, 4096, 4096), (1000, 1000, 1000)]
    ship = tmp_path / "package"
    lines = script.tune_all(shapes, tmp_path, deadline=1e12, timings=20, jobs=2, ship=ship)
    assert [line.endswith(": failed") for line in lines] == [False, True, False]
    shipped = json.loads((tmp_path / "package" / "h200.json").read_text())
    assert [(r["m"], r["n"], r["k"]) for r in shipped["rows"]] == [shapes[0], shapes[2]]
    assert all(not gemmgen.parse(r["spec"]).has("cpasync") for r in shipped["rows"])
    assert shipped["arch"] == "sm_90" and "commit" in shipped
    with Records(tmp_path / "records.sqlite") as book:
        assert {r.shape for r in book.best(backend.machine.gpu)} == {shapes[0], shapes[2]}
    late = script.tune_all(shapes[:1], tmp_path, deadline=0.0, timings=20, jobs=2, ship=ship)
    assert late == ["512x512x512: no time left"]
    assert backend.closed


def test_the_script_joins_comparisons(script: Any, tmp_path: Path) -> None:
    rows = [r.to_dict() for r in (row(1e-5, 2e-5), row(2e-5, 1e-5))] + [Broken((1, 2, 3), "why").to_dict()]
    script.write_comparison({"gpu": "G", "driver": "1", "baseline": "cuBLAS", "rows": rows}, tmp_path)
    found = json.loads((tmp_path / "f32.json").read_text())
    assert found["geometric_mean"] == pytest.approx(1.0) and found["at_least_1"] == 1 and found["shapes"] == 3
    assert "why" in script.table(tmp_path / "f32.json") and "2.000" in script.table(tmp_path / "f32.json")


def test_every_winner_that_ships_is_in_the_space_that_is_searched_by_default() -> None:
    found = shipped("sm_90")
    assert found is not None and {w.shape for w in found.rows} >= set(F32) - {(8192, 1024, 1024), (4096, 4096, 64)}
    for winner in found.rows:
        assert gemmgen.parse(winner.spec) in default_specs(winner.shape, "matmul"), winner.shape
