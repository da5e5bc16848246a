"""Counters beside predictions: the CSV of Nsight Compute, the comparison, and the command with and without the tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.analysis.counters import (
    ASYNCHRONOUS,
    COUNTERS,
    FFMA,
    PIPE,
    TIME,
    binding,
    compare,
    parse_ncu,
    predicted,
    profile_dict,
    total,
)
from gemmgen.analysis.explain import Explanation
from gemmgen.cli import run
from gemmgen.diagnostics import LaunchError
from gemmgen.runtime.ncu import MISSING, NOT_PERMITTED, failure
from gemmgen.spec.ladder import ladder_path

STORED = Path(__file__).parent / "data" / "ncu"


def stored(name: str) -> str:
    return (STORED / name).read_text(encoding="utf-8")


def explained(name: str, size: tuple[int, int, int] = (128, 128, 64), beta: float = 0.0) -> Explanation:
    return gemmgen.explain(gemmgen.load(ladder_path(name)), *size, beta=beta)


# --- CSV --------------------------------------------------------------------------------------------------------------


def test_a_row_for_each_launch() -> None:
    first, second = parse_ncu(stored("raw.csv"))
    assert (first.kernel, second.kernel) == ("warptile", "smem")
    assert first.values[TIME] == pytest.approx(176_896e-9)
    assert first.values[COUNTERS["global load sectors"]] == 2_097_152
    assert first.values["smsp__issue_active.avg.pct_of_peak_sustained_active"] == 31.5
    assert "smsp__issue_active.avg.pct_of_peak_sustained_active" not in second.values


def test_a_row_for_each_counter() -> None:
    first, second = parse_ncu(stored("long.csv"))
    assert first.values == {TIME: pytest.approx(12.5e-6), "smsp__inst_executed_op_shared_ld.sum": 0.0}
    assert second.kernel == "naive_reduce"
    assert total([first, second])[TIME] == pytest.approx(15e-6)


def test_nothing_in_the_text() -> None:
    assert parse_ncu("") == []
    assert parse_ncu("==ERROR== no kernels were profiled\n") == []


def test_percentages_are_those_of_the_longest_launch() -> None:
    launches = parse_ncu(stored("raw.csv"))
    assert total(launches[:1])["smsp__issue_active.avg.pct_of_peak_sustained_active"] == 31.5
    assert "smsp__issue_active.avg.pct_of_peak_sustained_active" not in total(launches)
    assert total([]) == {}


# --- Predictions ------------------------------------------------------------------------------------------------------


def counters_of(e: Explanation) -> dict[str, float]:
    """What a GPU that does just what is predicted would show."""
    expected = predicted(e)
    copies = {of[0]: float(expected[name]) for name, of in ASYNCHRONOUS.items()}
    rest = {counter: 0.0 for of in ASYNCHRONOUS.values() for counter in of[1:]}
    return {COUNTERS[name]: float(expected[name]) for name in COUNTERS} | copies | rest


def test_what_is_predicted_agrees_with_itself() -> None:
    e = explained("smem")
    assert all(c.agrees for c in compare(e, counters_of(e)))
    assert [c.agrees for c in compare(e, {})] == [None] * len(COUNTERS)


def test_a_count_that_is_off_by_one_differs() -> None:
    e = explained("vectorized")
    for name, counter in COUNTERS.items():
        values = counters_of(e)
        values[counter] += 1
        [found] = [c for c in compare(e, values) if c.name == name]
        assert found.agrees is False


@pytest.mark.parametrize(("percent", "said"), [(79.9, None), (80.0, "issue"), (94.0, "issue")])
def test_what_binds_is_what_is_busy_enough(percent: float, said: str | None) -> None:
    assert binding({"issue": percent, "compute": 70.0, "l1": None}) == said


def test_replays_are_told_apart_from_what_instructions_take() -> None:
    e = explained("smem")
    values = counters_of(e)
    values |= {PIPE["load"]: values[COUNTERS["shared load wavefronts"]] + 7, PIPE["store"]: 0.0}
    del values[COUNTERS["shared store wavefronts"]]
    assert profile_dict(e, values)["replayed_wavefronts"] == {"load": 7}


def test_scaling_by_beta_is_a_multiply_add_of_each_element_of_c() -> None:
    plain, scaled = (predicted(explained("smem", (100, 70, 33), beta)) for beta in (0.0, 1.0))
    assert scaled["multiply-adds"] - plain["multiply-adds"] == 100 * 70


def test_asynchronous_copies_are_loads_of_global_memory_and_no_stores() -> None:
    text = "kernel copies\ntile block 64x64x16\ntile thread 4x4\nuse coalescing, smem, float4, cpasync\nstages 2\n"
    e = gemmgen.explain(gemmgen.parse(text), 128, 128, 64, beta=1.0)
    found = predicted(e)
    assert e.counts.total("global", "load").requests == found["global load requests"]
    assert found["global load requests"] > found["asynchronous copy requests"] > 0
    assert found["shared store requests"] == 0 < found["shared load requests"]
    copies = {c.name: c for c in compare(e, counters_of(e)) if c.name in ASYNCHRONOUS}
    assert set(copies) == {"asynchronous copy requests"}
    assert all(c.agrees and c.measured for c in copies.values())


def test_shared_loads_are_predicted_as_compiled() -> None:
    e = explained("smem")
    written = e.counts.total("shared", "load")
    assert predicted(e)["shared load wavefronts"] < written.wavefronts


# --- The command ------------------------------------------------------------------------------------------------------


def test_absent_ncu_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import gemmgen.runtime.ncu as ncu

    monkeypatch.setattr(ncu, "find_tool", lambda name: None)
    assert run(["profile", "warptile"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err == f"error: {MISSING}\n"


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import gemmgen.runtime.device as device
    import gemmgen.runtime.ncu as ncu

    monkeypatch.setattr(ncu, "find_tool", lambda name: Path("/usr/bin/ncu"))
    monkeypatch.setattr(device, "why_none", lambda: "there is no GPU in it")
    assert run(["profile", "warptile"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "there is no GPU in it" in err and "gemmgen explain" in err


def test_missing_permission() -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    assert failure(1, said, "") == failure(0, "", said) == NOT_PERMITTED
    assert failure(0, stored("raw.csv"), "") == ""
    assert "==ERROR== Failed to profile" in failure(9, "==ERROR== Failed to profile\n", "")


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A GPU that shows what is predicted; ``off`` counters are added to, ``refused`` names make ncu fail."""
    import gemmgen.runtime.device as device
    import gemmgen.runtime.ncu as ncu

    state: dict[str, Any] = {"off": {}, "refused": False, "runs": 0}

    def profile(command: Sequence[str], counters: Sequence[str]) -> tuple[str, str]:
        state["runs"] += 1
        if state["refused"] and any(".pct" in name for name in counters):
            raise LaunchError("ncu failed")
        jobs = json.loads(Path(command[-1]).read_text(encoding="utf-8"))
        lines = ['"ID","Kernel Name",' + ",".join(f'"{name}"' for name in counters), '"",""' + ',""' * len(counters)]
        for i, job in enumerate(jobs):
            m, n, k = job["size"]
            e = gemmgen.explain(gemmgen.parse(job["spec"]), m, n, k, beta=job["beta"])
            shown = {name: value + state["off"].get(name, 0) for name, value in counters_of(e).items()}
            if e.copies:
                lines.append(f'"{i}","gemmgen_copy",' + ",".join('"7"' for _ in counters))
            lines.append(f'"{i}","{e.ir.name}",' + ",".join(f'"{shown.get(name, 50.0)}"' for name in counters))
        return "\n".join(lines), json.dumps([1] * len(jobs))

    monkeypatch.setattr(ncu, "required_tool", lambda: Path("/usr/bin/ncu"))
    monkeypatch.setattr(ncu, "profile", profile)
    monkeypatch.setattr(device, "why_none", lambda: "")
    return state


