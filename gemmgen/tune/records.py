"""What was measured, kept in SQLite: once a kernel has been timed for a shape on a machine, it is not timed again.

Any number of processes may share the file. Each result is one transaction, so that a process that is killed loses at
most what it was measuring, and leaves the file whole.
"""

from __future__ import annotations

import os
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.spec.model import RENAMED
from gemmgen.tune.rows import (
    COLUMNS,
    KEY_COLUMNS,
    Machine,
    Record,
    Row,
    described,
    migrated,
    record_of,
    row_of,
    shown_align,
)
from gemmgen.tune.shapes import Align, Shape
from gemmgen.tune.spectext import adds_in_memory, operands_of

__all__ = ["Machine", "Record", "Records", "RecordsError", "RecordsWarning", "adds_in_memory", "default_path"]

WAIT_S = 60.0
"""How long one process waits for another's transaction."""
READ_WAIT_S = 2.0
"""How long a process that only reads waits: what it cannot read it does without."""
VERSION = 2
"""Of the file's format. 2: specs name toggles as gemmgen does since smem_swizzle became smemSwizzle."""
SHOWN = 5


class RecordsError(GemmgenError):
    """The file of records cannot be read or written."""


class RecordsWarning(UserWarning):
    """Some of the records are damaged, and were skipped."""


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

_COLUMNS = ", ".join(COLUMNS)
_KEY_IS = " AND ".join(f"{name} = ?" for name in KEY_COLUMNS)


def default_path() -> Path:
    """``GEMMGEN_RECORDS``, else a file in the user's data folder."""
    if given := os.environ.get("GEMMGEN_RECORDS"):
        return Path(given)
    from platformdirs import user_data_dir

    return Path(user_data_dir("gemmgen", appauthor=False)) / "records.sqlite"


