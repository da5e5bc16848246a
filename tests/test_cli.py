"""The command line: exit statuses, what goes to stdout and stderr, help, JSON."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.diagnostics import CompileError, LaunchError, SimulationFault

ROOT = Path(__file__).resolve().parent.parent
SPECS = ROOT / "specs"
COMMANDS = ("compile", "check", "run", "bench", "ladder", "new")
WRONG = "kernel bad\ntile block 100x64x8\ntile thread 8x8\nuse smem, flaot4\n"


def process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-m", "gemmgen", *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.gemm"
    path.write_text(WRONG, encoding="utf-8")
    return path


# --- Help -------------------------------------------------------------------------------------------------------------


def test_without_a_command_it_says_how_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    out = capsys.readouterr().out
    assert "gemmgen run warptile" in out
    assert all(f"\n  {command} " in out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_has_examples_and_explains_every_option(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, flag]) == 0
    out = capsys.readouterr().out
    assert f"\n    gemmgen {command} " in out or f"\n    gemmgen {command}\n" in out
    options = re.split(r"\n  (?=-)", out.split("Options:\n")[1].rstrip())
    assert len(options) >= 2
    for option in options:
        words = re.sub(r"^\s*(-\w, )?--[\w-]+( <[^>]*>| [A-Z][\w.,|-]*| MxNxK| sm_NN)?", "", option).split()
        assert len(words) >= 3, f"not explained: {option}"


def test_examples_in_the_help_are_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        run([command, "--help"])
        out = capsys.readouterr().out
        for option in re.findall(r"^    gemmgen .*?(--[a-z]+)", out, re.MULTILINE):
            assert f"{option}" in out.split("Options:")[1], f"{command}: {option} in an example is not an option"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"gemmgen {gemmgen.__version__}\n"


# --- Mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compil"], "compile"),
        (["compile"], "SPEC"),
        (["compile", "--nothing"], "--nothing"),
        (["compile", "warptile", "--emit", "fortran"], "fortran"),
        (["compile", "warptile", "--arch", "90"], "sm_90"),
        (["compile", "missing.gemm"], "no file missing.gemm"),
        (["compile", "warptle"], "warptile"),
        (["compile", str(SPECS)], "directory"),
        (["check", "missing.gemm"], "no file missing.gemm"),
        (["run", "missing.gemm"], "no file missing.gemm"),
        (["run", "warptile", "--size", "12x"], "MxNxK"),
        (["run", "warptile", "--size", "0x10x10x3"], "MxNxK"),
        (["run", "warptile", "--size", "-1"], "--size"),
        (["run", "warptile", "--size", "٣"], "MxNxK"),
        (["run", "warptile", "--size", "2147483648"], "2147483647"),
        (["run", "warptile", "--alpha", "two"], "--alpha"),
        (["run", "warptile", "--device", "tpu"], "tpu"),
        (["run", "warptile", "--a", "missing.npy"], "no file missing.npy for A"),
        (["run", "naive", "--device", "sim", "--size", "2147483647"], "GB"),
        (["ladder", "--size", "2147483647"], "GB"),
        (["bench"], "--host"),
        (["bench", "warptile", "--host"], "--host"),
        (["bench", "warptile", "--sizes", "64,"], "MxNxK"),
        (["bench", "warptile", "--baseline", "mkl"], "mkl"),
        (["ladder", "--size", "big"], "MxNxK"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_status_2(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and says in err, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["compile", "check", "run", "bench"])
def test_mistakes_in_a_spec_have_their_places_and_status_2(
    command: str, bad: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(bad.parent)
    assert run([command, "bad.gemm"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "bad.gemm:2:" in err and "bad.gemm:4:" in err
    assert "100" in err and "float4" in err and "^" in err
    assert "Traceback" not in err and "lark" not in err.lower()
    assert [p.name for p in bad.parent.iterdir()] == ["bad.gemm"]


def test_g08_command_line_reports_a_spec_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "zero.gemm").write_text("kernel zero\n\ntile block 0x64x8\n", encoding="utf-8")
    done = process("compile", "zero.gemm", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[0].startswith("zero.gemm:3:12: error: ")
    assert "Traceback" not in done.stderr and "lark" not in done.stderr.lower()


def test_all_specs_of_a_command_line_are_reported(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = bad.with_name("other.gemm")
    other.write_text(WRONG.replace("bad", "other"), encoding="utf-8")
    assert run(["compile", str(bad), str(other), "-o", str(bad.parent / "out")]) == 2
    err = capsys.readouterr().err
    assert "bad.gemm:2:" in err and "other.gemm:2:" in err
    assert not (bad.parent / "out").exists()


# --- What is missing, or fails ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [LaunchError("no GPU can be used"), CompileError("NVRTC refused"), SimulationFault(()), PermissionError()]
)
def test_a_failure_is_status_1(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gemmgen, "compile", fail)
    assert run(["run", "warptile"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ")


def test_no_gpu_is_status_1_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gemmgen.runtime import device

    def nothing() -> None:
        return None

    monkeypatch.setattr(device, "current", nothing)
    monkeypatch.setattr(device, "why_none", lambda: "there is none")
    monkeypatch.chdir(tmp_path)
    for arguments in (["run", "warptile", "--device", "cuda"], ["bench", "warptile"]):
        assert run(arguments) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and "there is none" in err
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_result_is_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Zeros:
        device = "sim"
        variants = ("exact",)

        def __init__(self, spec: Any) -> None:
            self.spec = spec

        def __call__(self, a: Any, b: Any, *_: Any) -> Any:
            return (a @ b) * 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gemmgen, "compile", lambda spec, *_: Zeros(spec))
    assert run(["run", "naive", "--size", "8"]) == 1
    assert "FAIL: " in capsys.readouterr().out


def test_ctrl_c_is_status_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gemmgen, "load", interrupted)
    assert run(["check", "warptile"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a process are another thing on Windows")
def test_ctrl_c_of_a_process_is_status_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gemmgen", "run", "naive", "--size", "2048", "--device", "sim"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell inherit that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not (tmp_path / "generated").exists() and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 130
    assert "Traceback" not in err and err.splitlines()[-1] == "interrupted"


def test_an_interrupt_that_a_destructor_swallows_comes_again() -> None:
    code = """
