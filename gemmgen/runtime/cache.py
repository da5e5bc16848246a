"""Compiled kernels kept on disk, between processes.

One file an entry, named by its key. Files appear whole or not at all (written beside, then renamed), so that any
number of processes may share a folder; one that is damaged counts as absent and is written again. A folder that
cannot be written is no error: everything works, without a cache. A hit imports neither CUDA nor NumPy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAGIC = b"gemmgen cache 1\n"
_SUFFIX = ".gemm"
_TEMPORARY = ".tmp"
_ABANDONED_S = 3600.0  # a temporary file as old as this belongs to a process that died

DEFAULT_MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Entry:
    """What is kept: facts about a compilation (JSON) and its output."""

    facts: Mapping[str, Any]
    code: bytes


def key_of(*parts: str | bytes) -> str:
    """The name of an entry: a hash of all that the output depends on. No two lists of parts share one."""
    digest = hashlib.sha256()
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


@dataclass(frozen=True)
class Cache:
    """Entries in a folder, at most ``max_bytes`` of them: those unused the longest go first."""

    directory: Path
    max_bytes: int = DEFAULT_MAX_BYTES

    def path(self, key: str) -> Path:
        return self.directory / (key + _SUFFIX)

    def get(self, key: str) -> Entry | None:
        """The entry, or None where there is none or it is damaged."""
        path = self.path(key)
        try:
            entry = _decode(path.read_bytes())
        except OSError:
            return None
        if entry is not None:
            # Eviction is by last use. This fails in a read-only folder, or where another process has evicted the entry.
            with contextlib.suppress(OSError):
                os.utime(path)
        return entry

    def put(self, key: str, entry: Entry) -> bool:
        """Keeps the entry; False where the folder cannot be written."""
        path = self.path(key)
        temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}{_TEMPORARY}")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_encode(entry))
            os.replace(temporary, path)
        except OSError:
            _remove(temporary)
            return False
        self._evict(keep=path)
        return True

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


def _encode(entry: Entry) -> bytes:
    facts = json.dumps(dict(entry.facts), sort_keys=True).encode()
    payload = len(facts).to_bytes(8, "little") + facts + entry.code
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def _decode(data: bytes) -> Entry | None:
    start = len(_MAGIC) + hashlib.sha256().digest_size
    payload = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(payload).digest() != data[len(_MAGIC) : start]:
        return None
    length = int.from_bytes(payload[:8], "little")
    return Entry(json.loads(payload[8 : 8 + length]), payload[8 + length :])


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
