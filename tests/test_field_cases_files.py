"""Field cases 12, 13, 15, 16: files a person names, closed streams, escapes, outputs checked before the work."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmgen
from gemmgen.cli import output, run
from gemmgen.cli.files import check_writable, write_file
from gemmgen.diagnostics import GemmgenError, escaped

ROOT = Path(gemmgen.__file__).resolve().parent.parent
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="FIFOs, devices and descriptors of POSIX")
BAD = "\x1b]0;x\x07\u202e\udcff"
"""What sets a terminal's title, turns text round, and cannot be encoded."""
SPEC = "kernel mine\ntile block 16x16\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(command: str, here: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command line of ``gemmgen`` by a shell."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GEMMGEN_CACHE_DIR": str(here / "cache")}
    line = f"'{sys.executable}' -m gemmgen {command}"
    return subprocess.run(["sh", "-c", line], cwd=here, env=env, capture_output=True, timeout=120, check=False)


# --- 12: what is no regular file is written through, a link is followed -----------------------------------------------


@contextlib.contextmanager
def reader(path: Path) -> Iterator[list[bytes]]:
    """What is read from a FIFO meanwhile."""
    read: list[bytes] = []
    thread = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    thread.start()
    yield read
    thread.join(20)
    assert not thread.is_alive(), "the FIFO was not written"


def winner(path: str) -> list[str]:
    return ["tune", "warptile", "--set", "stages=1,2", "--model", "--size", "128", "--export", path]


WRITERS: dict[str, tuple[Callable[[str], list[str]], bytes]] = {
    "--out": (lambda path: ["run", "naive", "--size", "8", "--device", "sim", "--out", path], b"\x93NUMPY"),
    "--export": (winner, b"kernel"),
}


@POSIX
@pytest.mark.parametrize("option", WRITERS)
def test_F12_a_fifo_is_written_through(option: str, here: Path) -> None:
    os.mkfifo(here / "pipe")
    arguments, start = WRITERS[option]
    with reader(here / "pipe") as read:
        assert run(arguments("pipe")) == 0
    assert read[0].startswith(start) and stat.S_ISFIFO((here / "pipe").lstat().st_mode)


@POSIX
@pytest.mark.parametrize("option", WRITERS)
def test_F12_a_device_stays_one(option: str, here: Path) -> None:
    """A link to the device is enough: what replaced the device would have replaced the link."""
    (here / "null").symlink_to("/dev/null")
    assert run(WRITERS[option][0]("null")) == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and (here / "null").is_symlink()


@POSIX
@pytest.mark.parametrize("option", WRITERS)
def test_F12_a_symbolic_link_is_followed(option: str, here: Path) -> None:
    (here / "there").mkdir()
    (here / "there" / "file").write_bytes(b"old")
    (here / "link").symlink_to("there/file")
    (here / "dangling").symlink_to("there/new")
    arguments, start = WRITERS[option]
    for link, target in (("link", "file"), ("dangling", "new")):
        assert run(arguments(link)) == 0
        assert (here / link).is_symlink() and (here / "there" / target).read_bytes().startswith(start)
    assert sorted(p.name for p in (here / "there").iterdir()) == ["file", "new"]


@POSIX
def test_F12_texts_go_through_links_and_devices_too(here: Path) -> None:
    (here / "generated").mkdir()
    (here / "generated" / "naive.cu").symlink_to(here / "elsewhere.cu")
    (here / "generated" / "naive_guarded.cu").symlink_to("/dev/null")
    assert run(["compile", "naive"]) == 0
    assert "naive" in (here / "elsewhere.cu").read_text(encoding="utf-8")
    assert (here / "generated" / "naive_guarded.cu").is_symlink()


@POSIX
def test_F12_stdout_by_name_is_behind_what_was_printed(here: Path) -> None:
    done = shell("run naive --size 8 --device sim --json --out /dev/stdout > all", here)
    assert done.returncode == 0
    array, _, text = (here / "all").read_bytes().partition(b"{\n")
    assert np.load(io.BytesIO(array)).shape == (8, 8) and json.loads(b"{\n" + text)["kernel"] == "naive"


