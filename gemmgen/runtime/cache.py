"""Compiled kernels kept on disk, between processes.

One file an entry, named by its key. Files appear whole or not at all (written beside, then renamed), so that any
number of processes may share a folder; one that is damaged counts as absent and is written again. A folder that
cannot be written is no error: everything works, without a cache. A hit imports neither CUDA nor NumPy.

What is in the cache is run, so the folder is made for its owner alone (mode 0700). One that others may write, or that
another user owns, is not used, and a warning says so; neither is a file in it that others may write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 2
"""Of an entry: its header, and what its facts hold. Another format has other keys, so that versions share a folder."""
_MAGIC = b"gemmgen cache %d\n" % FORMAT
_SUFFIX = ".gemm"
_TEMPORARY = ".tmp"
_ABANDONED_S = 3600.0  # a temporary file as old as this belongs to a process that died

DEFAULT_MAX_BYTES = 256 << 20


class CacheWarning(UserWarning):
    """The cache's folder is not used."""


@dataclass(frozen=True)
class Entry:
    """What is kept: facts about a compilation (JSON) and its output."""

    facts: Mapping[str, Any]
    code: bytes


def key_of(*parts: str | bytes) -> str:
    """The name of an entry: a hash of all that the output depends on. No two lists of parts share one."""
    digest = hashlib.sha256(_MAGIC)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def default_directory() -> Path:
    """``GEMMGEN_CACHE_DIR``, else the user's cache folder."""
    if given := os.environ.get("GEMMGEN_CACHE_DIR"):
        return Path(given)
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("gemmgen", appauthor=False))


def default_cache() -> Cache:
    return Cache(default_directory())


def make_private(directory: Path) -> None:
    """Make a folder that only its owner can write, where there is none. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def distrust(directory: Path) -> str:
    """Why what lies in a folder may be someone else's; empty where it is not, or where there is no such folder."""
    try:
        why = _writers(directory.stat())
    except OSError:
        return ""
    remedy = f"chmod 700 {directory}, or name another with GEMMGEN_CACHE_DIR"
    return f"the cache folder {directory} is not used, since {why}; {remedy}" if why else ""


def _writers(found: os.stat_result) -> str:
    """Who else may write a file or a folder: "others may write it (mode 0777)"; empty where nobody may."""
    if os.name != "posix":
        return ""
    if found.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write it (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


@dataclass(frozen=True)
class Cache:
    """Entries in a folder, at most ``max_bytes`` of them: those unused the longest go first."""

    directory: Path
    max_bytes: int = DEFAULT_MAX_BYTES

    def path(self, key: str) -> Path:
        return self.directory / (key + _SUFFIX)

    def get(self, key: str) -> Entry | None:
        """The entry, or None where there is none, it is damaged, or others may have written it."""
        path = self.path(key)
        if why := distrust(self.directory):
            warnings.warn(why, CacheWarning, stacklevel=2)
            return None
        try:
            with open(path, "rb") as file:
                entry = None if _writers(os.fstat(file.fileno())) else _decode(key, file.read())
        except OSError:
            return None
        if entry is not None:
            # Eviction is by last use. This fails in a read-only folder, or where another process has evicted the entry.
            with contextlib.suppress(OSError):
                os.utime(path)
        return entry

    def put(self, key: str, entry: Entry) -> bool:
        """Keeps the entry; False where the folder cannot be written, or others may write it."""
        path = self.path(key)
        try:
            make_private(self.directory)
            if distrust(self.directory):
                return False
            self._write(path, _encode(key, entry))
        except OSError:
            return False
        self._evict(keep=path)
        return True

    def _write(self, path: Path, data: bytes) -> None:
        """Write a whole file or none, by way of one whose name nobody can foresee."""
        import tempfile

        handle, temporary = tempfile.mkstemp(suffix=_TEMPORARY, dir=self.directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            _remove(Path(temporary))
            raise

    def _evict(self, keep: Path) -> None:
        found: list[tuple[float, int, Path]] = []
        now = time.time()
        try:
            with os.scandir(self.directory) as entries:
                for e in entries:
                    if e.name.endswith(_SUFFIX):
                        status = e.stat()
                        found.append((status.st_mtime, status.st_size, Path(e.path)))
                    elif e.name.endswith(_TEMPORARY) and now - e.stat().st_mtime > _ABANDONED_S:
                        _remove(Path(e.path))
        except OSError:
            return
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.max_bytes:
                return
            if path != keep:
                _remove(path)
                total -= size


def _encode(key: str, entry: Entry) -> bytes:
    facts = json.dumps(dict(entry.facts), sort_keys=True).encode()
    payload = len(facts).to_bytes(8, "little") + facts + entry.code
    return _MAGIC + _digest(key, payload) + payload


def _decode(key: str, data: bytes) -> Entry | None:
    """The entry in a file; None where it is not whole, is of another format, or was kept under another key."""
    start = len(_MAGIC) + hashlib.sha256().digest_size
    payload = data[start:]
    if not data.startswith(_MAGIC) or _digest(key, payload) != data[len(_MAGIC) : start]:
        return None
    length = int.from_bytes(payload[:8], "little")
    try:
        facts = json.loads(payload[8 : 8 + length])
    except (ValueError, RecursionError):
        return None
    return Entry(facts, payload[8 + length :]) if isinstance(facts, dict) else None


def _digest(key: str, payload: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + payload).digest()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
