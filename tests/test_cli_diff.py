"""``diff`` and ``ablate``: what changed, said and counted; every ablation right, dependents leaving together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.report.ablation import ablations, dependents
from gemmgen.report.delta import spec_changes
from gemmgen.report.sidebyside import body, side_by_side, unified
from gemmgen.spec.ladder import ladder_path

PIPELINE = """kernel piped
tile block 64x64x16
tile warp 32x32
tile thread 4x4
use coalescing, smem, transposeA, float4, warptile, cpasync, prefetch, spread
stages 3
pad_a 4
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def told_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(told(capsys, *arguments, "--json"))


def first_part(out: str) -> str:
    """The sentence at the start, on one line."""
    return " ".join(out.split("\n\n")[0].split())


# --- diff -------------------------------------------------------------------------------------------------------------


def test_a_time_that_reads_the_same_stays(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = first_part(told(capsys, "diff", "regblock2d", "vectorized", "--size", "4096", "--gpu", "h200"))
    before_and_after = re.search(r"the expected time (?:falls|rises) from (.*?) to (.*?) \(", sentence)
    assert "stays at" in sentence or (before_and_after and before_and_after[1] != before_and_after[2])
    run = json.loads((Path(__file__).parent.parent / "generated" / "h200" / "ladder.json").read_text(encoding="utf-8"))
    before, after = (1000 * r["median_s"] for r in run["rungs"] if r["name"] in ("regblock2d", "vectorized"))
    falls = f"The measured time falls from {before:.2f} ms to {after:.2f} ms"
    assert f"{falls} (NVIDIA H200, commit {run['commit'][:12]})." in sentence


def test_diff_says_what_changed_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "diff", "regblock2d", "vectorized", "--size", "1024", "--gpu", "h200")
    sentence = first_part(out)
    assert "measured" not in out
    assert sentence.startswith("vectorized adds transposeA and float4: global load requests fall 4x")
    assert "the expected time falls from" in sentence and sentence.endswith(".")
    sections = [part.splitlines()[0] for part in out.split("\n\n")]
    assert sections[1:4] == ["settings", "tile program", "CUDA"]
    assert "-  As = shared f32 [BM=128, BK=8]" in out
    assert "float As[BM][BK];" in out and "float As[BK][BM];" in out
    assert re.search(r"\nglobal load requests +524,288 +131,072 +x 0.25\n", out)
    assert "\033[" not in out


def test_diff_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = told_json(capsys, "diff", "coalesced", "smem", "--size", "512")
    assert [c["setting"] for c in found["spec"]] == ["use smem", "tile block"]
    assert found["spec"][1] == {"setting": "tile block", "before": "32x32", "after": "32x32x32"}
    ratios = {f["name"]: f["ratio"] for f in found["figures"]}
    assert ratios["multiply-adds"] == 1 and ratios["global load requests"] == pytest.approx(1 / 32)
    assert ratios["shared load requests"] is None
    assert "adds smem, changes tile block from 32x32 to 32x32x32" in found["sentence"]


def test_diff_of_a_spec_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "diff", "naive", "naive", "--size", "64")
    assert out.startswith("naive and naive have the same settings.")
    assert "tile program" not in out and "CUDA" not in out


def test_changes_of_specs() -> None:
    a = gemmgen.load(ladder_path("warptile"))
    b = a.replace(use=a.use - {"float4"}, n_iter=2, block=(64, 128, 16))
    changes = {c.setting: (c.before, c.after) for c in spec_changes(a, b)}
    assert changes == {
        "use float4": ("", None), "tile block": ("128x128x16", "64x128x16"), "warptile": ("1x4 pieces", "2x2 pieces"),
    }  # fmt: skip
    assert spec_changes(a, a.replace(name="other")) == []


