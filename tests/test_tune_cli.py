"""``gemmgen tune`` and the reports of it; several shapes on several GPUs, with made-up ones."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tunehelp import SPACE, FakeBackend

import gemmgen
from gemmgen.cli import run
from gemmgen.diagnostics import TuneError
from gemmgen.report.tuning import plot_image, plot_text, points, rates
from gemmgen.tune import tuning
from gemmgen.tune.families import default_specs
from gemmgen.tune.printed import labels, shared_text
from gemmgen.tune.share import Outcome, Task, tune_many, tune_on, work
from gemmgen.tune.space import key_of
from gemmgen.tune.tuner import Options

ROOT = Path(__file__).resolve().parent.parent
CHOICES = ["--set", "stages=1,2", "--set", "pad_a=0,4", "--set", "prefetch=on,off"]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBackend:
    made = FakeBackend()
    monkeypatch.setattr(tuning, "_gpu_backend", lambda: made)
    monkeypatch.setenv("GEMMGEN_RECORDS", str(tmp_path / "records.sqlite"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tried.gemm").write_text(SPACE.split("tune")[0])
    return made


def test_a_winner_is_found_shown_and_exported(
    backend: FakeBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "winner.gemm"
    arguments = ["tune", "tried.gemm", *CHOICES, "--size", "1024", "--export", str(out)]
    assert run(arguments) == 0
    said = capsys.readouterr()
    assert "8 combinations: 0 left out before compiling, 8 tried, 13 timings" in said.out and "final" in said.out
    winner = gemmgen.load(out)
    assert winner.name == "tried" and winner.tune == () and winner.to_text() in said.out + "\n"
    assert run([*arguments, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["timings"] == 0 and again["best"]["spec"] == winner.to_text() and again["measured"]
    assert len(again["trials"]) == 8 and all(t["recorded"] for t in again["trials"])


def test_records_are_shown_exported_and_plotted(
    backend: FakeBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", "--show"]) == 1
    assert "no records at" in capsys.readouterr().err
    assert run(["tune", "tried.gemm", *CHOICES, "--size", "1024,1024x1024x512", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert run(["tune", "--show"]) == 0
    table = capsys.readouterr().out
    assert "1024x1024x512" in table and "machine: a made-up GPU, driver 1.0, NVRTC 13.0" in table
    assert run(["tune", "--show", "--export", str(tmp_path / "w.gemm")]) == 2
    assert "one shape" in capsys.readouterr().err
    out = str(tmp_path / "w.gemm")
    assert run(["tune", "--show", "--size", "1024", "--export", out, "--plot", "-", "--json"]) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)) == 8 and "stages" in said.err and "#" in said.err
    assert gemmgen.load(out).to_text() == first["best"]["spec"]
    assert run(["tune", "--show", "--size", "77"]) == 1


def test_failures_and_what_was_left_out_are_said(backend: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    from gemmgen.tune.backend import Failed

    backend.fails = lambda c: Failed("wrong", "C[3, 4] is 1.0") if c.spec.stages == 2 else None
    assert run(["tune", "tried.gemm", *CHOICES, "--set", "block=128x128x16,100x128x16", "--size", "1024"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 failed:" in said and "wrong: C[3, 4] is 1.0" in said
    assert "8 by the checks: block 100 rows is not a multiple of warp 64 rows" in said


def test_no_survivor_ends_with_status_1(backend: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    from gemmgen.tune.backend import Failed

    backend.fails = lambda c: Failed("hang", "killed")
    assert run(["tune", "tried.gemm", *CHOICES, "--size", "1024"]) == 1
    assert "no candidate for 1024x1024x1024 survives" in capsys.readouterr().err


def test_the_model_alone_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "--model", "--size", "1000", "--gpu", "a100"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "modelled only: nothing was measured" in said and "A100" in said and "tma needs sm_90" in said


def test_a_plot_as_text_says_what_it_shows_and_what_has_no_value_left(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    arguments = ["tune", "tried.gemm", "--set", "stages=1,2", "--set", "block=128x128x16,100x128x16", "--size", "1024"]
    assert run([*arguments, "--plot", "-", "--model"]) == 0
    out = capsys.readouterr().out.split("\n")
    assert out[0].startswith("1024x1024x1024 on ") and out[0].endswith(
        ", modelled: GFLOP/s of the fastest kernel with each value"
    )
    left = "block: only 128x128x16 has times; every kernel with 100x128x16 was left out or failed"
    assert out.count(left) == 1 and out[out.index(left) + 1] == ""
    assert run([*arguments, "--plot", "-"]) == 0
    out = capsys.readouterr().out.split("\n")
    assert "modelled" not in out[0] and left in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "stages"], "write it like --set stages=2,3"),
        (["--set", "stages=1,99"], "stages: 99 is not supported"),
        (["--set", "stagez=1"], "'stagez' is not a setting that can be tuned; did you mean 'stages'?"),
        (["--size", "64,128", "--export", "x.gemm"], "are for one shape"),
        (["--plot", "x.gif", "--model"], "the name ends in .svg or .png"),
        (["--search", "best"], "best"), (["--timings", "0"], "timings"), (["nothing_here"], "no file nothing_here"),
        (["--model", "--gpu", "h2000"], "unknown GPU"),
    ],
)  # fmt: skip
def test_mistakes_on_the_command_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "warptile" if "nothing_here" not in arguments else "naive", *arguments]) == 2
    assert said in capsys.readouterr().err


# --- Plots ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def trials() -> Any:
    spec = gemmgen.parse(
        "kernel one\ntile block 64x64x8\ntile thread 4x4\nuse coalescing, smem\ntune stages in {1, 2}\n"
        "tune float4 in {on, off}\ntune tile block in {64x64x8, 128x64x8}\n"
    )
    return rates(gemmgen.tune(spec, 512, 512, 512, device="sim", records=False))


def test_every_parameter_that_differs_has_its_points(trials: Any) -> None:
    found = {p.name: p for p in points(trials)}
    assert set(found) == {"block", "stages", "float4", "threads"}
    assert list(found["stages"].values) == ["1", "2"] and list(found["float4"].values) == ["off", "on"]
    assert sum(map(len, found["block"].values.values())) == len(trials) == 8
    best = max(rate for _, rate in trials)
    assert all(max(p.best.values()) == best for p in found.values())
    text = plot_text(points(trials))
    assert text.count("#" * 40) == len(found), "the best value of each parameter has the longest bar"
    assert plot_text([]).startswith("the timed kernels differ in no setting")


@pytest.mark.full  # README's command leaves matplotlib out
@pytest.mark.parametrize(("kind", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_plots_are_images(trials: Any, kind: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    image = plot_image(points(trials), "512x512x512", kind)
    assert image.startswith(start)
    if kind == "svg":
        assert b"stages" in image and b"GFLOP/s" in image


def test_without_matplotlib_a_plot_is_refused_before_the_work_and_the_right_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["tune", "warptile", "--model", *CHOICES, "--plot", str(tmp_path / "p.svg")]) == 1
    said = capsys.readouterr()
    assert "gemmgen[tune]" in said.err and said.out == "" and not (tmp_path / "p.svg").exists()


# --- Several GPUs -----------------------------------------------------------------------------------------------------


def tasks(count: int) -> list[Task]:
    return [Task((64 * (i + 1), 64, 64), None, {"stages": [1, 2]}, Options(timings=5)) for i in range(count)]


def test_a_task_comes_back_as_it_was() -> None:
    for task in (*tasks(2), Task((1, 2, 3), ("kernel one\n",), {"block": [(64, 64, 8)]}, Options("random", warm=True))):
        back = Task.from_json(task.to_json())
        assert back.options == task.options and back.shape == task.shape and back.specs == task.specs
        assert json.dumps(back.choices) == json.dumps(task.choices)


def test_a_task_is_tuned_and_its_errors_are_its_outcome(tmp_path: Path) -> None:
    text = gemmgen.parse("kernel one\ntile block 64x64x8\ntile thread 4x4\nuse coalescing, smem\n").to_text()
    good = tune_on(Task((1024, 1024, 1024), (text,), {"stages": [1, 2]}, Options()), 3, tmp_path / "r", FakeBackend())
    assert good.error == "" and good.gpu == 3 and good.spec is not None and gemmgen.parse(good.spec).name == "one"
    bad = tune_on(Task((64, 64, 64), (text,), {"stages": [9]}, Options()), 0, tmp_path / "r", FakeBackend())
    assert "tune stages: 9 is not supported" in bad.error and bad.spec is None


def test_one_process_takes_all_tasks_in_turn(tmp_path: Path) -> None:
    from gemmgen.tune.records import Records

    path = tmp_path / "r.sqlite"
    with Records(path) as book:
        book.offer("job", [t.to_json() for t in tasks(3)])
    seen: list[Any] = []

    def note(task: Task) -> Outcome:
        seen.append(task.shape)
        return Outcome(task.shape, "kernel one\n", 1e-3, 5, 0)

    assert work("job", str(path), 0, note) == 3
    assert seen == [t.shape for t in tasks(3)]


PLAYED = """
import sys, time
from pathlib import Path
from gemmgen.tune import share
job, path, gpu = sys.argv[1:]
share.STALE_S, share.BEAT_S = STALE, 0.2
started = Path(path).with_suffix(".started")
def run(task):
    if gpu == "1" and sys.argv[0] == "-c" and DIES:
        raise SystemExit(9)
    started.mkdir(exist_ok=True)
    (started / gpu).touch()
    while len(list(started.iterdir())) < TOGETHER:
        time.sleep(0.01)
    return share.Outcome(task.shape, "kernel one\\n", 1e-3, 5, int(gpu))
