"""Records, the rename of a toggle, and the cache folder: cases 14 and 17, by their numbers."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.dispatch.matmul import _own, _stale, forget
from gemmgen.dispatch.select import Choice, by_model, choose
from gemmgen.dispatch.shipped import Winner, shipped
from gemmgen.runtime.cache import Cache, CacheWarning, Entry
from gemmgen.target import GPUS
from gemmgen.tune.families import default_specs
from gemmgen.tune.records import Machine, Record, Records, RecordsError, RecordsWarning
from gemmgen.tune.space import key_of, ranked, space

ROOT = Path(__file__).resolve().parent.parent
SWIZZLED = "kernel x\ntile block 64x64x8\ntile thread 4x4\nuse coalescing, smem, float4, alongK, {toggle}\n"


def test_smem_swizzle_is_a_spec_error_that_gives_the_new_name() -> None:
    assert gemmgen.parse(SWIZZLED.format(toggle="smemSwizzle")).has("smemSwizzle")
    texts = [
        SWIZZLED.format(toggle="smem_swizzle"),
        SWIZZLED.format(toggle="snake") + "smem_swizzle\n",
        SWIZZLED.format(toggle="snake") + "tune smem_swizzle in {on, off}\n",
    ]
    for text in texts:
        with pytest.raises(gemmgen.SpecError) as caught:
            gemmgen.parse(text)
        assert "smem_swizzle" in caught.value.message and "smemSwizzle'" in caught.value.hint
    spec = gemmgen.parse(SWIZZLED.format(toggle="snake"))
    for changes in ({"use": {*spec.use, "smem_swizzle"}}, {"smem_swizzle": True}, {"tune": {"smem_swizzle": (True,)}}):
        with pytest.raises(gemmgen.SpecError) as caught:
            spec.replace(**changes)
        assert "its name is now 'smemSwizzle'" in caught.value.hint


# --- F14: one damaged record takes nothing down ---------------------------------------------------------------------

MACHINE = Machine("GPU", "1", "13.0")
TEXT = "kernel mine\ntile block 64x64x8\ntile thread 4x4\nuse coalescing, smem\n"


def record(key: str = "good", **changes: Any) -> Record:
    base = Record(MACHINE, (64, 65, 66), "f32,f32,f32", (4, 4, 4), False, key, TEXT, "ok", 1e-3)
    return replace(base, **changes)


def edit(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def facts(**changes: Any) -> str:
    return json.dumps({"spec": TEXT, "status": "ok", **changes})


DAMAGES: dict[str, tuple[str, Any, str]] = {
    "facts cut short": ("facts", "{", "facts are not JSON"),
    "facts empty": ("facts", "", "facts are not JSON"),
    "facts a list": ("facts", "[1]", "facts are not a JSON object"),
    "facts a blob": ("facts", b"\xff\xfe", "facts is"),
    "facts nested": ("facts", "[" * 100_000, "facts are not JSON"),
    "facts with an extra key": ("facts", facts(color="red"), "facts have color"),
    "facts with a key of the row": ("facts", facts(seconds=2.0), "facts have seconds"),
    "facts without a spec": ("facts", '{"status": "ok"}', "facts lack spec"),
    "spec a number": ("facts", facts(spec=7), "spec is 7"),
    "spread text": ("facts", facts(spread="wide"), "spread is wide"),
    "spread infinite": ("facts", facts(spread=float("inf")), "spread is inf"),
    "samples negative": ("facts", facts(samples=-1), "samples is -1"),
    "registers true": ("facts", facts(registers=True), "registers is True"),
    "screened zero": ("facts", facts(screened=0), "screened is 0"),
    "two alignments": ("align", "16,16", "align is 16,16"),
    "alignment of words": ("align", "a,b,c", "align is a,b,c"),
    "alignment of 3": ("align", "3,4,4", "align is 3,4,4"),
    "seconds text": ("seconds", "abc", "seconds is abc"),
    "seconds zero": ("seconds", 0, "seconds is 0"),
    "seconds negative": ("seconds", -1e-3, "seconds is -0.001"),
    "seconds infinite": ("seconds", float("inf"), "seconds is inf"),
    "seconds missing": ("seconds", None, "seconds is missing"),
    "m text": ("m", "wide", "m is wide"),
    "m zero": ("m", 0, "m is 0"),
    "n broken": ("n", 1.5, "n is 1.5"),
    "k a blob": ("k", b"\x00", "k is"),
    "level text": ("level", "high", "level is high"),
    "warm 2": ("warm", 2, "warm is 2"),
    "driver a blob": ("driver", b"\xff", "driver is"),
    "types no UTF-8": ("types", "CAST(X'FF66' AS TEXT)", "types is"),
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    found = tmp_path / "r.sqlite"
    monkeypatch.setenv("GEMMGEN_RECORDS", str(found))
    forget()
    yield found
    forget()


@pytest.mark.parametrize("damage", DAMAGES)
def test_F14_a_damaged_row_is_skipped_and_named(damage: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    column, value, why = DAMAGES[damage]
    with Records(path) as book:
        book.put(record())
        book.put(record("damaged"))
    given = value if isinstance(value, str) and value.startswith("CAST") else "?"
    edit(path, f"UPDATE records SET {column} = {given} WHERE key = 'damaged'", *([value] if given == "?" else []))
    with Records(path) as book:
        assert [r.key for r in book.find()] == ["good"]
        assert [r.key for r in book.best("GPU")] == ["good"]
        (named,) = book.skipped
        assert "key damaged" in named and why in named, named
    assert run(["tune", "--show", "--records", str(path)]) == 0
    shown = capsys.readouterr()
    assert "64x65x66" in shown.out and "1 damaged record is skipped" in shown.err and why in shown.err
    with pytest.warns(RecordsWarning, match="1 damaged record is skipped"):
        assert [w.spec for w in _own("GPU")] == [TEXT]


def test_F14_a_damaged_row_is_measured_anew_and_replaced(path: Path) -> None:
    with Records(path) as book:
        book.put(record(level=1))
    edit(path, "UPDATE records SET level = 'high'")
    with Records(path) as book:
        book.put(record(seconds=2e-3))
        assert [r.seconds for r in book.find()] == [2e-3] and book.skipped == ()


def test_F14_a_row_that_is_named_shows_no_control_characters(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Records(path) as book:
        book.put(record("\x1b]0;x\x07\ud7ff", machine=replace(MACHINE, gpu="\x1b[2J")))
    edit(path, "UPDATE records SET facts = '{'")
    assert run(["tune", "--show", "--records", str(path)]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_F14_a_file_that_cannot_be_used_is_an_error_and_matmul_does_without(path: Path) -> None:
    def refuse(match: str) -> None:
        forget()
        with pytest.raises(RecordsError, match=match):
            Records(path, wait_s=0.1).find()
        with pytest.warns(RecordsWarning, match=r"records are not used: .*r\.sqlite"):
            assert _own("GPU") == ()
        path.unlink()

    path.write_bytes(b"no database at all " * 500)
    refuse("not a database")
    with Records(path) as book:
        for i in range(200):
            book.put(record(f"k{i}"))
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xaa" * (len(data) - 4096))
    refuse("malformed")
    edit(path, "CREATE TABLE places (name TEXT)")
    refuse("database of something else")
    edit(path, "CREATE TABLE records (gpu TEXT, driver TEXT)")
    edit(path, "PRAGMA user_version=1")
    refuse("lacks nvrtc, m, n")
    edit(path, "PRAGMA user_version=99")
    refuse("newer gemmgen")


def test_F14_matmul_does_not_wait_for_a_file_that_is_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Records(path) as book:
        book.put(record())
    edit(path, "PRAGMA journal_mode=DELETE")
    waits: list[float] = []
    connect = sqlite3.connect

    def noted(*arguments: Any, timeout: float, **more: Any) -> sqlite3.Connection:
        waits.append(timeout)
        return connect(*arguments, timeout=timeout, **more)

    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", noted)
        with pytest.warns(RecordsWarning, match="locked"):
            assert _own("GPU") == ()
    assert waits and max(waits) <= 2  # seconds


READER = """
import os, sys
from gemmgen.tune.records import Records, RecordsError
if os.geteuid() == 0:  # who may write everything
    os.setgid(65534)
    os.setuid(65534)