def test_side_by_side() -> None:
    a, b = "one\ntwo\nthree\n", "one\n2\nthree\nfour\n"
    lines = side_by_side(a, b, ("a", "b"), 90, colour=False).splitlines()
    assert lines[0].split() == ["a", "from", "line", "1", "b", "from", "line", "1"]
    assert [line.split() for line in lines[1:]] == [
        ["one", "one"],
        ["two", "|", "2"],
        ["three", "three"],
        [">", "four"],
    ]
    assert len({line.index(mark) for line, mark in ((lines[2], "|"), (lines[4], ">"))}) == 1
    assert side_by_side(a, a, ("a", "b"), 90, colour=False) == unified(a, a, ("a", "b"), colour=False) == ""
    painted = side_by_side(a, b, ("a", "b"), 90, colour=True)
    assert "\033[31mtwo\033[0m" in painted and "\033[32m2\033[0m" in painted
    assert re.sub(r"\033\[\d+m", "", painted) == "\n".join(lines)


def test_long_lines_are_folded_and_nothing_is_lost() -> None:
    a, b = "x" * 100, "y" * 130
    lines = side_by_side(a, b, ("a", "b"), 83, colour=False).splitlines()[1:]
    assert max(len(line) for line in lines) <= 83
    assert sum(line.count("x") for line in lines) == 100 and sum(line.count("y") for line in lines) == 130


def test_the_head_of_the_cuda_is_left_out() -> None:
    text = gemmgen.emit(gemmgen.load(ladder_path("smem")))
    assert body(text).startswith("constexpr int") and text.endswith(body(text) + "\n")


# --- ablate -----------------------------------------------------------------------------------------------------------


def test_ablate_the_ladder(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "ablate", "vectorized", "--size", "1024")
    rows = {line.split()[0]: line for line in out.split("\n\n")[1].splitlines() if line.split()[0] in
            ("coalescing", "smem", "transposeA", "float4")}  # fmt: skip
    assert len(rows) == 4
    assert all(" PASS " in row for row in rows.values())
    assert "float4, transposeA" in out


def test_dependents_leave_together_and_it_is_said() -> None:
    spec = gemmgen.parse(PIPELINE)
    assert dependents("cpasync", spec) == {"cpasync", "spread"}
    assert dependents("smem", spec) == spec.use - {"coalescing"}
    found = {a.without: a for a in ablations(spec)}
    assert set(found) == {*spec.use, "stages 3", "pad_a 4"}
    assert "spread" in found["cpasync"].also
    assert found["stages 3"].also == ("spread",)
    for a in found.values():
        assert a.spec is not None, (a.without, a.why)
        toggle = a.without.split()[0]
        assert toggle not in a.spec.use
    assert found["pad_a 4"].spec is not None and found["pad_a 4"].spec.pad_a == 0
    changed = found["smem"]
    assert changed.spec is not None and any(word.startswith("stages 3 ->") for word in changed.also)


def test_ablate_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import gemmgen.api.explaining as explaining

    monkeypatch.setattr(explaining, "_compiled", lambda *_: None)  # counts need no compiler, and this is quicker
    path = tmp_path / "piped.gemm"
    path.write_text(PIPELINE, encoding="utf-8")
    found = told_json(capsys, "ablate", str(path), "--size", "256")
    rows = {r["without"]: r for r in found["ablations"]}
    assert all(r["right"] for r in rows.values())
    assert rows["pad_a 4"]["figures"]["shared store wavefronts"]["ratio"] > 1
    assert rows["float4"]["figures"]["global load requests"]["ratio"] > 1