class Records:
    """The records in one file, made where there is none. Raises RecordsError where the file cannot be used.

    A file of an earlier format is brought up to date. One that cannot be written, or that is opened with ``write``
    False, is read as it is: ``read_only``. A row that is damaged is left out of what is found, and named in
    ``skipped``. Use from one thread; each process opens its own.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, write: bool = True, wait_s: float = WAIT_S
    ) -> None:
        self.path = default_path() if path is None else Path(path)
        self._wait_s = wait_s
        self._skipped: dict[str, None] = {}
        if "\0" in str(self.path):
            raise RecordsError(f"{str(self.path)!r}: a file's name has no zero byte")
        with self._understood():
            self.read_only = not write or (self.path.is_file() and not self._writable())
            self._db = self._to_read() if self.read_only else self._to_write()
            self._format = self._checked_format()

    @property
    def skipped(self) -> tuple[str, ...]:
        """The damaged rows that were met so far: which each is, and what is wrong with it."""
        return tuple(self._skipped)

    def _writable(self) -> bool:
        """Whether the file and its folder, in which SQLite keeps its log, can be written."""
        return os.access(self.path, os.W_OK) and os.access(self.path.resolve().parent, os.W_OK)

    def _connected(self, name: str, *, uri: bool = False) -> sqlite3.Connection:
        db = sqlite3.connect(name, timeout=self._wait_s, isolation_level=None, uri=uri)
        db.text_factory = _decoded
        return db

    def _to_write(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._db = self._connected(os.fspath(self.path))
        try:
            self._checked_format()
            self._write_ahead()
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._prepare()
        except BaseException:
            self._db.close()
            raise
        return self._db

    def _to_read(self) -> sqlite3.Connection:
        """A file with a write-ahead log can be read in a folder that cannot be written only as one that never
        changes."""
        name = self.path.resolve().as_uri()
        with closing(self._connected(f"{name}?mode=ro", uri=True)) as db:
            try:
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                how = "mode=ro"
            except sqlite3.OperationalError as error:
                if (error.sqlite_errorcode & 0xFF) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                    raise
                how = "mode=ro&immutable=1"
        return self._connected(f"{name}?{how}", uri=True)

    def _write_ahead(self) -> None:
        """Switch to a write-ahead log. That needs the file alone for a moment, and SQLite does not wait for it."""
        end = time.monotonic() + self._wait_s
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

    def _checked_format(self) -> int:
        """The file's format, 0 where it is empty. Raises RecordsError for a file that holds no such records."""
        version, tables = self._db.execute(
            "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
        ).fetchone()
        if version > VERSION:
            raise self._error(f"written by a newer gemmgen (format {version}, this one reads {VERSION})")
        if version < 0 or (version == 0 and tables):
            raise self._error("a database of something else, not of gemmgen's records")
        if version:
            there = {name for _, name, *_ in self._db.execute("PRAGMA table_info(records)")}
            if lacking := [name for name in COLUMNS if name not in there]:
                raise self._error(f"its table of records lacks {', '.join(lacking)}")
        return int(version)

    def _prepare(self) -> None:
        if self._version() == VERSION:
            return
        with self.transaction() as db:
            version = self._version()
            if version == VERSION:
                return  # another process was first
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            if version == 1:
                self._migrate()
            db.execute(f"PRAGMA user_version={VERSION}")

    def _migrate(self) -> None:
        """Bring the rows of format 1 up to date, each under its new key."""
        old_names = " OR ".join(["facts LIKE ?"] * len(RENAMED))
        query = f"SELECT {_COLUMNS} FROM records WHERE {old_names}"
        for row in self._db.execute(query, [f"%{old}%" for old in RENAMED]).fetchall():
            if (new := migrated(row)) != row:
                self._db.execute(f"DELETE FROM records WHERE {_KEY_IS}", row[: len(KEY_COLUMNS)])
                self._db.execute(f"INSERT OR IGNORE INTO records ({_COLUMNS}) VALUES ({_marks(new)})", new)

    def _error(self, why: str) -> RecordsError:
        return RecordsError(f"{self.path}: {why}; name another file with --records or GEMMGEN_RECORDS")

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._error(str(error)[:200]) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing of what is done in the block, seen by no other process before its end."""
        self.require_writable()
        with self._understood():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                if self._db.in_transaction:
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
        """Keep a record. One that was timed more carefully is not replaced by one that was timed in passing; a damaged
        row is."""
        row = row_of(replace(record, when=record.when or time.time()))
        key = row[: len(KEY_COLUMNS)]
        with self.transaction() as db:
            before = db.execute(f"SELECT {_COLUMNS} FROM records WHERE {_KEY_IS}", key).fetchone()
            if before is not None and _read(before)[1]:
                db.execute(f"DELETE FROM records WHERE {_KEY_IS}", key)
            db.execute(
                f"INSERT INTO records ({_COLUMNS}) VALUES ({_marks(row)}) "
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
        wanted |= {"align": align and shown_align(align), "warm": None if warm is None else int(warm)}
        terms = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in terms) or "1"
        if not self._format:
            return []
        with self._understood():
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM records WHERE {where} "
                "ORDER BY gpu, m, n, k, align, seconds IS NULL, seconds, key",
                tuple(terms.values()),
            ).fetchall()
        return list(self._records(rows))

    def _records(self, rows: Iterable[Row]) -> Iterator[Record]:
        for row in rows:
            record, wrong = _read(migrated(row) if self._format < VERSION else row)
            if record is None:
                self._skipped[f"{described(row)}: {wrong}"] = None
            else:
                yield record

    def best(
        self, gpu: str, *, types: str = "f32,f32,f32", unordered: bool = False, machine: Machine | None = None
    ) -> list[Record]:
        """The fastest record of every shape and alignment on a GPU: timed most carefully first, cold before warm. Of
        kernels whose results repeat bit by bit, unless ``unordered`` ones will do too; and with a ``machine``, of what
        was measured under its driver and NVRTC."""
        return _best(self.find(gpu=gpu, machine=machine), types, unordered)

    def stale(self, machine: Machine, *, types: str = "f32,f32,f32", unordered: bool = False) -> list[Record]:
        """The same of what was measured on the machine's GPU under another driver or NVRTC."""
        return _best((r for r in self.find(gpu=machine.gpu) if r.machine != machine), types, unordered)

    def require_writable(self) -> None:
        """Raise RecordsError where nothing can be kept, before it is measured."""
        if self.read_only:
            raise self._error("it can be read, but not written")

    def warn(self) -> None:
        """Name the damaged rows that were skipped, in one Python warning."""
        if self.skipped:
            warnings.warn(skipped_text(self), RecordsWarning, stacklevel=3)

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


def _rank(record: Record) -> tuple[int, bool, float]:
    return -record.level, record.warm, record.seconds or float("inf")


def _best(records: Iterable[Record], types: str, unordered: bool) -> list[Record]:
    chosen: dict[tuple[Shape, Align, str], Record] = {}
    for record in records:
        if record.status != "ok" or record.seconds is None or record.types != types:
            continue
        if not unordered and adds_in_memory(record.spec):
            continue
        place = (record.shape, record.align, operands_of(record.spec))
        if place not in chosen or _rank(record) < _rank(chosen[place]):
            chosen[place] = record
    return list(chosen.values())


def skipped_text(records: Records) -> str:
    """Which rows of a file were skipped, and why."""
    rows = records.skipped
    more = f"; and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    many = "damaged record is" if len(rows) == 1 else "damaged records are"
    return f"{records.path}: {len(rows)} {many} skipped: {'; '.join(rows[:SHOWN])}{more}"


def _read(row: Row) -> tuple[Record | None, str]:
    """The record of a row, or why it holds none."""
    try:
        return record_of(row), ""
    except ValueError as error:
        return None, str(error)


def _decoded(data: bytes) -> str:
    """Text of the file; bytes that are no UTF-8 as lone surrogates, which no record may have."""
    return data.decode("utf-8", "surrogateescape")


def _marks(row: Row) -> str:
    return ", ".join("?" * len(row))
