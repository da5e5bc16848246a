"""What was measured, kept in SQLite: once a kernel has been timed for a shape on a machine, it is not timed again.

Any number of processes may share the file. Each result is one transaction, so that a process that is killed loses at
most what it was measuring, and leaves the file whole.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.tune.shapes import Align, Shape

WAIT_S = 60.0
"""How long one process waits for another's transaction."""
VERSION = 1


class RecordsError(GemmgenError):
    """The file of records cannot be read or written."""


@dataclass(frozen=True)
class Machine:
    """What a measurement holds for: the GPU by its name, its driver, and the compiler."""

    gpu: str
    driver: str
    nvrtc: str


@dataclass(frozen=True)
class Record:
    """One kernel at one shape on one machine. ``status`` "ok", or how it failed ("wrong", "hang", ...) and ``reason``.

    ``seconds`` is the median of ``samples``, ``spread`` the quartiles' distance as a part of it; ``level`` how
    carefully it was timed: 0 in passing, 1 in the final comparison. ``screened`` is what it took in passing, brought to
    the scale of the other candidates of its search. ``warm`` says whether operands stayed in the L2 cache.
    """

    machine: Machine
    shape: Shape
    types: str
    align: Align
    warm: bool
    key: str
    spec: str
    status: str
    seconds: float | None = None
    spread: float | None = None
    samples: int = 0
    discarded: int = 0
    level: int = 0
    screened: float | None = None
    registers: int | None = None
    reason: str = ""
    made_by: str = ""
    when: float = 0.0

    @property
    def gflops(self) -> float | None:
        m, n, k = self.shape
        return None if self.seconds is None else 2.0 * m * n * k / self.seconds / 1e9

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "gflops": self.gflops}