for write in (True, False):
    with Records(sys.argv[1], write=write) as book:
        assert book.read_only
        print([r.key for r in book.find()])
        try:
            book.require_writable()
        except RecordsError as error:
            print(error)
"""


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
@pytest.mark.parametrize("folder_mode", [0o755, 0o777])
def test_F14_a_read_only_file_is_read(folder_mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "r.sqlite"
        with Records(file) as book:
            book.put(record())
        file.chmod(0o444)
        Path(folder).chmod(folder_mode)
        python = [sys.executable, "-c", READER, str(file)]
        found = subprocess.run(python, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert found.stdout.count("['good']") == 2 and found.stdout.count("can be read, but not written") == 2, found


def test_F14_a_file_that_is_only_read_is_neither_made_nor_changed(tmp_path: Path) -> None:
    with pytest.raises(RecordsError):
        Records(tmp_path / "none.sqlite", write=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.sqlite").touch()
    with Records(tmp_path / "empty.sqlite", write=False) as book:
        assert book.find() == []


@pytest.mark.parametrize("part", ["driver", "nvrtc"])
def test_F14_what_was_measured_under_another_driver_or_nvrtc_never_beats_what_is_current(part: str, path: Path) -> None:
    other = record("other", machine=replace(MACHINE, **{part: "old"}), seconds=1e-9, level=1)
    with Records(path) as book:
        book.put(other)
        book.put(record("now", seconds=1.0))
        assert [r.key for r in book.best("GPU", machine=MACHINE)] == ["now"]
        assert [r.key for r in book.stale(MACHINE)] == ["other"]
        assert book.best("GPU", machine=replace(MACHINE, driver="new")) == []
    assert [w.seconds for w in _own("GPU", False, MACHINE)] == [1.0]
    assert [w.seconds for w in _stale(MACHINE)] == [1e-9]


def test_F14_the_order_is_own_shipped_model_with_stale_records_as_its_prior() -> None:
    shape, align, gpu = (64, 65, 66), (4, 4, 4), GPUS["h200"]
    mine, ships, stale = (Winner(shape, align, TEXT.replace("mine", name)) for name in ("mine", "ships", "before"))

    def source(own: list[Winner], shipped: list[Winner]) -> str:
        return choose(shape, align, gpu, shipped, own, stale=[stale]).source

    assert [source([mine], [ships]), source([], [ships]), source([], [])] == ["records", "shipped", "model"]
    t4 = GPUS["t4"]  # whose architecture has no cover
    assert choose(shape, align, t4, stale=[stale]).spec == by_model(shape, align, t4)  # the model finds it slow
    near = ranked(space(default_specs(shape, "matmul")), shape, t4, align)
    second = next(
        c.spec for c, s in list(zip(near.candidates, near.seconds, strict=True))[1:] if s < 1.05 * near.seconds[0]
    )
    prior = [Winner(shape, align, second.to_text())]
    assert by_model(shape, align, t4) != second
    assert choose(shape, align, t4, stale=prior) == Choice(second, "model")


def test_F14_a_damaged_row_of_what_ships_is_skipped_and_named(tmp_path: Path) -> None:
    good = Winner((64, 65, 66), (4, 4, 4), TEXT)
    rows: list[Any] = [{}, 7, good.to_dict(), {**good.to_dict(), "m": "wide"}, {**good.to_dict(), "align": [16, 16]}]
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text(json.dumps({"arch": "sm_90", "gpu": "GPU", "rows": rows}))
    with pytest.warns(UserWarning) as warned:
        found = shipped("sm_90", tmp_path)
    assert found is not None and found.rows == (good,)
    named = [str(w.message) for w in warned]
    assert len(named) == 5 and "a.json: damaged" in named[0] and "b.json: row 0: damaged" in named[1]


# --- Format 1 ------------------------------------------------------------------------------------------------------


def format_1(path: Path) -> None:
    """A file as gemmgen wrote it before smem_swizzle was renamed."""
    spec = SWIZZLED.format(toggle="smemSwizzle")
    old = spec.replace("smemSwizzle", "smem_swizzle").replace("kernel x", "# smem_swizzle helps\nkernel smem_swizzle")
    with Records(path) as book:
        book.put(record())
        book.put(record("old", spec=old))
        book.put(record("broken", spec=old))
        book.put(record("unreadable", spec="use smem_swizzle # smem_swizzle\ntune smem_swizzle in {on, off}\n"))
    edit(path, "UPDATE records SET facts = substr(facts, 2) WHERE key = 'broken'")
    edit(path, "PRAGMA user_version=1")


@pytest.mark.parametrize("write", [True, False])
def test_old_records_are_migrated_when_the_file_is_opened(write: bool, path: Path) -> None:
    format_1(path)
    with Records(path, write=write) as book:
        found = {r.key: r.spec for r in book.find()}
        assert len(book.skipped) == 1 and "key broken" in book.skipped[0]
    (new,) = set(found) - {"good", "unreadable"}
    spec = gemmgen.parse(found[new])
    assert new == key_of(spec) and spec.has("smemSwizzle")
    assert spec.name == "smem_swizzle" and spec.comment == "smem_swizzle helps"
    assert found["unreadable"] == "use smemSwizzle # smem_swizzle\ntune smemSwizzle in {on, off}\n"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2 if write else 1,)
    with Records(path) as book:
        assert {r.key: r.spec for r in book.find()} == found


# --- F17: the cache's folder is its owner's ------------------------------------------------------------------------

ENTRY = Entry({"a": 1}, b"code")
posix = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")


@posix
def test_F17_a_new_cache_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "below" / "kernels")
        assert cache.put("key", ENTRY)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (cache.directory, cache.path("key"))]
    assert modes == [0o700, 0o600]


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_F17_a_folder_that_others_may_write_is_not_used(mode: int, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "kernels")
    assert cache.put("key", ENTRY) and cache.get("key") == ENTRY
    cache.directory.chmod(mode)
    with pytest.warns(CacheWarning, match=rf"others may write it \(mode {mode:04o}\); chmod 700 .*GEMMGEN_CACHE_DIR"):
        assert cache.get("key") is None
    assert not cache.put("other", ENTRY)
    assert [p.name for p in cache.directory.iterdir()] == [cache.path("key").name]
    cache.directory.chmod(0o755)
    assert cache.get("key") == ENTRY


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a file away")
def test_F17_what_another_user_owns_is_not_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "kernels")
    assert cache.put("key", ENTRY)
    os.chown(cache.path("key"), 65534, 65534)
    assert cache.get("key") is None
    assert cache.put("key", ENTRY) and cache.get("key") == ENTRY
    os.chown(cache.directory, 65534, 65534)
    with pytest.warns(CacheWarning, match=r"belongs to another user \(uid 65534\)"):
        assert cache.get("key") is None


@posix
def test_F17_a_file_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "kernels")
    assert cache.put("key", ENTRY)
    cache.path("key").chmod(0o666)
    assert cache.get("key") is None
    assert cache.put("key", ENTRY) and cache.get("key") == ENTRY


@posix
def test_F17_the_command_line_says_that_the_folder_is_not_used_and_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(folder))
    status = run(["compile", "naive", "--emit", "cubin", "-o", str(tmp_path / "out")])
    said = capsys.readouterr().err
    if "pip install nvidia-cuda-nvrtc" in said:
        pytest.skip("NVRTC is not installed")
    assert status == 0 and list((tmp_path / "out").iterdir()) and list(folder.iterdir()) == []
    assert said.count("warning: the cache folder") == 1 and "others may write it (mode 0777)" in said


def test_F17_names_of_temporary_files_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    real = os.replace

    def noted(source: Any, target: Any) -> None:
        names.append(Path(source).name)
        real(source, target)

    monkeypatch.setattr(os, "replace", noted)
    cache = Cache(tmp_path / "kernels")
    for _ in range(3):
        assert cache.put("key", ENTRY)
    assert len(set(names)) == 3 and not any(str(os.getpid()) == part for n in names for part in n.split("."))


def test_F17_an_entry_of_another_format_or_key_counts_as_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "kernels")
    assert cache.put("key", ENTRY)
    data = cache.path("key").read_bytes()
    cache.path("other").write_bytes(data)
    assert cache.get("other") is None
    cache.path("key").write_bytes(data.replace(b"gemmgen cache 2\n", b"gemmgen cache 1\n"))
    assert cache.get("key") is None


def test_F17_an_entry_with_other_facts_is_compiled_anew(tmp_path: Path) -> None:
    from gemmgen.runtime import nvrtc

    cache, source = Cache(tmp_path / "kernels"), 'extern "C" __global__ void k(float* C) { C[0] = 1.0f; }\n'
    try:
        good = nvrtc.compile_cubin(source, name="k", cache=cache)
    except nvrtc.NvrtcMissing as error:
        pytest.skip(str(error))
    (path,) = cache.directory.iterdir()
    for facts in ({}, {"resources": 7, "log": ""}, {"resources": {"colour": 1}, "log": ""}):
        cache.put(path.stem, Entry(facts, b"?"))
        again = nvrtc.compile_cubin(source, name="k", cache=cache)
        assert not again.cached and again.cubin == good.cubin