def test_measured_beside_predicted(pretended: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "smem", "warptile", "--size", "128x128x64"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.count("agrees") == 2 * len(COUNTERS) and "DIFFERS" not in out
    assert "shared loads as written: " in out and "utilisation, of the peak: issue 50%" in out
    assert pretended["runs"] == 1


def test_copies_before_a_product_are_left_out(pretended: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "vectorized", "naive", "--size", "1023x1025x1027"]) == 0
    assert "DIFFERS" not in capsys.readouterr().out


def test_a_disagreement_is_marked(pretended: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    pretended["off"] = {FFMA: 1.0}
    assert run(["profile", "smem", "--size", "64"]) == 0
    [line] = [x for x in capsys.readouterr().out.splitlines() if "DIFFERS" in x]
    assert line.startswith("multiply-adds")


def test_counters_that_this_ncu_does_not_know_are_left_out(
    pretended: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pretended["refused"] = True
    assert run(["profile", "smem", "--size", "64", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["busy_percent"]["issue"] is None and all(c["agrees"] for c in found["counts"])
    assert (found["kernel"], found["size"], found["beta"]) == ("smem", [64, 64, 64], 0.0)


def test_kernels_that_ncu_did_not_see(pretended: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import gemmgen.runtime.ncu as ncu

    whole = ncu.profile

    def twice(command: Sequence[str], counters: Sequence[str]) -> tuple[str, str]:
        text, _ = whole(command, counters)
        return text, "[2]"

    monkeypatch.setattr(ncu, "profile", twice)
    assert run(["profile", "smem", "--size", "64"]) == 1


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "--help"]) == 0
    assert "\n    gemmgen profile warptile\n" in capsys.readouterr().out
    assert run(["profile", "missing.gemm"]) == 2