_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    gpu TEXT NOT NULL, driver TEXT NOT NULL, nvrtc TEXT NOT NULL,
    m INTEGER NOT NULL, n INTEGER NOT NULL, k INTEGER NOT NULL,
    types TEXT NOT NULL, align TEXT NOT NULL, warm INTEGER NOT NULL, key TEXT NOT NULL,
    level INTEGER NOT NULL, seconds REAL, facts TEXT NOT NULL,
    PRIMARY KEY (gpu, driver, nvrtc, m, n, k, types, align, warm, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS work (
    job TEXT NOT NULL, place INTEGER NOT NULL, task TEXT NOT NULL,
    owner TEXT, beat REAL, state TEXT NOT NULL DEFAULT 'open', result TEXT,
    PRIMARY KEY (job, place)
) WITHOUT ROWID;
"""

_FACTS = tuple(
    f.name
    for f in fields(Record)
    if f.name not in ("machine", "shape", "types", "align", "warm", "key", "level", "seconds")
)
_COLUMNS = "gpu, driver, nvrtc, m, n, k, types, align, warm, key, level, seconds, facts"


def default_path() -> Path:
    """``GEMMGEN_RECORDS``, else a file in the user's data folder."""
    if given := os.environ.get("GEMMGEN_RECORDS"):
        return Path(given)
    from platformdirs import user_data_dir

    return Path(user_data_dir("gemmgen", appauthor=False)) / "records.sqlite"


class Records:
    """The records in one file, made where there is none. Raises RecordsError where the file cannot be used.

    Use from one thread; each process opens its own.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = default_path() if path is None else Path(path)
        with self._understood():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None)
            self._write_ahead()
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._prepare()

    def _write_ahead(self) -> None:
        """Switch to a write-ahead log. That needs the file alone for a moment, and SQLite does not wait for it."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
            time.sleep(0.01)

    def _version(self) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _prepare(self) -> None:
        if (version := self._version()) > VERSION:
            raise RecordsError(f"{self.path}: written by a newer gemmgen (format {version}, this one reads {VERSION})")
        if version < VERSION:
            with self.transaction() as db:
                if self._version() == VERSION:
                    return  # another process was first
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version={VERSION}")

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            hint = "name another file with --records or GEMMGEN_RECORDS"
            raise RecordsError(f"{self.path}: {str(error)[:200]}; {hint}") from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing of what is done in the block, seen by no other process before its end."""
        with self._understood():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def put(self, record: Record) -> None:
        """Keep a record. One that was timed more carefully is not replaced by one that was timed in passing."""
        record = replace(record, when=record.when or time.time())
        row = (*_key(record), record.level, record.seconds, json.dumps({f: getattr(record, f) for f in _FACTS}))
        with self.transaction() as db:
            db.execute(
                f"INSERT INTO records ({_COLUMNS}) VALUES ({', '.join('?' * len(row))}) "
                "ON CONFLICT DO UPDATE SET level=excluded.level, seconds=excluded.seconds, facts=excluded.facts "
                "WHERE excluded.level >= records.level",
                row,
            )

    def find(
        self,
        *,
        gpu: str | None = None,
        machine: Machine | None = None,
        shape: Shape | None = None,
        align: Align | None = None,
        warm: bool | None = None,
    ) -> list[Record]:
        """The records that fit everything given, the fastest of each shape first, failures last."""
        wanted: dict[str, Any] = {"gpu": gpu}
        if machine is not None:
            wanted |= asdict(machine)
        if shape is not None:
            wanted |= dict(zip("mnk", shape, strict=True))
        wanted |= {"align": align and _shown(align), "warm": None if warm is None else int(warm)}
        terms = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in terms) or "1"
        with self._understood():
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM records WHERE {where} "
                "ORDER BY gpu, m, n, k, align, seconds IS NULL, seconds, key",
                tuple(terms.values()),
            ).fetchall()
        return [_record(row) for row in rows]

    def best(self, gpu: str, *, types: str = "f32,f32,f32", unordered: bool = False) -> list[Record]:
        """The fastest record of every shape and alignment on a GPU: timed most carefully first, cold before warm. Of
        kernels whose results repeat bit by bit, unless ``unordered`` ones will do too."""
        chosen: dict[tuple[Shape, Align], Record] = {}
        for record in self.find(gpu=gpu):
            if record.status != "ok" or record.seconds is None or record.types != types:
                continue
            if not unordered and adds_in_memory(record.spec):
                continue
            place = (record.shape, record.align)
            if place not in chosen or _rank(record) < _rank(chosen[place]):
                chosen[place] = record
        return list(chosen.values())

    # --- Work that several processes share -----------------------------------------------------------------------

    def offer(self, job: str, tasks: Sequence[str]) -> None:
        """Tasks to be claimed, once each; a job that is there already is left as it is."""
        with self.transaction() as db:
            for place, task in enumerate(tasks):
                db.execute("INSERT OR IGNORE INTO work (job, place, task) VALUES (?, ?, ?)", (job, place, task))

    def claim(self, job: str, owner: str, stale_s: float = 60.0) -> tuple[int, str] | None:
        """The next open task of a job for ``owner``, or one whose owner has given no sign for ``stale_s`` seconds."""
        now = time.time()
        with self.transaction() as db:
            row = db.execute(
                "SELECT place, task FROM work WHERE job = ? AND (state = 'open' OR (state = 'taken' AND beat < ?)) "
                "ORDER BY place LIMIT 1",
                (job, now - stale_s),
            ).fetchone()
            if row is not None:
                db.execute(
                    "UPDATE work SET state = 'taken', owner = ?, beat = ? WHERE job = ? AND place = ?",
                    (owner, now, job, row[0]),
                )
        return None if row is None else (int(row[0]), str(row[1]))

    def beat(self, job: str, owner: str) -> None:
        """A sign that ``owner`` still works on what it claimed."""
        with self.transaction() as db:
            db.execute(
                "UPDATE work SET beat = ? WHERE job = ? AND owner = ? AND state = 'taken'", (time.time(), job, owner)
            )

    def finish(self, job: str, place: int, owner: str, result: str) -> bool:
        """Mark a claimed task as done; False where another owner has taken it over."""
        with self.transaction() as db:
            done = db.execute(
                "UPDATE work SET state = 'done', result = ? WHERE job = ? AND place = ? AND owner = ?",
                (result, job, place, owner),
            )
        return done.rowcount == 1

    def results(self, job: str) -> list[tuple[str, str, str | None]]:
        """(task, state, result) of every task of a job, in order."""
        with self._understood():
            rows = self._db.execute(
                "SELECT task, state, result FROM work WHERE job = ? ORDER BY place", (job,)
            ).fetchall()
        return [(str(task), str(state), result) for task, state, result in rows]


def adds_in_memory(spec: str) -> bool:
    """Whether the text of a spec is of a kernel that adds up in no fixed order. Its comment may speak of it too."""
    lines = (line.partition("#")[0].replace(",", " ").split() for line in spec.splitlines())
    return any(words[:1] == ["use"] and "atomics" in words for words in lines)


def _rank(record: Record) -> tuple[int, bool, float]:
    return -record.level, record.warm, record.seconds or float("inf")


def _key(r: Record) -> tuple[Any, ...]:
    return (*asdict(r.machine).values(), *r.shape, r.types, _shown(r.align), int(r.warm), r.key)


def _shown(align: Align) -> str:
    return ",".join(map(str, align))


def _record(row: Sequence[Any]) -> Record:
    gpu, driver, nvrtc, m, n, k, types, align, warm, key, level, seconds, facts = row
    a, b, c = (int(x) for x in align.split(","))
    return Record(
        Machine(gpu, driver, nvrtc), (m, n, k), types, (a, b, c), bool(warm), key,
        seconds=seconds, level=level, **json.loads(facts),
    )  # fmt: skip