share.work(job, path, int(gpu), run)
"""


def played(together: int = 1, dies: bool = False) -> tuple[str, ...]:
    """A process for a GPU. It is done with its first task once so many processes are at work ``together``."""
    text = PLAYED.replace("TOGETHER", str(together)).replace("DIES", str(dies))
    return (sys.executable, "-c", text.replace("= STALE", "= 2.0" if dies else "= 600.0"))


@pytest.mark.parametrize("gpus", [1, 2])
def test_gpus_are_at_work_at_the_same_time(gpus: int, tmp_path: Path) -> None:
    """Were one process to wait for the other, neither would get any further."""
    found = tune_many(tasks(8), range(gpus), tmp_path / "r.sqlite", command=played(together=gpus))
    assert [o.shape for o in found] == [t.shape for t in tasks(8)]
    assert {o.gpu for o in found} == set(range(gpus))


def test_what_a_process_that_died_had_claimed_is_done_by_another(tmp_path: Path) -> None:
    found = tune_many(tasks(4), range(2), tmp_path / "r.sqlite", command=played(dies=True))
    assert [o.shape for o in found] == [t.shape for t in tasks(4)] and {o.gpu for o in found} == {0}


def test_when_all_processes_die_the_tasks_left_are_named(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="not tuned, since the processes for the GPUs ended: 64x64x64, 128x64x64"):
        tune_many(tasks(2), [0], tmp_path / "r.sqlite", command=(sys.executable, "-c", "raise SystemExit(3)"))


def test_labels_tell_all_kernels_apart_and_leave_out_what_all_have() -> None:
    for shape in ((256, 256, 65536), (64, 64, 64), (16, 4096, 4096)):
        specs = default_specs(shape, unordered=True)
        assert len(set(labels(specs))) == len({key_of(spec) for spec in specs}) == len(specs)
    a = gemmgen.load(ROOT / "specs" / "pipelined.gemm")
    b = a.replace(use=a.use - {"release"}, stages=2)
    one, other = labels([a, b])
    assert (one.split()[-3:], other.split()[-2:]) == (["release", "stages", "3"], ["stages", "2"])
    assert "smem" not in one and "smem" in shared_text([a, b])
    assert labels([]) == [] and shared_text([]) == ""


def test_the_model_has_tried_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "--model", "--size", "256x256x65536"]) == 0
    out = capsys.readouterr().out
    assert "modelled; none was run" in out and "tried" not in out
    assert "modelled more than 4 times slower than the best" in out and "all of them: coalescing, smem" in out


# --- What a spec computes is kept -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("warptile", ["B=f32 col"]),
        ("warptile", ["A=f32 col", "B=f32 col"]),
        ("warptile", ["C=f32 col"]),
        ("gemm_bias_gelu", []),
        ("gemm_bias_gelu", ["B=f32 col"]),
        ("batched", []),
    ],
)
def test_the_default_space_computes_what_the_spec_does(
    spec: str, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Layout, epilogue and batches: the winner can take the place of the spec."""
    from gemmgen.cli.specs import load_specs

    changed = [part for setting in settings for part in ("--set", setting)]
    assert run(["tune", spec, *changed, "--model", "--size", "512", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    [given] = load_specs([spec], settings)
    found = [gemmgen.parse(t["spec"]) for t in told["trials"]]
    assert len(found) > 20
    for x in found:
        assert (x.A, x.B, x.C, x.epilogue) == (given.A, given.B, given.C, given.epilogue)
        assert x.has("batched") == given.has("batched")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--model"], "--model"),
        (["warptile", "--model"], "SPEC and --model"),
        (["--set", "stages=2", "--size", "512"], "--set and --size"),
    ],
)
def test_shapes_refuses_by_name_what_it_does_not_take(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.txt").write_text("512 512 64\n")
    assert run(["tune", "--shapes", str(tmp_path / "s.txt"), *arguments]) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"leave out {named}")