@POSIX
def test_F12_a_full_device_is_an_error_that_names_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    assert run(WRITERS["--out"][0]("/dev/full")) == 1
    assert "error: /dev/full: cannot be written: no space left on device" in capsys.readouterr().err
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@POSIX
def test_F12_a_reader_that_leaves_a_fifo_is_an_error(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(here / "pipe")
    leaving = threading.Thread(target=lambda: os.close(os.open(here / "pipe", os.O_RDONLY)), daemon=True)
    leaving.start()
    with pytest.raises(BrokenPipeError) as info:
        write_file(here / "pipe", b"x" * 10_000_000)
    assert info.value.errno == errno.EPIPE and info.value.filename == str(here / "pipe")


def test_F12_a_regular_file_is_replaced_whole(here: Path) -> None:
    (here / "file").write_bytes(b"old")
    before = (here / "file").stat().st_ino
    with (here / "file").open("rb") as reading:
        write_file(here / "file", b"new")
        assert reading.read() == b"old"
    assert (here / "file").read_bytes() == b"new"
    if sys.platform != "win32":
        assert (here / "file").stat().st_ino != before
    name = "n" * 250  # as long as names may be: the temporary file's is not made of it
    write_file(here / name, b"new")
    assert sorted(p.name for p in here.iterdir()) == ["file", name]


# --- 13: streams that are closed --------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize(
    "command",
    ["explain naive", "run naive --size 8 --device sim --json", "check naive", "check nothing",
     "compile naive -o - --emit tile", "diff naive coalesced --size 64",
     "tune warptile --set stages=1,2 --model --size 64 --json"],
)  # fmt: skip
def test_F13_with_stderr_closed_stdout_and_status_are_as_with_null(command: str, here: Path) -> None:
    null, closed = (shell(f"{command} {where}", here) for where in ("2>/dev/null", "2>&-"))
    assert closed.returncode == null.returncode
    if "--json" in command:
        first, second = (json.loads(done.stdout) for done in (null, closed))
        assert first.keys() == second.keys()
    else:
        assert closed.stdout == null.stdout
    assert closed.stderr == b""


@POSIX
@pytest.mark.parametrize("streams", [">&-", "<&-", "<&- >&- 2>&-", ">&- 2>&-"])
def test_F13_any_stream_may_be_closed(streams: str, here: Path) -> None:
    done = shell(f"run naive --size 8 --device sim --out c.npy {streams}", here)
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert np.load(here / "c.npy").shape == (8, 8)
    assert (here / "generated" / "naive.cu").read_bytes().startswith(b"// naive"), "no file took a stream's number"
    assert shell(f"check nothing {streams}", here).returncode == 2


