"""``gemmgen ladder`` and ``gemmgen bench``: tables and JSON, with a GPU played where there is none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.cli import host, ladder, machine, run, timing
from gemmgen.cli.options import Size
from gemmgen.report import ladder as report_ladder
from gemmgen.report.bench import Comparison, comparison_table
from gemmgen.report.ladder import RUNGS
from gemmgen.report.measured import measured_markdown
from gemmgen.runtime import baseline, device
from gemmgen.runtime import timing as runtime_timing
from gemmgen.runtime.check import Checked
from gemmgen.runtime.timing import Bench, Timing
from gemmgen.spec.ladder import ladder_names, ladder_path


def played(names: Sequence[str], size: tuple[int, int, int]) -> Bench:
    """A run of sides that take 8, 7, ... 2, then 1.9, 1.8, ... ms, so that each is faster than the one before."""
    timings = tuple(
        Timing(name, s, s * 0.99, s * 1.02, s * 0.98, s * 1.1, 15, 4)
        for name, s in zip(names, (0.001 * max(8 - i, 2.6 - i / 10) for i in range(len(names))), strict=True)
    )
    checks = tuple(Checked(True, 1e-6, (0, 0), 1.0, 1.0, 1e-5, "all, on the host") for _ in names)
    return Bench(size, 1.0, 0.0, False, 4, 800_000_000, "graph", timings, checks)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A GPU and a cuBLAS that are played. Returns the sides of each run, by name."""
    runs: list[list[str]] = []
    named = {"ordinal": 0, "name": "NVIDIA Play", "cc": (9, 0), "driver": (13, 0)}
    fake = device.Device(**{f.name: named.get(f.name, 1) for f in dataclasses.fields(device.Device)})

    class Cublas:
        name = "cublas"
        description = "cuBLAS 13.1.0 through a play, TF32 off"

        def __init__(self, where: Any) -> None:
            assert where is fake

        def close(self) -> None:
            runs[-1].append("closed")

    def bench(sides: Sequence[Any], size: Size, *, warm: bool, progress: Callable[[str], None], **_: Any) -> Bench:
        progress("timing")
        runs.append([side.name for side in sides])
        return played(runs[-1], size)

    monkeypatch.setattr(device, "current", lambda: fake)
    monkeypatch.setattr(machine, "driver_version", lambda: "580.95.05")
    monkeypatch.setattr(gemmgen, "compile", lambda spec, *_: spec)
    monkeypatch.setattr(baseline, "Cublas", Cublas)
    monkeypatch.setattr(runtime_timing, "bench", bench)
    monkeypatch.setattr(timing, "wants_cublas", lambda wanted: wanted is not timing.Baseline.none)
    return runs


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "current", lambda: None)
    monkeypatch.setattr(device, "why_none", lambda: "there is none")


# --- ladder -----------------------------------------------------------------------------------------------------------


def test_the_rungs_are_the_ladder_in_order() -> None:
    names = [rung.spec for rung in RUNGS]
    assert names == [name for name in ladder_names() if name in names] and len(names) >= 14
    sides = [rung for rung in RUNGS if rung.after]
    assert sides == list(RUNGS[-len(sides) :]) and all(rung.after in names for rung in sides)
    assert RUNGS[0].fixes == "" and all(rung.fixes for rung in RUNGS[1:]) and all(rung.leaves for rung in RUNGS)