def test_the_transpose_pays_by_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Readers dispute both: its stores do conflict, and its loads more than make up for it."""
    figures = {
        r["without"]: r["figures"] for r in told_json(capsys, "ablate", "warptile", "--size", "1024")["ablations"]
    }
    without = figures["transposeA"]
    stores, loads = (without[f"shared {x}"] for x in ("store wavefronts", "load wavefronts, compiled"))
    assert stores["after"] < stores["before"]
    assert loads["after"] - loads["before"] > stores["before"] - stores["after"]


def test_a_wrong_ablation_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import gemmgen.cli.ablate as command

    monkeypatch.setattr(command, "is_right", lambda spec: "coalescing" in spec.use)
    assert run(["ablate", "smem", "--size", "64"]) == 1
    out, err = capsys.readouterr()
    assert " FAIL " in out and "without coalescing" in err


def test_what_the_compiled_loop_would_add_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gemmgen.api.explaining as explaining

    monkeypatch.setattr(explaining, "_loop", lambda *_: None)
    for arguments in (["diff", "regblock2d", "vectorized"], ["ablate", "smem", "--size", "64"], ["explain", "smem"]):
        out = " ".join(told(capsys, *arguments).split())
        assert out.count("SASS not inspected") == 1 + out.count("(SASS not inspected)")
        assert out.count("`pip install nvidia-cuda-nvdisasm` installs nvdisasm") == 1
        assert ("so the verdict lacks" in out) is (arguments[0] == "explain")
    monkeypatch.undo()
    compiled = gemmgen.explain(gemmgen.load(ladder_path("smem")), 64, 64, 64).compiled
    if compiled is not None and compiled.loop is not None:
        assert "pip install nvidia-cuda-nvdisasm" not in told(capsys, "ablate", "smem", "--size", "64")


def test_what_is_not_legal_is_said_under_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gemmgen.api.explaining as explaining
    import gemmgen.cli.ablate as command

    monkeypatch.setattr(explaining, "_compiled", lambda *_: None)
    monkeypatch.setattr(command, "is_right", lambda spec: True)
    out = told(capsys, "ablate", "pipelined", "--size", "256")
    words = " ".join(out.split())
    why = "block 128x128 with thread 1x4 needs 4096 threads, over the limit of a block: 4096 > 1024"
    assert f"not legal without smem: {why}" in words and f"not legal without warptile: {why}" in words
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", ["cpasync", "tma", "pipelined", "skinny"])
def test_stages_are_never_what_is_left_illegal(name: str) -> None:
    """They are lowered with whatever brought the tiles, in every spec."""
    for a in ablations(gemmgen.load(ladder_path(name))):
        assert "stages" not in a.why
        if a.spec is not None and not a.spec.use & {"cpasync", "tma"}:
            assert a.spec.stages <= 2


def test_nothing_to_ablate(capsys: pytest.CaptureFixture[str]) -> None:
    assert "naive has no toggle or setting to remove." in told(capsys, "ablate", "naive")
    assert told_json(capsys, "ablate", "naive")["ablations"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["diff", "naive"], "second spec"),
        (["diff", "naive", "missing.gemm"], "no file missing.gemm"),
        (["diff", "naive", "smem", "--gpu", "h20"], "h200"),
        (["ablate", "missing.gemm"], "no file missing.gemm"),
        (["ablate", "smem", "--size", "x"], "MxNxK"),
    ],
)
def test_mistakes(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err


@pytest.mark.parametrize("command", ["diff", "ablate"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, command, "--help")
    assert f"\n    gemmgen {command} " in out and "--json" in out


def test_on_a_gpu_ablations_are_timed_in_one_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gemmgen.api.explaining as explaining
    import gemmgen.cli.ablate as command
    import gemmgen.cli.timing as timing
    import gemmgen.runtime.device as device
    from gemmgen.report.bench import Comparison
    from gemmgen.runtime.timing import Bench, Timing

    def compare(specs: Any, size: Any, **_: Any) -> Comparison:
        times = [Timing(s.name, 1e-3 * (i + 1), 0, 0, 0, 0, 9, 9) for i, s in enumerate(specs)]
        return Comparison(Bench(size, 1.0, 0.0, False, 1, 0, "graph", tuple(times), ()))

    monkeypatch.setattr(explaining, "_compiled", lambda *_: None)
    monkeypatch.setattr(command, "is_right", lambda spec: True)
    monkeypatch.setattr(timing, "compare", compare)
    monkeypatch.setattr(device, "current", lambda: object())
    found = told_json(capsys, "ablate", "smem", "--size", "64", "--gpu", "h200")["ablations"]
    assert [(r["milliseconds"], r["whole_milliseconds"]) for r in found] == [(2.0, 1.0), (3.0, 1.0)]
    out = told(capsys, "ablate", "smem", "--size", "64", "--gpu", "h200")
    assert "measured" in out and "2 ms" in out and "x 3" in out