@POSIX
def test_F13_a_full_stdout_is_one_line_and_a_full_stderr_none(here: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    for command in ("check naive", "compile naive -o - --emit ir"):
        done = shell(f"{command} > /dev/full", here)
        assert (done.returncode, done.stderr) == (1, b"error: no space left on device\n"), command
    done = shell("run naive --size 8 --device sim --json 2> /dev/full", here)
    assert done.returncode == 0 and json.loads(done.stdout)["kernel"] == "naive"


def test_F13_without_stderr_a_message_is_not_a_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    output.say("a message")
    assert capsys.readouterr().out == ""


# --- 15: what could move a cursor or cannot be encoded ----------------------------------------------------------------


def is_safe(text: str) -> bool:
    text.encode()
    return all(c.isprintable() or c in "\n\t" for c in text)


SPECS = [
    f"pad_a{BAD} 4", f"kernel {BAD}", f"kernel x\ntile block {BAD}", f"kernel x\ntile bl{BAD} 4x4",
    f"kernel x\nuse sm{BAD}em, {BAD} y", f"kernel x\nuse smem, {BAD}", f"kernel x\ntune sta{BAD} in {{1}}",
    f"kernel x\ntune stages in {{{BAD}}}", f"kernel x\noperands A{BAD} f32", f"kernel x\noperands A f{BAD} row",
    f"kernel x\narch {BAD}", f"kernel x\nuse warptile(m{BAD}=1)", f"kernel x\nstages {BAD}",
    f"{BAD}", f"kernel x {BAD}",
]  # fmt: skip


@pytest.mark.parametrize("text", SPECS)
def test_F15_errors_of_a_spec_are_safe_to_print(text: str) -> None:
    with pytest.raises(gemmgen.SpecError) as info:
        gemmgen.parse(text, f"a{BAD}\n.gemm")
    error = info.value
    assert is_safe(str(error)) and "\\x1b" in str(error) and "a\\x1b" in str(error).splitlines()[0]
    for one in error.errors:
        assert is_safe(one.message + one.hint)


def test_F15_errors_of_arguments_are_safe_to_print() -> None:
    spec = gemmgen.parse(SPEC)
    calls: list[Callable[[], Any]] = [
        lambda: spec.replace(name=BAD), lambda: spec.replace(arch=BAD), lambda: spec.replace(**{BAD: 1}),
        lambda: spec.replace(use=[BAD]), lambda: spec.replace(tune={BAD: [1]}), lambda: spec.replace(accumulate=BAD),
        lambda: gemmgen.explain(spec, 8, 8, 8, gpu=BAD), lambda: gemmgen.emit(spec, arch=BAD),
        lambda: gemmgen.emit(spec, variant=BAD), lambda: gemmgen.load(BAD), lambda: gemmgen.compile(spec, BAD),
        lambda: gemmgen.occupancy(BAD, threads=32, registers=32),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(GemmgenError) as info:
            call()
        assert is_safe(str(info.value)), str(info.value)


def test_F15_any_error_of_gemmgen_is_safe_to_print() -> None:
    assert str(GemmgenError(f"GPU {BAD}\n\tsecond line")) == f"GPU {escaped(BAD)}\n\tsecond line"
    assert escaped(escaped(BAD)) == escaped(BAD) == "\\x1b]0;x\\x07\\u202e\\udcff"


@POSIX
@pytest.mark.skipif(sys.platform == "darwin", reason="file names must be UTF-8 there")
def test_F15_file_names_are_escaped_in_messages_and_results(here: Path) -> None:
    name = b"a\x1b]0;x\x07\n\xff.gemm"
    Path(os.fsdecode(name)).write_text(f"{SPEC}unroll 2\n", encoding="utf-8")
    Path(os.fsdecode(b"bad" + name)).write_text("kernel mine\n", encoding="utf-8")
    for arguments in (
        ["check"],
        ["compile", "-o", os.fsdecode(name + b".d")],
        ["explain"],
        ["tune", "--model"],
        ["run", "-o", "d"],
    ):
        for prefix, status in ((b"", 0), (b"bad", 2), (b"none", 2)):
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
                assert (
                    run(
                        [
                            arguments[0],
                            os.fsdecode(prefix + name),
                            *arguments[1:],
                            *(["--size", "8"] if arguments[0] not in ("check", "compile") else []),
                        ]
                    )
                    == status
                )
            said = out.getvalue() + err.getvalue()
            assert is_safe(said), said
            if arguments[0] == "check":
                assert "a\\x1b]0;x\\x07\\n\\udcff.gemm" in said


def test_F15_the_name_of_a_gpu_is_escaped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from gemmgen.cli import gpus
    from gemmgen.runtime import device

    class Named:
        name, arch, sms = f"GPU {BAD}", "sm_90", 1

    output.result(gpus.this_machine(Named()))  # type: ignore[arg-type]
    output.say(f"on {Named.name}")
    out, err = capsys.readouterr()
    assert is_safe(out + err) and "GPU \\x1b" in out and "GPU \\x1b" in err
    assert device.escaped is escaped, "a driver's name of a GPU is escaped where it is read"


def test_F15_own_colours_are_left_and_no_other_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    output.result("\x1b[31mred\x1b[0m \x1b[2J", coloured=True)
    output.result("\x1b[31mred")
    assert capsys.readouterr().out == "\x1b[31mred\x1b[0m \\x1b[2J\n\\x1b[31mred\n"


# --- 16: where the output goes is checked before the work -------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "work"),
    [
        (["ladder", "--size", "64", "--report"], "gemmgen.cli.ladder_report.written"),
        (["run", "naive", "--size", "8", "--out"], "gemmgen.compile"),
        (["compile", "naive", "--emit", "cubin", "-o"], "gemmgen.cli.artifacts.rendered"),
        (["run", "naive", "--size", "8", "-o"], "gemmgen.compile"),
        (["tune", "warptile", "--model", "--export"], "gemmgen.tune"),
    ],
)
@pytest.mark.parametrize("where", ["file/x", "folder", "proc"])
def test_F16_an_output_that_cannot_be_written_is_found_out_at_once(
    arguments: list[str], work: str, where: str, here: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the work was begun")

    monkeypatch.setattr(work, never)
    (here / "file").write_bytes(b"")
    (here / "folder").mkdir()
    folder = arguments[-1] == "-o"
    if where == "folder" and folder:
        (here / "folder" / "naive.cu").mkdir()
        (here / "folder" / "naive.cubin").mkdir()
    if where == "proc" and not Path("/proc/self/fd").is_dir():
        pytest.skip("there is no /proc here")
    assert run([*arguments, "/proc/gemmgen/x" if where == "proc" else where]) == 1
    out, err = capsys.readouterr()
    assert "cannot be written" in err and err.count("\n") == 1 and out == ""
    assert sorted(p.name for p in here.iterdir()) == ["file", "folder"]


def test_F16_a_plots_place_is_checked_before_the_work(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gemmgen.report.tuning.require_plot", lambda: None)
    (here / "file").write_bytes(b"")
    assert run(["tune", "warptile", "--model", "--plot", "file/x.svg"]) == 1
    assert "file/x.svg: cannot be written" in capsys.readouterr().err


def test_F16_the_check_leaves_nothing_and_waits_for_nobody(here: Path) -> None:
    check_writable(here / "deep" / "er" / "file")
    if sys.platform != "win32":
        os.mkfifo(here / "pipe")
        check_writable(here / "pipe")  # with no reader
        (here / "loop").symlink_to("loop")
        with pytest.raises(OSError, match="cannot be written"):
            check_writable(here / "loop")
        check_writable(Path("/dev/null"))
        (here / "pipe").unlink()
        (here / "loop").unlink()
    (here / "file").write_bytes(b"kept")
    check_writable(here / "file")
    assert [p.name for p in here.iterdir()] == ["file"] and (here / "file").read_bytes() == b"kept"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_F16_a_folder_without_permission_is_found_out_at_once(here: Path) -> None:
    (here / "locked").mkdir(mode=0o500)
    for path in ("locked/x", "locked/deeper/x"):
        with pytest.raises(PermissionError, match="cannot be written"):
            check_writable(here / path)