def test_ladder_without_a_gpu_counts_and_says_so(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ladder", "--size", "64"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("64x64x64 on the simulator, because there is none: counts, not times\n")
    header, names = out.splitlines()[2], [rung.spec for rung in RUNGS]
    assert "side: a branch for particular shapes" in out and " skinny 16x64x64 " in out
    assert "global sectors" in header and "GFLOP/s" not in header
    for rung in RUNGS:
        [line] = [line for line in out.split("\n\n")[1].splitlines() if f" {rung.spec} " in line]
        assert line.startswith("side " if rung.after else f"{names.index(rung.spec)} ")
        words = " ".join(out.split())
        assert rung.fixes in words and rung.leaves in words


def test_ladder_json_has_the_simulator_s_counts(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ladder", "--size", "32x64x96", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["device"] == "sim" and result["size"] == [32, 64, 96] and result["gpu"] is None
    assert result["flops"] == 2 * 32 * 64 * 96 and result["baseline"] is None
    naive, coalesced, smem = result["rungs"][:3]
    assert all(row["verified"] for row in result["rungs"])
    assert naive["counts"]["fma"] == coalesced["counts"]["fma"] == smem["counts"]["fma"] == 32 * 64 * 96
    sectors = [row["counts"]["global_load_sectors"] for row in (naive, coalesced, smem)]
    assert sectors == sorted(sectors, reverse=True) and naive["counts"]["shared_load_wavefronts"] == 0
    assert smem["counts"]["shared_load_wavefronts"] > 0
    assert {"gemmgen", "python", "numpy"} <= result["versions"].keys()


def test_g07_ladder_of_an_empty_size_divides_by_nothing(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    for size in ("0", "0x8x8", "8x0x8", "8x8x0"):
        assert run(["ladder", "--size", size]) == 0
        assert "warptile" in capsys.readouterr().out


def test_ladder_fails_where_a_rung_is_wrong(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = ladder.counted

    def wrong(rung: Any, *arguments: Any) -> Any:
        return dataclasses.replace(real(rung, *arguments), verified=rung.spec != "smem")

    monkeypatch.setattr(ladder, "counted", wrong)
    assert run(["ladder", "--size", "16"]) == 1
    assert capsys.readouterr().err == "error: wrong results: smem\n"


def test_ladder_on_a_gpu_is_the_lesson_s_table(gpu: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ladder"]) == 0
    main = [rung.spec for rung in RUNGS if not rung.after]
    assert gpu == [[*main, "cublas", "closed"], ["splitk", "cublas", "closed"], ["skinny", "cublas", "closed"]]
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "4096x4096x4096 on NVIDIA Play"
    assert all(word in lines[2] for word in ("time", "GFLOP/s", "of cuBLAS"))
    assert "  bottleneck fixed: " in out and "  new bottleneck: " in out
    assert "8 ms" in lines[4] and "17.5%" in lines[4] and f"{2 * 4096**3 / 0.008 / 1e9:,.0f}" in lines[4]
    assert "cuBLAS" in lines[4 + len(RUNGS)] and "100.0%" in lines[4 + len(RUNGS)]
    splitk, skinny = lines[2 + len(RUNGS) : 4 + len(RUNGS)]
    assert "splitk 512x512x512" in splitk and f"{2 * 512**3 / 0.008 / 1e9:,.0f}" in splitk and "87.5%" in splitk
    assert "skinny 16x4096x4096" in skinny and f"{2 * 16 * 4096**2 / 0.008 / 1e9:,.0f}" in skinny


def test_rungs_that_the_gpu_lacks_instructions_for_are_skipped_with_the_reason(
    gpu: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    older = dataclasses.replace(device.required(), cc=(8, 6))
    monkeypatch.setattr(device, "current", lambda: older)
    monkeypatch.setattr(baseline.Cublas, "__init__", lambda *_: None)
    assert run(["ladder"]) == 0
    lacking = {"tma", "pipelined"}
    assert gpu[0][:-2] == [rung.spec for rung in RUNGS if not rung.after and rung.spec not in lacking]
    words = " ".join(capsys.readouterr().out.split())
    assert words.count("not run: tma needs compute capability 9.0, and sm_86 is below it") == len(lacking)
    assert run(["ladder", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {row["kernel"] for row in result["rungs"] if row["skipped"]} == lacking
    assert all("median_s" not in row and row["verified"] for row in result["rungs"] if row["skipped"])
    assert not lacking & set(measured_markdown({**result, "commit": "0" * 40}).split())


def test_the_report_of_a_run_on_a_gpu_shows_its_times(
    gpu: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_ladder, "RUNGS", RUNGS[:3])
    monkeypatch.setitem(report_ladder.LADDERS, "f32", RUNGS[:3])  # type: ignore[misc]
    file = tmp_path / "ladder.html"
    assert run(["ladder", "--size", "1024", "--report", str(file)]) == 0
    html = file.read_text(encoding="utf-8")
    assert "this run: NVIDIA Play at 1024x1024x1024, driver 580.95.05" in html and "cuBLAS 13.1.0" in html
    # Played: 8, 7 and 6 ms, and cuBLAS 5.
    assert all(f"{ms}\u202fms" in html for ms in (8, 7, 6, 5)) and "62.5% of cuBLAS" in html


def test_ladder_json_on_a_gpu(gpu: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ladder", "--size", "1024", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["gpu"], result["arch"], result["driver"]) == ("NVIDIA Play", "sm_90", "580.95.05")
    assert result["baseline"]["description"].startswith("cuBLAS 13.1.0") and result["method"] == "graph"
    rows = {row["kernel"]: row for row in result["rungs"]}
    assert rows["warptile"]["percent_of_cublas"] == pytest.approx(70.0)
    assert rows["warptile"]["gflops"] == pytest.approx(2 * 1024**3 / rows["warptile"]["median_s"] / 1e9)
    skinny = rows["skinny"]
    assert skinny["size"] == [16, 1024, 1024] and skinny["percent_of_cublas"] == pytest.approx(87.5)
    assert skinny["gflops"] == pytest.approx(2 * 16 * 1024**2 / skinny["median_s"] / 1e9)
    assert "commit" in result


def test_recorded_results_are_a_table(gpu: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ladder", "--size", "1024", "--json"]) == 0
    recorded = {**json.loads(capsys.readouterr().out), "commit": "0123456789abcdef"}
    for data in (recorded, [recorded, recorded]):
        table = measured_markdown(data)
        assert "1024x1024x1024 on NVIDIA Play, driver 580.95.05" in table and "(commit 0123456789ab)" in table
        assert "| warptile | 2 | 1,074 | 70.0% |" in table and "| cuBLAS | 1.4 | 1,534 | 100% |" in table
        assert "| skinny, 16x1024x1024 | 8 | 4 | 87.5% |" in table


# --- bench ------------------------------------------------------------------------------------------------------------


def test_bench_compares_with_cublas_at_every_size(gpu: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "warptile", "naive", "--sizes", "1024,64x32x16"]) == 0
    assert gpu == [["warptile", "naive", "cublas", "closed"]] * 2
    out = capsys.readouterr().out
    assert "1024x1024x1024 on NVIDIA Play" in out and "64x32x16 on NVIDIA Play" in out
    assert "4 sets of operands in turn, 800 MB" in out


def test_bench_json_and_no_baseline(gpu: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "warptile", "--baseline", "none", "--json"]) == 0
    assert gpu == [["warptile"]]
    [result] = json.loads(capsys.readouterr().out)["results"]
    assert result["baseline"] is None and result["size"] == [4096, 4096, 4096]
    [kernel] = result["kernels"]
    assert kernel["name"] == "warptile" and kernel["verified"] and kernel["percent_of_baseline"] is None


@pytest.mark.parametrize(
    "error", [baseline.BaselineError("cuBLAS failed"), runtime_timing.WrongResult("naive is wrong")]
)
def test_g26_a_baseline_that_fails_aborts_the_comparison(
    error: Exception, gpu: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        gpu.append([])
        raise error

    monkeypatch.setattr(runtime_timing, "bench", fails)
    for command in (["bench", "naive"], ["ladder"], ["bench", "naive", "--json"]):
        assert run(command) == 1
        out, err = capsys.readouterr()
        assert out == "" and err == f"error: {error}\n"


def test_cublas_is_left_out_only_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    def missing(name: str) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    pathfinder = pytest.importorskip("cuda.pathfinder")
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    assert not timing.wants_cublas(timing.Baseline.auto)
    assert "pip install" in capsys.readouterr().err
    assert timing.wants_cublas(timing.Baseline.cublas)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "cupy" or None)
    assert timing.wants_cublas(timing.Baseline.auto)
    assert capsys.readouterr().err == ""


def test_a_run_that_was_not_replayed_as_graphs_says_why() -> None:
    run = dataclasses.replace(played(["one"], (8, 8, 8)), method="events", why_events="one: refused")
    assert "events around launches (one: refused)" in comparison_table(Comparison(run))
    assert Comparison(run).to_dict()["why_events"] == "one: refused"


def test_a_copy_without_history_is_told_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gemmgen, "__file__", str(tmp_path / "gemmgen" / "__init__.py"))
    assert machine.commit() is None
    monkeypatch.setenv("GEMMGEN_COMMIT", "0123456789abcdef")
    assert machine.machine()["commit"] == "0123456789abcdef"


def test_a_table_without_a_baseline_has_dashes() -> None:
    table = comparison_table(Comparison(played(["one"], (8, 8, 8))))
    assert table.splitlines()[2].rstrip().endswith("-")


# --- bench --host -----------------------------------------------------------------------------------------------------


def test_bench_host_prints_targets_and_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(host, "simulated", lambda: (0.5, 600.0))
    monkeypatch.setattr(host, "TEXT_SECONDS", 0.05)
    monkeypatch.setattr(host, "compile_process", lambda: (1.0, 0.25))
    assert run(["bench", "--host"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split()[-1] for row in (rows[0], rows[1], rows[3], rows[4])] == ["met", "missed", "met", "met"]
    assert run(["bench", "--host", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["met"] for row in found][:2] == [True, False] and found[2]["measured"] > 0


def test_bench_host_simulates_in_a_process_of_its_own() -> None:
    seconds, megabytes = host.simulated()
    assert 0 < seconds < 60 and 10 < megabytes < 4000


def test_texts_are_made_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is work, not memory of it: every spec has a name of its own."""
    seen: list[str] = []
    real = gemmgen.emit

    def emit(spec: Any, *arguments: Any) -> str:
        seen.append(spec.name)
        return real(spec, *arguments)

    monkeypatch.setattr(gemmgen, "emit", emit)
    assert host.texts_per_second(0.2) > 0
    assert len(seen) == len(set(seen)) > 0 and not set(seen) & set(ladder_names())


# --- where it ran -----------------------------------------------------------------------------------------------------


def test_machine_names_the_commit_of_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = machine.machine()
    root = Path(gemmgen.__file__).parent.parent
    assert (found["commit"] is not None) == (
        (root / ".git").exists() and machine.answer(["git", "--version"]) is not None
    )
    assert machine.answer(["no-such-program-anywhere"]) is None


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_run_and_bench_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["run", "warptile", "--device", "cuda", "--size", "1000x999x998", "--beta", "0.5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["device"] == "cuda" and result["verification"]["ok"]
    assert run(["bench", str(ladder_path("warptile")), "--sizes", "512", "--baseline", "none", "--json"]) == 0
    [result] = json.loads(capsys.readouterr().out)["results"]
    assert result["kernels"][0]["gflops"] > 0
    assert run(["ladder", "--size", "512", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["device"] == "cuda" and len(result["rungs"]) == len(RUNGS)
    rates = {row["kernel"]: row["gflops"] for row in result["rungs"] if not row["skipped"]}
    assert rates["warptile"] > rates["naive"]


def test_ladder_for_another_gpu_counts_and_models_without_running(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ladder", "--gpu", "a100", "--size", "512", "--suite", "bf16"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith("512x512x512: exact counts, and times modelled for NVIDIA A100 SXM4 80 GB ")
    assert (
        "expected: time modelled for an NVIDIA A100" in words
        and "not counted: wgmma does not run on NVIDIA A100" in words
    )
    assert "`gemmgen explain NAME --size 512x512x512 --gpu a100`" in words
    assert run(["ladder", "--gpu", "none"]) == 2


def test_the_ladder_says_where_the_bottlenecks_that_it_names_hold() -> None:
    from gemmgen.report.ladder import RECORDED_ON, WORDS_AT, LadderResult, ladder_table
    from gemmgen.target import GPUS

    for size in (WORDS_AT, (128, 128, 128)):
        for gpu in ("h200", "l40s"):
            found = LadderResult(size, {}, [], modelled=GPUS[gpu].title)
            says = "The bottlenecks are those on" in ladder_table(found)
            assert says == (size != WORDS_AT or gpu != RECORDED_ON)
            assert found.to_dict()["bottlenecks_of"] == {"gpu": "h200", "size": [4096, 4096, 4096]}
