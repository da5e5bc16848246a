"""The file of records: shared by processes, whole after kill -9, and a queue of work."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen.tune.records import Machine, Record, Records, RecordsError, default_path

ROOT = Path(__file__).resolve().parent.parent
MACHINE = Machine("GPU", "1", "13.0")


def record(key: str = "k", seconds: float | None = 1e-3, **changes: object) -> Record:
    base = Record(MACHINE, (64, 64, 64), "f32,f32,f32", (16, 16, 16), False, key, f"kernel {key}\n", "ok", seconds)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    given = record(spread=0.01, samples=15, discarded=2, level=1, screened=1.1e-3, registers=128, when=5.0)
    with Records(tmp_path / "new" / "r.sqlite") as book:
        book.put(given)
    with Records(tmp_path / "new" / "r.sqlite") as book:
        assert book.find() == [given]
        assert given.gflops == pytest.approx(0.524288) and given.to_dict()["shape"] == (64, 64, 64)


def test_every_part_of_the_key_keeps_records_apart(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as book:
        rows = [
            record(), record(key="other"), record(shape=(64, 64, 65)), record(types="f16,f16,f32"), record(warm=True),
            record(align=(4, 16, 16)),
            *(record(machine=replace(MACHINE, **{part: "x"})) for part in ("gpu", "driver", "nvrtc")),
        ]  # fmt: skip
        for row in rows:
            book.put(row)
        assert len(book.find()) == len(rows)
        assert len(book.find(machine=MACHINE, shape=(64, 64, 64), align=(16, 16, 16), warm=False)) == 3
        assert [r.shape for r in book.find(shape=(64, 64, 65))] == [(64, 64, 65)]


def test_a_careful_time_is_not_replaced_by_one_in_passing(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as book:
        for seconds, level in ((3e-3, 0), (2e-3, 1), (1e-3, 0)):
            book.put(record(seconds=seconds, level=level))
        assert [r.seconds for r in book.find()] == [2e-3]


def test_the_best_of_each_shape(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as book:
        book.put(record("fast", 1e-3, level=1))
        book.put(record("slow", 2e-3, level=1))
        book.put(record("lucky", 0.5e-3))  # timed in passing
        book.put(record("broken", None, status="wrong", level=1))
        book.put(record("else", 1e-3, shape=(1, 2, 3)))
        book.put(record("there", 1e-3, machine=replace(MACHINE, gpu="other")))
        assert {(r.shape, r.key) for r in book.best("GPU")} == {((64, 64, 64), "fast"), ((1, 2, 3), "else")}


def test_the_place_is_given_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEMMGEN_RECORDS", str(tmp_path / "mine.sqlite"))
    assert default_path() == tmp_path / "mine.sqlite"
    monkeypatch.delenv("GEMMGEN_RECORDS")
    assert default_path().name == "records.sqlite"


def test_a_file_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at as one" * 20)
    with pytest.raises(RecordsError, match=r"text: .*GEMMGEN_RECORDS"):
        Records(tmp_path / "text")
    with pytest.raises(RecordsError, match="text"):
        Records(tmp_path / "text" / "below")
    newer = tmp_path / "newer"
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(RecordsError, match="newer gemmgen"):
        Records(newer)


WRITER = """
import sys
from gemmgen.tune.records import Machine, Record, Records
name, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
with Records(path) as book:
    for i in range(count):
        machine, shape = Machine("GPU", "1", "13"), (i + 1, 1, 1)
        book.put(Record(machine, shape, "f32,f32,f32", (4, 4, 4), False, name, "k", "ok", 1.0))
        print(i, flush=True)
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_several_processes_write_at_once_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    writers = [start(WRITER, f"w{i}", path, 40) for i in range(4)]
    for w in writers:
        assert w.stdout is not None and w.stdout.readline() == "ready\n"
    for w in writers:
        go(w)
    assert [w.wait(timeout=120) for w in writers] == [0] * 4
    for w in writers:
        w.communicate()
    with Records(path) as book:
        assert len(book.find()) == 160


def test_kill_9_loses_at_most_what_was_being_written(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    for attempt in range(3):
        writer = start(WRITER, f"w{attempt}", path, 100_000)
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        go(writer)
        said = [int(writer.stdout.readline()) for _ in range(20 + 7 * attempt)]
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        with Records(path) as book:
            kept = {r.shape[0] - 1 for r in book.find() if r.key == f"w{attempt}"}
            assert set(said) <= kept, "what was written before the kill is there"
            assert book._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            book.put(record())


# --- The queue ------------------------------------------------------------------------------------------------------


def test_each_task_is_claimed_once_in_order(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as one, Records(tmp_path / "r.sqlite") as two:
        one.offer("job", ["a", "b", "c"])
        two.offer("job", ["a", "b", "c"])
        assert [one.claim("job", "1"), two.claim("job", "2"), one.claim("job", "1")] == [(0, "a"), (1, "b"), (2, "c")]
        assert two.claim("job", "2") is None and two.claim("other job", "2") is None
        assert one.finish("job", 0, "1", "done") and not two.finish("job", 0, "2", "stolen")
        assert one.results("job") == [("a", "done", "done"), ("b", "taken", None), ("c", "taken", None)]


def test_what_an_owner_that_is_gone_had_claimed_is_claimed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    with Records(tmp_path / "r.sqlite") as book:
        book.offer("job", ["a", "b"])
        assert book.claim("job", "gone") == (0, "a")
        assert book.claim("job", "here") == (1, "b")
        now[0] += 0.3
        book.beat("job", "here")
        assert book.claim("job", "new", stale_s=0.2) == (0, "a")
        assert book.claim("job", "new", stale_s=0.2) is None
        assert not book.finish("job", 0, "gone", "late") and book.finish("job", 0, "new", "ok")


CLAIMER = """
import os, sys, time
from gemmgen.tune.records import Records
path = sys.argv[1]
with Records(path) as book:
    if len(sys.argv) > 2:  # claims as if it were an hour ago, and stops
        now = time.time() - 3600
        time.time = lambda: now
    while (found := book.claim("job", str(os.getpid()), stale_s=1800.0)) is not None:
        print(found[0], flush=True)
        if len(sys.argv) > 2:
            time.sleep(600)
        time.sleep(0.005)
        book.finish("job", found[0], str(os.getpid()), "ok")
"""


def test_processes_share_a_queue_and_survive_one_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as book:
        book.offer("job", [str(i) for i in range(60)])
    first = start(CLAIMER, path, "stop")
    assert first.stdout is not None and first.stdout.readline() == "0\n"
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    others = [start(CLAIMER, path) for _ in range(3)]
    claimed = [int(line) for p in others for line in p.communicate(timeout=120)[0].split()]
    assert sorted(claimed) == list(range(60))
    with Records(path) as book:
        assert {state for _, state, _ in book.results("job")} == {"done"}