def test_min_blocks_that_do_not_fit_say_how_many_blocks_do() -> None:
    from gemmgen.target import gpu
    from gemmgen.tune.estimate import estimate

    spec = gemmgen.load("warptile").replace(block=(128, 128, 32), min_blocks=3)
    assert estimate(spec, (512, 512, 512), gpu("t4")).hopeless == "min_blocks 3: an SM has room for 2 blocks"


def tune_examples() -> list[str]:
    """The commands of the docs and of the help that tune a spec of the ladder over values given by --set."""
    texts = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "gemmgen/cli/tune.py")]
    lines = [line.partition("#")[0].strip() for text in texts for line in text.splitlines()]
    return [line for line in lines if re.match(r"gemmgen tune [a-z0-9_]+ --set", line)]


@pytest.mark.parametrize("command", tune_examples())
def test_every_value_of_a_documented_tuning_command_has_a_candidate(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    asked = words[: words.index("--plot")] if "--plot" in words else words
    assert run([*asked, "--model", "--plot", "-"]) == 0
    said = capsys.readouterr().out
    assert "was left out or failed" not in said
    settings = [word for word in words if "=" in word]
    assert len(settings) > 1 and all(f"\n{s.partition('=')[0]}\n" in said for s in settings)


def test_there_are_such_commands() -> None:
    assert len(tune_examples()) >= 2