import time
import gemmgen.cli
import gemmgen.cli.app

class Held:
    def __del__(self):
        raise KeyboardInterrupt

def app(*_, **__):
    Held()
    time.sleep(600)

gemmgen.cli.app.app = app
gemmgen.cli.main()
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(gemmgen, "load", broken)
    with pytest.raises(ZeroDivisionError):
        run(["check", "warptile"])


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close in another way on Windows")
def test_a_reader_that_leaves_is_no_error_message(tmp_path: Path) -> None:
    command = f"{sys.executable} -m gemmgen compile warptile -o - --variant guarded | true"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell for POSIX")
def test_a_closed_stdout_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m gemmgen check warptile >&-"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- check ------------------------------------------------------------------------------------------------------------


def test_check_says_what_is_right_and_what_is_wrong(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "warptile", str(bad)]) == 2
    out, err = capsys.readouterr()
    assert "warptile: OK, block 128x128x16, 128 threads" in out and out.count("\n") == 1
    assert "bad.gemm:2:" in err


def test_check_prints_json_only(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "warptile", str(bad), "--json"]) == 2
    good, wrong = json.loads(capsys.readouterr().out)
    assert good["ok"] and good["kernel"] == "warptile" and good["block"] == [128, 128, 16] and good["errors"] == []
    assert not wrong["ok"] and {error["line"] for error in wrong["errors"]} == {2, 4}


def test_check_prints_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kept.gemm"
    path.write_text("kernel kept\ntile block 64x64x8\ntile warp 32x32\ntile thread 8x8\nuse smem\n", encoding="utf-8")
    assert run(["check", str(path)]) == 0
    assert "note: " in capsys.readouterr().out


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_silent_in_a_pipe_and_for_quick_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gemmgen.cli import output

    with output.progress("quick"):
        pass
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with output.progress("slow") as shown:
        assert not shown._timer.is_alive()
    assert capsys.readouterr() == ("", "")
